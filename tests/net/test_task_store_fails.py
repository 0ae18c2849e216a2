"""A place for tasks that fails for a while: what is behind is caught up with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio
from trio.testing import MockClock

from trio_mcp import Limits, MemoryTaskStore, Server, SQLiteTaskStore, Task, TaskStoreError, open_server
from trio_mcp.testing import RawPeer, open_raw

from .task_client import INTERRUPTED, declared


class SlowStore(MemoryTaskStore):
    """Takes its time, and fails the first times that it is to forget something."""

    def __init__(self, failures: int, seconds: float) -> None:
        super().__init__()
        self.failures = failures
        self.seconds = seconds

    async def create(self, task: Task) -> None:
        await super().create(task)
        await trio.sleep(0.1)

    async def delete(self, task_id: str) -> None:
        await trio.sleep(self.seconds)
        if self.failures:
            self.failures -= 1
            raise TaskStoreError("the disk is full")
        await super().delete(task_id)


class UnreliableStore(SQLiteTaskStore):
    """Fails the first times that it is to keep something."""

    def __init__(self, path: Path, failures: int) -> None:
        super().__init__(path)
        self.failures = failures

    async def save(self, task: Task) -> bool:
        if self.failures:
            self.failures -= 1
            raise TaskStoreError("the disk is full")
        return await super().save(task)


def make(store: Any) -> Server[Any]:
    server = Server("s", tasks=store, task_inline_ms=0, limits=Limits(task_sweep=0.2, drain_timeout=0.1))

    @server.tool(task_support="required", restartable=True)
    async def again() -> str:
        await trio.sleep(0.3)
        return "done"

    @server.tool(task_support="required")
    async def work() -> str:
        await trio.sleep_forever()
        return "never"

    return server


async def cancelled_in_time(peer: RawPeer) -> None:
    """A call that is cancelled when its task is kept already, and before its answer is sent."""
    await peer.send(declared(1, "tools/call", name="work", arguments={}))
    await trio.sleep(0.05)
    await peer.cancel(1)


async def test_a_task_that_nobody_was_told_of_is_forgotten_once_the_store_works(autojump_clock: MockClock) -> None:
    store = SlowStore(3, 0)
    async with open_server(make(store)) as engine, open_raw(engine) as peer:
        await cancelled_in_time(peer)
        await trio.sleep(10)
        assert store.failures == 0
        assert await store.count("") == (0, 0)
        assert engine.tasks.running == {}


async def test_a_task_that_nobody_was_told_of_is_forgotten_when_the_server_ends(autojump_clock: MockClock) -> None:
    store = SlowStore(0, 0.5)
    async with open_server(make(store)) as engine, open_raw(engine) as peer:
        await cancelled_in_time(peer)
        # In the middle of the deletion.
        await trio.sleep(0.2)
        assert await store.count("") == (1, 1)
    async with store.open("another"):
        assert await store.count("") == (0, 0)


async def test_what_was_left_by_a_process_is_taken_up_once_the_store_works(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    ids: dict[str, str] = {}
    heir = make(UnreliableStore(path, 3))
    async with open_server(heir) as engine:
        store = SQLiteTaskStore(path)
        async with store.open("dead"):
            for tool in ("again", "work"):
                for number in range(3):
                    task = Task(
                        id=f"{tool}{number}",
                        owner="dead",
                        principal="",
                        params={"name": tool, "arguments": {}},
                        meta=declared(1, "tools/call")["params"]["_meta"],
                        created=engine.tasks.clock(),
                        updated=engine.tasks.clock(),
                        ttl=60,
                        poll_interval=1,
                        restartable=tool == "again",
                    )
                    await store.create(task)
                    ids[task.id] = tool
        with trio.fail_after(30):
            for task_id, tool in ids.items():
                while not (row := await engine.tasks.find(task_id, "")).final:
                    await trio.sleep(0.02)
                if tool == "again":
                    assert row.result is not None
                    assert row.result["content"][0]["text"] == "done"
                else:
                    assert (row.status, row.message) == ("failed", INTERRUPTED)
        assert engine.tasks.running == {}
