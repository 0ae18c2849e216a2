"""Tasks on the wire, and when a call becomes one."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_mcp.errors import InvalidParams
from trio_mcp.protocol.methods import METHODS
from trio_mcp.protocol.revisions import Era
from trio_mcp.protocol.tasks import MODES, TASKS, Mode, Task, TaskSupport, mode_of

TASK = Task(
    id="t",
    owner="o",
    principal="",
    params={"name": "x", "arguments": {}},
    meta={},
    created=1_000_000.25,
    updated=1_000_001.5,
    ttl=60.0,
    poll_interval=1.0,
)


def test_the_rule_has_a_row_for_every_case() -> None:
    cases = set(itertools.product(get_args(TaskSupport), (False, True), Era))
    assert set(MODES) == cases


@pytest.mark.parametrize("era", Era)
@pytest.mark.parametrize("declared", [False, True])
def test_a_tool_that_supports_no_tasks_is_answered_in_line(declared: bool, era: Era) -> None:
    assert mode_of("forbidden", declared, era) is Mode.INLINE


@pytest.mark.parametrize("era", Era)
def test_without_the_extension_there_is_never_a_task(era: Era) -> None:
    assert mode_of("optional", False, era) is Mode.INLINE
    assert mode_of("required", False, era) is Mode.REFUSED


@pytest.mark.parametrize("support", ["optional", "required"])
def test_with_it_the_era_decides(support: TaskSupport) -> None:
    assert mode_of(support, True, Era.MODERN) is Mode.WINDOW
    assert mode_of(support, True, Era.LEGACY) is Mode.TASK


def test_a_task_on_the_wire() -> None:
    assert replace(TASK, message="reading").to_wire(TASK.created + 10) == {
        "taskId": "t",
        "status": "working",
        "statusMessage": "reading",
        "createdAt": "1970-01-12T13:46:40.250Z",
        "lastUpdatedAt": "1970-01-12T13:46:41.500Z",
        "ttlMs": 60_000,
        "pollIntervalMs": 1_000,
    }


@pytest.mark.parametrize(
    ("changes", "extra"),
    [
        ({"status": "completed", "result": {"content": []}}, {"result": {"content": []}}),
        ({"status": "failed", "error": {"code": 1, "message": "m"}}, {"error": {"code": 1, "message": "m"}}),
        ({"status": "cancelled"}, {}),
        ({"status": "input_required", "requests": {"k": {"method": "x"}}}, {"inputRequests": {"k": {"method": "x"}}}),
    ],
)
def test_each_status_has_its_own_members(changes: dict[str, Any], extra: dict[str, Any]) -> None:
    task = replace(TASK, **changes)
    now = task.created
    assert task.detailed(now) == {**task.to_wire(now), **extra}
    assert task.final == (task.status not in ("working", "input_required"))


@given(created=st.floats(0, 4e9), age=st.floats(0, 1e6), ttl=st.floats(1e-6, 86_400), poll=st.floats(0.1, 60.0))
def test_durations_are_positive_integers_and_grow_with_age(created: float, age: float, ttl: float, poll: float) -> None:
    task = replace(TASK, created=created, updated=created + age, ttl=ttl, poll_interval=poll)
    wire = task.to_wire(created + age)
    assert type(wire["ttlMs"]) is int and wire["ttlMs"] > 0
    assert type(wire["pollIntervalMs"]) is int
    assert 100 <= wire["pollIntervalMs"] <= max(100, round(poll * 1000))
    assert wire["pollIntervalMs"] <= task.to_wire(created + age + 1)["pollIntervalMs"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", wire["createdAt"])


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_the_methods_mirror_the_id(method: str) -> None:
    row = METHODS[method]
    assert (row.mirror, row.extension, row.eras) == ("taskId", TASKS, frozenset({Era.MODERN}))
    with pytest.raises(InvalidParams, match="taskId"):
        row.check({})
    with pytest.raises(InvalidParams, match="taskId"):
        row.check({"taskId": 1, "inputResponses": {}})


@pytest.mark.parametrize("responses", [None, [], "x", {"k": 1}, {"k": None}])
def test_answers_are_objects_by_key(responses: Any) -> None:
    with pytest.raises(InvalidParams, match="inputResponses"):
        METHODS["tasks/update"].check({"taskId": "t", "inputResponses": responses})
