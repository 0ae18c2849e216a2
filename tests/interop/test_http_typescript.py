"""The client and the server of the TypeScript SDK against ours, over HTTP/1.1 and HTTP/2."""

from __future__ import annotations

import json
import ssl
import subprocess
from pathlib import Path

import httpx2
import pytest

from .expected import OUR_META, OURS, TYPESCRIPT_SERVER, bare, check_theirs, unheard
from .http_log import HttpLog, RecordingTransport
from .our_client import converse
from .serving import serving
from .wire_log import HTTP_METHODS, Schema, methods, read_log

pytestmark = pytest.mark.timeout(300)


# "auto" asks with server/discover and would fall back to an older revision.
@pytest.mark.parametrize("mode", ["2026-07-28", "auto"])
def test_their_client_on_our_server(
    mode: str,
    node: Path,
    scripts: Path,
    our_http_server: list[str],
    http_tap: list[str],
    marks: Path,
    log: Path,
    schema: Schema,
) -> None:
    with serving(our_http_server) as url, serving([*http_tap, url]) as tapped:
        command = [str(node), str(scripts / "ts_client.mjs"), mode, str(marks), tapped]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=50, check=True)
    assert bare(json.loads(done.stdout), OUR_META) == OURS
    check_wire(log, schema)


def test_their_client_on_our_server_http2(
    node: Path, scripts: Path, our_http_server: list[str], certfile: Path, marks: Path, log: Path, schema: Schema
) -> None:
    with serving([*our_http_server, str(certfile)]) as url:
        command = [str(node), str(scripts / "ts_client.mjs"), "auto", str(marks), url, str(certfile), str(log)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=50, check=True)
    assert bare(json.loads(done.stdout), OUR_META) == OURS
    check_wire(log, schema)


async def test_our_client_on_their_server(
    node: Path, scripts: Path, http_tap: list[str], marks: Path, log: Path, schema: Schema
) -> None:
    with serving([str(node), str(scripts / "ts_server.mjs"), "--http"]) as url, serving([*http_tap, url]) as tapped:
        check_theirs(await converse(tapped, marks), TYPESCRIPT_SERVER)
    check_wire(log, schema)


async def test_our_client_on_their_server_http2(
    node: Path, scripts: Path, certfile: Path, marks: Path, log: Path, schema: Schema
) -> None:
    verify = ssl.create_default_context(cafile=certfile)
    transport = RecordingTransport(httpx2.AsyncHTTPTransport(http2=True, verify=verify), HttpLog(log), "HTTP/2")
    # httpx2 by itself makes one request at a time where a server does not say how many it may make.
    with serving([str(node), str(scripts / "ts_server.mjs"), "--http", str(certfile), "100"]) as url:
        async with httpx2.AsyncClient(transport=transport, timeout=30) as http:
            check_theirs(await converse(url, marks, hears=False, http=http), unheard(TYPESCRIPT_SERVER))
    check_wire(log, schema)


async def test_our_client_asks_for_http2(node: Path, scripts: Path, certfile: Path, marks: Path) -> None:
    verify = ssl.create_default_context(cafile=certfile)
    # The server speaks nothing but HTTP/2.
    with serving([str(node), str(scripts / "ts_server.mjs"), "--http", str(certfile)]) as url:
        check_theirs(await converse(url, marks, http2=True, verify=verify), TYPESCRIPT_SERVER)


def check_wire(log: Path, schema: Schema) -> None:
    """All was said, and all of it is right."""
    messages = read_log(log)
    assert methods(messages) == HTTP_METHODS
    assert schema.problems(messages) == []
