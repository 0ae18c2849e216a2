"""Servers of the old era, as far as an answer to server/discover gives them away."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio

from trio_mcp import HttpError, LegacyServer, ProtocolError, open_client

from ..net.servers.http_peers import H1Peer
from .test_client import scripted

MAYBE = "it may speak only revisions before 2026-07-28"
TOO = "; a server of revisions before 2026-07-28 may answer so, too"


def error(id: Any, code: int) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "what?"}}


@asynccontextmanager
async def answering(status: str, body: bytes, kind: str = "application/json") -> AsyncIterator[str]:
    """A server that answers everything in the same way."""

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            peer = H1Peer(stream)
            await peer.until(b"\r\n\r\n")
            head = (
                f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
            )
            await peer.send(head.encode() + body)
            await stream.send_eof()
            while await stream.receive_some():
                pass

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        yield f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/mcp"
        nursery.cancel_scope.cancel()


async def refused(target: Any, *eras: str) -> BaseException:
    with trio.fail_after(20), pytest.raises(Exception) as caught:
        async with open_client(target, eras=eras or ("modern", "legacy")):
            raise AssertionError("opened")
    return caught.value


@pytest.mark.parametrize("code", [-32000, -32001, -32019, -32023, -32042, -32099, -32604, -32100, -32768])
async def test_an_error_of_no_meaning_here_may_come_from_a_server_of_the_old_era(code: int) -> None:
    async with scripted(lambda message: [error(message["id"], code)]) as stream:
        exc = await refused(stream, "modern")
    assert type(exc) is LegacyServer
    assert MAYBE in str(exc)
    assert f"what? (code {code})" in str(exc)


@pytest.mark.parametrize("eras", [["modern"], ["modern", "legacy"]])
@pytest.mark.parametrize("code", [-32603, -32700, -32020, -32021, 503, 504, 429, 0, -1, -31999, -32769])
async def test_an_error_that_says_something_else_stays_what_it_is(code: int, eras: list[str]) -> None:
    async with scripted(lambda message: [error(message["id"], code)]) as stream:
        exc = await refused(stream, *eras)
    assert isinstance(exc, ProtocolError)
    assert exc.code == code
    assert "revisions" not in str(exc)


@pytest.mark.parametrize("status", ["400 Bad Request", "404 Not Found", "405 Method Not Allowed"])
@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "text/plain"),
        (b"Cannot POST /mcp", "text/html"),
        (b'{"detail":"Not Found"}', "application/json"),
        (b"[]", "application/json"),
        (b"not JSON", "application/json"),
    ],
)
async def test_an_http_answer_without_a_message_may_come_from_one_too(status: str, body: bytes, kind: str) -> None:
    async with answering(status, body, kind) as url:
        exc = await refused(url)
        assert isinstance(exc, HttpError)
        assert (exc.url, exc.status) == (url, int(status[:3]))
    assert str(exc).endswith(TOO)
    assert body.decode().strip('"') in str(exc).replace("\\", "")


@pytest.mark.parametrize("id", [1, None])
@pytest.mark.parametrize("status", ["200 OK", "400 Bad Request", "404 Not Found"])
async def test_an_http_answer_with_an_error_of_no_meaning_here(status: str, id: Any) -> None:
    async with answering(status, json.dumps(error(id, -32000)).encode()) as url:
        exc = await refused(url, "modern")
        # What `initialize` is answered is what went wrong, where both are refused.
        both = await refused(url)
    assert type(exc) is LegacyServer
    assert MAYBE in str(exc)
    assert type(both) is ProtocolError
    assert both.code == -32000


async def test_an_http_answer_with_an_error_for_no_request() -> None:
    async with answering("400 Bad Request", json.dumps(error("server-error", -32600)).encode()) as url:
        exc = await refused(url)
    assert isinstance(exc, HttpError)
    assert "answered 400: what?" in str(exc)
    assert str(exc).endswith(TOO)


@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden", "429 Too Many Requests", "502 Bad Gateway"])
async def test_other_http_answers_say_nothing_of_eras(status: str) -> None:
    async with answering(status, b"no", "text/plain") as url:
        exc = await refused(url)
    assert isinstance(exc, HttpError)
    assert "revisions" not in str(exc)
