"""Rounds of input over processes that share only their keys (basic/patterns/mrtr)."""

from __future__ import annotations

import base64
import contextlib
import secrets
from pathlib import Path
from typing import Any

import pytest

from trio_mcp.protocol.meta import CLIENT_CAPABILITIES
from trio_mcp.testing import request

from .helpers import Running

ANSWERS = [
    {"action": "accept", "content": {"city": "Oslo"}},
    {"role": "assistant", "model": "m", "content": {"type": "text", "text": "Cool"}},
    {"action": "accept", "content": {"sure": True}},
]


def key() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode()


def ask(replica: Running, id: int, **more: Any) -> dict[str, Any]:
    message = request(id, "tools/call", name="travel", arguments={}, **more)
    message["params"]["_meta"][CLIENT_CAPABILITIES] = {"elicitation": {}, "sampling": {}}
    replica.send(message)
    answer: dict[str, Any] = replica.message()
    return answer


def test_three_processes_serve_the_rounds_of_one_call(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    # Each has the newest key of another one behind its own, as in the middle of a rotation.
    keys = [key() for _ in range(3)]
    with contextlib.ExitStack() as stack:
        replicas = [
            stack.enter_context(
                Running("replica.py", str(marks), env={"TRIO_MCP_STATE_KEYS": ",".join([*keys[n:], *keys[:n]])})
            )
            for n in range(3)
        ]
        more: dict[str, Any] = {}
        asked: list[str] = []
        for turn in range(4):
            result = ask(replicas[turn % 3], turn, **more)["result"]
            if result["resultType"] == "complete":
                break
            [(name, question)] = result["inputRequests"].items()
            asked.append(question["method"])
            more = {"requestState": result["requestState"], "inputResponses": {name: ANSWERS[turn]}}
        assert asked == ["elicitation/create", "sampling/createMessage", "elicitation/create"]
        assert result["content"] == [{"type": "text", "text": '[{"city":"Oslo"},4711,"Cool",{"sure":true}]'}]
    assert marks.read_text() == "reserved\n"


@pytest.mark.parametrize("foreign", [None, "another"])
def test_a_process_with_other_keys_refuses(tmp_path: Path, foreign: str | None) -> None:
    env = {"TRIO_MCP_STATE_KEYS": key()} if foreign else {}
    with (
        Running("replica.py", str(tmp_path / "marks"), env={"TRIO_MCP_STATE_KEYS": key()}) as one,
        Running("replica.py", str(tmp_path / "marks"), env=env) as stranger,
    ):
        first = ask(one, 1)["result"]
        [name] = first["inputRequests"]
        retry = {"requestState": first["requestState"], "inputResponses": {name: ANSWERS[0]}}
        assert ask(stranger, 2, **retry)["error"]["code"] == -32602
        assert ask(one, 3, **retry)["result"]["resultType"] == "input_required"
