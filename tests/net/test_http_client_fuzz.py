"""Answers of servers, mutated: whatever comes, a call ends soon, with a result or an `MCPError`.

60 a kind here; `CLIENT_FUZZ=2000` sets another number.
"""

from __future__ import annotations

import json
import logging
import os
import random
import ssl
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from trio_mcp import Limits, MCPError, open_client

from .servers.h2_fake import H2Call, served_over_h2
from .servers.http_peers import H1Peer, faked
from .test_http_client import CHUNKED, JSON, SSE, answer_to, chunk, event

MUTATIONS = int(os.environ.get("CLIENT_FUZZ", "60"))
LIMITS = Limits(answer_bytes=200_000, client_timeout=1)

PIECES = [
    *(
        b"\r\n",
        b"\n",
        b"\r",
        b"\0",
        b"\xff",
        b" ",
        b":",
        b";",
        b"0",
        b"-1",
        b"ffffffffffffffff",
        b"99999999999999999999",
    ),
    *(
        b"HTTP/1.1 ",
        b"HTTP/2.0 200 OK\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 101 X\r\n\r\n",
        b"204",
        b"304",
    ),
    *(
        b"content-length: 3\r\n",
        b"content-length: -1\r\n",
        b"transfer-encoding: chunked\r\n",
        b"transfer-encoding: x\r\n",
    ),
    *(b"content-encoding: gzip\r\n", b"content-encoding: deflate, br\r\n", b"content-type: text/event-stream\r\n"),
    *(b"content-type: application/json; charset=x\r\n", b"location: http://[\r\n", b"set-cookie: a=b; expires=x\r\n"),
    *(
        b"data: ",
        b"event: ",
        b"id: \0",
        b"retry: 9\n",
        b"\n\n",
        b"{",
        b"}",
        b"null",
        b'"id"',
        b"1e999",
        b'"\\ud800"',
        b"[" * 300,
    ),
    *(
        b"connection: close\r\n",
        b"connection: upgrade\r\nupgrade: h2c\r\n",
        b"trailer: x\r\n",
        b"x" * 70_000,
        b"\xef\xbb\xbf",
    ),
]


def mutated(data: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.randint(1, 4)):
        at, to = sorted(chance.randrange(len(data) + 1) for _ in range(2))
        to = min(to, at + chance.choice([0, 1, 5, 40]))
        what = chance.randrange(5)
        if what == 0:
            data = data[:at] + chance.choice(PIECES) + data[at:]
        elif what == 1:
            data = data[:at] + data[to:]
        elif what == 2:
            data = data[:at] + chance.choice(PIECES) + data[to:]
        elif what == 3:
            data = data[:to] + data[at:]
        else:
            data = data[:at] + chance.randbytes(chance.randint(1, 8)) + data[at:]
    return data


def whole(message: dict[str, Any], chance: random.Random) -> bytes:
    """A good answer in one of many forms."""
    body = answer_to(message)
    note = json.dumps(
        {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 2, "progress": 1}}
    )
    events = event(note.encode()) + b": comment\n\n" + event(body)
    packed = zlib.compress(body, wbits=31)
    forms = [
        JSON + b"content-length: %d\r\n\r\n" % len(body) + body,
        JSON + CHUNKED + chunk(body[:9]) + chunk(body[9:]) + b"0\r\nx-trailer: 1\r\n\r\n",
        JSON + b"connection: close\r\n\r\n" + body,
        SSE + CHUNKED + chunk(events[:50]) + chunk(events[50:]) + b"0\r\n\r\n",
        SSE + b"\r\n" + events,
        JSON + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(packed) + packed,
        b"HTTP/1.1 307 Moved\r\nlocation: /mcp?%d\r\ncontent-length: 0\r\n\r\n" % chance.randrange(9),
        b"HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body,
        b"HTTP/1.1 503 Busy\r\nretry-after: x\r\ncontent-type: text/html\r\ncontent-length: 3\r\n\r\n<p>",
        b"HTTP/1.1 103 Early\r\nlink: x\r\n\r\n" + JSON + b"content-length: %d\r\n\r\n" % len(body) + body,
    ]
    return chance.choice(forms)


async def calls(url: str, failed: list[str], said: Callable[[], object], **options: Any) -> None:
    async with open_client(url, limits=LIMITS, **options) as client:
        for _ in range(MUTATIONS):
            with trio.move_on_after(10) as patience:
                try:
                    await client.call_tool("t", on_progress=lambda *told: None)
                except MCPError:
                    pass
                except Exception as exc:
                    failed.append(f"{exc!r} after {said()!r}")
            if patience.cancelled_caught:
                failed.append(f"no end after {said()!r}")


@pytest.mark.timeout(600)
async def test_mutated_answers_over_http_1(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    chance = random.Random(7)
    last = [b""]

    async def answer(peer: H1Peer, path: str, message: dict[str, Any]) -> None:
        last[0] = mutated(whole(message, chance), chance)
        cut = chance.randrange(len(last[0]) + 1)
        await peer.send(last[0][:cut])
        if chance.random() < 0.3:
            await trio.testing.wait_all_tasks_blocked()
        await peer.send(last[0][cut:])

    failed: list[str] = []
    async with faked(answer) as url:
        await calls(url, failed, lambda: last[0][:2000])
    assert failed == []


@pytest.mark.timeout(600)
async def test_mutated_frames_over_http_2(certificate: tuple[str, str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    chance = random.Random(11)
    last = [b""]

    async def script(call: H2Call) -> None:
        flush, frames = call.on.flush, bytearray()

        async def keep() -> None:
            frames.extend(call.on.h2.data_to_send())

        call.on.flush = keep  # type: ignore[method-assign]
        forms: list[Callable[[], Awaitable[None]]] = [call.answer, lambda: _streamed(call)]
        await chance.choice(forms)()
        call.on.flush = flush  # type: ignore[method-assign]
        data = bytearray(frames)
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(data))
            data[at : at + chance.choice([0, 1, 1, 4])] = chance.randbytes(chance.choice([0, 1, 1, 5]))
        last[0] = bytes(data)
        await call.on.raw(last[0])
        if chance.random() < 0.5:
            await call.on.close()

    async def _streamed(call: H2Call) -> None:
        await call.head(kind="text/event-stream")
        await call.data(event(call.body()), end=True)

    failed: list[str] = []
    trusted = ssl.create_default_context(cafile=certificate[0])
    async with served_over_h2(script, certificate) as site:
        await calls(site.url, failed, lambda: last[0][:2000], http2=True, verify=trusted)
    assert failed == []
