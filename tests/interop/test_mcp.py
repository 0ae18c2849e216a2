"""The client and the server of `mcp` against ours, over stdio."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from .expected import COMMON, OUR_META, OURS, THEIR_META, bare, failed, prompt, text
from .our_client import converse
from .wire_log import ALL_METHODS, Schema, methods, read_log

pytestmark = pytest.mark.timeout(300)

HERE = Path(__file__).parent


def test_their_client_on_our_server(python: str, our_server: list[str], marks: Path, log: Path, schema: Schema) -> None:
    command = [python, str(HERE / "mcp_client.py"), str(marks), *our_server]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=50, check=True)
    assert bare(json.loads(done.stdout), OUR_META) == OURS
    messages = read_log(log)
    assert methods(messages) == ALL_METHODS
    assert schema.problems(messages) == []


async def test_our_client_on_their_server(python: str, tap: list[str], marks: Path, log: Path, schema: Schema) -> None:
    answers = bare(await converse([*tap, python, str(HERE / "mcp_server.py")], marks), THEIR_META)
    tools = {tool["name"]: tool["inputSchema"] for tool in answers.pop("tools")}
    assert list(tools) == ["echo", "add", "progress", "go_on", "slow", "fail", "picture"]
    assert {name: part["type"] for name, part in tools["add"]["properties"].items()} == {"a": "integer", "b": "integer"}
    wrong = answers.pop("wrong arguments")
    assert wrong["isError"] is True
    assert wrong["content"][0]["text"].startswith("Error executing tool add: 2 validation errors")
    assert answers == {
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
    messages = read_log(log)
    assert methods(messages) == ALL_METHODS
    assert schema.problems(messages) == []
