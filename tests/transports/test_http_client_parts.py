"""The parts of the HTTP client, each by itself: what it reads, what it writes, what it says and what it is told."""

from __future__ import annotations

import itertools
import socket
import sys
from typing import Any

import httpcore2
import httpx2
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from trio_mcp import ConnectionClosed
from trio_mcp.transports.http1_client import AnswerReader, Http1Connection
from trio_mcp.transports.http2_client import Http2Connection
from trio_mcp.transports.http2_stream import Stream
from trio_mcp.transports.http_environment import find_proxy
from trio_mcp.transports.http_url import shown_url
from trio_mcp.transports.http_wire import Wire

ORIGIN = httpcore2.Origin(b"http", b"localhost", 80)

# -- reading an answer

ANSWERS = [
    b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nx: y\r\n\r\nhello",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 E\r\nlink: z\r\n\r\nHTTP/1.1 200 OK\r\nx: y\r\ncontent-length: 5\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nx: y\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3;a=b\r\nllo\r\n0\r\nt: 1\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nx: y\r\ncontent-length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 200 OK\r\nx: y\r\ncontent-length: 5\r\n\r\nhello\0\0\0",
    b"HTTP/1.0 200 OK\r\nx: y\r\n\r\nhello",
]


def read(pieces: list[bytes]) -> tuple[Any, ...]:
    reader = AnswerReader()
    for piece in pieces:
        reader.feed(piece)
    if not reader.complete:
        reader.end()
    fields = dict(reader.headers)
    return (
        reader.status,
        reader.reason,
        fields.get(b"x"),
        fields.get(b"t"),
        bytes(reader.body),
        reader.complete,
        reader.fault,
    )


@given(st.sampled_from(ANSWERS), st.lists(st.integers(0, 200), max_size=8))
def test_any_cut_of_an_answer_reads_the_same(answer: bytes, cuts: list[int]) -> None:
    at = [0, *sorted(min(cut, len(answer)) for cut in cuts), len(answer)]
    pieces = [answer[begin:end] for begin, end in itertools.pairwise(at) if begin < end]
    assert read(pieces) == (200, b"OK", b"y", None, b"hello", True, None)


@pytest.mark.parametrize("answer", [answer for answer in ANSWERS if b"1.0" not in answer])
def test_half_an_answer_is_a_fault(answer: bytes) -> None:
    whole = answer.partition(b"hello")[0] + b"hel" if b"hello" in answer else answer[:-20]
    assert "middle of an answer" in str(read([whole])[-1])


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (b"HTTP/1.1 200 OK\r\nx: ", b"y"),
        (b"HTTP/1.1 200 OK\r\n", b"x: y\r\n"),
        (b"HTTP/1.1 200 ", b"y"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;", b"y"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n", b"x: y\r\n"),
    ],
)
def test_what_is_no_body_has_a_bound(begin: bytes, more: bytes) -> None:
    reader = AnswerReader()
    reader.feed(begin)
    for _ in range(200):
        reader.feed(more * (1000 // len(more)))
        if reader.fault is not None:
            return
    raise AssertionError("no end")


def test_a_body_in_pieces_of_one_byte_is_one_buffer() -> None:
    reader = AnswerReader()
    reader.feed(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    for _ in range(200):
        reader.feed(b"1\r\nx\r\n" * 1000)
    assert len(reader.body) == 200_000
    assert sys.getsizeof(reader.body) < 400_000


# -- connections


def pair() -> tuple[Wire, trio.SocketStream]:
    ours, theirs = socket.socketpair()
    return Wire(trio.SocketStream(trio.socket.from_stdlib_socket(ours))), trio.SocketStream(
        trio.socket.from_stdlib_socket(theirs)
    )


def request(size: int = 10) -> httpcore2.Request:
    headers = [(b"Host", b"localhost"), (b"Content-Length", b"%d" % size)]
    stream = httpx2.ByteStream(b"x" * size)
    return httpcore2.Request(b"POST", "http://localhost/", headers=headers, content=stream)


@pytest.mark.parametrize("used", [False, True])
async def test_a_request_that_did_not_leave_goes_elsewhere_if_the_connection_was_used_before(used: bool) -> None:
    wire, peer = pair()
    made = Http1Connection(ORIGIN, wire, idle=None, write_timeout=5)
    if used:
        await peer.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        await (await made.handle_async_request(request())).aclose()
        assert made.is_available()
    # Nothing more can be written, and that is all that can be seen of it.
    peer.socket.shutdown(socket.SHUT_RD)

    async def close() -> None:
        await trio.testing.wait_all_tasks_blocked()
        await peer.aclose()

    error = httpcore2.ConnectionNotAvailable if used else httpx2.TransportError
    async with trio.open_nursery() as nursery:
        nursery.start_soon(close)
        with pytest.raises(error):
            await made.handle_async_request(request())
    assert made.is_closed()


async def test_a_request_that_has_left_and_is_not_answered_is_an_error() -> None:
    wire, peer = pair()
    made = Http1Connection(ORIGIN, wire, idle=None, write_timeout=5)
    await peer.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
    await (await made.handle_async_request(request())).aclose()

    async def close() -> None:
        await trio.testing.wait_all_tasks_blocked()
        await peer.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(close)
        with pytest.raises(httpx2.TransportError):
            await made.handle_async_request(request())


async def test_http_1_gives_up_a_server_that_does_not_take_the_request(autojump_clock: MockClock) -> None:
    wire, peer = pair()
    made = Http1Connection(ORIGIN, wire, idle=None, write_timeout=5)
    with pytest.raises(httpx2.WriteTimeout, match="within 5 s"):
        await made.handle_async_request(request(5_000_000))
    assert made.is_closed()
    await peer.aclose()


async def test_http_2_gives_up_a_server_that_takes_nothing(autojump_clock: MockClock) -> None:
    wire, peer = pair()
    wire._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # type: ignore[attr-defined]
    made = Http2Connection(ORIGIN, wire, idle=None)
    async with trio.open_nursery() as nursery:
        made.start(nursery)
        # The settings that say a stream may be sent much on, and nothing after it.
        window = (50_000_000).to_bytes(4, "big")
        await peer.send_all(b"\0\0\x06\x04\0\0\0\0\0" + b"\0\x04" + window + b"\0\0\x04\x08\0\0\0\0\0" + window)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(httpx2.WriteTimeout, match="took nothing for 5 s"):
            await made.handle_async_request(request(5_000_000))
        assert made.is_closed()
        await made.aclose()
    await peer.aclose()


async def test_http_2_moves_a_request_that_did_not_leave() -> None:
    wire, peer = pair()
    made = Http2Connection(ORIGIN, wire, idle=None)
    async with trio.open_nursery() as nursery:
        made.start(nursery)
        await peer.send_all(b"\0\0\0\x04\0\0\0\0\0")
        await trio.testing.wait_all_tasks_blocked()
        peer.socket.shutdown(socket.SHUT_RD)
        with trio.fail_after(30), pytest.raises(httpcore2.ConnectionNotAvailable):
            await made.handle_async_request(request())
        assert not made.is_available()
        await made.aclose()
    await peer.aclose()


def test_an_answer_of_known_length_is_whole_without_the_end_of_its_stream() -> None:
    for got, ended in ((b"ok", True), (b"o", False)):
        stream = Stream(1)
        stream.begin([(b":status", b"202"), (b"content-length", b"2")])
        stream.body += got
        stream.got = len(got)
        stream.fail(httpx2.RemoteProtocolError("gone"))
        assert (stream.ended, stream.error is None) == (ended, ended)


async def test_http_2_answers_while_nobody_calls_and_leaves_who_does_not_read_that() -> None:
    wire, peer = pair()
    made = Http2Connection(ORIGIN, wire, idle=None)
    ping = b"\0\0\x08\x06\0\0\0\0\0" + b"12345678"
    async with trio.open_nursery() as nursery:
        made.start(nursery)
        await peer.send_all(b"\0\0\0\x04\0\0\0\0\0" + ping)
        data = b""
        with trio.fail_after(30):
            while b"\0\0\x08\x06\x01\0\0\0\0" + b"12345678" not in data:
                data += await peer.receive_some()
            with pytest.raises(trio.BrokenResourceError):
                while True:
                    await peer.send_all(ping * 1000)
        assert made.is_closed()
    await peer.aclose()


# -- texts


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://h/mcp", "http://h/mcp"),
        ("https://u:p@h.example:8443/a/b?k=v#f", "https://h.example:8443/a/b"),
        ("http://[::1]:80/@scope/mcp", "http://[::1]:80/@scope/mcp"),
        ("http://u:p/q@h/", "http://…"),
        ("http://u:p?q@h/", "http://…"),
        ("http://h?k=v", "http://h"),
        ("javascript:alert(1)", "javascript:…"),
        ("SECRET", "…"),
        ("unix:/run/x.sock", "unix:/run/x.sock"),
        ("http://h/a\nb", "http://h/a?b"),
        ("http://h/" + "x" * 300, "http://h/" + "x" * 200 + "…"),
    ],
)
def test_a_url_is_shown_by_its_place(url: str, shown: str) -> None:
    assert shown_url(url) == shown


# -- the environment

P = "http://proxy:3128"


@pytest.mark.parametrize(
    ("scheme", "host", "environ", "variable"),
    [
        ("http", "h", {}, None),
        ("http", "h", {"HTTP_PROXY": P}, "HTTP_PROXY"),
        ("https", "h", {"HTTP_PROXY": P}, None),
        ("https", "h", {"ALL_PROXY": P}, "ALL_PROXY"),
        ("https", "h", {"ALL_PROXY": "http://other", "HTTPS_PROXY": P}, "HTTPS_PROXY"),
        ("http", "h", {"HTTP_PROXY": "http://other", "http_proxy": P}, "http_proxy"),
        ("http", "h", {"HTTP_PROXY": P, "http_proxy": ""}, None),
        ("http", "h", {"HTTP_PROXY": P, "REQUEST_METHOD": "GET"}, None),
        *(("http", host, {"ALL_PROXY": P, "NO_PROXY": "*"}, None) for host in ("h", "10.0.0.1")),
        ("http", "a.example.com", {"ALL_PROXY": P, "NO_PROXY": "x, example.com"}, None),
        ("http", "example.com", {"ALL_PROXY": P, "NO_PROXY": ".example.com"}, "ALL_PROXY"),
        ("http", "a.example.com", {"ALL_PROXY": P, "NO_PROXY": "*.example.com"}, None),
        ("http", "anexample.com", {"ALL_PROXY": P, "NO_PROXY": "example.com"}, "ALL_PROXY"),
        ("http", "h", {"ALL_PROXY": P, "NO_PROXY": "h:80"}, None),
        ("http", "h", {"ALL_PROXY": P, "NO_PROXY": "h:81"}, "ALL_PROXY"),
        ("http", "127.0.0.1", {"ALL_PROXY": P, "no_proxy": "127.0.0.0/8"}, None),
        ("http", "::1", {"ALL_PROXY": P, "no_proxy": "[::1]"}, None),
        ("http", "::1", {"ALL_PROXY": P, "no_proxy": "[::1]:80"}, None),
        ("http", "::1", {"ALL_PROXY": P, "no_proxy": "::/64, nonsense/99"}, None),
        ("http", "LOCALHOST", {"ALL_PROXY": P, "no_proxy": "localhost"}, None),
    ],
)
def test_which_proxy_is_for_which_host(scheme: str, host: str, environ: dict[str, str], variable: str | None) -> None:
    found = find_proxy(scheme, host, 443 if scheme == "https" else 80, environ)
    assert (None if found is None else found.variable) == variable
    if found is not None:
        assert (found.host, found.port, found.tls) == ("proxy", 3128, False)


@pytest.mark.parametrize(
    "value", ["socks5h://SECRET", "ftp://SECRET@x", "http://a:SECRET@:80", "http://SECRET x", "http://x:0"]
)
def test_a_proxy_that_cannot_be_used_is_an_error_without_its_value(value: str) -> None:
    with pytest.raises(ConnectionClosed, match="https_proxy") as caught:
        find_proxy("https", "h", 443, {"https_proxy": value})
    assert "SECRET" not in str(caught.value)
