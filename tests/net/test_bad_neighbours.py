"""A client that behaves badly, at each edge, and a healthy one beside it: that one hardly notices, and nothing is left."""

from __future__ import annotations

import json
import os
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from trio_mcp import open_server, serve_stream
from trio_mcp.serve import OpenServer

from ..scaled import FACTOR
from .servers.http_peers import H1Peer, H2Peer, all_places_free, call, holds, post, serving, settled
from .servers.http_tools import Lab

EDGES = ["HTTP/1.1", "HTTP/2", "TLS", "unix socket", "pipes"]
CALLS = 50
LARGE = 1_000_000
Connect = Callable[[], Awaitable[Any]]


@asynccontextmanager
async def reachable(
    edge: str, engine: OpenServer, certificate: tuple[str, str], folder: Path
) -> AsyncIterator[Connect]:
    """Serve at an edge; gives what connects to it."""
    if edge in ("HTTP/1.1", "HTTP/2", "TLS"):
        options = {"certfile": certificate[0], "keyfile": certificate[1]} if edge == "TLS" else {}
        async with serving(engine, **options) as site:

            async def connect() -> Any:
                stream = await site.connect()
                if edge != "TLS":
                    return stream
                context = ssl.create_default_context(cafile=certificate[0])
                secure = trio.SSLStream(stream, context, server_hostname="127.0.0.1", https_compatible=True)
                await secure.do_handshake()
                return secure

            yield connect
        return
    async with trio.open_nursery() as nursery:
        if edge == "pipes":

            async def connect() -> Any:
                (ours, to_us), (theirs, to_them) = os.pipe(), os.pipe()
                open_fd = trio.lowlevel.FdStream
                nursery.start_soon(serve_stream, engine, trio.StapledStream(open_fd(to_us), open_fd(theirs)))
                return trio.StapledStream(open_fd(to_them), open_fd(ours))

        else:
            path = str(folder / "socket")
            listening = trio.socket.socket(trio.socket.AF_UNIX)
            await listening.bind(path)
            listening.listen(8)

            async def accept() -> None:
                with listening:
                    while True:
                        sock, _ = await listening.accept()
                        nursery.start_soon(serve_stream, engine, trio.SocketStream(sock))

            nursery.start_soon(accept)

            async def connect() -> Any:
                return await trio.open_unix_socket(path)

        try:
            yield connect
        finally:
            nursery.cancel_scope.cancel()


async def echoes(edge: str, stream: Any) -> Callable[[], Awaitable[None]]:
    """A healthy client: what makes one quick call."""
    if edge == "HTTP/2":
        h2 = H2Peer(stream)
        await h2.begin()

        async def ask() -> None:
            assert await h2.echo("x") == "x"

    elif edge in ("HTTP/1.1", "TLS"):
        h1 = H1Peer(stream)

        async def ask() -> None:
            assert await h1.echo("x") == "x"

    else:
        lines = H1Peer(stream)

        async def ask() -> None:
            await lines.send(json.dumps(call(1, "echo", text="x")).encode() + b"\n")
            assert b'"text":"x"' in await lines.until(b"\n")

    return ask


async def requests(edge: str, tool: str, count: int, **arguments: Any) -> bytes:
    """So many requests, as bytes."""
    messages = [call(number, tool, **arguments) for number in range(count)]
    if edge == "HTTP/2":
        out = bytearray()

        class Kept:
            async def send_all(self, data: bytes) -> None:
                out.extend(data)

        # It leaves room for everything, so that nothing but its silence holds the server back.
        peer = H2Peer(Kept(), initial=2**30)
        await peer.begin()
        peer.h2.increment_flow_control_window(2**30)
        for message in messages:
            await peer.post(message)
        return bytes(out)
    if edge in ("HTTP/1.1", "TLS"):
        return b"".join(map(post, messages))
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


async def deaf(edge: str, stream: Any) -> None:
    await stream.send_all(await requests(edge, "big", 5, size=LARGE))
    await trio.sleep_forever()


async def slow(edge: str, stream: Any) -> None:
    """10 KB a second."""
    await stream.send_all(await requests(edge, "big", 5, size=LARGE))
    while await stream.receive_some(500):
        await trio.sleep(0.05)


async def flood(edge: str, stream: Any) -> None:
    """Requests without a pause, whose answers it reads."""
    data = await requests(edge, "echo", 80, text="x")
    async with trio.open_nursery() as nursery:

        async def read() -> None:
            while await stream.receive_some(65_536):
                pass

        nursery.start_soon(read)
        for _ in range(1 if edge == "HTTP/2" else 1_000):
            await stream.send_all(data)


async def endless(edge: str, stream: Any) -> None:
    """A head, or a line, that does not end."""
    if edge == "HTTP/2":
        await stream.send_all(await requests(edge, "echo", 1, text="x"))
        await stream.send_all(b"\x00\x00\x00\x01\x00\x00\x00\x00\x03")
        piece = b"\x00\x00\x00\x09\x00\x00\x00\x00\x03"
    else:
        await stream.send_all(b"POST /mcp HTTP/1.1\r\n" if edge in ("HTTP/1.1", "TLS") else b'{"a":"')
        piece = b"x-more: and more\r\n" if edge in ("HTTP/1.1", "TLS") else b"x" * 1_000
    while True:
        await stream.send_all(piece)


async def slowest(ask: Callable[[], Awaitable[None]]) -> float:
    """The time of the slowest call but one."""
    times = []
    for _ in range(CALLS):
        begun = time.perf_counter()
        await ask()
        times.append(time.perf_counter() - begun)
        await trio.lowlevel.checkpoint()
    return sorted(times)[-2]


def resident() -> int:
    """Bytes of memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def bear(edge: str, certificate: tuple[str, str], folder: Path, factor: float, floor: float) -> None:
    async with (
        open_server(Lab().server) as engine,
        reachable(edge, engine, certificate, folder) as connect,
        await connect() as stream,
    ):
        ask = await echoes(edge, stream)
        await slowest(ask)
        quiet = await slowest(ask)
        before, memory = await settled(), resident()
        for neighbour in (deaf, slow, flood, endless):
            seen = []
            for _ in range(5):
                other = await connect()
                async with trio.open_nursery() as nursery:

                    async def behave(
                        neighbour: Callable[[str, Any], Awaitable[None]] = neighbour, other: Any = other
                    ) -> None:
                        try:
                            await neighbour(edge, other)
                        except* trio.BrokenResourceError:
                            pass  # the server may have had enough of it

                    nursery.start_soon(behave)
                    await trio.sleep(0.02)
                    seen.append(await slowest(ask))
                    nursery.cancel_scope.cancel()
                await trio.aclose_forcefully(other)
                if seen[-1] <= max(factor * quiet, floor):
                    break
            assert min(seen) <= max(factor * quiet, floor), (neighbour.__name__, quiet, seen)
            after = await holds(before)
            assert after == before, (neighbour.__name__, before, after)
            await all_places_free(engine)
        assert resident() - memory < 40_000_000


@pytest.mark.soak
@pytest.mark.parametrize("edge", EDGES)
async def test_a_healthy_client_beside_a_bad_one(edge: str, certificate: tuple[str, str], tmp_path: Path) -> None:
    # How fast a shared machine is says nothing, so the floor is far above what is seen; in a deep run it is nearer.
    # The bad one runs
    # in the same process, so that its own work is in the time as well.
    await bear(edge, certificate, tmp_path, 5, 0.1 if FACTOR > 1 else 0.5)
