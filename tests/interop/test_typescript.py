"""The client and the server of the TypeScript SDK against ours, over stdio."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from .expected import COMMON, OUR_META, OURS, THEIR_META, bare, failed, prompt, text
from .our_client import converse
from .wire_log import ALL_METHODS, Schema, methods, read_log

pytestmark = pytest.mark.timeout(300)


# "auto" asks with server/discover and would fall back to an older revision.
@pytest.mark.parametrize("mode", ["2026-07-28", "auto"])
def test_their_client_on_our_server(
    mode: str, node: Path, scripts: Path, our_server: list[str], marks: Path, log: Path, schema: Schema
) -> None:
    command = [str(node), str(scripts / "ts_client.mjs"), mode, str(marks), *our_server]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=50, check=True)
    assert bare(json.loads(done.stdout), OUR_META) == OURS
    messages = read_log(log)
    assert methods(messages) == ALL_METHODS
    assert schema.problems(messages) == []


async def test_our_client_on_their_server(
    node: Path, scripts: Path, tap: list[str], marks: Path, log: Path, schema: Schema
) -> None:
    answers = bare(await converse([*tap, str(node), str(scripts / "ts_server.mjs")], marks), THEIR_META)
    tools = {tool["name"]: tool["inputSchema"] for tool in answers.pop("tools")}
    assert list(tools) == ["echo", "add", "progress", "go_on", "slow", "fail", "picture"]
    assert {name: part["type"] for name, part in tools["add"]["properties"].items()} == {"a": "integer", "b": "integer"}
    assert answers == {
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
    messages = read_log(log)
    assert methods(messages) == ALL_METHODS
    assert schema.problems(messages) == []
