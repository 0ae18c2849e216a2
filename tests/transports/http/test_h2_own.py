"""HTTP/2 connections in memory and in virtual time: requests, cancellation, stalls, timers, bodies, the end."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import h2.events
import h2.settings
import pytest
import trio
from trio.testing import MockClock, lockstep_stream_pair, memory_stream_pair

from tests.net.servers.http_peers import H2Peer, events_of, text_of
from trio_mcp.server.serve.engine import Engine, open_engine
from trio_mcp.testing import request
from trio_mcp.transports.http.endpoint import HttpEndpoint
from trio_mcp.transports.http.h2 import H2Connection

from .helpers import IDLE, Log, call, make


class Site:
    """A server in memory.

    Attributes:
        log: Of its handlers.
        engine: What runs.
        budget: For all bodies.
    """

    def __init__(self, engine: Engine, log: Log, nursery: trio.Nursery) -> None:
        self.engine = engine
        self.log = log
        self.endpoint = HttpEndpoint(engine, address="127.0.0.1")
        self.budget = self.endpoint.bodies
        self._nursery = nursery

    async def connect(self, *, lockstep: bool = False, begin: bool = True, **options: Any) -> Client:
        """A new connection, with the preface sent."""
        ours, theirs = lockstep_stream_pair() if lockstep else memory_stream_pair()
        client = Client(ours, H2Connection(theirs, self.endpoint), **options)
        self._nursery.start_soon(client.serve)
        if begin:
            await client.begin()
        return client

    def ends(self) -> list[tuple[Any, float]]:
        """Which calls of `slow` ended, and when."""
        return [(event[1], event[2]) for event in self.log.events if event[0] == "end"]


class Client(H2Peer):
    """The client's end of a connection.

    Attributes:
        connection: The other end.
        ended_at: When that ended.
        invited: Streams that were told to go on.
    """

    def __init__(self, stream: Any, connection: H2Connection, **options: Any) -> None:
        super().__init__(stream, **options)
        self.connection = connection
        self.over = trio.Event()
        self.ended_at = -1.0
        self.invited: set[int | None] = set()

    def _hear(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.InformationalResponseReceived):
            self.invited.add(event.stream_id)
        super()._hear(event)

    async def serve(self) -> None:
        await self.connection.run()
        self.ended_at = trio.current_time()
        self.over.set()

    async def ask(self, id: Any, tool: str, meta: dict[str, Any] | None = None, **arguments: Any) -> int:
        return await self.post(call(id, tool, meta, **arguments))

    async def text(self, stream: int, timeout: float = 1_000) -> str:
        status, body = await self.response(stream, timeout)
        assert status == 200, (status, body)
        return text_of(events_of(body)[-1] if body.startswith((b"event", b":")) else json.loads(body))


@asynccontextmanager
async def site(**limits: Any) -> AsyncIterator[Site]:
    server, log = make(**limits)

    @server.tool
    async def big(size: int) -> str:
        return "x" * size

    async with open_engine(server) as engine, trio.open_nursery() as nursery:
        one = Site(engine, log, nursery)
        yield one
        nursery.cancel_scope.cancel()


# -- requests


async def test_requests_run_side_by_side_and_places_come_back(autojump_clock: MockClock) -> None:
    async with site() as s:
        client = await s.connect()
        slow = await client.ask("slow", "slow", seconds=3)
        assert [await client.text(await client.ask(n, "echo", text=f"{n}")) for n in range(20)] == [
            f"{n}" for n in range(20)
        ]
        assert trio.current_time() == pytest.approx(0, abs=0.01)
        assert await client.text(slow) == "slept"
        assert s.engine.executor.statistics() == IDLE
        assert client.connection.wire.streams == 0


async def test_a_reset_is_the_cancellation_of_that_request_alone(autojump_clock: MockClock) -> None:
    async with site() as s:
        client = await s.connect()
        one, two = await client.ask(1, "slow", seconds=30), await client.ask(2, "slow", seconds=3)
        await trio.sleep(1)
        client.h2.reset_stream(one, 8)
        await client.flush()
        assert await client.text(two) == "slept"
        assert [(id, pytest.approx(when, abs=0.01)) for id, when in s.ends()] == [(1, 1), (2, 3)]
        assert s.engine.executor.statistics() == IDLE


async def test_a_hang_up_is_the_cancellation_of_all(autojump_clock: MockClock) -> None:
    async with site() as s:
        client = await s.connect()
        for id in range(5):
            await client.ask(id, "slow", seconds=30)
        await trio.sleep(1)
        await client.aclose()
        await client.over.wait()
        assert sorted(id for id, when in s.ends() if when < 1.01) == [0, 1, 2, 3, 4]
        assert s.engine.executor.statistics() == IDLE


async def test_a_silent_answer_becomes_a_stream_that_is_kept_alive(autojump_clock: MockClock) -> None:
    async with site(silence=5, keep_alive=15) as s:
        client = await s.connect()
        stream, quick = await client.ask(1, "slow", seconds=40), await client.ask(2, "slow", seconds=4.9)
        assert json.loads((await client.response(quick, 100))[1])["id"] == 2
        assert trio.current_time() < 5
        seen = []
        while stream not in client.ended:
            before = len(client.bodies.get(stream, b""))
            await client.pump()
            if len(client.bodies.get(stream, b"")) > before:
                seen.append(round(trio.current_time()))
        assert seen == [5, 20, 35, 40]
        assert text_of(events_of(client.bodies[stream])[-1]) == "slept"


# -- stalls


async def test_a_stream_that_gets_no_room_is_reset_and_the_connection_is_of_use(autojump_clock: MockClock) -> None:
    async with site(write_stall=5) as s:
        client = await s.connect(window=False, initial=100)
        lost = await client.ask(1, "big", size=200_000)
        beside = await client.ask(2, "slow", seconds=3)
        assert (await client.response(lost, 100))[0] == 200
        assert client.resets == {lost: 8}
        assert trio.current_time() == pytest.approx(5, abs=0.1)
        assert beside not in client.resets
        client.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 10_000})
        await client.flush()
        assert await client.text(beside) == "slept"
        assert await client.text(await client.ask(3, "echo", text="on")) == "on"
        assert client.connection.wire.answers.waiting == 0


async def test_a_hundred_streams_given_up_leave_a_connection_that_answers(autojump_clock: MockClock) -> None:
    async with site(write_stall=1) as s:
        client = await s.connect(window=False, initial=100)
        streams = [await client.ask(id, "big", size=20_000) for id in range(100)]
        for stream in streams:
            await client.response(stream, 100)
        assert set(client.resets) == set(streams)
        client.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 10_000})
        assert await client.text(await client.ask("on", "echo", text="on")) == "on"
        assert s.engine.executor.statistics() == IDLE


async def test_a_slow_link_with_many_streams_loses_nothing(autojump_clock: MockClock) -> None:
    async with site(write_stall=5) as s:
        client = await s.connect()
        streams = [await client.ask(id, "big", size=100_000) for id in range(20)]
        while len(client.ended) < 20:
            # 10 KB a second for all of them: each has a twentieth.
            await trio.sleep(0.4)
            assert await slowly(client)
        assert client.resets == {}
        assert {len(client.bodies[stream]) > 100_000 for stream in streams} == {True}
        assert trio.current_time() > 150


async def slowly(client: Client, size: int = 4_096) -> bool:
    """Read a little."""
    data = await client.stream.receive_some(size)
    for event in client.h2.receive_data(data):
        client._hear(event)
    await client.flush()
    return bool(data)


async def test_a_client_that_does_not_read_is_gone(autojump_clock: MockClock) -> None:
    async with site(write_stall=5) as s:
        ours, theirs = lockstep_stream_pair()
        client = Client(ours, H2Connection(theirs, s.endpoint), initial=2**20)
        s._nursery.start_soon(client.serve)
        await client.begin()
        await client.pump()
        await client.post(call(1, "slow", seconds=60))
        await client.post(call(2, "big", size=50_000))
        await client.over.wait()
        assert client.ended_at == pytest.approx(5, abs=0.5)
        assert [id for id, _ in s.ends()] == [1]
        assert s.engine.executor.statistics() == IDLE


async def test_what_waits_is_bounded_for_the_connection_and_small_answers_pass(autojump_clock: MockClock) -> None:
    async with site(write_buffer=10_000, write_stall=1_000) as s:
        client = await s.connect(window=False, initial=0)
        for id in range(10):
            await client.ask(id, "steps", {"progressToken": f"{id}" * 100}, count=1_000, pause=0.01)
        await client.pump_for(30)
        # Ten streams would hold ten buffers; together they hold one, and a message each.
        assert 10_000 < client.connection.wire.answers.waiting < 15_000
        client.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 1})
        client.window = True
        await client.flush()
        await client.aclose()
        await client.over.wait()
        assert s.engine.executor.statistics() == IDLE


async def test_a_call_that_waited_for_room_goes_on(autojump_clock: MockClock) -> None:
    async with site(write_buffer=2_000, write_stall=1_000) as s:
        client = await s.connect(window=False, initial=0)
        stream = await client.ask(1, "steps", {"progressToken": "p"}, count=100, pause=0.01)
        await client.pump_for(30)
        assert s.engine.executor.statistics().running == 1
        client.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 50_000})
        await client.flush()
        assert await client.text(stream, 100) == "done"


# -- timers


async def test_a_connection_without_requests_ends(autojump_clock: MockClock) -> None:
    async with site(idle_timeout=75) as s:
        client = await s.connect()
        stream = await client.ask(1, "slow", seconds=100)
        assert await client.text(stream) == "slept"
        await client.closed(200)
        assert client.goaway == 0
        assert trio.current_time() == pytest.approx(175, abs=0.5)


async def test_pings_do_not_keep_an_idle_connection(autojump_clock: MockClock) -> None:
    async with site(idle_timeout=75) as s:
        client = await s.connect()
        for _ in range(7):
            client.h2.ping(b"12345678")
            await client.flush()
            await client.pump_for(10)
        await client.closed(20)
        assert trio.current_time() == pytest.approx(75, abs=0.5)


@pytest.mark.parametrize("first", [b"", b"PRI * HTTP/2.0\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"])
async def test_a_client_that_does_not_begin_is_sent_away(first: bytes, autojump_clock: MockClock) -> None:
    async with site(head_timeout=10) as s:
        client = await s.connect(begin=False)
        if first:
            await client.stream.send_all(first)
        await client.over.wait()
        assert client.ended_at == pytest.approx(10, abs=0.5)


async def test_a_head_that_does_not_end_is_an_end_of_the_connection(autojump_clock: MockClock) -> None:
    async with site(head_timeout=10) as s:
        client = await s.connect()
        stream = await client.ask(1, "slow", seconds=5)
        await client.pump_for(0.1)
        await client.stream.send_all(b"\x00\x00\x00\x01\x00\x00\x00\x00\x09")
        assert await client.text(stream) == "slept"
        await client.over.wait()
        assert client.ended_at == pytest.approx(10, abs=0.5)


async def test_a_slow_body_is_408_and_its_budget_comes_back(autojump_clock: MockClock) -> None:
    async with site(body_timeout=10) as s:
        client = await s.connect()
        await trio.sleep(3)
        stream = await client.request(client.head(call(1, "echo")))
        client.h2.send_data(stream, b"{" * 100)
        await client.flush()
        await client.pump_for(1)
        assert s.budget.taken == 100
        assert await client.text(await client.ask(3, "echo", text="beside")) == "beside"
        assert (await client.response(stream, 100))[0] == 408
        assert trio.current_time() == pytest.approx(13, abs=0.1)
        assert s.budget.taken == 0
        assert await client.text(await client.ask(2, "echo", text="on")) == "on"


# -- bodies


async def test_a_body_too_long_is_413_and_the_rest_is_not_taken(autojump_clock: MockClock) -> None:
    async with site(message_bytes=1_000) as s:
        client = await s.connect()
        beside = await client.ask(0, "slow", seconds=1)
        for extra in ([], [(b"content-length", b"3000")]):
            stream = await client.request([*client.head(call(1, "echo")), *extra])
            for _ in range(3):
                client.h2.send_data(stream, b"x" * 600)
            await client.flush()
            status, body = await client.response(stream)
            assert (status, json.loads(body)["error"]["code"]) == (413, -32600)
            assert client.resets.get(stream, 0) == 0
        assert s.budget.taken == 0
        assert client.connection.wire.streams == 1
        assert await client.text(beside) == "slept"
        assert await client.text(await client.ask(2, "echo", text="on")) == "on"


async def test_bodies_of_all_connections_have_one_budget(autojump_clock: MockClock) -> None:
    async with site(bodies_bytes=10_000) as s:
        one, two = await s.connect(), await s.connect()
        first = await one.request(one.head(call(1, "echo")))
        one.h2.send_data(first, b" " * 8_000)
        await one.flush()
        await one.pump_for(0.1)
        second = await two.request(two.head(call(1, "echo")))
        two.h2.send_data(second, b" " * 8_000)
        await two.flush()
        assert (await two.response(second))[0] == 503
        one.h2.send_data(first, json.dumps(call(1, "echo", text="x")).encode(), end_stream=True)
        await one.flush()
        assert await one.text(first) == "x"
        assert s.budget.taken == 0
        third = await two.ask(3, "echo", text=" " * 8_000)
        assert await two.text(third) == " " * 8_000


async def test_a_body_that_is_given_up_gives_its_budget_back(autojump_clock: MockClock) -> None:
    async with site() as s:
        client = await s.connect()
        for how in ("reset", "close"):
            stream = await client.request(client.head(call(1, "echo")))
            client.h2.send_data(stream, b"x" * 500)
            await client.flush()
            await client.pump_for(0.1)
            assert s.budget.taken == 500
            if how == "reset":
                client.h2.reset_stream(stream, 8)
                await client.flush()
                await client.pump_for(0.1)
            else:
                await client.aclose()
                await client.over.wait()
            assert s.budget.taken == 0


async def test_a_client_that_waits_to_be_invited_is(autojump_clock: MockClock) -> None:
    async with site() as s:
        client = await s.connect()
        message = call(1, "echo", text="x")
        stream = await client.request([*client.head(message), (b"expect", b"100-continue")])
        await client.pump_for(0.1)
        assert client.invited == {stream}
        client.h2.send_data(stream, json.dumps(message).encode(), end_stream=True)
        await client.flush()
        assert await client.text(stream) == "x"


async def test_a_long_head_is_431_and_the_streams_beside_it_go_on(autojump_clock: MockClock) -> None:
    async with site(head_bytes=2_000) as s:
        client = await s.connect()
        beside = await client.ask(1, "slow", seconds=1)
        long = [*client.head(call(2, "echo")), *[(b"x-%d" % n, b"e" * 30) for n in range(30)]]
        assert (await client.response(await client.request(long, end=True)))[0] == 431
        assert await client.text(beside) == "slept"


# -- the end


async def test_the_drain_finishes_what_runs_and_refuses_what_comes(autojump_clock: MockClock) -> None:
    async with site() as s:
        client, idle = await s.connect(), await s.connect()
        await client.pump_for(0.1)
        running = await client.ask(1, "slow", seconds=3)
        large = await client.ask(2, "big", size=500_000)
        await trio.testing.wait_all_tasks_blocked()
        client.connection.drain()
        idle.connection.drain()
        await idle.closed()
        assert idle.goaway == 0
        late = await client.ask(3, "echo", text="late")
        assert len(await client.text(large)) == 500_000
        assert await client.text(running) == "slept"
        assert client.resets == {late: 7}
        await client.closed()
        assert client.goaway == 0
        assert trio.current_time() == pytest.approx(3, abs=0.5)


async def test_a_goaway_of_the_client_loses_nothing(autojump_clock: MockClock) -> None:
    async with site() as s:
        client = await s.connect()
        stream = await client.ask(1, "slow", seconds=3)
        await client.stream.send_all(b"\x00\x00\x08\x07\x00\x00\x00\x00\x00" + bytes(8))
        assert await client.text(stream) == "slept"
        await client.over.wait()
        assert client.ended_at == pytest.approx(3, abs=0.5)


async def test_a_goaway_with_an_error_is_a_hang_up(autojump_clock: MockClock) -> None:
    async with site() as s:
        client = await s.connect()
        await client.ask(1, "slow", seconds=30)
        await trio.sleep(1)
        await client.stream.send_all(b"\x00\x00\x08\x07\x00\x00\x00\x00\x00" + bytes(7) + b"\x02")
        await client.over.wait()
        assert [id for id, when in s.ends() if when < 1.1] == [1]


async def test_an_error_of_the_connection_cancels_all_and_says_why(autojump_clock: MockClock) -> None:
    async with site() as s:
        client = await s.connect()
        await client.ask(1, "slow", seconds=30)
        await trio.sleep(1)
        await client.stream.send_all(b"\x00\x00\x04\x08\x00\x00\x00\x00\x00" + bytes(4))
        await client.closed()
        await client.over.wait()
        assert client.goaway == 1
        assert [id for id, when in s.ends() if when < 1.1] == [1]
        assert s.engine.executor.statistics() == IDLE


# -- answers that nobody takes any more


async def test_answers_that_wait_for_room_give_their_places_back_when_the_client_goes(
    autojump_clock: MockClock,
) -> None:
    async with site() as s:
        client = await s.connect(window=False, initial=0)
        for id in range(10):
            await client.ask(id, "big", size=1_200_000)
        await trio.sleep(0.5)
        assert s.engine.executor.statistics().running == 10
        await client.stream.aclose()
        await trio.sleep(0.5)
        assert s.engine.executor.statistics() == IDLE
        assert client.ended_at == pytest.approx(0.5, abs=0.1)


async def test_a_head_without_an_end_ends_the_connection_and_what_runs_on_it(autojump_clock: MockClock) -> None:
    async with site(head_timeout=2) as s:
        client = await s.connect()
        stream = await client.ask(1, "slow", seconds=100)
        await client.stream.send_all(
            b"\0\0\1\1\0" + (stream + 2).to_bytes(4, "big") + b"\x82"  # HEADERS, and no END_HEADERS
        )
        await trio.sleep(10)
        assert [(id, pytest.approx(when, abs=0.5)) for id, when in s.ends()] == [(1, 2)]
        assert client.ended_at == pytest.approx(2, abs=0.5)
        assert s.engine.executor.statistics() == IDLE


async def test_nothing_begins_on_a_connection_that_is_gone(autojump_clock: MockClock) -> None:
    async with site() as s:
        client = await s.connect()
        message = request(1, "subscriptions/listen", notifications={"toolsListChanged": True})
        stream = client.h2.get_next_available_stream_id()
        client.h2.send_headers(stream, client.head(message))
        client.h2.send_data(stream, json.dumps(message).encode(), end_stream=True)
        # GOAWAY with an error, and a request behind it, in one piece.
        await client.stream.send_all(b"\0\0\x08\7\0" + bytes(11) + b"\2" + client.h2.data_to_send())
        with trio.fail_after(10):
            await client.over.wait()
