"""What a task store must do that several processes share, as tests: subclass them in your own suite."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Final

import pytest
import trio

from ..protocol.tasks import FINAL, Signal, Task
from ..tasks.store import TaskStore, TaskStoreError
from .task_rows import MANY, PATIENCE, assert_same, assert_usable, at_once, make_task, name, take
from .task_store import TaskStoreContract

__all__ = ["SharedTaskStoreContract"]

_STORES: Final = 4
"""Processes that share the data."""

_CHANGES: Final[dict[str, Callable[[TaskStore, Task], Awaitable[object]]]] = {
    "create": lambda store, task: store.create(replace(task, id=name())),
    "save": lambda store, task: store.save(replace(task, status="completed")),
    "delete": lambda store, task: store.delete(task.id),
    "send": lambda store, task: store.send(Signal(task.id, "cancel")),
}


class SharedTaskStoreContract(TaskStoreContract):
    """Tests of a task store that several processes share: those of `TaskStoreContract`, and more.

    `make_store` makes several stores in a test, each as another process would: they have nothing in common but the data.

    ```python
    class TestMyTaskStore(SharedTaskStoreContract):
        @pytest.fixture(autouse=True)
        def place(self, tmp_path: Path) -> None:
            self.path = tmp_path / "tasks"

        def make_store(self) -> TaskStore:
            return MyTaskStore(self.path)
    ```
    """

    @asynccontextmanager
    async def _open_many(self, *owners: str) -> AsyncIterator[list[TaskStore]]:
        async with AsyncExitStack() as stack:
            stores = [self.make_store() for _ in owners]
            for store, owner in zip(stores, owners, strict=True):
                await stack.enter_async_context(store.open(owner))
            yield stores

    async def test_what_one_has_written_the_others_find_at_once(self) -> None:
        a, b = name(), name()
        async with self._open_many(a, b) as (one, other):
            await one.create(task := make_task(a))
            assert_same(await other.get(task.id), task)
            assert await other.count(task.principal) == (1, 1)
            await one.save(task := replace(task, message="half"))
            assert_same(await other.get(task.id), task)
            await other.send(Signal(task.id, "cancel"))
            assert await take(one, a) == [Signal(task.id, "cancel")]
            await one.save(task := replace(task, status="completed", result={"x": [1]}))
            assert_same(await other.get(task.id), task)
            assert await other.count(task.principal) == (0, 1)
            assert await other.expire(task.expires + 1) == 1
            assert await one.get(task.id) is None
            assert await one.expire(task.expires + 1) == 0
            await one.create(task := make_task(a))
            await other.delete(task.id)
            assert await one.get(task.id) is None
            assert await one.save(task) is False
            assert await one.count(task.principal) == (0, 0)

    async def test_only_the_owner_replaces_a_row(self) -> None:
        a, b = name(), name()
        async with self._open_many(a, b) as (one, other):
            await one.create(task := make_task(a))
            assert await other.save(replace(task, owner=b, status="cancelled")) is False
            assert_same(await one.get(task.id), task)
            task = replace(task, status="completed")
            assert await one.save(task) is True
            assert await other.save(replace(task, owner=b)) is False
            assert_same(await other.get(task.id), task)

    async def test_of_creations_with_one_id_one_is_kept(self) -> None:
        owners = [name() for _ in range(_STORES)]
        kept = list[Task]()
        async with self._open_many(*owners) as stores:
            task_id, principal = name(), name()

            async def create(store: TaskStore, owner: str) -> None:
                task = make_task(owner, id=task_id, principal=principal)
                try:
                    await store.create(task)
                except TaskStoreError:
                    return
                kept.append(task)

            await at_once(*(partial(create, store, owner) for store, owner in zip(stores, owners, strict=True)))
            assert len(kept) == 1
            assert_same(await stores[-1].get(task_id), kept[0])
            assert await stores[0].count(principal) == (1, 1)

    async def test_an_owner_is_alive_while_its_block_lasts(self) -> None:
        a, b = name(), name()
        one, other = self.make_store(), self.make_store()
        working, final = make_task(a), make_task(a, status="completed")
        async with other.open(b):
            async with one.open(a):
                await one.create(working)
                await one.create(final)
                assert await other.adopt(b) == []
                assert await one.adopt(a) == []
                working = replace(working, message="half")
                assert await one.save(working) is True
            assert await other.adopt(b) == [replace(working, owner=b)]
            assert_same(await other.get(working.id), replace(working, owner=b))
            assert_same(await other.get(final.id), final)
            # Who comes later finds an owner that is alive.
            c = name()
            async with self.make_store().open(c), self._open_many(name()) as (third,):
                assert await third.adopt(c) == []
                assert await third.save(working) is False

    async def test_an_owner_whose_block_was_left_by_an_error_is_not_alive(self) -> None:
        a, b = name(), name()
        one, other = self.make_store(), self.make_store()
        task = make_task(a)
        async with other.open(b):
            with pytest.raises(ZeroDivisionError):
                async with one.open(a):
                    await one.create(task)
                    raise ZeroDivisionError
            assert await other.adopt(b) == [replace(task, owner=b)]

    async def test_each_task_is_adopted_by_one_process_however_many_there_are(self) -> None:
        dead, *heirs = [name() for _ in range(_STORES + 1)]
        gone = self.make_store()
        tasks = [make_task(dead) for _ in range(30)] + [make_task(dead, status=status) for status in FINAL]
        async with gone.open(dead):
            await at_once(*(partial(gone.create, task) for task in tasks))
        adopted: dict[str, str] = {}

        async def adopt(store: TaskStore, heir: str) -> None:
            for task in await store.adopt(heir):
                assert task.owner == heir
                assert task.id not in adopted
                adopted[task.id] = heir

        async with self._open_many(*heirs) as stores:
            calls = [partial(adopt, store, heir) for store, heir in zip(stores, heirs, strict=True)]
            await at_once(*calls * 5)
            assert adopted.keys() == {task.id for task in tasks if not task.final}
            for task_id, heir in adopted.items():
                row = await stores[0].get(task_id)
                assert row is not None and row.owner == heir

    async def test_signals_reach_the_process_that_runs_the_task_and_no_other(self) -> None:
        a, b, c = name(), name(), name()
        async with self._open_many(a, b, c) as (one, other, third):
            await one.create(first := make_task(a))
            await other.create(second := make_task(b))
            sent = [Signal(first.id, "answer", {"number": number}) for number in range(5)]
            for number, signal in enumerate(sent):
                await (other, third)[number % 2].send(signal)
            await third.send(Signal(second.id, "cancel"))
            assert await take(third, c) == []
            assert await take(other, b) == [Signal(second.id, "cancel")]
            assert await take(one, a) == sent
            assert await take(one, a) == []

    async def test_many_calls_of_many_processes_at_once(self) -> None:
        owners = [name() for _ in range(_STORES)]
        principal = name()
        received: Counter[str] = Counter()
        with trio.fail_after(3 * PATIENCE):
            async with self._open_many(*owners) as stores:

                async def use(number: int) -> None:
                    store, owner = stores[number % _STORES], owners[number % _STORES]
                    await store.create(task := make_task(owner, principal=principal))
                    await stores[(number + 1) % _STORES].send(Signal(task.id, "cancel"))
                    received.update(signal.task_id for signal in await take(store, owner))
                    assert await store.save(replace(task, status="completed"))

                await at_once(*(partial(use, number) for number in range(MANY)))
                for store in stores:
                    assert await store.count(principal) == (0, MANY)
        assert len(received) == MANY

    async def test_all_may_open_and_close_at_once(self) -> None:
        async def use(number: int) -> None:
            await trio.sleep(0.002 * number)
            store = self.make_store()
            async with store.open(owner := name()):
                await store.create(task := make_task(owner))
                assert_same(await store.get(task.id), task)
                await store.delete(task.id)

        with trio.fail_after(2 * PATIENCE):
            await at_once(*(partial(use, number) for number in range(2 * _STORES)))

    async def test_one_that_closes_leaves_the_others_alone(self) -> None:
        one = self.make_store()
        async with one.open(owner := name()):
            await one.create(task := make_task(owner))
            async with self._open_many(name()) as (other,):
                assert_same(await other.get(task.id), task)
            await assert_usable(one, owner)
            assert_same(await one.get(task.id), task)

    async def test_it_waits_for_changes_of_other_processes(self) -> None:
        """It may also come back without one, but not for ever."""
        a, b = name(), name()
        async with self._open_many(a, b) as (one, other):
            for change in _CHANGES.values():
                await other.create(task := make_task(b))
                await _calm(one)
                woken = list[int]()

                async def wait(number: int, woken: list[int] = woken) -> None:
                    await one.wait_change()
                    woken.append(number)

                with trio.fail_after(PATIENCE):
                    async with trio.open_nursery() as nursery:
                        for number in range(3):
                            nursery.start_soon(wait, number)
                        await trio.sleep(0.05)
                        await change(other, task)
                assert sorted(woken) == [0, 1, 2]

    async def test_a_change_between_two_waits_is_not_missed(self) -> None:
        a, b = name(), name()
        async with self._open_many(a, b) as (one, other):
            await one.create(task := make_task(a))
            await _calm(one)
            await other.send(Signal(task.id, "cancel"))
            with trio.fail_after(PATIENCE):
                await one.wait_change()
            assert await take(one, a) == [Signal(task.id, "cancel")]

    async def test_what_changed_while_the_store_was_closed_counts_as_a_change(self) -> None:
        store, other = self.make_store(), self.make_store()
        async with other.open(b := name()):
            for _ in range(2):
                async with store.open(name()):
                    await _calm(store)
                await other.create(make_task(b))
                with trio.fail_after(PATIENCE):
                    async with store.open(name()):
                        await store.wait_change()


async def _calm(store: TaskStore) -> None:
    """Take note of everything that has changed so far."""
    with trio.move_on_after(0.5):
        for _ in range(10):
            await store.wait_change()
