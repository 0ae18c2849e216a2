"""What every server of these tests answers, in the form of the revision, without `_meta` and `resultType`."""

from __future__ import annotations

from typing import Any, Final

PIXEL: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNg+M/AAAADAQEAyf6S7wAAAABJRU5ErkJggg=="


def text(value: str) -> dict[str, Any]:
    """A tool result of one text."""
    return {"content": [{"type": "text", "text": value}]}


def failed(value: str) -> dict[str, Any]:
    """The result of a tool that failed."""
    return {**text(value), "isError": True}


def prompt(value: str) -> list[dict[str, Any]]:
    """The messages of a prompt of one text."""
    return [{"role": "user", "content": {"type": "text", "text": value}}]


def unheard(answers: dict[str, Any]) -> dict[str, Any]:
    """The same answers when nobody waited for the server to hear of the cancellation."""
    return {**answers, "cancelled call": {**answers["cancelled call"], "server heard": None}}


# Where the answers of the three servers are the same.
COMMON: Final[dict[str, Any]] = {
    "revision": "2026-07-28",
    "instructions": "Ask and it answers.",
    "picture": {"content": [{"type": "image", "data": PIXEL, "mimeType": "image/png"}]},
    "progress": text("three steps"),
    "progress heard": [[1, 3, "step 1"], [2, 3, "step 2"], [3, 3, "step 3"]],
    "resource": [{"uri": "note://today", "mimeType": "text/plain", "text": "all quiet"}],
    "templated resource": [{"uri": "note://day/monday", "mimeType": "text/plain", "text": "nothing on monday"}],
    "cancelled call": {"progress": [[1, 2, "started"]], "cancelled": True, "server heard": True},
}


def _tool(name: str, description: str, schema: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    title = name.replace("_", " ").capitalize()
    schema = {"type": "object", **(schema or {}), "additionalProperties": False}
    return {"name": name, "title": title, "description": description, "inputSchema": schema, **more}


# What our server answers to each of the peers' clients.
OURS: Final[dict[str, Any]] = {
    **COMMON,
    "server": {"name": "ours", "version": "1.0"},
    "capabilities": {
        "tools": {"listChanged": True},
        "resources": {"subscribe": True, "listChanged": True},
        "prompts": {"listChanged": True},
        "completions": {},
        "logging": {},
    },
    "tools": [
        _tool("echo", "Say it again.", {"properties": {"text": {"type": "string"}}, "required": ["text"]}),
        _tool(
            "add",
            "Add two numbers.",
            {"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]},
            outputSchema={"type": "integer"},
        ),
        _tool("progress", "Report three steps; after each, wait for a call of `go_on`."),
        _tool("go_on", "Let `progress` go on."),
        _tool("slow", "Take 30 seconds."),
        _tool("fail", "Fail."),
        _tool("picture", "Show one pixel."),
    ],
    "resources": [
        {
            "uri": "note://today",
            "name": "today",
            "title": "Today",
            "description": "The note of today.",
            "mimeType": "text/plain",
        }
    ],
    "templates": [
        {
            "uriTemplate": "note://day/{day}",
            "name": "note",
            "title": "Note",
            "description": "The note of a day.",
            "mimeType": "text/plain",
        }
    ],
    "prompts": [
        {
            "name": "review",
            "title": "Review",
            "description": "Ask for a code review.",
            "arguments": [{"name": "code", "required": True}, {"name": "language", "required": False}],
        }
    ],
    "echo": text("naïve ☃\n"),
    "add": {**text("42"), "structuredContent": 42},
    "fail": failed("it is broken"),
    "wrong arguments": failed(
        "Invalid arguments for tool 'add':\na: expected integer, got string \"two\"\nb: missing, expected integer"
    ),
    "unknown tool": {
        "code": -32602,
        "message": "Unknown tool: ad; did you mean 'add'? There is: echo, add, progress, go_on, slow, fail, picture",
    },
    "unknown resource": {"code": -32602, "message": "Resource not found: none://at/all"},
    "prompt": {"description": "Ask for a code review.", "messages": prompt("Review this Python code: x = 1")},
    "echo after it": text("still here"),
}

# What the server of `mcp` answers to our client; `check_theirs` looks at the tools.
MCP_SERVER: Final[dict[str, Any]] = {
    **COMMON,
    "server": {"name": "theirs", "version": "1.0"},
    "resources": [
        {
            "uri": "note://today",
            "name": "today",
            "description": "The note of today.",
            "mimeType": "text/plain",
        }
    ],
    "templates": [
        {
            "uriTemplate": "note://day/{day}",
            "name": "note",
            "description": "The note of a day.",
            "mimeType": "text/plain",
        }
    ],
    "prompts": [
        {
            "name": "review",
            "description": "Ask for a code review.",
            "arguments": [{"name": "code", "required": True}, {"name": "language", "required": False}],
        }
    ],
    "echo": {**text("naïve ☃\n"), "structuredContent": {"result": "naïve ☃\n"}},
    "add": {**text("42"), "structuredContent": {"result": 42}},
    "fail": failed("Error executing tool fail: it is broken"),
    "unknown tool": failed("Unknown tool: ad"),
    "unknown resource": -32602,
    "prompt": {"description": "Ask for a code review.", "messages": prompt("Review this Python code: x = 1")},
    "echo after it": {**text("still here"), "structuredContent": {"result": "still here"}},
}

# What the TypeScript server answers to our client.
TYPESCRIPT_SERVER: Final[dict[str, Any]] = {
    **COMMON,
    "server": {"name": "theirs", "version": "1.0"},
    "resources": [{"uri": "note://today", "name": "today", "mimeType": "text/plain"}],
    "templates": [{"uriTemplate": "note://day/{day}", "name": "note", "mimeType": "text/plain"}],
    "prompts": [
        {
            "name": "review",
            "description": "Ask for a code review.",
            "arguments": [{"name": "code", "required": True}, {"name": "language", "required": False}],
        }
    ],
    "echo": text("naïve ☃\n"),
    "add": {**text("42"), "structuredContent": {"result": 42}},
    "fail": failed("it is broken"),
    "wrong arguments": failed(
        "Input validation error: Invalid arguments for tool add: a: Invalid input: expected number, received "
        "string, b: Invalid input: expected number, received undefined"
    ),
    "unknown tool": -32602,
    "unknown resource": -32602,
    "prompt": {"messages": prompt("Review this Python code: x = 1")},
    "echo after it": text("still here"),
}

OUR_META: Final = {"io.modelcontextprotocol/serverInfo": {"name": "ours", "version": "1.0"}}
THEIR_META: Final = {"io.modelcontextprotocol/serverInfo": {"name": "theirs", "version": "1.0"}}


def bare(answers: dict[str, Any], meta: dict[str, Any]) -> dict[str, Any]:
    """The answers without what every result carries and without members that say what their absence says."""
    out: dict[str, Any] = {}
    for key, value in answers.items():
        if isinstance(value, dict) and ("content" in value or "messages" in value):
            assert value["_meta"] == meta
            absent = {"_meta": meta, "resultType": "complete", "isError": False}
            out[key] = {name: item for name, item in value.items() if name not in absent or item != absent[name]}
        else:
            out[key] = value
    return out


def check_theirs(got: dict[str, Any], expected: dict[str, Any]) -> None:
    """Compare what one of the peers' servers answered to our client; they describe their tools in their own ways."""
    answers = bare(got, THEIR_META)
    tools = {tool["name"]: tool["inputSchema"] for tool in answers.pop("tools")}
    assert list(tools) == ["echo", "add", "progress", "go_on", "slow", "fail", "picture"]
    assert {name: part["type"] for name, part in tools["add"]["properties"].items()} == {"a": "integer", "b": "integer"}
    if "wrong arguments" not in expected:  # they are in the words of a validator
        wrong = answers.pop("wrong arguments")
        assert wrong["isError"] is True
        assert wrong["content"][0]["text"].startswith("Error executing tool add: 2 validation errors")
    assert answers == expected
