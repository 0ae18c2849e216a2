"""An HTTP/2 client that is found to be gone while something of it has just been read."""

from __future__ import annotations

import trio
from trio.testing import MockClock, lockstep_stream_pair, wait_all_tasks_blocked

from tests.net.servers.http_peers import H2Peer
from trio_mcp.server.serve.engine import open_engine
from trio_mcp.transports.http.endpoint import HttpEndpoint
from trio_mcp.transports.http.h2 import H2Connection

from .helpers import IDLE, call, make


class Kept:
    """Where a client writes to."""

    def __init__(self) -> None:
        self.data = b""

    async def send_all(self, data: bytes) -> None:
        self.data += data

    def take(self) -> bytes:
        data, self.data = self.data, b""
        return data


class Dying(trio.abc.Stream):
    """A stream that gives some bytes, and the rest in the step in which a write to it fails."""

    def __init__(self, first: bytes, rest: bytes) -> None:
        self._first, self._rest = first, rest
        self._failed = trio.Event()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        if self._first:
            data, self._first = self._first, b""
            return data
        await self._failed.wait()
        data, self._rest = self._rest, b""
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        if not self._first:
            self._failed.set()
            raise trio.BrokenResourceError

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


async def test_what_was_read_in_the_step_of_the_end_begins_nothing(autojump_clock: MockClock) -> None:
    server, log = make()
    kept = Kept()
    peer = H2Peer(kept)
    await peer.begin()
    await peer.post(call(1, "slow", seconds=30))
    first = kept.take()
    await peer.post(call(2, "slow", seconds=30))
    async with open_engine(server) as engine:
        stream = Dying(first, kept.take())
        await H2Connection(stream, HttpEndpoint(engine, address="127.0.0.1")).run()
        assert trio.current_time() == 0
        assert [event for event in log.events if 2 in event] == []
        assert engine.executor.statistics() == IDLE


async def test_a_large_answer_that_was_complete_gives_its_place_back_at_the_hang_up(autojump_clock: MockClock) -> None:
    server, _ = make()

    @server.tool
    async def big(size: int) -> str:
        return "x" * size

    async with open_engine(server) as engine, trio.open_nursery() as nursery:
        ours, theirs = lockstep_stream_pair()
        connection = H2Connection(theirs, HttpEndpoint(engine, address="127.0.0.1"))
        nursery.start_soon(connection.run)
        peer = H2Peer(ours)
        await peer.begin()
        await peer.pump()
        for id in range(3):
            await peer.post(call(id, "big", size=2_000_000))
        await wait_all_tasks_blocked()
        assert engine.executor.statistics().running == 3
        now = trio.current_time()
        await peer.aclose()
        await wait_all_tasks_blocked()
        assert engine.executor.statistics() == IDLE
        assert trio.current_time() == now
