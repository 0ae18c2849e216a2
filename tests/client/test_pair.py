"""HTTP with SSE (2024-11-05), the client's side of it: one stream, and POSTs to the address that it names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest
import trio
from trio.testing import MockClock

from trio_mcp import ConnectionClosed, HttpError, InvalidResponse, RequestTimeout

from .legacy_peers import TEXT, EventStream, Seen, Web, answer, error, hello, notification, question, silence, until
from .test_session import gathered


class Pair(Web):
    """A server of the pair. `says` answers a message on the stream; None says nothing."""

    def __init__(
        self, says: Callable[[dict[str, Any]], Any] = lambda message: TEXT, endpoint: str = "/messages?s=1"
    ) -> None:
        super().__init__()
        self.says = says
        self.endpoint = endpoint
        self.post_status: Any = 202
        self.one: EventStream | None = None
        self.urls: list[str] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.urls.append(f"{request.method} {request.url.raw_path.decode()}")
        return await super().handle_async_request(request)

    def _outcome(self, seen: Seen) -> Any:
        if seen.verb == "GET":
            self.one = self.stream()
            if self.endpoint:
                self.one.raw(f"event: endpoint\ndata: {self.endpoint}\n\n".encode())
            return self.one
        if not self.urls[-1].startswith("POST /messages"):
            return 405
        if self.one is not None and self.post_status == 202 and "id" in seen.message and seen.method:
            outcome = hello("2024-11-05") if seen.method == "initialize" else self.says(seen.message)
            if outcome is not None:
                self.one.event(answer(seen.message, outcome))
        return self.post_status(seen) if callable(self.post_status) else self.post_status


async def test_the_pair_is_found_and_spoken(autojump_clock: MockClock) -> None:
    pair = Pair()
    async with pair.client(on_elicit=lambda params: True) as client:
        assert client.protocol_version == "2024-11-05"
        assert (await client.call_tool("a")).text == "done"
        assert pair.one is not None
        pair.one.event(question(7, "elicitation/create", message="?"))
        await until(lambda: [seen for seen in pair.seen if seen.message.get("id") == 7])
        async with client.listen(tools=True) as changes:
            pair.one.event(notification("notifications/tools/list_changed"))
            assert (await anext(changes)).kind == "tools"
    assert pair.urls[:3] == ["POST /mcp", "POST /mcp", "GET /mcp"]
    assert set(pair.urls[3:]) == {"POST /messages?s=1"}


@pytest.mark.parametrize(
    "endpoint", ["http://other/messages", "https://server/messages", "//server:81/messages", "http://["]
)
async def test_an_address_of_another_origin_is_refused(endpoint: str, autojump_clock: MockClock) -> None:
    pair = Pair(endpoint=endpoint)
    with pytest.raises(InvalidResponse, match="names an address"):
        async with pair.client():
            raise AssertionError("opened")
    assert pair.urls[-1] == "GET /mcp"


@pytest.mark.parametrize("way", ["silent", "ended"])
async def test_a_stream_that_names_no_address(way: str, autojump_clock: MockClock) -> None:
    pair = Pair(endpoint="")

    async def end() -> None:
        await until(lambda: pair.one)
        assert pair.one is not None
        pair.one.end()

    async with trio.open_nursery() as nursery:
        if way == "ended":
            nursery.start_soon(end)
        with pytest.raises(InvalidResponse, match="names no address for messages"):
            async with pair.client(connect_timeout=8):
                raise AssertionError("opened")
    assert trio.current_time() <= 9


async def test_without_a_stream_the_first_refusal_is_told(autojump_clock: MockClock) -> None:
    web = Web()
    web.replies.update({"server/discover": lambda seen: 404, "initialize": lambda seen: 404})
    with pytest.raises(HttpError, match=r"server/discover: .* answered 404"):
        async with web.client():
            raise AssertionError("opened")
    assert web.methods() == ["server/discover", "initialize", "GET"]


async def test_the_end_of_the_stream_fails_the_calls(autojump_clock: MockClock) -> None:
    pair = Pair(lambda message: None)
    async with pair.client() as client, trio.open_nursery() as nursery:

        async def cut() -> None:
            await until(lambda: len(pair.of("tools/call")) == 3)
            assert pair.one is not None
            pair.one.cut()

        nursery.start_soon(cut)
        outcomes = await gathered(*[lambda: client.call_tool("a")] * 3)
        assert [type(outcome) for outcome in outcomes] == [ConnectionClosed] * 3
        with pytest.raises(ConnectionClosed):
            await client.call_tool("a")
    assert len(pair.of("tools/call")) == 3


@pytest.mark.parametrize("status", [400, 404, 503])
async def test_a_message_that_is_refused_fails_its_call(status: int, autojump_clock: MockClock) -> None:
    pair = Pair()
    async with pair.client() as client:
        pair.post_status = status
        with pytest.raises(HttpError, match=f"answered {status}"):
            await client.call_tool("a", timeout=5)
        pair.post_status = lambda seen: httpx2.ConnectError("down")
        with pytest.raises(ConnectionClosed):
            await client.call_tool("a", timeout=5)
        pair.post_status = 202
        assert (await client.call_tool("a")).text == "done"


async def test_an_error_comes_on_the_stream(autojump_clock: MockClock) -> None:
    pair = Pair(lambda message: error(-32602, "no tool"))
    async with pair.client() as client:
        with pytest.raises(Exception, match="no tool"):
            await client.call_tool("a")


async def test_messages_wait_for_room(autojump_clock: MockClock) -> None:
    pair = Pair()
    async with pair.client() as client:
        await client.call_tool("first")
        pair.post_status = silence
        outcomes = await gathered(*[lambda: client.call_tool("a", timeout=5)] * 100)
        assert {type(outcome) for outcome in outcomes} == {RequestTimeout}
        # One was on its way, and 64 were waiting; what never had room was never sent, and is not cancelled either.
        assert len(pair.of("tools/call")) == 2
