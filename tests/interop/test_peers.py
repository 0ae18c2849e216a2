"""The clients and servers of `mcp` and of the TypeScript SDK against ours, over stdio, HTTP/1.1 and HTTP/2."""

from __future__ import annotations

import json
import ssl
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import pytest

from .expected import MCP_SERVER, OUR_META, OURS, TYPESCRIPT_SERVER, bare, check_theirs, unheard
from .http_log import HttpLog, RecordingTransport
from .our_client import converse
from .serving import Wire, serving, wait_for
from .wire_log import ALL_METHODS, HTTP_METHODS, methods

pytestmark = pytest.mark.timeout(300)

# "auto" asks with server/discover and would fall back to an older revision.
CLIENTS = [["mcp_client.py"], ["ts_client.mjs", "2026-07-28"], ["ts_client.mjs", "auto"]]
SERVERS = [("mcp_server.py", MCP_SERVER), ("ts_server.mjs", TYPESCRIPT_SERVER)]

each_transport = pytest.mark.parametrize("over", ["stdio", "http", "http2"])
each_server = pytest.mark.parametrize(("server", "expected"), SERVERS, ids=["mcp", "typescript"])


@each_transport
@pytest.mark.parametrize("client", CLIENTS, ids=" ".join)
def test_their_client_on_our_server(over: str, client: list[str], wire: Wire, marks: Path) -> None:
    program, *mode = client
    with wire.target(over, "our_server.py") as target:
        command = [*wire.command(program), *mode, str(marks), *target]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=50, check=True)
        # httpx2 does not reset a stream that it leaves: the server hears of it when the connection ends.
        late = (program, over) == ("mcp_client.py", "http2")
        assert bare(json.loads(done.stdout), OUR_META) == (unheard(OURS) if late else OURS)
        assert wait_for(lambda: "cancelled" in marks.read_text())
    check_wire(over, wire)


@each_transport
@each_server
async def test_our_client_on_their_server(
    over: str, server: str, expected: dict[str, Any], wire: Wire, marks: Path
) -> None:
    if over != "http2":
        with wire.target(over, server) as target:
            check_theirs(await converse(target if over == "stdio" else target[0], marks), expected)
    else:
        verify = ssl.create_default_context(cafile=wire.certfile)
        transport = RecordingTransport(
            httpx2.AsyncHTTPTransport(http2=True, verify=verify), HttpLog(wire.log), "HTTP/2"
        )
        # httpx2 by itself makes one request at a time where a server does not say how many it may make.
        many = ["100"] if server == "ts_server.mjs" else []
        with serving([*wire.command(server), "--http", str(wire.certfile), *many]) as url:
            async with httpx2.AsyncClient(transport=transport, timeout=30) as http:
                check_theirs(await converse(url, marks, hears=False, http=http), unheard(expected))
    check_wire(over, wire)


@each_server
async def test_our_client_asks_for_http2(server: str, expected: dict[str, Any], wire: Wire, marks: Path) -> None:
    verify = ssl.create_default_context(cafile=wire.certfile)
    # That of TypeScript speaks nothing but HTTP/2.
    with serving([*wire.command(server), "--http", str(wire.certfile)]) as url:
        check_theirs(await converse(url, marks, http2=True, verify=verify), expected)


def check_wire(over: str, wire: Wire) -> None:
    """All was said, and all of it is right."""
    assert methods(wire.messages()) == (ALL_METHODS if over == "stdio" else HTTP_METHODS)
