"""A thousand hostile byte strings on every kind of port, beside a client that must not notice."""

from __future__ import annotations

import json
import random
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import h2.connection
import hyperframe.frame
import pytest
import trio
import trio.testing

from trio_mcp import open_server

from .servers.http_peers import H1Peer, Site, call, holds, post, reset, serving, settled
from .servers.http_tools import Lab

KINDS = {
    "plain port": 1_000,
    "before the TLS handshake": 400,
    "inside TLS": 300,
    "inside TLS as h2": 300,
    "unix socket": 1_000,
}
"""Kinds of ports, and how many clients each gets; those of TLS are one."""

BATCH = 50

METHODS = [
    *(b"POST", b"GET", b"PRI", b"OPTIONS", b"CONNECT", b"DELETE", b"post", b"P\x00ST", b"\xff", b"", b"HEAD", b"QUERY"),
]
TARGETS = [b"/mcp", b"*", b"/", b"http://127.0.0.1/mcp", b"/\xff\xc3", b"//", b"/mcp?" + b"a" * 5_000, b"", b"host:80"]
VERSIONS = [b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/9.9", b"HTTP/0.9", b"ICY", b"", b"HTTP/1.1 x"]
FIELDS = [
    *(b"host: 127.0.0.1", b"host: \xff\xfe", b"host: a\r\nhost: b", b"content-length: 10", b"content-length: -1"),
    *(b"content-length: 99999999999999999999999", b"content-length: 5\r\ncontent-length: 6", b"content-length: 1e3"),
    *(b"transfer-encoding: chunked", b"transfer-encoding: chunked\r\ncontent-length: 3"),
    *(b"transfer-encoding: gzip, chunked", b"Transfer-Encoding : chunked", b"expect: 100-continue"),
    b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__",
    b"connection: upgrade\r\nupgrade: h2c\r\nhttp2-settings: %%%",
    b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: x",
    *(b"connection: close", b"content-type: application/json", b"accept: */*;q=\xb2"),
    *(b"accept: application/json, text/event-stream", b"mcp-method: tools/call", b"mcp-name: =?base64?%%?="),
    *(b"origin: null", b"no colon", b": no name", b"folded: a\r\n  b", b"nul: a\x00b", b"bare: a\rb"),
    b"x" * 40_000 + b": y",
    b"many: 1\r\n" * 500 + b"many: 2",
]
BODIES = [
    b"",
    b"{}",
    b"[]",
    b"null",
    b"\xff" * 10,
    b'{"jsonrpc": "2.0"',
    b"[" * 5_000,
    b"ffffffffffffffff\r\n",
    b"5\r\nhello\r\n0\r\n\r\n",
    b"-1\r\n",
    b"0\r\n" + b"t: x\r\n" * 2_000,
    b"5;" + b"x" * 20_000 + b"\r\n",
    json.dumps(call(1, "echo", text="x")).encode(),
]


def hostile_http(chance: random.Random) -> bytes:
    """Something like a request."""
    lines = [b" ".join(chance.choice(part) for part in (METHODS, TARGETS, VERSIONS))]
    lines += [chance.choice(FIELDS) for _ in range(chance.randrange(6))]
    end = chance.choice([b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r"])
    return end.join(lines) + end * 2 + chance.choice(BODIES)


def hostile_h2(chance: random.Random) -> bytes:
    """Something like an HTTP/2 connection."""
    connection = h2.connection.H2Connection()
    connection.initiate_connection()
    out = connection.data_to_send() if chance.random() < 0.9 else b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r"
    for _ in range(chance.randrange(8)):
        stream = chance.choice([0, 1, 1, 3, 5, 2**31 - 1, 2])
        kind = chance.randrange(8)
        if kind == 0:
            frame = hyperframe.frame.HeadersFrame(stream or 1, chance.randbytes(chance.randrange(40)))
            frame.flags.add("END_HEADERS")
            out += frame.serialize()
        elif kind == 1:
            headers = [(b":method", b"POST"), (b":path", b"/mcp\xff"), (b":scheme", b"http"), (b":authority", b"x")]
            data = connection.encoder.encode([field for field in headers if chance.random() < 0.8])
            frame = hyperframe.frame.HeadersFrame(stream or 1, data)
            frame.flags.add("END_HEADERS")
            out += frame.serialize()
        elif kind == 2 and stream:
            out += hyperframe.frame.DataFrame(stream, chance.randbytes(chance.randrange(100))).serialize()
        elif kind == 3 and stream:
            out += hyperframe.frame.PriorityFrame(stream, chance.choice([0, stream, 7]), 3).serialize()
        elif kind == 4:
            out += hyperframe.frame.WindowUpdateFrame(stream, chance.choice([1, 2**31 - 1])).serialize()
        elif kind == 5 and stream:
            out += hyperframe.frame.RstStreamFrame(stream, chance.choice([0, 8, 99])).serialize()
        elif kind == 6:
            out += hyperframe.frame.SettingsFrame(0, {chance.randrange(20): chance.randrange(2**20)}).serialize()
        else:
            size = chance.randrange(60)
            head = size.to_bytes(3, "big") + bytes([chance.randrange(16), chance.randrange(256)])
            out += head + stream.to_bytes(4, "big") + chance.randbytes(chance.choice([size, size, size // 2]))
    return out


def hostile(chance: random.Random) -> bytes:
    """Any of it: noise, nearly a request, a good request with a wound, nearly HTTP/2."""
    kind = chance.randrange(5)
    if kind == 0:
        return chance.randbytes(chance.choice([0, 1, 3, 10, 100, 5_000]))
    if kind == 1:
        return hostile_h2(chance)
    if kind == 2:
        good = bytearray(post(call(1, "echo", text="x")))
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(good))
            good[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(3))
        return bytes(good)
    return hostile_http(chance) + (hostile_http(chance) if kind == 4 else b"")


async def attack(stream: trio.SocketStream, channel: Any, data: bytes, chance: random.Random) -> bytes:
    """Send it, in one piece or several, and leave in one of several ways; what came back."""
    out = b""
    try:
        cuts = sorted(chance.randrange(len(data) + 1) for _ in range(chance.choice([0, 0, 1, 3])))
        with trio.move_on_after(0.5):
            for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
                await channel.send_all(data[start:end])
                await trio.lowlevel.checkpoint()
        kind = chance.randrange(4)
        if kind == 0:
            await reset(stream)
            return out
        if kind == 1 and channel is stream:
            await stream.send_eof()
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def read() -> None:
                nonlocal out
                while more := await channel.receive_some(65_536):
                    out += more
                nursery.cancel_scope.cancel()

            # Server and clients are one run: when nobody has anything to do, everything that will come has come.
            if kind != 2:
                with trio.move_on_after(2):
                    await trio.testing.wait_all_tasks_blocked(0.01)
            nursery.cancel_scope.cancel()
    except* (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    await trio.aclose_forcefully(stream)
    return out


@asynccontextmanager
async def opened(kind: str, certificate: tuple[str, str], folder: Path) -> AsyncIterator[tuple[Lab, Any, Site]]:
    """A server on one kind of port."""
    lab = Lab()
    bind = f"unix:{folder / 'socket'}" if kind == "unix socket" else "127.0.0.1:0"
    options = {"certfile": certificate[0], "keyfile": certificate[1]} if "TLS" in kind else {}
    async with open_server(lab.server) as engine, serving(engine, bind, **options) as site:
        yield lab, engine, site


@pytest.mark.parametrize("kind", KINDS)
async def test_a_thousand_hostile_clients(kind: str, certificate: tuple[str, str], tmp_path: Path) -> None:
    chance = random.Random(kind)
    context = ssl.create_default_context(cafile=certificate[0])
    context.set_alpn_protocols(["h2"] if kind.endswith("h2") else ["http/1.1"])
    healthy_context = ssl.create_default_context(cafile=certificate[0])

    async def secured(stream: trio.SocketStream, context: ssl.SSLContext) -> Any:
        channel = trio.SSLStream(stream, context, server_hostname="127.0.0.1", https_compatible=True)
        await channel.do_handshake()
        return channel

    async with opened(kind, certificate, tmp_path) as (_, engine, site):
        stream = await site.connect()
        healthy = H1Peer(await secured(stream, healthy_context) if "TLS" in kind else stream)
        assert await healthy.echo("before") == "before"
        before = await settled()
        answers: list[bytes] = []

        async def one(data: bytes) -> None:
            stream = await site.connect()
            channel = await secured(stream, context) if kind.startswith("inside") else stream
            answers.append(await attack(stream, channel, data, chance))

        slowest = 0.0
        for first in range(0, KINDS[kind], BATCH):
            async with trio.open_nursery() as nursery:
                for _ in range(BATCH):
                    nursery.start_soon(one, hostile(chance))
                begin = time.process_time()
                assert await healthy.echo(f"beside {first}") == f"beside {first}"
                slowest = max(slowest, time.process_time() - begin)
        # Work that is not ours to do; who waits for a timer waits longer than for an answer.
        assert slowest < 1.5
        assert len(answers) == KINDS[kind]
        if kind in ("plain port", "unix socket", "inside TLS"):
            # Whatever comes back is HTTP, of either version, and never a failure of ours.
            for answer in answers:
                assert answer == b"" or answer.startswith(b"HTTP/1.1 ") or answer[3:4] in (b"\x04", b"\x07"), answer[
                    :100
                ]
                assert not answer.startswith(b"HTTP/1.1 500"), answer
            assert sum(answer.startswith(b"HTTP/1.1 4") for answer in answers) > len(answers) / 10
        assert await healthy.echo("after") == "after"
        assert await holds(before) == before
        statistics = engine.executor.statistics()
        assert (statistics.running, statistics.waiting) == (0, 0)
        await healthy.aclose()
