"""Bytes that nobody should send: the answer is an error or a closed connection, and everyone else is served."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from ...scaled import scaled
from ...wire.streams import PIECES, expected_by_h11, mutate
from .helpers import IDLE, Answer, Log, Peer, call, http, in_chunks, make, open_site

LIMITS: dict[str, Any] = {"message_bytes": 4_000, "head_bytes": 2_000, "read_ahead": 8_000}
GOOD = call(1, "echo", text="good")
SECRET = call(666, "echo", text="smuggled")
VALID = http(GOOD)
SMUGGLED = http(SECRET)
BODY = json.dumps(GOOD).encode()
REFUSED = frozenset({400, 403, 404, 405, 406, 408, 411, 413, 414, 415, 417, 431, 501, 505})


async def attack(pieces: list[bytes]) -> tuple[list[Answer], Log]:
    """Send bytes, wait for the end of the connection, and see that another one is served."""
    server, log = make(**LIMITS)
    async with open_site(server) as site:
        peer = site.connect(pipe=65_536)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, peer, pieces)
            # Time runs out at the latest: of a head, a body, or of the connection.
            with trio.fail_after(1_000):
                answers = await peer.answers()
                await peer.ended.wait()
            nursery.cancel_scope.cancel()
        ran = list(log.events)
        healthy = await site.connect().ask(call(2, "echo", text="healthy"))
        assert (healthy.status, healthy.text) == (200, "healthy")
        assert site.statistics == IDLE
    log.events = ran
    return answers, log


async def send(peer: Peer, pieces: list[bytes]) -> None:
    for piece in pieces:
        try:
            await peer.send(piece)
        except trio.BrokenResourceError:
            return


def run(*pieces: bytes) -> tuple[list[Answer], Log]:
    async def main() -> tuple[list[Answer], Log]:
        return await attack(list(pieces))

    return trio.run(main, clock=MockClock(autojump_threshold=0))


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


def texts(data: bytes) -> list[Any]:
    """What the complete requests in some bytes would have echoed, as another parser reads them."""
    out = []
    for _, _, body in expected_by_h11(data):
        try:
            out.append(json.loads(body)["params"]["arguments"]["text"])
        except (ValueError, TypeError, KeyError):
            continue
    return out


def check(data: bytes, answers: list[Answer], log: Log) -> None:
    """Whatever ran was a request for another parser too, in the same order; everything else was refused."""
    wanted = texts(data)
    for _, text in log.events:
        assert text in wanted, f"{text!r} ran, which is no request"
        del wanted[: wanted.index(text) + 1]
    assert sum(answer.status == 200 for answer in answers) >= len(log.events)
    for answer in answers:
        assert answer.status in {200, 202} | REFUSED, answer


# -- anything


@settings(max_examples=scaled(150))
@given(st.binary(max_size=400), st.sampled_from([1, 7, 1 << 20]))
def test_random_bytes(data: bytes, size: int) -> None:
    answers, log = run(*cut(data, size))
    assert log.events == []
    assert {answer.status for answer in answers} <= REFUSED


TOKENS = st.sampled_from(
    [
        *(*PIECES, b"HEAD", b"/mcp", b"http://localhost/mcp", b"HTTP/0.9", b"HTTP/2.0", b"Host: localhost\r\n"),
        *(b"Content-Type: application/json\r\n", b"5\r\n[1,2]\r\n", b"[1,2]", b"x" * 2_100, BODY, VALID),
    ]
)


@settings(max_examples=scaled(200))
@given(st.lists(TOKENS, max_size=20).map(b"".join), st.sampled_from([1, 50, 1 << 20]))
def test_pieces_of_requests_in_any_order(data: bytes, size: int) -> None:
    answers, log = run(*cut(data, max(size, len(data) // 500)))
    check(data, answers, log)


@settings(max_examples=scaled(300))
@given(st.randoms(use_true_random=False), st.booleans())
def test_mutated_requests(chance: random.Random, twice: bool) -> None:
    data = mutate(VALID, chance) + VALID * twice
    answers, log = run(data)
    check(data, answers, log)


@settings(max_examples=scaled(100))
@given(st.integers(0, len(VALID)), st.integers(1, 100))
def test_a_request_that_stops_anywhere(place: int, size: int) -> None:
    answers, log = run(*cut(VALID[:place], size))
    if place == len(VALID):
        assert ([answer.status for answer in answers], log.events) == ([200], [("echo", "good")])
    else:
        assert ([answer.status for answer in answers], log.events) == ([408] if place else [], [])


# -- requests inside of requests


def raw(*fields: bytes, body: bytes = b"", line: bytes = b"POST /mcp HTTP/1.1", end: bytes = b"\r\n") -> bytes:
    """A request with these fields besides those that every good one has."""
    base = [b"Host: localhost", b"Content-Type: application/json", b"Accept: application/json, text/event-stream"]
    mirrored = [b"MCP-Protocol-Version: 2026-07-28", b"Mcp-Method: tools/call", b"Mcp-Name: echo"]
    return end.join([line, *base, *mirrored, *fields, b"", b""]) + body


CHUNKED = in_chunks(BODY, [20])
LENGTH = b"Content-Length: %d" % len(BODY)
INNER = b"Content-Length: %d" % len(SMUGGLED)

SMUGGLING = {
    "a length and chunks": raw(INNER, b"Transfer-Encoding: chunked", body=b"0\r\n\r\n" + SMUGGLED),
    "chunks and a length": raw(b"Transfer-Encoding: chunked", INNER, body=b"0\r\n\r\n" + SMUGGLED),
    "a small length and chunks": raw(b"Content-Length: 4", b"Transfer-Encoding: chunked", body=CHUNKED + SMUGGLED),
    "two lengths": raw(LENGTH, b"Content-Length: 0", body=BODY + SMUGGLED),
    "two lengths, the other way": raw(b"Content-Length: 0", LENGTH, body=SMUGGLED),
    "two lengths in one field": raw(b"Content-Length: 0, %d" % len(BODY), body=SMUGGLED),
    "two equal lengths and more": raw(INNER, INNER, body=SMUGGLED + SMUGGLED),
    "a length with a plus": raw(b"Content-Length: +0", body=SMUGGLED),
    "a negative length": raw(b"Content-Length: -1", body=SMUGGLED),
    "a length with an underscore": raw(b"Content-Length: 0_0", body=SMUGGLED),
    "a length in hexadecimal": raw(b"Content-Length: 0x0", body=SMUGGLED),
    "an empty length": raw(b"Content-Length:", body=SMUGGLED),
    "a length with a blank in it": raw(b"Content-Length: 0 0", body=SMUGGLED),
    "a length that is not ASCII": raw("Content-Length: ０".encode(), body=SMUGGLED),
    "a length that overflows": raw(b"Content-Length: 18446744073709551616", body=SMUGGLED),
    "a length that overflows a lot": raw(b"Content-Length: " + b"9" * 100, body=SMUGGLED),
    "a blank before the colon": raw(b"Content-Length : 0", LENGTH, body=SMUGGLED),
    "a blank before the colon of the chunks": raw(b"Transfer-Encoding : chunked", INNER, body=b"0\r\n\r\n" + SMUGGLED),
    "a tab before the colon": raw(b"Transfer-Encoding\t: chunked", INNER, body=b"0\r\n\r\n" + SMUGGLED),
    "chunks by another name": raw(b"Transfer-Encoding: xchunked", body=b"0\r\n\r\n" + SMUGGLED),
    "chunks and something after": raw(b"Transfer-Encoding: chunked, identity", body=b"0\r\n\r\n" + SMUGGLED),
    "chunks twice": raw(b"Transfer-Encoding: chunked, chunked", body=b"0\r\n\r\n" + SMUGGLED),
    "chunks in two fields": raw(b"Transfer-Encoding: chunked", b"Transfer-Encoding: cow", body=b"0\r\n\r\n" + SMUGGLED),
    "identity": raw(b"Transfer-Encoding: identity", INNER, body=b"0\r\n\r\n" + SMUGGLED),
    "an empty coding": raw(b"Transfer-Encoding:", INNER, body=b"0\r\n\r\n" + SMUGGLED),
    "a quoted coding": raw(b'Transfer-Encoding: "chunked"', body=b"0\r\n\r\n" + SMUGGLED),
    "a vertical tab": raw(b"Transfer-Encoding: \x0bchunked", INNER, body=b"0\r\n\r\n" + SMUGGLED),
    "a folded field": raw(b"X: a", b" Transfer-Encoding: chunked", INNER, body=b"0\r\n\r\n" + SMUGGLED),
    "a folded value": raw(b"Transfer-Encoding:", b" chunked", body=b"0\r\n\r\n" + SMUGGLED),
    "a folded first field": raw(line=b"POST /mcp HTTP/1.1\r\n X: y", body=SMUGGLED),
    "a field without a colon": raw(b"Content-Length", body=SMUGGLED),
    "an empty name": raw(b": x", INNER, body=b"0\r\n\r\n" + SMUGGLED),
    "a name with a NUL": raw(b"Content-Length\x00: 0", body=SMUGGLED),
    "a value with a NUL": raw(b"X: \x00", body=SMUGGLED),
    "a bare CR in a value": raw(b"X: a\rContent-Length: %d" % len(SMUGGLED), body=SMUGGLED),
    "bare line feeds": raw(LENGTH, body=BODY, end=b"\n") + SMUGGLED,
    "a bare line feed in the middle": raw(b"X: a\nContent-Length: 0", body=SMUGGLED),
    "a bare line feed ends the head": raw(LENGTH)[:-2] + b"\n" + BODY + SMUGGLED,
    "a size that is no number": raw(b"Transfer-Encoding: chunked", body=b"zz\r\n\r\n" + SMUGGLED),
    "a negative size": raw(b"Transfer-Encoding: chunked", body=b"-1\r\n\r\n" + SMUGGLED),
    "a size with 0x": raw(b"Transfer-Encoding: chunked", body=b"0x0\r\n\r\n" + SMUGGLED),
    "a size with a plus": raw(b"Transfer-Encoding: chunked", body=b"+0\r\n\r\n" + SMUGGLED),
    "an empty size": raw(b"Transfer-Encoding: chunked", body=b"\r\n\r\n" + SMUGGLED),
    "a size that overflows": raw(b"Transfer-Encoding: chunked", body=b"1" + b"0" * 16 + b"\r\n\r\n" + SMUGGLED),
    "a huge size": raw(b"Transfer-Encoding: chunked", body=b"fffffff0\r\n" + SMUGGLED),
    "a size with a line feed": raw(b"Transfer-Encoding: chunked", body=b"0\n\n" + SMUGGLED),
    "a chunk that is longer than its size": raw(b"Transfer-Encoding: chunked", body=b"1\r\n{}\r\n0\r\n\r\n" + SMUGGLED),
    "a chunk without its end": raw(b"Transfer-Encoding: chunked", body=b"2\r\n{}0\r\n\r\n" + SMUGGLED),
    "an extension with a line feed": raw(b"Transfer-Encoding: chunked", body=b"0;\n\r\n\r\n" + SMUGGLED),
    "chunks in HTTP/1.0": raw(
        b"Transfer-Encoding: chunked", b"Connection: keep-alive", line=b"POST /mcp HTTP/1.0", body=CHUNKED + SMUGGLED
    ),
    "a length in HTTP/0.9": raw(LENGTH, line=b"POST /mcp HTTP/0.9", body=BODY + SMUGGLED),
    "HTTP/2.0": raw(LENGTH, line=b"POST /mcp HTTP/2.0", body=BODY + SMUGGLED),
    "HTTP/1.10": raw(LENGTH, line=b"POST /mcp HTTP/1.10", body=BODY + SMUGGLED),
    "another protocol": raw(LENGTH, line=b"OPTIONS /mcp RTSP/1.0", body=BODY + SMUGGLED),
    "no version": b"POST /mcp\r\n\r\n" + SMUGGLED,
    "no method": raw(LENGTH, line=b" /mcp HTTP/1.1", body=BODY + SMUGGLED),
    "a null method": raw(LENGTH, line=b"\x00 /mcp HTTP/1.1", body=BODY + SMUGGLED),
    "an unknown method": raw(LENGTH, line=b"SMUGGLE /mcp HTTP/1.1", body=BODY + SMUGGLED),
    "a method in lower case": raw(LENGTH, line=b"post /mcp HTTP/1.1", body=BODY + SMUGGLED),
    "a target with a blank": raw(LENGTH, line=b"POST /mcp /x HTTP/1.1", body=BODY + SMUGGLED),
    "no target": raw(LENGTH, line=b"POST HTTP/1.1", body=BODY + SMUGGLED),
    "a tunnel": raw(INNER, line=b"CONNECT localhost:80 HTTP/1.1", body=SMUGGLED),
    "a tunnel without a length": raw(line=b"CONNECT localhost:80 HTTP/1.1", body=SMUGGLED),
    "an upgrade of a body": raw(INNER, b"Connection: upgrade", b"Upgrade: h2c", body=SMUGGLED),
    "an upgrade with a length and chunks": raw(
        b"Connection: upgrade", b"Upgrade: h2c", INNER, b"Transfer-Encoding: chunked", body=b"0\r\n\r\n" + SMUGGLED
    ),
    "an upgrade that hides the end": raw(LENGTH, b"Connection: upgrade, close", b"Upgrade: h2c", body=BODY + SMUGGLED),
    "the end of the connection": raw(LENGTH, b"Connection: close", body=BODY + SMUGGLED),
    "HTTP/1.0": raw(LENGTH, line=b"POST /mcp HTTP/1.0", body=BODY + SMUGGLED),
    "HTTP/2 by prior knowledge": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SMUGGLED,
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200,
    "a body in a body": raw(INNER, body=SMUGGLED),
}
# These are answered, for they are requests; what follows them is none.
SERVED = {
    "an upgrade that hides the end": [["good"]],
    "the end of the connection": [["good"]],
    "HTTP/1.0": [["good"]],
    # It may be served, but then the connection must end (RFC 9112, section 6.1).
    "chunks in HTTP/1.0": [[], ["good"]],
}


@pytest.mark.parametrize("size", [1 << 20, 11])
@pytest.mark.parametrize("name", SMUGGLING)
def test_no_second_request_is_smuggled_in(name: str, size: int) -> None:
    answers, log = run(*cut(SMUGGLING[name], size))
    assert ("echo", "smuggled") not in log.events
    assert [text for _, text in log.events] in SERVED.get(name, [[]])
    assert [answer.status for answer in answers if answer.status not in REFUSED] == [200] * len(log.events)
    assert len(answers) <= 1


# -- a lot of it


@pytest.mark.parametrize(
    "piece",
    [
        b"\x00",
        b"\r\n",
        b"x",
        b"POST /mcp HTTP/1.1\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000\r\n\r\n",
        raw(b"Transfer-Encoding: chunked", body=b"1;" + b"x" * 3_000),
        raw(b"Transfer-Encoding: chunked", body=b"1\r\n \r\n"),
        VALID,
    ],
)
def test_a_flood_is_bounded(piece: bytes) -> None:
    """The virtual clock stands still while bytes come, so what bounds them is not the time."""
    flood = [piece * (1 + 20_000 // len(piece))] * 50
    answers, log = run(*flood)
    good = sum(answer.status == 200 for answer in answers)
    assert good == len(log.events)
    # More than may wait is refused as too much.
    assert {answer.status for answer in answers} <= ({200, 503} if piece == VALID else REFUSED)
    assert (good > 0) == (piece == VALID)


def test_a_body_in_tiny_chunks_costs_time_in_proportion_to_its_size() -> None:
    data = raw(b"Transfer-Encoding: chunked", body=b"1\r\n \r\n" * 1_000_000 + in_chunks(BODY, []))

    async def main() -> Answer:
        server, _ = make()
        async with open_site(server) as site:
            peer = site.connect()
            await peer.send(data)
            return await peer.answer()

    before = time.process_time()
    answer = trio.run(main, clock=MockClock(autojump_threshold=0))
    spent = time.process_time() - before
    assert answer.text == "good"
    # A second or two; when every chunk copies what came before it, many seconds.
    assert spent < 6
