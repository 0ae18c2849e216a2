"""Thousands of calls that become tasks leave nothing behind: no memory, no trio task, no entry anywhere."""

from __future__ import annotations

import gc
import math
import sys
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from trio_mcp import Context, Limits, MemoryTaskStore, Server, SQLiteTaskStore, Task, TaskStore, open_server
from trio_mcp.scopes.call import Call
from trio_mcp.serve import OpenServer
from trio_mcp.server.tasks.task import ServerTask
from trio_mcp.testing import RawPeer, open_raw

from .task_client import declared


def make(store: TaskStore, **limits: Any) -> Server[Any]:
    bounds = {"running": 600, "connection_running": 600, "tasks_active": 1_000, "tasks_stored": 100_000}
    server = Server("s", tasks=store, task_inline_ms=10, limits=Limits(task_ttl=600.0, **bounds, **limits))

    @server.tool(task_support="required")
    async def work(seconds: float, ctx: Context) -> str:
        await trio.sleep(seconds / 2)
        await ctx.report_progress(1, 2)
        await trio.sleep(seconds / 2)
        return "done" * 100

    @server.tool(task_support="required", task_inline_ms=0)
    async def ask(ctx: Context) -> str:
        await ctx.elicit("?", {"text": str})
        return "asked"

    return server


class Life:
    """One server, one connection, and what they hold.

    Args:
        engine: The server.
        peer: The client.
        seconds: How long a tool works.
    """

    def __init__(self, engine: OpenServer, peer: RawPeer, seconds: float) -> None:
        self.engine = engine
        self.peer = peer
        self.seconds = seconds
        self.virtual = isinstance(engine.tasks.store, MemoryTaskStore)
        self.ahead = 0.0
        self.count = 0
        self.escalated = 0
        engine.tasks.clock = engine.tasks.expiry = lambda: 1e9 + trio.current_time() + self.ahead

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request and wait for its answer; one at a time."""
        self.count += 1
        await self.peer.send(declared(self.count, method, **params))
        while (message := await self.peer.receive()).get("id") != self.count:
            assert message["method"].startswith("notifications/")
        result: dict[str, Any] = message["result"]
        return result

    async def until(self, task_id: str, status: str) -> dict[str, Any]:
        """Look at a task until it stands so."""
        while (state := await self.ask("tasks/get", taskId=task_id))["status"] != status:
            await trio.sleep(self.seconds)
        return state

    async def one(self, kind: int) -> None:
        """A call that becomes a task, to its end."""
        tool, arguments = ("ask", {}) if kind in (1, 3) else ("work", {"seconds": self.seconds})
        handle = await self.ask("tools/call", name=tool, arguments=arguments)
        if handle["resultType"] == "complete":
            return  # the disk was slower than the tool
        self.escalated += 1
        task_id = handle["taskId"]
        if kind == 1:
            asked = await self.until(task_id, "input_required")
            answers = {key: {"action": "accept", "content": {"text": "t"}} for key in asked["inputRequests"]}
            await self.ask("tasks/update", taskId=task_id, inputResponses=answers)
        elif kind == 2:
            await self.ask("tasks/cancel", taskId=task_id)
        elif kind == 3:
            listening = f"listening {task_id}"
            await self.peer.send(declared(listening, "subscriptions/listen", notifications={"taskIds": [task_id]}))
            assert "method" in await self.peer.receive()
            # Only now is it answered, so that its end cannot come before anybody listens.
            asked = await self.until(task_id, "input_required")
            self.count += 1
            answers = {key: {"action": "accept", "content": {"text": "t"}} for key in asked["inputRequests"]}
            await self.peer.send(declared(self.count, "tasks/update", taskId=task_id, inputResponses=answers))
            answered = completed = False
            while not (answered and completed):
                message = await self.peer.receive()
                assert "error" not in message
                answered |= message.get("id") == self.count
                completed |= message.get("params", {}).get("status") == "completed"
            await self.peer.cancel(listening)
        else:
            await trio.sleep(self.seconds)
        await self.until(task_id, "cancelled" if kind == 2 else "completed")

    async def many(self, count: int) -> None:
        """So many calls that work at the same time."""
        first, self.count = self.count + 1, self.count + count
        seconds = 1.0 if self.virtual else 0.4
        for id in range(first, first + count):
            await self.peer.send(declared(id, "tools/call", name="work", arguments={"seconds": seconds}))
        handles = [(await self.peer.receive())["result"] for _ in range(count)]
        ids = {handle["taskId"] for handle in handles if handle["resultType"] == "task"}
        self.escalated += len(ids)
        for task_id in ids:
            await self.until(task_id, "completed")

    async def forget(self) -> None:
        """Let the time of every task pass; in virtual time that of each deadline, for trio keeps some that are over."""
        limits = self.engine.limits
        self.ahead += 2 * limits.task_ttl
        await trio.sleep(2 * limits.task_sweep + (limits.task_ttl if self.virtual else 0))
        # A disk may be slow; what is never deleted is found by the time of the test.
        with trio.fail_after(60):
            while await self.engine.tasks.store.count("") != (0, 0):
                await trio.sleep(limits.task_sweep)

    def holds(self) -> dict[str, int]:
        """What there is."""
        gc.collect()
        return {
            "tasks of trio": trio.lowlevel.current_statistics().tasks_living,
            "listeners": len(self.engine.server.notices),
            **asdict(self.engine.tasks.statistics()),
            "calls and tasks": sum(type(item) in (Call, Task, ServerTask) for item in gc.get_objects()),
        }


def traced() -> int:
    """Bytes that are held and were traced."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@asynccontextmanager
async def life(store: TaskStore, seconds: float, **limits: Any) -> AsyncIterator[Life]:
    """A server with a connection."""
    async with open_server(make(store, **limits)) as engine, open_raw(engine, pipe=1 << 20) as peer:
        yield Life(engine, peer, seconds)


async def growth(lived: Life, count: int, at_once: int, kinds: list[int]) -> tuple[int, int]:
    """Escalate so often and find everything as it was: how much more there is then, in bytes and in blocks of memory."""

    async def escalate(rounds: int, together: int) -> dict[str, int]:
        for number in range(rounds):
            await lived.one(kinds[number % len(kinds)])
            if number % 1_000 == 999:
                await lived.forget()
        await lived.many(together)
        await lived.forget()
        return lived.holds()

    # Whatever is made once is made now, and the interpreter's own lists of free objects fill.
    for _ in range(3):
        first = await escalate(8, at_once)
    bytes_, blocks, escalated = traced(), sys.getallocatedblocks(), lived.escalated
    assert await escalate(count, 1) == first
    assert await escalate(0, at_once) == first
    grown = traced() - bytes_, sys.getallocatedblocks() - blocks
    escalated = lived.escalated - escalated
    assert escalated == count + 1 + at_once if lived.virtual else escalated > (count + at_once) / 2
    print(f"{count} one after another, {at_once} at once: {grown[0]} bytes, {grown[1]} blocks more; {first}")
    return grown


async def least_growth(lived: Life, count: int, at_once: int, kinds: list[int], *, below: int) -> int:
    """The blocks of `growth`; measured once more where it is not below, since the interpreter may have kept something for
    itself. What leaks does so each time."""
    _, blocks = await growth(lived, count, at_once, kinds)
    if blocks >= below:
        _, blocks = await growth(lived, count, at_once, kinds)
    return blocks


@pytest.fixture
def tracing() -> Iterator[None]:
    """Each allocation is traced, which takes its time."""
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.timeout(300)
async def test_thousands_of_tasks_in_memory_leave_nothing(autojump_clock: MockClock) -> None:
    async with life(MemoryTaskStore(), 1.0, request_timeout=600.0) as lived:
        # Fewer than one for every twenty tasks.
        assert await least_growth(lived, 3_000, 500, [0, 0, 0, 2], below=250) < 250


async def test_tasks_of_every_kind_in_memory_leave_nothing(autojump_clock: MockClock, tracing: None) -> None:
    async with life(MemoryTaskStore(), 1.0, request_timeout=600.0) as lived:
        bytes_, _ = await growth(lived, 200, 50, [0, 1, 2, 3])
        assert bytes_ < 50_000


async def test_tasks_in_a_file_leave_nothing(tmp_path: Path) -> None:
    store = SQLiteTaskStore(tmp_path / "tasks.db")
    async with life(store, 0.05, request_timeout=math.inf, task_sweep=0.05, task_flush=0.02) as lived:
        # A deadline for each task, and nothing else.
        assert await least_growth(lived, 60, 50, [0, 1, 2, 3], below=2_000) < 2_000
