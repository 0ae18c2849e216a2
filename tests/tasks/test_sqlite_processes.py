"""Several real processes at one file of tasks, and what is left when one is killed."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio
import trio.testing

from tests.net.helpers import Running
from tests.tasks.helpers import kill, next_line, open_with_writer, other_process, owner_files, put, query, tell
from trio_mcp import SQLiteTaskStore, TaskCount, TaskStoreError
from trio_mcp.testing.task_rows import assert_usable, make_task

SLOW = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 1000000) SELECT COUNT(*) FROM n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


async def test_tasks_of_a_process_are_adopted_when_it_was_killed_and_not_before(path: Path) -> None:
    store = SQLiteTaskStore(path)
    with other_process("own", path, "other", 3) as other:
        ids = [await next_line(other) for _ in range(3)]
        assert await next_line(other) == "done"
        async with store.open("heir"):
            assert await store.adopt("heir") == []
            assert owner_files(path) == ["heir", "other"]
            await kill(other)
            assert sorted(task.id for task in await store.adopt("heir")) == sorted(ids)
            assert owner_files(path) == ["heir"]
    assert owner_files(path) == []


async def test_a_file_that_a_killed_process_left_without_tasks_is_removed(path: Path) -> None:
    with other_process("own", path, "alive", 0) as alive, other_process("own", path, "dead", 0) as dead:
        assert (await next_line(alive), await next_line(dead)) == ("done", "done")
        await kill(dead)
        assert owner_files(path) == ["alive", "dead"]
        async with SQLiteTaskStore(path).open("me"):
            assert owner_files(path) == ["alive", "me"]


async def test_what_was_acknowledged_survives_a_kill(path: Path) -> None:
    with other_process("flood", path) as other:
        ids = [await next_line(other) for _ in range(50)]
        await kill(other)
        while (line := other.line()) is not None:
            ids.append(line.decode())
    store = SQLiteTaskStore(path)
    async with store.open("heir"):
        adopted = {task.id for task in await store.adopt("heir")}
        assert adopted >= set(ids)
        # Those whose answer was still on its way: at most one for each of the twenty that wrote.
        assert len(adopted) <= len(ids) + 20
    assert query(path, "PRAGMA integrity_check") == "ok"


async def test_writes_wait_for_another_process_and_reads_do_not(path: Path) -> None:
    store = SQLiteTaskStore(path)
    async with store.open("me"):
        await store.create(known := make_task("me"))
        with other_process("lock", path) as other:
            assert await next_line(other) == "locked"
            tasks = [make_task("me") for _ in range(5)]
            async with trio.open_nursery() as nursery:
                for task in tasks:
                    nursery.start_soon(store.create, task)
                # The writer has taken them, and waits.
                await trio.testing.wait_all_tasks_blocked()
                async with trio.open_nursery() as inner:
                    inner.start_soon(store.create, given_up := make_task("me"))
                    await trio.testing.wait_all_tasks_blocked()
                    inner.cancel_scope.cancel()
                with trio.fail_after(20):
                    assert await store.get(known.id) == known
                    assert await store.get(tasks[0].id) is None
                tell(other)
            for task in tasks:
                assert await store.get(task.id) == task
        # What comes later is done later, so by now it would have been.
        await store.create(make_task("me"))
        assert await store.get(given_up.id) is None
        assert query(path, "SELECT COUNT(*) FROM tasks") == 1 + len(tasks) + 1


async def test_who_calls_from_outside_the_block_does_not_wait_for_a_store_that_was_closed(path: Path) -> None:
    store = SQLiteTaskStore(path)
    one, other = make_task("me"), make_task("me")

    async def create_other() -> None:
        with pytest.raises(TaskStoreError, match="the store was closed"):
            await store.create(other)

    with other_process("lock", path, "later") as process:
        async with trio.open_nursery() as outside, store.open("me"):
            tell(process)
            assert await next_line(process) == "locked"
            outside.start_soon(store.create, one)
            await trio.sleep(0.1)
            outside.start_soon(create_other)
            outside.start_soon(trio.to_thread.run_sync, _tell_later, process)
            await trio.sleep(0.1)
    async with store.open("heir"):
        assert await store.get(one.id) == one
        assert await store.get(other.id) is None


def _tell_later(process: Running) -> None:
    time.sleep(1)
    tell(process)


async def test_a_read_from_outside_the_block_ends_before_the_file_is_closed(path: Path) -> None:
    store = SQLiteTaskStore(path)
    found: list[TaskCount] = []

    async def read() -> None:
        found.append(await store.count("slow"))

    async with trio.open_nursery() as outside, store.open("me"):
        await store.create(make_task("me", principal="slow"))
        # Whoever reads counts to a million first.
        query(path, "ALTER TABLE tasks RENAME TO kept")
        query(path, f"CREATE VIEW tasks AS SELECT kept.* FROM kept, ({SLOW})")
        outside.start_soon(read)
        await trio.sleep(0.1)
    assert found == [(1, 1)]


async def test_a_write_that_waits_too_long_fails_and_the_next_one_does_not(path: Path) -> None:
    store = SQLiteTaskStore(path)
    async with open_with_writer(store, "me") as writer:
        writer.execute("PRAGMA busy_timeout = 100")
        with other_process("lock", path) as other:
            assert await next_line(other) == "locked"
            with pytest.raises(TaskStoreError, match="database is locked"):
                await store.create(make_task("me"))
            tell(other)
            await trio.to_thread.run_sync(other.process.wait)
        await store.create(task := make_task("me"))
        assert await store.get(task.id) == task


async def test_wait_change_wakes_for_a_commit_of_another_process_and_not_for_our_own(path: Path) -> None:
    store = SQLiteTaskStore(path, poll=0.01)
    woken: list[str] = []
    async with store.open("me"):
        with other_process("write", path, "other") as other:
            assert await next_line(other) == "open"
            with trio.move_on_after(1):
                while True:
                    await store.wait_change()
            async with trio.open_nursery() as nursery:

                @nursery.start_soon
                async def wait() -> None:
                    await store.wait_change()
                    woken.append("change")

                for _ in range(5):
                    await store.create(make_task("me"))
                await trio.sleep(0.2)
                assert woken == []
                tell(other)
                assert await store.get(await next_line(other)) is not None
                with trio.fail_after(20):
                    while not woken:
                        await trio.sleep(0.01)


async def test_many_processes_open_a_new_file_at_once(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.db" for number in range(6)]
    with ExitStack() as stack:
        others = [stack.enter_context(other_process("come_and_go")) for _ in range(4)]
        for path in paths:
            for other in others:
                tell(other, str(path))
            assert [await next_line(other) for other in others] == ["ok"] * len(others)
            assert query(path, "SELECT COUNT(*) FROM tasks") == len(others)
            assert owner_files(path) == []


async def test_a_second_store_in_a_process_does_not_take_the_locks_of_the_first(path: Path) -> None:
    # Closing any descriptor of a file takes the locks of the process away; then another process deletes the log that is in use.
    one = SQLiteTaskStore(path)
    async with one.open("one"), SQLiteTaskStore(path).open("two"):
        with other_process("come_and_go") as other:
            tell(other, str(path))
            assert await next_line(other) == "ok"
            await one.create(make_task("one"))
            tell(other, str(path))
            assert await next_line(other) == "ok"
        assert await trio.to_thread.run_sync(query, path, "SELECT COUNT(*) FROM tasks") == 3
        assert await trio.to_thread.run_sync(query, path, "PRAGMA integrity_check") == "ok"


async def test_opening_waits_for_another_process_that_is_about_to_make_the_tables(path: Path) -> None:
    put(path)
    store = SQLiteTaskStore(path)
    opened = False
    with other_process("lock", path) as other:
        assert await next_line(other) == "locked"
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def use() -> None:
                nonlocal opened
                async with store.open("me"):
                    opened = True
                    await assert_usable(store, "me")

            await trio.sleep(0.3)
            assert not opened
            tell(other)
    assert opened
