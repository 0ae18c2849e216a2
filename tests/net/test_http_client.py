"""The client over HTTP/1.1, with servers and proxies that speak byte by byte; secrets; the environment."""

from __future__ import annotations

import json
import logging
import re
import socket
import ssl
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from trio_mcp import ConnectionClosed, HttpError, Limits, MCPError, open_client

from .helpers import Running
from .servers.http_peers import H1Peer, faked, make_certificate, ok, reset, serving
from .servers.http_tools import Lab

LARGE = Limits(message_bytes=50_000_000)
SSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n\r\n"
VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The paths of a certificate and its key."""
    return make_certificate(tmp_path_factory.mktemp("tls"))


def answer_to(message: dict[str, Any], text: str = "whole") -> bytes:
    result = {"content": [{"type": "text", "text": text}], "resultType": "complete"}
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(data: bytes) -> bytes:
    return b"event: message\ndata: " + data + b"\n\n"


# -- an answer that has come counts

COUNTS: dict[str, Callable[[bytes], bytes]] = {
    "a stream, then a bad chunk": lambda body: SSE + CHUNKED + chunk(event(body)) + b"zzzz\r\n",
    "a stream, then the end": lambda body: SSE + CHUNKED + chunk(event(body)),
    "JSON, then a bad chunk": lambda body: JSON + CHUNKED + chunk(body) + b"zzzz\r\n",
    "JSON, then the end": lambda body: JSON + CHUNKED + chunk(body),
    "JSON, then nothing of what its length says": lambda body: JSON + b"content-length: 9999\r\n\r\n" + body,
    "JSON to the end of the connection": lambda body: JSON + b"\r\n" + body,
    "JSON, then another answer": lambda body: JSON + b"content-length: %d\r\n\r\n" % len(body) + body + JSON,
    "JSON, then garbage": lambda body: JSON + b"content-length: %d\r\n\r\n" % len(body) + body + b"\0\0\0",
    "after 100": lambda body: (
        b"HTTP/1.1 100 Continue\r\n\r\n" + JSON + b"content-length: %d\r\n\r\n" % len(body) + body
    ),
    "after 102 and 103": lambda body: (
        b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>; content-length: 3\r\n\r\n"
        + (JSON + b"content-length: %d\r\n\r\n" % len(body) + body)
    ),
    "with a byte order mark": lambda body: JSON + b"content-length: %d\r\n\r\n\xef\xbb\xbf" % (len(body) + 3) + body,
    "without a reason": lambda body: (
        b"HTTP/1.1 200\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    ),
    "by HTTP/1.0": lambda body: b"HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n" + body,
}


@pytest.mark.parametrize("how", ["closed", "reset"])
@pytest.mark.parametrize("kind", COUNTS)
async def test_an_answer_counts_whatever_comes_before_and_after_it(kind: str, how: str) -> None:
    async def answer(peer: H1Peer, path: str, message: dict[str, Any]) -> None:
        await peer.send(COUNTS[kind](answer_to(message)))
        if how == "reset":
            # Only after it has been received, or the system throws it away.
            await trio.testing.wait_all_tasks_blocked(0.02)
            await reset(peer.stream)

    if how == "reset" and kind in ("JSON to the end of the connection", "by HTTP/1.0"):
        how = "closed"  # there the end belongs to the answer
    async with faked(answer) as url, open_client(url) as client:
        with trio.fail_after(20):
            assert (await client.call_tool("t")).text == "whole"
        assert (await client.discover())["supportedVersions"] == ["2026-07-28"]


@asynccontextmanager
async def listening(serve: Callable[[trio.SocketStream], Awaitable[None]]) -> AsyncIterator[int]:
    """A port where each connection is given to `serve`."""

    async def one(stream: trio.SocketStream) -> None:
        try:
            async with stream:
                await serve(stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError, EOFError, ssl.SSLError):
            pass

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, one, 0, host="127.0.0.1"))
        yield listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("then", ["is closed", "is reset", "stays open"])
@pytest.mark.parametrize("tls", [False, True])
async def test_an_answer_that_comes_before_the_request_has_been_read(
    tls: bool, then: str, certificate: tuple[str, str]
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)

    async def serve(raw: trio.SocketStream) -> None:
        stream = trio.SSLStream(raw, context, server_side=True, https_compatible=True) if tls else raw
        peer = H1Peer(stream)
        while True:
            first = await peer.until(b"\r\n\r\n")
            length = int(re.findall(rb"(?i)content-length: (\d+)", first)[0])
            if length > 100_000:
                # Longer than what is read at once, and of use only as a whole.
                error = {"code": -32600, "message": "too long", "data": "x" * 100_000}
                body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
                head = b"HTTP/1.1 413 X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
                await peer.send(head + body)
                await trio.testing.wait_all_tasks_blocked(0.05)
                if then == "is reset":
                    await reset(raw)
                elif then == "stays open":
                    await trio.sleep_forever()
                return
            while len(peer.data) < length:
                await peer.more()
            message, peer.data = json.loads(peer.data[:length]), peer.data[length:]
            result = {"supportedVersions": ["2026-07-28"], "capabilities": {}, "resultType": "complete", "_meta": {}}
            await peer.send(ok({"jsonrpc": "2.0", "id": message["id"], "result": result}))

    trusted = ssl.create_default_context(cafile=certificate[0])
    async with listening(serve) as port:
        url = f"http{'s' if tls else ''}://127.0.0.1:{port}/mcp"
        async with open_client(url, verify=trusted, limits=LARGE) as client:
            with trio.fail_after(20), pytest.raises(HttpError, match="answered 413: too long"):
                await client.call_tool("t", {"x": "x" * 20_000_000})


# -- connections that are used again


@pytest.mark.parametrize("how", ["closed", "reset"])
async def test_a_connection_that_was_closed_while_idle_takes_no_call(how: str) -> None:
    peers: list[H1Peer] = []

    async def answer(peer: H1Peer, path: str, message: dict[str, Any]) -> None:
        peers.append(peer)
        await peer.send(ok(json.loads(answer_to(message))))
        if how == "reset":
            await reset(peer.stream)

    async with faked(answer) as url, open_client(url) as client:
        for number in range(1, 6):
            assert (await client.call_tool("t")).text == "whole"
            assert len(peers) == number
            await trio.testing.wait_all_tasks_blocked(0.02)


async def test_what_may_have_run_is_not_sent_again_and_what_only_reads_is() -> None:
    seen: list[str] = []

    async def answer(peer: H1Peer, path: str, message: dict[str, Any]) -> None:
        seen.append(message["method"])
        if seen.count("tools/list") > 1:
            await peer.send(
                ok({"jsonrpc": "2.0", "id": message["id"], "result": {"tools": [], "resultType": "complete"}})
            )

    async with faked(answer) as url, open_client(url) as client:
        with pytest.raises(ConnectionClosed, match="without an answer"):
            await client.call_tool("t")
        await client.discover()
        assert await client.list_tools() == []
        assert seen == ["tools/call", "tools/list", "tools/list"]


# -- redirects


@pytest.mark.parametrize("status", [300, 301, 302, 303, 305])
async def test_a_redirect_that_is_not_followed_says_where_it_points(status: int) -> None:
    async def answer(peer: H1Peer, path: str, message: dict[str, Any]) -> None:
        place = b"https://user:SECRET@login.example/start?token=SECRET#SECRET"
        await peer.send(b"HTTP/1.1 %d X\r\nlocation: %b\r\ncontent-length: 0\r\n\r\n" % (status, place))

    async with faked(answer) as url, open_client(url) as client:
        with pytest.raises(HttpError, match=r"which points to https://login\.example/start and is not") as caught:
            await client.call_tool("t")
        assert "SECRET" not in str(caught.value)
        assert (caught.value.status, caught.value.url) == (status, url)


LOCATIONS = {
    "a bad host": b"location: http://[::1\r\n",
    "a bad port": b"location: http://127.0.0.1:99999999/\r\n",
    "another kind": b"location: javascript:alert(1)\r\n",
    "a control": b"location: /\x01\r\n",
    "no text": b"location: http://\xff/\r\n",
    "a bad name": b"location: http://xn--\xc3.com/\r\n",
    "a long one": b"location: /" + b"x" * 70_000 + b"\r\n",
    "none": b"",
    "an empty one": b"location:\r\n",
    "a secret": b"location: http://user:SECRET@other.example/?key=SECRET\r\n",
}


@pytest.mark.parametrize("status", [302, 307, 308])
@pytest.mark.parametrize("kind", LOCATIONS)
async def test_a_redirect_with_a_bad_address_is_an_error_of_ours(kind: str, status: int) -> None:
    async def answer(peer: H1Peer, path: str, message: dict[str, Any]) -> None:
        await peer.send(b"HTTP/1.1 %d X\r\n%bcontent-length: 0\r\n\r\n" % (status, LOCATIONS[kind]))

    async with faked(answer) as url, open_client(url) as client:
        with trio.fail_after(20), pytest.raises(MCPError) as caught:
            await client.call_tool("t")
        assert "SECRET" not in str(caught.value)
        assert kind == "a control" or f"{status}" in str(caught.value) or "another origin" in str(caught.value)


# -- secrets


@pytest.mark.parametrize(
    ("headers", "names"),
    [
        ({"authorization": "Bearer SECRET\n"}, "authorization"),
        ({"authorization": "Bearer SECRET "}, "authorization"),
        ({"authorization": "Bearer \u201cSECRET\u201d"}, "authorization"),
        ({"x-key": "SECRET\x00"}, "x-key"),
        ({"x-key": "SECRET\r\nx: y"}, "x-key"),
        ({"x-key": b"SECRET"}, "x-key"),
        ({"x-key": 5}, "x-key"),
        ({"x-key": None}, "x-key"),
        ({"X-Key": "SECRET", "x-key": "SECRET"}, "x-key"),
        ({"Authorization: Bearer SECRET": ""}, "Authorization"),
        ({"x-ü": "SECRET"}, "x-"),
        ({"": "SECRET"}, "begins with ''"),
        *(({name: "SECRET"}, name) for name in ("Content-Length", "transfer-encoding", "Host", "connection")),
        *(({name: "SECRET"}, name) for name in ("Mcp-Method", "MCP-Protocol-Version", "mcp-name", "Mcp-Param-X")),
        *(
            ({name: "SECRET"}, name)
            for name in ("Accept", "content-type", "accept-encoding", "Expect", "te", "upgrade")
        ),
    ],
)
async def test_a_header_that_cannot_be_sent_is_named_and_its_value_is_not(headers: Any, names: str) -> None:
    with pytest.raises(ValueError, match=f"(?i){re.escape(names)}") as caught:
        async with open_client("http://127.0.0.1:1/mcp", headers=headers):
            pass
    assert "SECRET" not in str(caught.value)
    assert caught.value.__cause__ is None


async def test_a_header_of_a_client_of_ones_own_is_not_in_the_text() -> None:
    async with serving(Lab().server) as site, httpx2.AsyncClient(headers={"authorization": "Bearer SECRET\n"}) as http:
        with pytest.raises(ConnectionClosed, match="LocalProtocolError") as caught:
            async with open_client(site.url, http=http):
                pass
        assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("status", [200, 302, 307, 401, 504])
async def test_of_a_url_texts_and_logs_show_no_more_than_the_place(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    heads: list[bytes] = []

    async def serve(stream: trio.SocketStream) -> None:
        peer = H1Peer(stream)
        heads.append(await peer.until(b"\r\n\r\n"))
        await peer.send(b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\nlocation: ?a=SECRET\r\n" % status)
        await peer.send(b"content-length: 2\r\n\r\n{}")

    caplog.set_level(logging.DEBUG)
    async with listening(serve) as port:
        url = f"http://user:SECRET@127.0.0.1:{port}/mcp?api_key=SECRET"
        with pytest.raises(MCPError) as caught:
            async with open_client(url):
                pass
    assert f"http://127.0.0.1:{port}/mcp" in str(caught.value)
    assert "SECRET" not in str(caught.value)
    assert "SECRET" not in caplog.text
    if isinstance(caught.value, HttpError):
        assert caught.value.url == url
    # The server gets all of it.
    assert heads[0].startswith(b"POST /mcp?api_key=SECRET HTTP/1.1")
    assert b"authorization: basic dxnlcjptrunsrvq=" in heads[0].lower()


@pytest.mark.parametrize(
    "url",
    [
        "http://user:SECRET@127.0.0.1:1/mcp?key=SECRET",
        "https://user:SECRET@127.0.0.1:1/mcp",
        "http://user:SECRET@/mcp",
        "http://user:SEC/RET@127.0.0.1/mcp",
        "http://user:SECRET@127.0.0.1:x/mcp",
        "ftp://user:SECRET@127.0.0.1/mcp",
        "http://127.0.0.1:99999/mcp?key=SECRET",
    ],
)
async def test_a_url_that_leads_nowhere_is_told_without_its_secrets(url: str) -> None:
    with pytest.raises((MCPError, ValueError)) as caught:
        async with open_client(url):
            pass
    assert not isinstance(caught.value, UnicodeError)
    assert "SEC" not in str(caught.value)


async def test_a_block_that_is_left_in_disorder_does_not_tell_the_key() -> None:
    async with serving(Lab().server) as site:
        first, second = open_client(f"{site.url}?key=SECRET"), open_client(site.url)
        await first.__aenter__()
        await second.__aenter__()
        with pytest.raises(RuntimeError, match="was left before a block inside it") as caught:
            await first.__aexit__(None, None, None)
        assert "SECRET" not in str(caught.value)


def test_the_command_does_not_show_secrets() -> None:
    for target in ("http://user:SECRET@127.0.0.1:1/mcp?key=SECRET", "ftp://user:SECRET@127.0.0.1/x"):
        with Running(sys.executable, "-m", "trio_mcp", "tools", target) as running:
            assert running.process.wait(20) in (2, 3)
            errors = running.errors()
            assert "127.0.0.1" in errors and "SECRET" not in errors and "Traceback" not in errors


# -- proxies and certificates of the environment


@asynccontextmanager
async def proxy_of(
    heads: list[bytes], answer: bytes | None = None, certificate: tuple[str, str] | None = None
) -> AsyncIterator[int]:
    """A proxy that notes what it is asked; it forwards and makes tunnels, or answers as it is told."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if certificate is not None:
        context.load_cert_chain(*certificate)

    async def serve(raw: trio.SocketStream) -> None:
        stream: Any = raw
        if certificate is not None:
            stream = trio.SSLStream(raw, context, server_side=True, https_compatible=True)
        peer = H1Peer(stream)
        head = await peer.until(b"\r\n\r\n")
        heads.append(head)
        if answer is not None:
            await stream.send_all(answer)
            return
        place = re.search(rb" (?:http://)?([^/ ]+):(\d+)", head)
        assert place is not None
        async with await trio.open_tcp_stream(place[1].decode(), int(place[2])) as further:
            if head.startswith(b"CONNECT"):
                await stream.send_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                await further.send_all(re.sub(rb" http://[^/]+", b" ", head, count=1) + b"\r\n\r\n" + peer.data)
            async with trio.open_nursery() as nursery:
                for source, sink in ((stream, further), (further, stream)):
                    nursery.start_soon(_copy, source, sink, nursery.cancel_scope)

    async with listening(serve) as port:
        yield port


async def _copy(source: trio.abc.Stream, sink: trio.abc.Stream, scope: trio.CancelScope) -> None:
    try:
        while data := await source.receive_some():
            await sink.send_all(data)
    except trio.BrokenResourceError:
        pass
    scope.cancel()


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
async def test_a_proxy_of_the_environment_forwards(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    heads: list[bytes] = []
    async with serving(Lab().server) as site, proxy_of(heads) as port:
        monkeypatch.setenv(variable, f"http://me:pass@127.0.0.1:{port}")
        async with open_client(site.url) as client:
            assert (await client.call_tool("echo", {"text": "through"})).text == "through"
    assert heads[0].startswith(b"POST http://127.0.0.1:")
    assert b"proxy-authorization: basic bwu6cgfzcw==" in heads[0].lower()


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("http2", [False, True])
async def test_a_proxy_of_the_environment_makes_a_tunnel(
    http2: bool, tls: bool, monkeypatch: pytest.MonkeyPatch, certificate: tuple[str, str]
) -> None:
    heads: list[bytes] = []
    trusted = ssl.create_default_context(cafile=certificate[0])
    async with (
        serving(Lab().server, certfile=certificate[0], keyfile=certificate[1]) as site,
        proxy_of(heads, certificate=certificate if tls else None) as port,
    ):
        monkeypatch.setenv("HTTPS_PROXY", f"https://127.0.0.1:{port}" if tls else f"127.0.0.1:{port}")
        monkeypatch.setenv("SSL_CERT_FILE", certificate[0])
        async with open_client(site.url, http2=http2, verify=trusted) as client:
            assert (await client.call_tool("echo", {"text": "through"})).text == "through"
    assert [head.partition(b"\r\n")[0] for head in heads] == [b"CONNECT 127.0.0.1:%d HTTP/1.1" % site.port]


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 5\r\n\r\nlogin",
        b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n",
        b"220 mail\r\n\r\n",
        b"",
    ],
)
async def test_what_a_proxy_says_is_told_with_its_name(
    scheme: str, answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads: list[bytes] = []
    async with proxy_of(heads, answer) as port:
        monkeypatch.setenv("ALL_PROXY", f"http://me:SECRET@127.0.0.1:{port}/?x=SECRET")
        with pytest.raises(MCPError, match=rf"through the proxy 127\.0\.0\.1:{port} of ALL_PROXY") as caught:
            async with open_client(f"{scheme}://server.example/mcp"):
                pass
    assert "SECRET" not in str(caught.value)
    if answer.startswith(b"HTTP"):
        assert answer[9:12].decode() in str(caught.value)


async def test_a_proxy_that_is_not_there_is_told_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{port}")
    with pytest.raises(ConnectionClosed, match=rf"through the proxy 127\.0\.0\.1:{port} of HTTP_PROXY"):
        async with open_client("http://127.0.0.1:1/mcp"):
            pass


@pytest.mark.parametrize(
    "value", ["socks5://127.0.0.1:9", "socks://x:SECRET@y", "what://SECRET", "http://[SECRET", "http://"]
)
async def test_a_proxy_that_cannot_be_used_names_the_variable_and_exempt_hosts_work(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", value)
    async with serving(Lab().server) as site:
        with pytest.raises(ConnectionClosed, match=r"ALL_PROXY.*NO_PROXY") as caught:
            async with open_client(site.url):
                pass
        assert "SECRET" not in str(caught.value)
        monkeypatch.setenv("NO_PROXY", "example.com, 127.0.0.0/8")
        async with open_client(site.url) as client:
            assert (await client.call_tool("echo", {"text": "direct"})).text == "direct"


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
@pytest.mark.parametrize("what", ["nothing", "no certificate"])
async def test_certificates_of_the_environment_that_cannot_be_used_name_the_variable(
    variable: str, what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, certificate: tuple[str, str]
) -> None:
    (tmp_path / "no certificate").write_text("nothing to be seen")
    monkeypatch.setenv(variable, str(tmp_path / what))
    async with serving(Lab().server, certfile=certificate[0], keyfile=certificate[1]) as site:
        # A folder is looked into only when a certificate is looked for.
        with pytest.raises(ConnectionClosed, match=variable if variable == "SSL_CERT_FILE" else "certificate verify"):
            async with open_client(site.url):
                pass
    async with serving(Lab().server) as plain, open_client(plain.url) as client:
        assert (await client.call_tool("echo", {"text": "no TLS"})).text == "no TLS"


def test_the_command_names_the_variable() -> None:
    for env, status in (({"ALL_PROXY": "socks5://127.0.0.1:9"}, 3), ({"SSL_CERT_FILE": "/nonexistent"}, 3)):
        with Running(sys.executable, "-m", "trio_mcp", "tools", "https://127.0.0.1:1/mcp", env=env) as running:
            assert running.process.wait(20) == status
            assert next(iter(env)) in running.errors()


# -- bodies in small pieces


@pytest.mark.parametrize("kind", [JSON, SSE])
async def test_an_answer_in_chunks_of_one_byte_costs_little(kind: bytes) -> None:
    async def answer(peer: H1Peer, path: str, message: dict[str, Any]) -> None:
        body = answer_to(message, "x" * 500_000)
        await peer.send(kind + CHUNKED + b"".join(map(chunk, map(bytes, zip(event(body) if kind is SSE else body)))))
        await peer.send(b"0\r\n\r\n")

    async with faked(answer) as url, open_client(url) as client:
        begin = time.process_time()
        assert len((await client.call_tool("t")).text) == 500_000
        # A quarter of it is the server's; the library that reads chunk by chunk takes over 7 s.
        assert time.process_time() - begin < 3
