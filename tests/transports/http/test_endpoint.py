"""The seam as a host sees it: who is admitted at which address, how a body is taken, what an exchange sends and when."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from trio_mcp import HttpAccepted, HttpEndpoint, HttpExchange, HttpFields, HttpRefusal, OpenServer, Server, open_server
from trio_mcp.limits import Limits


@pytest.fixture
async def running() -> AsyncIterator[OpenServer]:
    limits = Limits(message_bytes=1_000, bodies_bytes=1_500, body_timeout=3, retry_after=7)
    async with open_server(Server("seam", limits=limits)) as engine:
        yield engine


HEAD = {b"content-type": b"application/json"}


def status(endpoint: HttpEndpoint, host: str, path: str = "/mcp") -> int:
    verdict = endpoint.admit("POST", path, {**HEAD, b"host": host.encode()})
    if isinstance(verdict, HttpRefusal):
        return verdict.status
    assert verdict == HttpAccepted(json=True, sse=True)
    return 200


# -- heads


@pytest.mark.parametrize(
    ("address", "hosts", "expected"),
    [
        ("127.0.0.1", None, [200, 403]),
        ("::1", None, [200, 403]),
        ("192.0.2.1", None, [200, 200]),
        ("", None, [200, 200]),
        (None, None, [403, 403]),
        (None, ["shop.example"], [403, 200]),
        ("192.0.2.1", ["shop.example"], [403, 200]),
    ],
)
async def test_the_address_and_the_listed_hosts_decide_who_is_admitted(
    running: OpenServer, address: str | None, hosts: list[str] | None, expected: list[int]
) -> None:
    names = ("localhost:80", "shop.example")
    endpoint = HttpEndpoint(running, allowed_hosts=hosts, address=address)
    assert [status(endpoint, name) for name in names] == expected
    other = HttpEndpoint(running, allowed_hosts=hosts, address="198.51.100.1").at(address)
    assert [status(other, name) for name in names] == expected
    assert [status(endpoint, "localhost", path) for path in ("/", "/mcpx", "/mcp/x")] == [404, 404, 404]
    assert status(endpoint, "shop.example", "/mcp/") == expected[1]


@pytest.mark.parametrize("path", ["mcp", "/mcp?x", "/mcp#x"])
async def test_a_path_that_is_none_is_refused(running: OpenServer, path: str) -> None:
    with pytest.raises(ValueError, match="path must start with a slash"):
        HttpEndpoint(running, path=path)


@pytest.mark.parametrize("host", ["http://x", "x/y", "", "*", "a b"])
async def test_a_host_that_is_none_is_refused(running: OpenServer, host: str) -> None:
    with pytest.raises(
        ValueError, match=re.escape(f"allowed_hosts: {host!r} is no name of a host; expected one without")
    ):
        HttpEndpoint(running, allowed_hosts=["shop.example", host])


@pytest.mark.parametrize("origin", ["x", "x:80", "", "https://", "https://x/y", "https://x?y", "https://a b"])
async def test_an_origin_that_is_none_is_refused(running: OpenServer, origin: str) -> None:
    with pytest.raises(
        ValueError, match=re.escape(f"allowed_origins: {origin!r} is no origin; expected SCHEME://HOST")
    ):
        HttpEndpoint(running, allowed_origins=["https://app.example", origin])


async def test_hosts_and_origins_that_can_be_pass(running: OpenServer) -> None:
    origins = ["https://app.example", "http://[::1]:80/", "chrome-extension://abc", "null"]
    endpoint = HttpEndpoint(running, allowed_hosts=["[::1]:80", "::1", "Shop.example:1"], allowed_origins=origins)
    assert [status(endpoint, name) for name in ("[::1]", "shop.example", "x")] == [200, 200, 403]


# -- bodies


class Pieces:
    """A body in pieces."""

    def __init__(self, *pieces: bytes, delay: float = 0) -> None:
        self._pieces: Iterator[bytes] = iter(pieces)
        self._delay = delay

    async def __call__(self) -> bytes:
        await trio.sleep(self._delay)
        return next(self._pieces, b"")


async def test_a_body_is_taken_and_no_longer_counts(running: OpenServer) -> None:
    endpoint = HttpEndpoint(running)
    for _ in range(10):
        assert await endpoint.take_body(Pieces(b"x" * 400, b"y" * 600)) == b"x" * 400 + b"y" * 600
    assert await endpoint.take_body(Pieces()) == b""
    assert endpoint.bodies.taken == 0


async def test_a_body_that_is_too_long_is_refused(running: OpenServer) -> None:
    endpoint = HttpEndpoint(running)
    verdict = await endpoint.take_body(Pieces(b"x" * 600, b"y" * 401))
    assert verdict == HttpRefusal(413, "Message too long: the limit is 1000 bytes")
    assert endpoint.bodies.taken == 0


async def test_a_body_that_is_too_slow_is_refused(running: OpenServer, autojump_clock: MockClock) -> None:
    endpoint = HttpEndpoint(running)
    verdict = await endpoint.take_body(Pieces(*[b"x"] * 10, delay=1))
    assert isinstance(verdict, HttpRefusal) and verdict.status == 408
    assert trio.current_time() == pytest.approx(3)
    assert endpoint.bodies.taken == 0


async def test_bodies_share_what_there_is_at_all_addresses(running: OpenServer, autojump_clock: MockClock) -> None:
    endpoint = HttpEndpoint(running)
    beside = endpoint.at("127.0.0.1")
    first: list[Any] = []

    async def take() -> None:
        first.append(await endpoint.take_body(Pieces(b"x" * 900, delay=1)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take)
        await trio.sleep(1.5)
        assert endpoint.bodies.taken == 900
        verdict = await beside.take_body(Pieces(b"y" * 601))
        assert isinstance(verdict, HttpRefusal)
        assert (verdict.status, verdict.retry_after) == (503, 7)
        assert await beside.take_body(Pieces(b"y" * 600)) == b"y" * 600
    assert first == [b"x" * 900]
    assert endpoint.bodies.taken == 0


async def test_what_receive_raises_passes_and_gives_back(running: OpenServer) -> None:
    endpoint = HttpEndpoint(running)
    pieces = Pieces(b"x" * 900)

    async def receive() -> bytes:
        if piece := await pieces():
            return piece
        raise trio.BrokenResourceError

    with pytest.raises(trio.BrokenResourceError):
        await endpoint.take_body(receive)
    assert endpoint.bodies.taken == 0


# -- exchanges


class Kept(HttpExchange):
    """An exchange that keeps what it is to send."""

    def __init__(self) -> None:
        super().__init__("POST", {}, b"")
        self.kept: list[Any] = []

    def send_answer(self, status: int, content_type: bytes, fields: HttpFields, body: bytes) -> None:
        self.kept.append((status, content_type, fields, body))

    def send_head(self, fields: HttpFields) -> None:
        self.kept.append(fields)

    def send_piece(self, data: bytes, last: bool) -> bool:
        self.kept.append((data, last))
        return last

    def send_end(self) -> None:
        self.kept.append("end")

    full = False

    async def wait_room(self) -> None:
        await trio.lowlevel.checkpoint()


def test_an_answer_is_sent_once_with_the_fields_of_all() -> None:
    exchange = Kept()
    exchange.fields = ((b"vary", b"origin"),)
    exchange.respond(200, b"{}", extra=((b"retry-after", b"1"),))
    exchange.respond(500, b"{}")
    exchange.start_stream()
    exchange.end_stream()
    assert exchange.send_chunk(b"x")
    assert exchange.kept == [(200, b"application/json", ((b"retry-after", b"1"), (b"vary", b"origin")), b"{}")]
    assert exchange.done and not exchange.streaming


def test_an_answer_without_a_body_has_no_content_type() -> None:
    exchange = Kept()
    exchange.respond(202, b"")
    assert exchange.kept == [(202, b"", (), b"")]


def test_a_stream_has_one_head_and_one_end() -> None:
    exchange = Kept()
    exchange.fields = ((b"vary", b"origin"),)
    for _ in range(2):
        exchange.start_stream()
    # What a host drops is told to whoever sends it.
    assert [exchange.send_chunk(b"a"), exchange.send_chunk(b"b", last=True)] == [False, True]
    for _ in range(2):
        exchange.end_stream()
    assert exchange.send_chunk(b"late")
    fields, *rest = exchange.kept
    assert dict(fields) == {
        b"content-type": b"text/event-stream",
        b"cache-control": b"no-store",
        b"x-accel-buffering": b"no",
        b"vary": b"origin",
    }
    assert rest == [(b"a", False), (b"b", True), "end"]


def test_nothing_is_sent_to_a_peer_that_is_gone_and_it_goes_once() -> None:
    exchange = Kept()
    heard: list[str] = []
    exchange.on_gone = lambda: heard.append("gone")
    exchange.on_silence = lambda: heard.append("silence")
    exchange.silent()
    exchange.start_stream()
    for _ in range(2):
        exchange.peer_gone()
    exchange.respond(200, b"{}")
    exchange.send_chunk(b"x")
    exchange.end_stream()
    assert heard == ["silence", "gone"]
    assert len(exchange.kept) == 1 and not exchange.done


def test_a_peer_that_goes_with_its_answer_ends_nothing() -> None:
    exchange = Kept()
    exchange.on_gone = lambda: pytest.fail("it had its answer")
    exchange.respond(200, b"{}")
    exchange.peer_gone()
    # Whoever has just sent the answer can ask.
    assert exchange.gone
