"""A peer of lines that takes nothing: what a server and a client hold of it, and for how long."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from trio_mcp import Limits, Server
from trio_mcp.client.channel import Listener
from trio_mcp.limits import DEFAULT
from trio_mcp.protocol.meta import request_meta
from trio_mcp.server.serve.engine import open_engine
from trio_mcp.testing import open_raw, request
from trio_mcp.transports.line_channel import LineChannel, writing
from trio_mcp.transports.lines import serve_lines
from trio_mcp.transports.link import Link
from trio_mcp.transports.memory import memory_streams


async def test_a_peer_that_takes_nothing_gives_its_places_back(autojump_clock: MockClock) -> None:
    server: Server[Any] = Server("s", version="1", limits=Limits(write_buffer=2_000, write_stall=5))

    @server.tool
    async def big() -> str:
        return "x" * 5_000

    async with open_engine(server) as engine, open_raw(engine, pipe=1_000) as peer:
        for number in range(8):
            await peer.send(request(number, "tools/call", name="big", arguments={}))
        await trio.sleep(4)
        assert engine.executor.statistics().running
        await peer.ended.wait()
        assert trio.current_time() == pytest.approx(5, abs=0.1)
        assert engine.executor.statistics().running == 0


async def test_a_slow_reader_keeps_its_place_no_longer_than_a_request_may_run(autojump_clock: MockClock) -> None:
    server: Server[Any] = Server("s", version="1", limits=Limits(write_buffer=2_000, request_timeout=20))

    @server.tool
    async def big() -> str:
        return "x" * 1_000_000

    (receive, send), theirs = memory_streams(50_000)
    got = b""
    async with open_engine(server) as engine, trio.open_nursery() as nursery:
        nursery.start_soon(serve_lines, engine, Link(*theirs, engine.limits))
        await send.send_all(json.dumps(request(1, "tools/call", name="big", arguments={})).encode() + b"\n")
        while not got.endswith(b"\n"):
            data = await receive.receive_some(20_000)
            assert data
            got += data
            await trio.sleep(1)
            # It is slow and not gone, so it gets everything; others may run meanwhile.
            assert (engine.executor.statistics().running == 0) or trio.current_time() < 21
        assert trio.current_time() > 40
        nursery.cancel_scope.cancel()
    assert len(got) > 1_000_000


async def test_calls_that_are_left_before_there_is_room_are_never_sent(autojump_clock: MockClock) -> None:
    ours, (theirs, _) = memory_streams(65_536)
    link = Link(*ours, DEFAULT)
    channel = LineChannel(link, "a server that does not read", DEFAULT)
    listener = Listener(None, None, "info")
    async with trio.open_nursery() as nursery, writing(link, nursery, DEFAULT):
        for _ in range(50):
            with trio.move_on_after(0.01):
                arguments = {"text": "x" * 1_000_000}
                meta = request_meta({}, {}, "2026-07-28")
                await channel.call("tools/call", {"name": "x", "arguments": arguments, "_meta": meta}, listener)
        # It reads again.
        data = b""
        with trio.move_on_after(1):
            while more := await theirs.receive_some(1_000_000):
                data += more
        methods = [json.loads(line)["method"] for line in data.splitlines()]
        # What the buffer took, and one that began below its bound.
        assert 1 <= methods.count("tools/call") <= 3
        await link.aclose()
        nursery.cancel_scope.cancel()
