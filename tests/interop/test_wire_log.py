"""The tap and the check of its log find what is wrong: otherwise the other tests would prove nothing."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from .serving import Wire
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
CALL_WITH_ROOTS = {
    **CALL,
    "params": {"name": "add", "_meta": {**META, "io.modelcontextprotocol/clientCapabilities": {"roots": {}}}},
}
READ = {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "note://today", "_meta": META}}

ID = "io.modelcontextprotocol/subscriptionId"
TODAY = ["note://today"]


def asking(request: dict[str, Any]) -> dict[str, Any]:
    return {**QUESTION, "result": {"resultType": "input_required", "inputRequests": {"r": request}}}


def listen(**filter: Any) -> tuple[str, dict[str, Any]]:
    params = {"notifications": filter, "_meta": META}
    return "client", {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}


def told(method: str, key: Any = 1, **params: Any) -> tuple[str, dict[str, Any]]:
    params = {**params, "_meta": {} if key is None else {ID: key}}
    return "server", {"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params}


def acknowledged(key: Any = 1, **filter: Any) -> tuple[str, dict[str, Any]]:
    return told("subscriptions/acknowledged", key, notifications=filter)


def ended(meta: Any = {ID: 1}, **more: Any) -> tuple[str, dict[str, Any]]:  # noqa: B006 - it is not changed
    return "server", {"jsonrpc": "2.0", "id": 1, "result": {"resultType": "complete", "_meta": meta, **more}}


UNABLE = {
    **REFUSAL,
    "error": {"code": -32021, "message": "no", "data": {"requiredCapabilities": {"roots": {}}}},
}
ROOTS = asking({"method": "roots/list"})
LISTEN = listen(toolsListChanged=True, resourceSubscriptions=TODAY)
ACKNOWLEDGED = acknowledged(toolsListChanged=True, resourceSubscriptions=TODAY)
GROWN = told("tools/list_changed")
TOUCHED = told("resources/updated", uri="note://today")
ENDED = ended()
LISTEN_CANCEL = ("client", CANCEL)
SERVER_CANCEL = ("server", CANCEL)


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
        [("client", CALL_WITH_ROOTS), ("server", ROOTS)],
        [("client", READ), ("server", QUESTION)],
        [("client", CALL), ("server", UNABLE)],
        [LISTEN, ACKNOWLEDGED, ENDED],
        [LISTEN, ACKNOWLEDGED, GROWN, TOUCHED, GROWN, ENDED],
        [LISTEN, ACKNOWLEDGED, LISTEN_CANCEL],
        [LISTEN, ACKNOWLEDGED, ENDED, SERVER_CANCEL],  # for those that look for it, and not for the result
        [LISTEN, ACKNOWLEDGED, SERVER_CANCEL],
        [LISTEN, ACKNOWLEDGED, told("resources/updated", uri="note://today/noon"), ENDED],  # a part of it
        [LISTEN, acknowledged(toolsListChanged=True), GROWN, ENDED],
        [LISTEN, acknowledged(), ENDED],  # nothing of it can be told
        [LISTEN, ("server", REFUSAL)],
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
        ([("client", CALL), ("server", {**ANSWER, "result": {**ANSWER["result"], "resultType": "x"}})], "not complete"),
        ([("client", CALL), ("server", {**QUESTION, "result": {"resultType": "input_required"}})], "asks for nothing"),
        ([("client", CALL), ("server", ROOTS)], "asks with roots/list, which the client cannot answer"),
        (
            [("client", CALL_WITH_ROOTS), ("server", asking({"method": "tools/list"}))],
            "asks with tools/list, which the client cannot answer",
        ),
        ([("client", CALL_WITH_ROOTS), ("server", asking({"method": "elicitation/create"}))], "InputRequiredResult: "),
        (
            [("client", CALL), ("server", {**UNABLE, "error": {**UNABLE["error"], "data": {}}})],
            "MissingRequiredClientCapabilityError: ",
        ),
        ([("client", CALL), ("server", {**REFUSAL, "error": {"code": -32099, "message": "x"}})], "unknown error code"),
        ([("client", {**CALL, "params": {"name": "add"}})], "ClientRequest: "),
        ([("client", {"jsonrpc": "2.0", "id": 1, "method": "tools/call"})], "ClientRequest: "),
        ([("client", {**CANCEL, "params": {}})], "ClientNotification: "),
        ([("client", CALL), ("server", {"jsonrpc": "2.0", "id": 1})], "JSONRPCMessage: "),
        ([("client", CALL), ("server", [ANSWER])], "JSONRPCMessage: "),
    ],
)
def test_wrong(schema: Schema, bodies: list[tuple[str, dict[str, Any]]], problem: str) -> None:
    assert any(problem in text for text in schema.problems(log_of(*bodies)))


@pytest.mark.parametrize(
    ("bodies", "problem"),
    [
        ([LISTEN, ACKNOWLEDGED], "client: request 1 was not answered"),
        ([LISTEN, ENDED], "the subscription was not acknowledged"),
        ([LISTEN, GROWN, ACKNOWLEDGED, ENDED], "the subscription was not acknowledged"),
        ([LISTEN, ACKNOWLEDGED, ACKNOWLEDGED, ENDED], "the subscription was acknowledged before"),
        ([listen(toolsListChanged=True), ACKNOWLEDGED, ENDED], "acknowledges more than was asked for"),
        ([listen(resourceSubscriptions=TODAY), ACKNOWLEDGED, ENDED], "acknowledges more than was asked for"),
        (
            [LISTEN, acknowledged(resourceSubscriptions=[*TODAY, "note://other"]), ENDED],
            "acknowledges more than was asked for",
        ),
        ([LISTEN, ACKNOWLEDGED, told("prompts/list_changed"), ENDED], "tells what was not acknowledged"),
        ([LISTEN, ACKNOWLEDGED, told("resources/list_changed"), ENDED], "tells what was not acknowledged"),
        ([LISTEN, acknowledged(toolsListChanged=True), TOUCHED, ENDED], "tells what was not acknowledged"),
        ([LISTEN, acknowledged(resourceSubscriptions=TODAY), GROWN, ENDED], "tells what was not acknowledged"),
        ([LISTEN, ACKNOWLEDGED, told("resources/updated"), ENDED], "ServerNotification: "),
        ([LISTEN, told("subscriptions/acknowledged"), ENDED], "ServerNotification: "),
        ([LISTEN, ACKNOWLEDGED, told("tools/list_changed", 2), ENDED], "a subscription that was never made"),
        ([LISTEN, ACKNOWLEDGED, told("tools/list_changed", "1"), ENDED], "a subscription that was never made"),
        ([LISTEN, ACKNOWLEDGED, told("tools/list_changed", None), ENDED], "a subscription that was never made"),
        ([LISTEN, acknowledged(None), ENDED], "a subscription that was never made"),
        ([("client", CALL), GROWN, ("server", ANSWER)], "a subscription that was never made"),
        ([LISTEN, ACKNOWLEDGED, ENDED, GROWN], "a subscription that was answered"),
        ([LISTEN, ACKNOWLEDGED, LISTEN_CANCEL, TOUCHED], "a subscription that was cancelled"),
        ([LISTEN, ACKNOWLEDGED, ENDED, ENDED], "answers a request that was answered"),
        ([LISTEN, ACKNOWLEDGED, LISTEN_CANCEL, ENDED], "answers a request that was cancelled"),
        ([LISTEN, ACKNOWLEDGED, SERVER_CANCEL, TOUCHED], "a subscription that was cancelled"),
        ([LISTEN, ACKNOWLEDGED, SERVER_CANCEL, ENDED], "answers a request that was cancelled"),
        ([("client", CALL), SERVER_CANCEL, ("server", ANSWER)], "cancels what is no subscription"),
        ([("client", CALL), ("server", ANSWER), SERVER_CANCEL], "cancels what is no subscription"),
        ([SERVER_CANCEL], "cancels what is no subscription"),
        ([LISTEN, ACKNOWLEDGED, ended({ID: 2})], "ends another subscription than it answers"),
        ([LISTEN, ACKNOWLEDGED, ended({})], f'SubscriptionsListenResult: "{ID}" is a required property'),
        ([LISTEN, ACKNOWLEDGED, ended(resultType="input_required", requestState="x")], "not complete"),
        ([listen(toolsListChanged="yes"), acknowledged(), ENDED], "ClientRequest: "),
    ],
)
def test_wrong_stream(schema: Schema, bodies: list[tuple[str, dict[str, Any]]], problem: str) -> None:
    assert any(problem in text for text in schema.problems(log_of(*bodies)))


def test_closed_connection_ends_its_streams(schema: Schema) -> None:
    right = log_of(LISTEN, ACKNOWLEDGED)
    closed = Message("client", 0, 1, "", closed=True)
    assert schema.problems([*right, closed]) == []
    problems = schema.problems([*right, closed, *log_of(GROWN)])
    assert len(problems) == 1
    assert "belongs to a subscription that was cancelled" in problems[0]


def test_streams_of_other_connections_are_not_mixed_up(schema: Schema) -> None:
    other = [Message(message.sender, 0, 2, message.text) for message in log_of(GROWN)]
    problems = schema.problems([*log_of(LISTEN, ACKNOWLEDGED), *other, *log_of(ENDED)])
    assert len(problems) == 1
    assert "belongs to a subscription that was never made" in problems[0]


@pytest.mark.parametrize("text", ["hello", "", "{"])
def test_not_json(schema: Schema, text: str) -> None:
    assert schema.problems([Message("server", 0, 1, text)]) == [f"server: not JSON: {text}"]


def test_tap_changes_nothing(wire: Wire, python: str) -> None:
    program = "import sys; data = sys.stdin.buffer.read(); sys.stdout.buffer.write(data[::-1]); sys.exit(3)"
    done = subprocess.run(
        [*wire.tap, python, "-c", program], input=b"one\n\xfftwo\n\nthree", capture_output=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, b"eerht\n\nowt\xff\neno", b"")
    assert [(message.sender, message.text) for message in read_log(wire.log)] == [
        ("client", "one"),
        ("client", "\\xfftwo"),
        ("client", ""),
        ("client", "three"),
        ("server", "eerht"),
        ("server", ""),
        ("server", "owt\\xff"),
        ("server", "eno"),
    ]
