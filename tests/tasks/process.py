"""Another process at a store of tasks: `process.py COMMAND PATH …`."""

from __future__ import annotations

import itertools
import os
import sqlite3
import sys
import uuid

import trio

from trio_mcp import SQLiteTaskStore, Task, TaskStoreError


def make_task(owner: str) -> Task:
    """One that works. (That of `trio_mcp.testing` comes with Hypothesis, which takes longer to load than all else here.)"""
    return Task(
        id=uuid.uuid4().hex,
        owner=owner,
        principal="",
        params={"name": "tool"},
        meta={},
        created=1e9,
        updated=1e9,
        ttl=60.0,
        poll_interval=1.0,
    )


async def own(path: str, owner: str, count: str) -> None:
    """Keep some tasks, tell their ids, and live on."""
    store = SQLiteTaskStore(path)
    async with store.open(owner):
        for _ in range(int(count)):
            await store.create(task := make_task(owner))
            print(task.id, flush=True)
        print("done", flush=True)
        await trio.sleep_forever()


async def flood(path: str) -> None:
    """Keep tasks for ever, and tell the id of each that is safe."""
    store = SQLiteTaskStore(path)

    async def create() -> None:
        while True:
            await store.create(task := make_task("flood"))
            print(task.id, flush=True)

    async with store.open("flood"), trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(create)


async def write(path: str, owner: str) -> None:
    """Keep one task for each line of input, and tell its id."""
    store = SQLiteTaskStore(path)
    async with store.open(owner):
        print("open", flush=True)
        while await trio.to_thread.run_sync(sys.stdin.readline):
            await store.create(task := make_task(owner))
            print(task.id, flush=True)


async def come_and_go(*_: str) -> None:
    """Open the store of each line of input, keep a task there, and close it."""
    for number in itertools.count():
        path = (await trio.to_thread.run_sync(sys.stdin.readline)).strip()
        if not path:
            return
        store = SQLiteTaskStore(path)
        try:
            async with store.open(f"{os.getpid()}-{number}"):
                await store.create(make_task("nobody"))
        except TaskStoreError as exc:
            print(exc, flush=True)
        else:
            print("ok", flush=True)


def lock(path: str, when: str = "at once") -> None:
    """Hold the lock of the database until there is a line of input; `later`: from a first line on."""
    if when == "later":
        sys.stdin.readline()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    print("locked", flush=True)
    sys.stdin.readline()
    connection.execute("COMMIT")


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command == "lock":
        lock(*arguments)
    else:
        trio.run({"own": own, "flood": flood, "write": write, "come_and_go": come_and_go}[command], *arguments)
