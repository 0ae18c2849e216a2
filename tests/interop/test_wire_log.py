"""The tap and the check of its log find what is wrong: otherwise the other tests would prove nothing."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .wire_log import Message, Schema, read_log

pytestmark = pytest.mark.timeout(300)

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "add", "_meta": META}}
ANSWER = {"jsonrpc": "2.0", "id": 1, "result": {"content": [], "resultType": "complete"}}
CANCEL = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
PROGRESS = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 7, "progress": 1}}
CALL_WITH_TOKEN = {**CALL, "params": {"name": "add", "_meta": {**META, "progressToken": 7}}}
OLD_CALL = {
    **CALL,
    "params": {"name": "add", "_meta": {**META, "io.modelcontextprotocol/protocolVersion": "2025-11-25"}},
}
QUESTION = {"jsonrpc": "2.0", "id": 1, "result": {"requestState": "x", "resultType": "input_required"}}
BAD_QUESTION = {"jsonrpc": "2.0", "id": 1, "result": {"requestState": 7, "resultType": "input_required"}}
REFUSAL = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "no"}}


def log_of(*bodies: tuple[str, dict[str, Any]]) -> list[Message]:
    return [Message(sender, 0, 1, json.dumps(body)) for sender, body in bodies]


@pytest.mark.parametrize(
    "bodies",
    [
        [("client", CALL), ("server", ANSWER)],
        [("client", CALL), ("server", REFUSAL)],
        [("client", CALL), ("server", QUESTION)],
        [("client", CALL), ("client", CANCEL)],
        [("client", CALL_WITH_TOKEN), ("server", PROGRESS), ("server", ANSWER)],
        [("client", CALL), ("server", ANSWER), ("client", CANCEL)],  # too late, which is no fault
    ],
)
def test_right(schema: Schema, bodies: list[tuple[str, dict[str, Any]]]) -> None:
    assert schema.problems(log_of(*bodies)) == []


@pytest.mark.parametrize(
    ("bodies", "problem"),
    [
        ([("client", CALL)], "client: request 1 was not answered"),
        ([("client", CALL), ("server", ANSWER), ("server", ANSWER)], "answers a request that was answered"),
        ([("client", CALL), ("client", CANCEL), ("server", ANSWER)], "answers a request that was cancelled"),
        ([("client", CALL), ("client", CANCEL), ("server", REFUSAL)], "answers a request that was cancelled"),
        ([("server", ANSWER)], "answers a request that was never made"),
        ([("client", CANCEL)], "cancels a request that was never made"),
        ([("client", CALL), ("server", ANSWER), ("client", CALL), ("server", ANSWER)], "the id was used before"),
        ([("client", OLD_CALL), ("server", ANSWER)], "not of revision 2026-07-28"),
        ([("client", CALL), ("server", PROGRESS), ("server", ANSWER)], "progress that nobody asked for"),
        (
            [("client", CALL_WITH_TOKEN), ("client", CANCEL), ("server", PROGRESS)],
            "progress of a request that was cancelled",
        ),
        ([("client", CALL), ("server", {**ANSWER, "result": {"resultType": "complete"}})], '"content" is a required'),
        ([("client", CALL), ("server", {**ANSWER, "result": {"content": []}})], '"resultType" is a required property'),
        ([("client", CALL), ("server", BAD_QUESTION)], "InputRequiredResult: "),
        ([("client", {**CALL, "params": {"_meta": META}}), ("server", ANSWER)], "ClientRequest: "),
        ([("client", CALL), ("server", {**REFUSAL, "error": {"code": -32602}})], '"message" is a required property'),
        ([("client", CALL), ("server", {**PROGRESS, "method": "notifications/none"})], "ServerNotification: "),
    ],
)
def test_wrong(schema: Schema, bodies: list[tuple[str, dict[str, Any]]], problem: str) -> None:
    assert any(problem in text for text in schema.problems(log_of(*bodies)))


def test_tap_changes_nothing(tap: list[str], log: Path, python: str) -> None:
    program = "import sys; data = sys.stdin.buffer.read(); sys.stdout.buffer.write(data[::-1]); sys.exit(3)"
    done = subprocess.run(
        [*tap, python, "-c", program], input=b"one\n\xfftwo\n\nthree", capture_output=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, b"eerht\n\nowt\xff\neno", b"")
    assert [(message.sender, message.text) for message in read_log(log)] == [
        ("client", "one"),
        ("client", "\\xfftwo"),
        ("client", ""),
        ("client", "three"),
        ("server", "eerht"),
        ("server", ""),
        ("server", "owt\\xff"),
        ("server", "eno"),
    ]
