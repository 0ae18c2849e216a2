"""Answers with each member replaced by something else, or left out: a call ends with an `MCPError`, or with a value whose
members are of the types that they are declared as."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from trio.testing import MockClock

from trio_mcp import Client, Limits, MCPError, ProtocolError
from trio_mcp.client.answers import Answers
from trio_mcp.client.channel import Channel, Listener
from trio_mcp.protocol.envelope import Notification

DISCOVERY: dict[str, Any] = {
    "resultType": "complete",
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}},
    "instructions": "i",
    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "x", "version": "1"}},
}
BLOCKS: list[Any] = [
    {"type": "text", "text": "x", "annotations": {"priority": 1}, "_meta": {"a": 1}},
    {"type": "image", "data": "YQ==", "mimeType": "i", "annotations": {}, "_meta": {}},
    {"type": "resource", "resource": {"uri": "u", "text": "t", "mimeType": "m", "_meta": {}}, "annotations": {}},
    {"type": "resource", "resource": {"uri": "u", "blob": "YQ=="}},
    {"type": "resource_link", "uri": "u", "name": "n", "title": "t", "description": "d", "mimeType": "m", "size": 1},
]
RESULT: dict[str, Any] = {
    "resultType": "complete",
    "content": BLOCKS,
    "structuredContent": {"a": 1},
    "isError": False,
    "_meta": {},
}
TASK: dict[str, Any] = {
    "resultType": "complete",
    "taskId": "t",
    "status": "completed",
    "ttlMs": 1,
    "pollIntervalMs": 50,
    "createdAt": "2026-01-01",
    "lastUpdatedAt": "2026-01-01",
    "statusMessage": "m",
    "error": {"code": 1, "message": "m", "data": {}},
    "result": {"resultType": "complete", "content": []},
    "inputRequests": {"k": {"method": "elicitation/create", "params": {"message": "m"}}},
}
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A"}}}
TOOL: dict[str, Any] = {
    "name": "n",
    "title": "t",
    "description": "d",
    "inputSchema": SCHEMA,
    "outputSchema": {},
    "annotations": {},
    "_meta": {},
}
RESOURCE = {"uri": "u", "name": "n", "title": "t", "description": "d", "mimeType": "m", "size": 1, "_meta": {}}
TEMPLATE = {"uriTemplate": "u", "name": "n", "title": "t", "description": "d", "mimeType": "m"}
PROMPT = {
    "name": "n",
    "title": "t",
    "description": "d",
    "arguments": [{"name": "a", "required": True, "description": "d"}],
}
QUESTIONS = {
    "k": {"method": "elicitation/create", "params": {"message": "m"}},
    "r": {"method": "roots/list"},
    "s": {"method": "sampling/createMessage", "params": {"messages": []}},
}


async def _call(client: Client) -> Any:
    result = await client.call_tool("n")
    return result, result.text, result.data, result.to_wire()


async def _read(client: Client) -> Any:
    result = await client.read_resource("u")
    return result, result.text, result.to_wire()


async def _prompt(client: Client) -> Any:
    result = await client.get_prompt("n")
    return result, result.to_wire()


async def _discover(client: Client) -> Any:
    await client.discover()
    assert isinstance(client.instructions, str | None)
    assert isinstance(client.server_info, dict)
    assert isinstance(client.capabilities, dict)


async def _listed(items: Awaitable[list[Any]]) -> Any:
    listed = await items
    for item in listed:
        assert isinstance(item.meta, dict)
    return listed


async def _hear(client: Client) -> Any:
    """A stream that listens, whose notifications are the answers of the case."""
    async with client.listen(tools=True, uris=["u"], tasks=["t"]) as changes:
        assert isinstance(changes.agreed, dict)
        return [change async for change in changes]


CASES: dict[str, tuple[str, Any, Callable[[Client], Awaitable[Any]]]] = {
    "discover": ("server/discover", DISCOVERY, _discover),
    "tools": ("tools/list", {"tools": [TOOL], "nextCursor": None}, lambda client: _listed(client.list_tools())),
    "call": ("tools/call", RESULT, _call),
    "questions": (
        "tools/call",
        {"resultType": "input_required", "inputRequests": QUESTIONS, "requestState": "s"},
        lambda client: client.call_tool("n", timeout=1),
    ),
    "a new task": ("tools/call", {**TASK, "resultType": "task"}, lambda client: client.start_tool("n")),
    "a task": ("tasks/get", TASK, lambda client: client.task("t").refresh()),
    "a task that is waited for": ("tasks/get", TASK, lambda client: client.task("t").result(timeout=100)),
    "a task that failed": (
        "tasks/get",
        {**TASK, "status": "failed"},
        lambda client: client.task("t").result(timeout=9),
    ),
    "a task that asks": (
        "tasks/get",
        {**TASK, "status": "input_required"},
        lambda client: client.task("t").result(timeout=2),
    ),
    "resources": ("resources/list", {"resources": [RESOURCE]}, lambda client: _listed(client.list_resources())),
    "templates": (
        "resources/templates/list",
        {"resourceTemplates": [TEMPLATE]},
        lambda client: _listed(client.list_resource_templates()),
    ),
    "contents": (
        "resources/read",
        {"contents": [BLOCKS[2]["resource"], BLOCKS[3]["resource"]], "_meta": {}},
        _read,
    ),
    "prompts": ("prompts/list", {"prompts": [PROMPT]}, lambda client: _listed(client.list_prompts())),
    "prompt": (
        "prompts/get",
        {"messages": [{"role": "user", "content": block} for block in BLOCKS], "description": "d", "_meta": {}},
        _prompt,
    ),
    "suggestions": (
        "completion/complete",
        {"completion": {"values": ["a"], "total": 1, "hasMore": False}},
        lambda client: client.complete("n", "a"),
    ),
    "an error": (
        "error",
        {"code": -32602, "message": "m", "data": {"uri": "u"}},
        lambda client: client.call_tool("n"),
    ),
    "a busy server": (
        "error",
        {"code": 503, "message": "m", "data": {"retryAfter": 1}},
        lambda client: client.call_tool("n"),
    ),
    "another revision": (
        "error",
        {"code": -32022, "message": "m", "data": {"supported": ["x"]}},
        lambda client: client.discover(),
    ),
    "progress": (
        "notifications/progress",
        {"progress": 1, "total": 2, "message": "m"},
        lambda client: client.call_tool("n", on_progress=_progress),
    ),
    "a log line": (
        "notifications/message",
        {"level": "info", "data": "x", "logger": "l"},
        lambda client: client.call_tool("n", on_log=_log),
    ),
    "an acknowledgement": (
        "notifications/subscriptions/acknowledged",
        {"notifications": {"toolsListChanged": True}},
        _hear,
    ),
    "a change of a resource": ("notifications/resources/updated", {"uri": "u", "_meta": {}}, _hear),
    "a change of a task": ("notifications/tasks", TASK, _hear),
}


def _progress(progress: float, total: float | None, message: str | None) -> None:
    assert type(progress) in (int, float)
    assert type(total) in (int, float, type(None))
    assert isinstance(message, str | None)


def _log(level: str, data: Any, logger: str | None) -> None:
    assert isinstance(level, str)
    assert isinstance(logger, str | None)


def _form(params: dict[str, Any]) -> dict[str, Any]:
    assert type(params) is dict
    assert "mode" in params
    return {"x": 1}


def _sampled(params: dict[str, Any]) -> str:
    assert type(params) is dict
    return "t"


class Bad(Channel):
    """A server that sends one thing."""

    def __init__(self, method: str, answer: Any) -> None:
        self.bad = {method: answer}

    @property
    def peer(self) -> str:
        return "bad"

    async def call(self, method: str, params: dict[str, Any], listener: Listener) -> dict[str, Any]:
        [(name, answer)] = self.bad.items()
        if name == "error":
            raise ProtocolError.from_wire(answer)
        if name.startswith("notifications/"):
            if method == "subscriptions/listen" and "acknowledged" not in name:
                listener.post(Notification("notifications/subscriptions/acknowledged", {"notifications": {}}))
            listener.post(Notification(name, answer))
            listener.settle(result={} if method == "subscriptions/listen" else RESULT)
            return await listener.wait()
        good: dict[str, Any] = self.bad.get(method, {})
        return good


JUNK: list[Any] = [
    *(None, True, 0, -1, 1.5, 10**400, -(10**400), 1e308, "s", "", [], [1], {}, {"a": 1}),
    *([None], [[]], [{}], [["x"]], {"x": None}, {"x": [{}]}, "2026-07-28"),
]


def variants(value: Any) -> Iterator[Any]:
    """Each member replaced by junk, and left out."""
    yield from JUNK
    if isinstance(value, dict):
        for key in value:
            for other in variants(value[key]):
                yield {**value, key: other}
            yield {name: kept for name, kept in value.items() if name != key}
    elif isinstance(value, list):
        for at, item in enumerate(value):
            for other in variants(item):
                yield [*value[:at], other, *value[at + 1 :]]


def _well_formed(case: str, value: Any) -> bool:
    """What the envelope refuses already."""
    if type(value) is not dict:
        return False
    return CASES[case][0] != "error" or (type(value.get("code")) is int and type(value.get("message")) is str)


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a type; as far as our classes need it."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any or hint is None or hint is type(None):
        return hint is Any or value is None
    if origin in (Union, types.UnionType):
        return any(fits(value, arm) for arm in args)
    if origin is Literal:
        return value in args
    if hint is float:
        return type(value) in (int, float)
    if origin in (list, tuple, Sequence):
        return isinstance(value, list | tuple) and all(fits(item, args[0]) for item in value)
    if origin is dict:
        return type(value) is dict and all(type(key) is str for key in value)
    if dataclasses.is_dataclass(value):
        return isinstance(value, hint) and not wrong_members(value)
    return type(value) is hint or (isinstance(value, hint) and hint is not int)


def wrong_members(value: Any) -> list[str]:
    """The members of our objects that are not what they are declared as."""
    if isinstance(value, list | tuple):
        return [text for item in value for text in wrong_members(item)]
    if not dataclasses.is_dataclass(value):
        return []
    hints = get_type_hints(type(value))
    return [
        f"{type(value).__name__}.{item.name}={getattr(value, item.name)!r:.60}"
        for item in dataclasses.fields(value)
        if not fits(getattr(value, item.name), hints[item.name])
    ]


@pytest.mark.parametrize("case", CASES)
async def test_malformed_answers(case: str, autojump_clock: MockClock) -> None:
    method, good, call = CASES[case]
    wrong: set[str] = set()
    tried = 0
    for value in (good, *variants(good)):
        if not _well_formed(case, value):
            continue
        tried += 1
        answers = Answers(elicit=_form, sample=_sampled, roots=["file:///"])
        client = Client(Bad(method, value), info={}, limits=Limits(), answers=answers)
        try:
            got = await call(client)
        except MCPError:
            continue
        except Exception as exc:
            wrong.add(f"{type(exc).__name__}: {exc} of {value!r:.300}")
        else:
            wrong.update(wrong_members(got))
    assert wrong == set()
    assert tried > 30
