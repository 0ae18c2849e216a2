"""Clients of the revisions with sessions against our server, over stdio and HTTP: the TypeScript SDK 1.x in three revisions, and
`mcp` 1.x."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from .serving import HERE, serving

pytestmark = pytest.mark.timeout(120)

SERVER = [sys.executable, str(HERE / "session_server.py")]
REVISIONS = ["2025-11-25", "2025-06-18", "2025-03-26"]

each_transport = pytest.mark.parametrize("over", ["stdio", "http"])


def expected(revision: str, over: str) -> dict[str, Any]:
    """What a client gets in this revision."""
    newest, forms = revision >= "2025-11-25", revision >= "2025-06-18"
    out: dict[str, Any] = {
        "revision": revision,
        "server": "sessions",
        "tools": [
            *("echo", "numbers", "fail", "visit", "count", "go_on", "grumble", "name", "think", "places"),
            *("touch", "grow", "slow", "job", "polled"),
        ],
        "resource": "all quiet",
        "echo": "naïve ☃\n",
        "data": {"result": [1, 2, 3]} if forms else None,
        "fail": [True, "it is broken"],
        "unknown tool": -32602,
        # A failed result where the revision has no such error.
        "visit": -32042 if newest else "answered",
        "unknown resource": -32002,
        "progress": [[1, 3], [2, 3], [3, 3]],
        "log": ["warning", "error"],
        "elicit": ["Hello, Ada!", "decline", "cancel"] if forms else -32600,
        "sample": "The model says Paris",
        "roots": ["file:///one", "file:///one file:///two"],
        "list changed": True,
        "updated": ["note://today"],
        "cancelled": [True, True],
        "polled": "answered after all",
        "came back": newest and over == "http",
    }
    if newest:
        out["task"] = [True, "the job is done", "cancelled"]
    if over == "http":
        out["after DELETE"] = 404
    return out


@contextmanager
def target(over: str) -> Iterator[list[str]]:
    """What a client is opened on: a command, or a URL."""
    if over == "stdio":
        yield SERVER
    else:
        with serving([*SERVER, "--http"]) as url:
            yield [url]


def answers(command: list[str], over: str) -> dict[str, Any]:
    """What a client prints."""
    with target(over) as server:
        done = subprocess.run([*command, *server], stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@each_transport
@pytest.mark.parametrize("revision", REVISIONS)
def test_the_client_of_typescript(revision: str, over: str, node: Path, scripts: Path, marks: Path) -> None:
    command = [str(node), str(scripts / "ts_session_client.mjs"), revision, str(marks)]
    assert answers(command, over) == expected(revision, over)


@each_transport
def test_the_client_of_mcp(over: str, mcp1: Path, marks: Path) -> None:
    command = [str(mcp1), str(HERE / "mcp1_session_client.py"), str(marks)]
    assert answers(command, over) == expected("2025-11-25", over)
