"""Lines over sockets, where a message is written at once: what nobody can take, and what nobody is to hear."""

from __future__ import annotations

import json

import trio
import trio.testing
from trio.testing import MockClock

from trio_mcp import Context, Limits, MemoryTaskStore, Server
from trio_mcp.server.serve.engine import open_engine
from trio_mcp.testing import request
from trio_mcp.transports.lines import serve_lines
from trio_mcp.transports.link import Link

from .task_client import declared


async def test_a_task_whose_handle_cannot_be_written_is_gone(autojump_clock: MockClock) -> None:
    store = MemoryTaskStore()
    server = Server("s", tasks=store, task_inline_ms=0)

    @server.tool(task_support="optional")
    async def work() -> str:
        return "done"

    ours, theirs = trio.testing.memory_stream_one_way_pair()
    send, deaf = trio.socket.socketpair()
    deaf.close()
    await ours.send_all(json.dumps(declared(1, "tools/call", name="work", arguments={})).encode() + b"\n")
    async with open_engine(server) as engine:
        with trio.fail_after(100):
            await serve_lines(engine, Link(theirs, trio.SocketStream(send), engine.limits))
    async with store.open("later"):
        assert tuple(await store.count("")) == (0, 0)


async def test_a_handler_that_cleans_up_at_the_end_says_nothing(autojump_clock: MockClock) -> None:
    server = Server("s", limits=Limits(drain_timeout=2))
    begun = trio.Event()

    @server.tool
    async def stubborn(ctx: Context) -> str:
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            with trio.move_on_after(1, shield=True):
                await ctx.report_progress(1)
                await trio.sleep_forever()
        return "never"

    message = request(1, "tools/call", name="stubborn", arguments={}, meta={"progressToken": 1})
    one, two = trio.socket.socketpair()
    ours, theirs = trio.SocketStream(one), trio.SocketStream(two)
    async with open_engine(server) as engine, trio.open_nursery() as nursery:
        nursery.start_soon(serve_lines, engine, Link(theirs, theirs, engine.limits))
        await ours.send_all(json.dumps(message).encode() + b"\n")
        await begun.wait()
        await ours.send_eof()
        # One message, which is the answer.
        said = json.loads(b"".join([piece async for piece in ours]))
        assert (said["id"], said["error"]["code"]) == (1, 504)
        await ours.aclose()


async def test_a_client_that_closes_its_socket_is_not_waited_for(autojump_clock: MockClock) -> None:
    server = Server("s", limits=Limits(drain_timeout=2))
    begun, ended = trio.Event(), trio.Event()

    @server.tool
    async def wait() -> str:
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            ended.set()
        return "never"

    one, two = trio.socket.socketpair()
    ours, theirs = trio.SocketStream(one), trio.SocketStream(two)
    async with open_engine(server) as engine, trio.open_nursery() as nursery:
        nursery.start_soon(serve_lines, engine, Link(theirs, theirs, engine.limits))
        await ours.send_all(json.dumps(request(1, "tools/call", name="wait", arguments={})).encode() + b"\n")
        await begun.wait()
        left = trio.current_time()
        await ours.aclose()
        await ended.wait()
        # Nobody could read an answer, so nothing of the time of the drain is used.
        assert trio.current_time() - left < 1
