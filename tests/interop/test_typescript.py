"""The client and the server of the TypeScript SDK against ours, over stdio."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from .expected import OUR_META, OURS, TYPESCRIPT_SERVER, bare, check_theirs
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
    check_theirs(await converse([*tap, str(node), str(scripts / "ts_server.mjs")], marks), TYPESCRIPT_SERVER)
    messages = read_log(log)
    assert methods(messages) == ALL_METHODS
    assert schema.problems(messages) == []
