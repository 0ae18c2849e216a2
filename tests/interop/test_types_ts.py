"""The type table with the client of `@modelcontextprotocol/client`: it refuses a result that does not fit the output schema."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ..types_server import ROWS
from .serving import Wire

pytestmark = pytest.mark.timeout(300)

CALLER = """
import { readFileSync } from 'node:fs';
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const [mode, command, ...args] = process.argv.slice(2);
const client = new Client(
  { name: 'ts-types', version: '1.0' },
  { versionNegotiation: { mode: mode === 'auto' ? 'auto' : { pin: mode } } },
);
await client.connect(new StdioClientTransport({ command, args, env: { ...process.env } }));
const tools = (await client.listTools()).tools;
const results = {};
for (const [name, value] of JSON.parse(readFileSync(0, 'utf8'))) {
  try {
    results[name] = await client.callTool({ name, arguments: { value } });
  } catch (error) {
    results[name] = { refused: String(error) };
  }
}
console.log(JSON.stringify({ tools, results }));
await client.close();
"""


def test_type_table(wire: Wire, tmp_path: Path) -> None:
    # Node looks for packages beside the file.
    script = wire.scripts / f"{tmp_path.name}-types.mjs"
    script.write_text(CALLER)
    try:
        calls = json.dumps([(row.name, row.good) for row in ROWS])
        server = [*wire.tap, sys.executable, str(Path(__file__).parent.parent / "types_server.py")]
        done = subprocess.run(
            [str(wire.node), str(script), "auto", *server],
            input=calls,
            stdout=subprocess.PIPE,
            text=True,
            timeout=120,
            check=True,
        )
    finally:
        script.unlink()
    got = json.loads(done.stdout)
    results = got["results"]
    assert {name: result["refused"] for name, result in results.items() if "refused" in result} == {}
    # What has a value has a schema, which the client has checked it against.
    tools = {tool["name"]: tool for tool in got["tools"]}
    assert {row.name for row in ROWS if "outputSchema" in tools[row.name]} == {row.name for row in ROWS if not row.text}
    # JavaScript has no integers of 80 bits.
    numbers = {row.name: float(row.out) if type(row.out) is int else row.out for row in ROWS}
    assert {row.name: results[row.name]["structuredContent"] for row in ROWS if not row.text} == {
        row.name: numbers[row.name] for row in ROWS if not row.text
    }
    assert {row.name: results[row.name]["content"] for row in ROWS if row.text} == {
        row.name: row.content for row in ROWS if row.text
    }
    wire.messages()
