"""Clients that go away in the moment in which their call becomes a task: it is there if and only if they were told."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import trio

from trio_mcp import Limits, MemoryTaskStore, Server, SQLiteTaskStore, TaskStore, open_server
from trio_mcp.serve import OpenServer

from .servers.http_peers import H2Peer, Site, call, post, serving
from .task_client import declared

WINDOW = 0.03
DELAYS = [0.0, *(WINDOW + 0.001 * offset for offset in (-15, -5, *range(-3, 20), 25, 40, 400))]
"""Seconds until the client goes away: dense from the end of the window until the row has nearly always been written."""


def make(store: TaskStore, notes: list[str]) -> Server[Any]:
    limits = Limits(tasks_active=1_000, running=256, task_flush=0.01)
    server = Server("s", tasks=store, task_inline_ms=round(WINDOW * 1000), limits=limits)

    @server.tool(task_support="optional")
    async def work() -> str:
        notes.append("begun")
        try:
            await trio.sleep(60)
        finally:
            notes.append("ended")
        return "done"

    @server.tool
    async def echo(text: str) -> str:
        return text

    return server


class Recorder:
    """A stream that keeps what came."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self.data = b""

    async def send_all(self, data: bytes) -> None:
        await self._stream.send_all(data)

    async def receive_some(self, most: int) -> bytes:
        data = await self._stream.receive_some(most)
        self.data += data
        return bytes(data)


def told_in(data: bytes) -> set[str]:
    """The ids of tasks in what a client has received."""
    return set(re.findall(r'"taskId":"([^"]+)"', data.decode("latin-1")))


async def half_close(site: Site, delay: float) -> set[str]:
    """Over HTTP/1.1: end what the server reads, and read on what it still writes."""
    stream = await site.connect()
    async with stream:
        await stream.send_all(post(declared(1, "tools/call", name="work", arguments={})))
        await trio.sleep(delay)
        await stream.send_eof()
        data = b""
        with trio.fail_after(30):
            while more := await stream.receive_some(65_536):
                data += more
    return told_in(data)


async def reset_stream(site: Site, delay: float) -> set[str]:
    """Over HTTP/2: reset the stream, and see on the connection what came before the server heard of it."""
    stream = await site.connect()
    async with stream:
        recorder = Recorder(stream)
        peer = H2Peer(recorder)
        await peer.begin()
        number = await peer.post(declared(1, "tools/call", name="work", arguments={}))
        await trio.sleep(delay)
        peer.h2.reset_stream(number)
        await peer.flush()
        # What is answered after this was read after the reset.
        status, _ = await peer.response(await peer.post(call(2, "echo", text="after")), 10)
        assert status == 200
    return told_in(recorder.data)


async def settled(engine: OpenServer, told: set[str], notes: list[str], *, more: bool = False) -> int:
    """Wait until the server holds the tasks that clients were told of, and nothing else; how many it holds.

    Args:
        engine: The server.
        told: What clients were told of.
        notes: Of the tool.
        more: Whether there may be others, which are whole as well.
    """
    tasks = engine.tasks
    found: tuple[int, ...] = ()
    running: set[str] = set()
    with trio.move_on_after(20):
        while True:
            active, stored = await tasks.store.count("")
            running = set(tasks.running)
            found = (active, stored, len(running), notes.count("begun") - notes.count("ended"))
            if len(set(found)) == 1 and (running >= told if more else running == told):
                break
            await trio.sleep(0.01)
    assert len(set(found)) == 1, found
    assert running >= told if more else running == told
    for task_id in told:
        row = await tasks.store.get(task_id)
        assert row is not None
        assert row.status == "working"
    return len(running)


@pytest.mark.parametrize("kept", ["memory", "file"])
@pytest.mark.parametrize("leave", [half_close, reset_stream])
async def test_a_task_is_there_if_and_only_if_the_client_was_told(leave: Any, kept: str, tmp_path: Path) -> None:
    store = MemoryTaskStore() if kept == "memory" else SQLiteTaskStore(tmp_path / "tasks.db")
    notes: list[str] = []
    async with open_server(make(store, notes)) as engine, serving(engine) as site:
        told: set[str] = set()
        without = 0

        async def one(delay: float) -> None:
            nonlocal without
            heard = await leave(site, delay)
            assert len(heard) <= 1
            told.update(heard)
            without += not heard

        # Over HTTP/2 an answer that waits in the queue of its stream, for a moment, counts as sent.
        more = leave is reset_stream
        # One by one, where each write is its own, and then all at once, where they share theirs.
        for delay in DELAYS:
            begin = trio.current_time()
            await one(delay)
            if trio.current_time() - begin < WINDOW:
                assert await settled(engine, told, notes) == 0
        await settled(engine, told, notes, more=more)
        async with trio.open_nursery() as nursery:
            for delay in DELAYS * 2:
                nursery.start_soon(one, delay)
        held = await settled(engine, told, notes, more=more)
        print(f"{len(told)} told, {held} held, {without} not told")
        assert told
        assert without
        for task in [*engine.tasks.running.values()]:
            task.cancel()
        with trio.fail_after(20):
            while engine.tasks.running:
                await trio.sleep(0.01)
        assert notes.count("begun") == notes.count("ended")
