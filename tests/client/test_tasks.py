"""What a client makes of what a server says of a task."""

from __future__ import annotations

from typing import Any

import pytest

from trio_mcp import InvalidResponse, TaskState
from trio_mcp.errors import InvalidParams, ProtocolError

WORKING: dict[str, Any] = {"taskId": "t", "status": "working"}


def read(**changes: Any) -> TaskState:
    return TaskState.from_wire({**WORKING, **changes}, "tasks/get")


@pytest.mark.parametrize(
    ("said", "seconds"),
    [(2_000, 2.0), (250.5, 0.2505), (1, 0.05), (10**12, 60.0), (0, 1.0), (-5, 1.0), (None, 1.0), ("soon", 1.0)],
)
def test_how_often_to_look_has_bounds(said: Any, seconds: float) -> None:
    assert read(pollIntervalMs=said).poll_interval == pytest.approx(seconds)


@pytest.mark.parametrize("changes", [{"status": "paused"}, {"status": 1}, {"status": None}, {"taskId": 7}])
def test_what_is_no_task_is_an_invalid_response(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidResponse, match="tasks/get"):
        read(**changes)


def test_members_of_the_wrong_kind_count_as_missing() -> None:
    state = read(statusMessage=3, inputRequests=[1], result="x", ttlMs=None)
    assert (state.message, state.requests, state.result, state.ttl, state.final) == (None, {}, None, None, False)


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        ({"code": -32602, "message": "no"}, InvalidParams, "no"),
        ({"code": 7, "message": "own"}, ProtocolError, "own"),
        ({"message": "no code"}, ProtocolError, "does not say why"),
        (None, ProtocolError, "does not say why"),
    ],
)
def test_a_failed_task_has_an_error_in_any_case(error: Any, kind: type[ProtocolError], text: str) -> None:
    state = read(status="failed", error=error)
    assert isinstance(state.error, kind)
    assert text in str(state.error)
