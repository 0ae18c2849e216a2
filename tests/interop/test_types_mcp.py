"""The type table with the client of `mcp`, over stdio."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from ..types_server import ROWS
from .serving import Wire

pytestmark = pytest.mark.timeout(300)


def test_type_table(python: str, wire: Wire) -> None:
    calls = [(row.name, {"value": value}) for row in ROWS for value in (row.good, row.bad)]
    command = [*wire.command("mcp_calls.py"), *wire.tap, python, str(Path(__file__).parent.parent / "types_server.py")]
    done = subprocess.run(command, input=json.dumps(calls), stdout=subprocess.PIPE, text=True, timeout=50, check=True)
    got = json.loads(done.stdout)
    assert {tool["name"]: tool["inputSchema"] for tool in got["tools"]} == {row.name: row.input_schema for row in ROWS}
    good, bad = got["results"][::2], got["results"][1::2]
    values = [
        result["content"] if row.text else result["structuredContent"] for row, result in zip(ROWS, good, strict=True)
    ]
    assert values == [row.content if row.text else row.out for row in ROWS]
    assert [(result["isError"], result["content"]) for result in bad] == [
        (True, [{"type": "text", "text": row.refusal}]) for row in ROWS
    ]
    wire.messages()
