"""The client and the server of `mcp` against ours, over stdio."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from .expected import MCP_SERVER, OUR_META, OURS, bare, check_theirs
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
    check_theirs(await converse([*tap, python, str(HERE / "mcp_server.py")], marks), MCP_SERVER)
    messages = read_log(log)
    assert methods(messages) == ALL_METHODS
    assert schema.problems(messages) == []
