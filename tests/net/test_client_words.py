"""What an error of a connection says: what was tried, and why that failed."""

from __future__ import annotations

import re
import socket
import ssl
import sys
from pathlib import Path

import pytest
import trio

from trio_mcp import ConnectionClosed, HttpError, MCPError, RequestTimeout, Server, open_client

from .helpers import Running
from .servers.http_peers import make_certificate, serving
from .test_http_client import listening, plain_environment  # noqa: F401


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The paths of a certificate and its key."""
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def unused() -> int:
    """A port where nobody listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
    return port


async def said(url: str, kind: type[MCPError] = ConnectionClosed, **options: object) -> str:
    with trio.fail_after(20), pytest.raises(kind) as caught:
        async with open_client(url, **options):  # type: ignore[arg-type]
            pass
    return str(caught.value)


async def test_nobody_listens(unused: int) -> None:
    for scheme in ("http", "https"):
        url = f"{scheme}://127.0.0.1:{unused}/mcp"
        assert await said(url) == f"server/discover: {url}: cannot connect to 127.0.0.1:{unused}: connection refused"


async def test_nobody_listens_at_any_address_of_a_name(unused: int) -> None:
    assert (await said(f"http://localhost:{unused}/mcp")).endswith(f"connect to localhost:{unused}: connection refused")


async def test_no_such_host() -> None:
    # Without a network the system cannot say that there is none.
    assert re.search(
        r"cannot connect to nowhere\.invalid:80: (no such host|temporary failure in name resolution)$",
        await said("http://nowhere.invalid/mcp"),
    )


async def test_a_proxy_that_is_not_there(unused: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{unused}")
    text = await said("http://h.example/mcp")
    assert f"cannot connect to 127.0.0.1:{unused}: connection refused (through the proxy 127.0.0.1:{unused} of" in text


async def test_a_connection_that_is_not_made_in_time() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        held = [socket.socket() for _ in range(4)]
        try:
            # A full backlog takes no more, and says nothing.
            for sock in held:
                sock.setblocking(False)
                sock.connect_ex(("127.0.0.1", port))
            text = await said(f"http://127.0.0.1:{port}/mcp", RequestTimeout, connect_timeout=0.3)
        finally:
            for sock in held:
                sock.close()
    assert text.endswith(f"within 0.3 s; there is no connection to 127.0.0.1:{port} yet")


@pytest.mark.parametrize("first", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"220 ready\r\n", b"x" * 100, b""])
async def test_https_where_no_tls_is_spoken(first: bytes, certificate: tuple[str, str]) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        if first:
            await stream.send_all(first)
        await stream.send_eof()
        await stream.receive_some()

    async with listening(serve) as port:
        text = await said(f"https://127.0.0.1:{port}/mcp", verify=ssl.create_default_context(cafile=certificate[0]))
    assert "TLS: " in text
    assert "plain HTTP, its URL begins with http://" in text


async def test_https_to_our_server_without_tls(certificate: tuple[str, str]) -> None:
    async with serving(Server("plain")) as site:
        url = site.url.replace("http:", "https:")
        text = await said(url, verify=ssl.create_default_context(cafile=certificate[0]))
    assert "plain HTTP, its URL begins with http://" in text


@pytest.mark.parametrize("first", [b"\x15\x03\x01\x00\x02\x02\x46", b"\x15", b"\x16\x03\x01"])
async def test_http_where_tls_is_spoken(first: bytes) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(first)
        await stream.send_eof()
        await stream.receive_some()

    async with listening(serve) as port:
        text = await said(f"http://127.0.0.1:{port}/mcp")
    assert "the server speaks TLS there: its URL begins with https://" in text


async def test_http_where_the_connection_is_closed_without_a_word() -> None:
    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some()

    async with listening(serve) as port:
        text = await said(f"http://127.0.0.1:{port}/mcp")
    assert text.endswith("closed the connection without an answer; if it speaks TLS, its URL begins with https://")


async def test_a_unix_socket_is_called_by_its_path(tmp_path: Path) -> None:
    missing, plain, socket_path = (tmp_path / name for name in ("missing", "plain", "there"))
    plain.write_text("")
    text = await said(f"unix:{missing}")
    assert text == f"server/discover: unix:{missing}: cannot connect to the socket {missing}: no such file or directory"
    assert (await said(f"unix:{plain}")).endswith(f"cannot connect to the socket {plain}: connection refused")
    async with serving(Server("x"), f"unix:{socket_path}", path="/there"):
        text = await said("http://h.example/mcp", HttpError, uds=str(socket_path))
        assert text.startswith(f"server/discover: http://h.example/mcp (at unix:{socket_path}) answered 404")
        async with open_client("http://localhost/there", uds=str(socket_path)) as client:
            assert client.peer == f"http://localhost/there (at unix:{socket_path})"
        text = await said(f"unix:{socket_path}", HttpError)
        assert text.startswith(f"server/discover: unix:{socket_path} answered 404")


def test_the_command_says_the_same(unused: int, tmp_path: Path) -> None:
    for target, words in (
        (f"http://127.0.0.1:{unused}/mcp", f"cannot connect to 127.0.0.1:{unused}: connection refused\n"),
        (f"unix:{tmp_path}/x", f"cannot connect to the socket {tmp_path}/x: no such file or directory\n"),
    ):
        with Running(sys.executable, "-m", "trio_mcp", "tools", target) as running:
            assert running.process.wait(20) == 3
            assert running.errors().endswith(words)
