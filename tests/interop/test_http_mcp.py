"""The client and the server of `mcp` against ours, over HTTP/1.1 and HTTP/2."""

from __future__ import annotations

import json
import ssl
import subprocess
from pathlib import Path

import httpx2
import pytest

from .expected import MCP_SERVER, OUR_META, OURS, bare, check_theirs, unheard
from .http_log import HttpLog, RecordingTransport
from .our_client import converse
from .serving import serving, wait_for
from .wire_log import HTTP_METHODS, Schema, methods, read_log

pytestmark = pytest.mark.timeout(300)

HERE = Path(__file__).parent


def test_their_client_on_our_server(
    python: str, our_http_server: list[str], http_tap: list[str], marks: Path, log: Path, schema: Schema
) -> None:
    with serving(our_http_server) as url, serving([*http_tap, url]) as tapped:
        command = [python, str(HERE / "mcp_client.py"), str(marks), tapped]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=50, check=True)
    assert bare(json.loads(done.stdout), OUR_META) == OURS
    check_wire(log, schema)


def test_their_client_on_our_server_http2(
    python: str, our_http_server: list[str], certfile: Path, marks: Path, log: Path, schema: Schema
) -> None:
    with serving([*our_http_server, str(certfile)]) as url:
        command = [python, str(HERE / "mcp_client.py"), str(marks), url, str(certfile), str(log)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=50, check=True)
        assert bare(json.loads(done.stdout), OUR_META) == unheard(OURS)
        # It is gone, and its connection with it.
        assert wait_for(lambda: "cancelled" in marks.read_text())
    check_wire(log, schema)


async def test_our_client_on_their_server(
    python: str, http_tap: list[str], marks: Path, log: Path, schema: Schema
) -> None:
    with serving([python, str(HERE / "mcp_server.py"), "--http"]) as url, serving([*http_tap, url]) as tapped:
        check_theirs(await converse(tapped, marks), MCP_SERVER)
    check_wire(log, schema)


async def test_our_client_on_their_server_http2(
    python: str, certfile: Path, marks: Path, log: Path, schema: Schema
) -> None:
    verify = ssl.create_default_context(cafile=certfile)
    transport = RecordingTransport(httpx2.AsyncHTTPTransport(http2=True, verify=verify), HttpLog(log), "HTTP/2")
    with serving([python, str(HERE / "mcp_server.py"), "--http", str(certfile)]) as url:
        async with httpx2.AsyncClient(transport=transport, timeout=30) as http:
            check_theirs(await converse(url, marks, hears=False, http=http), unheard(MCP_SERVER))
    check_wire(log, schema)


async def test_our_client_asks_for_http2(python: str, certfile: Path, marks: Path) -> None:
    verify = ssl.create_default_context(cafile=certfile)
    with serving([python, str(HERE / "mcp_server.py"), "--http", str(certfile)]) as url:
        check_theirs(await converse(url, marks, http2=True, verify=verify), MCP_SERVER)


def check_wire(log: Path, schema: Schema) -> None:
    """All was said, and all of it is right."""
    messages = read_log(log)
    assert methods(messages) == HTTP_METHODS
    assert schema.problems(messages) == []
