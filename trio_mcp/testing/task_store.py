"""What every task store must do, as tests: subclass them in your own suite.

They need pytest, pytest-trio and Hypothesis (`trio-mcp[test]`), and no settings of those.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import trio
from hypothesis import example, given
from hypothesis import strategies as st

from ..protocol.tasks import FINAL, Signal, Status
from ..tasks.store import TaskCount, TaskStore, TaskStoreError
from .task_rows import (
    MANY,
    METHODS,
    OBJECTS,
    PATIENCE,
    SETTINGS,
    STATUSES,
    TASKS,
    assert_same,
    assert_usable,
    at_once,
    exact,
    make_task,
    name,
    pass_time,
    take,
)

__all__ = ["TaskStoreContract"]


class TaskStoreContract(ABC):
    """Tests of a task store that one process uses.

    ```python
    class TestMyTaskStore(TaskStoreContract):
        def make_store(self) -> TaskStore:
            return MyTaskStore()
    ```

    What a fixture has to prepare, an `autouse` one of the class can put on `self`. Every test of a subclass is asynchronous.
    """

    pytestmark: pytest.MarkDecorator = pytest.mark.trio

    @abstractmethod
    def make_store(self) -> TaskStore:
        """A store. At the first call in a test there is nothing in it."""

    # -- open

    async def test_it_can_be_opened_again_and_what_was_kept_is_there(self) -> None:
        store, one, other = self.make_store(), name(), name()
        working, final = make_task(one), make_task(one, status="completed", result={"x": 1})
        async with store.open(one):
            await store.create(working)
            await store.create(final)
            await store.send(Signal(working.id, "cancel"))
        async with store.open(other):
            assert_same(await store.get(working.id), working)
            assert_same(await store.get(final.id), final)
            assert await store.count(working.principal) == (1, 1)
            assert await store.count(final.principal) == (0, 1)
            await store.adopt(other)
            assert await take(store, other) == [Signal(working.id, "cancel")]

    async def test_what_is_raised_inside_the_block_comes_out_as_it_is(self) -> None:
        store = self.make_store()
        with pytest.raises(ZeroDivisionError):
            async with store.open(name()):
                raise ZeroDivisionError
        async with store.open(owner := name()):
            await assert_usable(store, owner)

    async def test_the_block_can_be_cancelled(self) -> None:
        store = self.make_store()
        with trio.fail_after(PATIENCE):
            async with store.open(name()):
                with trio.CancelScope() as inner:
                    inner.cancel()
                    await trio.sleep_forever()
            with trio.CancelScope() as outer:
                async with store.open(name()):
                    outer.cancel()
                    await trio.sleep_forever()
            assert outer.cancelled_caught
            async with store.open(owner := name()):
                await assert_usable(store, owner)

    async def test_it_works_in_a_shield_while_the_block_is_being_cancelled(self) -> None:
        store, owner = self.make_store(), name()
        with trio.fail_after(PATIENCE), trio.CancelScope() as scope:
            async with store.open(owner):
                try:
                    scope.cancel()
                    await trio.sleep_forever()
                finally:
                    with trio.CancelScope(shield=True):
                        await trio.sleep(0.05)
                        await assert_usable(store, owner)

    @pytest.mark.parametrize("moment", range(8))
    async def test_opening_can_be_cancelled(self, moment: int) -> None:
        store = self.make_store()

        async def hold() -> None:
            async with store.open(name()):
                await trio.sleep_forever()

        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(hold)
                await pass_time(moment)
                nursery.cancel_scope.cancel()
            async with store.open(owner := name()):
                await assert_usable(store, owner)

    @pytest.mark.parametrize("method", METHODS)
    async def test_it_refuses_while_it_is_not_open(self, method: str) -> None:
        store, owner = self.make_store(), name()
        task = make_task(owner)
        with trio.fail_after(PATIENCE), pytest.raises(TaskStoreError):
            await METHODS[method](store, task)
        async with store.open(owner):
            await store.create(task)
        with trio.fail_after(PATIENCE), pytest.raises(TaskStoreError):
            await METHODS[method](store, task)

    # -- create, save, get, delete

    @SETTINGS
    @given(first=TASKS, then=TASKS)
    async def test_every_field_comes_back_as_it_was(self, first: Mapping[str, Any], then: Mapping[str, Any]) -> None:
        store = self.make_store()
        async with store.open(owner := name()):
            task = make_task(owner, **first)
            await store.create(task)
            assert_same(await store.get(task.id), task)
            after = replace(task, principal=name(), **then)
            assert await store.save(after) is not task.final
            kept, other = (task, after) if task.final else (after, task)
            assert_same(await store.get(task.id), kept)
            assert await store.count(kept.principal) == (0 if kept.final else 1, 1)
            assert await store.count(other.principal) == (0, 0)
            await store.delete(task.id)

    async def test_deep_long_and_large_values_come_back_as_they_were(self) -> None:
        # A request may be as deep, and its integers as long, as the default limits say; a result is kept up to a MiB.
        deep: Any = 10**999
        for _ in range(120):
            deep = [deep]
        store = self.make_store()
        async with store.open(owner := name()):
            task = make_task(
                owner, params={"deep": deep, "-": -(2**64)}, status="completed", result={"x": "ö\0" * 400_000}
            )
            await store.create(task)
            assert_same(await store.get(task.id), task)

    async def test_a_second_task_with_the_same_id_is_refused_and_the_first_stays(self) -> None:
        store = self.make_store()
        async with store.open(owner := name()):
            task = make_task(owner)
            await store.create(task)
            with pytest.raises(TaskStoreError):
                await store.create(replace(task, principal=name(), message="second"))
            assert_same(await store.get(task.id), task)
            assert await store.count(task.principal) == (1, 1)

    @pytest.mark.parametrize("status", sorted(FINAL))
    async def test_a_final_task_is_not_replaced(self, status: Status) -> None:
        store = self.make_store()
        async with store.open(owner := name()):
            await store.create(task := make_task(owner))
            ended = replace(task, status=status)
            assert await store.save(ended) is True
            for change in (*FINAL, "working"):
                assert await store.save(replace(task, status=change, message="late")) is False
            assert_same(await store.get(task.id), ended)

    async def test_a_task_that_is_gone_is_not_replaced(self) -> None:
        store = self.make_store()
        async with store.open(owner := name()):
            task = make_task(owner)
            assert await store.save(task) is False
            await store.create(task)
            await store.delete(task.id)
            assert await store.save(task) is False
            assert await store.get(task.id) is None
            assert await store.count(task.principal) == (0, 0)

    async def test_a_task_of_another_owner_is_not_replaced(self) -> None:
        store = self.make_store()
        async with store.open(owner := name()):
            await store.create(task := make_task(owner))
            assert await store.save(replace(task, owner=name(), message="foreign")) is False
            assert_same(await store.get(task.id), task)

    @SETTINGS
    @given(task_id=st.text())
    async def test_there_is_no_task_with_an_id_that_nobody_gave(self, task_id: str) -> None:
        store = self.make_store()
        async with store.open(owner := name()):
            assert await store.get(task_id) is None
            await store.delete(task_id)
            await store.send(Signal(task_id, "cancel"))
            assert await take(store, owner) == []

    async def test_ids_are_told_apart_to_the_letter(self) -> None:
        store = self.make_store()
        async with store.open(owner := name()):
            await store.create(make_task(owner, id="Task_1"))
            for other in ("task_1", "TASK_1", "Task%1", "Task_1 ", " Task_1", "Task_", "Task_1\0", ""):
                assert await store.get(other) is None

    async def test_deleting_forgets_one_task_and_may_be_repeated(self) -> None:
        store = self.make_store()
        async with store.open(owner := name()):
            principal = name()
            gone, stays = make_task(owner, principal=principal), make_task(owner, principal=principal)
            await store.create(gone)
            await store.create(stays)
            for _ in range(3):
                await store.delete(gone.id)
                assert await store.get(gone.id) is None
                assert await store.count(principal) == (1, 1)
            assert_same(await store.get(stays.id), stays)

    # -- count, expire

    async def test_tasks_are_counted_by_caller(self) -> None:
        store = self.make_store()
        async with store.open(owner := name()):
            alice, bob = name(), name()
            assert await store.count(alice) == TaskCount(active=0, stored=0)
            tasks = [make_task(owner, principal=alice, status=status) for status in STATUSES]
            for task in tasks:
                await store.create(task)
            await store.create(make_task(owner, principal=bob))
            assert await store.count(alice) == TaskCount(active=2, stored=5)
            await store.save(replace(tasks[0], status="failed"))
            assert await store.count(alice) == TaskCount(active=1, stored=5)
            await store.delete(tasks[1].id)
            await store.delete(tasks[2].id)
            assert await store.count(alice) == TaskCount(active=0, stored=3)
            assert await store.count(bob) == TaskCount(active=1, stored=1)

    async def test_final_tasks_are_forgotten_after_their_time_and_no_others(self) -> None:
        store = self.make_store()
        async with store.open(owner := name()):
            now, principal = 5_000.0, name()
            old: dict[str, Any] = {"principal": principal, "created": now - 100, "ttl": 99.0}
            over = [make_task(owner, **old, status=status) for status in FINAL]
            stay = [make_task(owner, **old), make_task(owner, **old, status="input_required")]
            stay += [make_task(owner, principal=principal, created=now - 100, ttl=101.0, status="completed")]
            for task in (*over, *stay):
                await store.create(task)
            assert await store.expire(now) == len(over)
            assert await store.expire(now) == 0
            assert [await store.get(task.id) for task in over] == [None] * len(over)
            for task in stay:
                assert_same(await store.get(task.id), task)
            assert await store.count(principal) == (2, 3)
            # What a task says of its time when it ends is what counts.
            assert await store.save(replace(stay[0], status="failed", ttl=500.0))
            assert await store.save(replace(stay[1], status="failed"))
            assert await store.expire(now) == 1
            assert await store.get(stay[0].id) is not None

    # -- adopt

    async def test_unfinished_tasks_of_an_owner_that_is_gone_are_adopted(self) -> None:
        store, dead, heir = self.make_store(), name(), name()
        working = make_task(dead, restartable=True, recorded={"answers": {"x": 1}})
        asking = make_task(dead, status="input_required", requests={"q": {"method": "m"}})
        final = [make_task(dead, status=status) for status in FINAL]
        async with store.open(dead):
            for task in (working, asking, *final):
                await store.create(task)
            assert await store.adopt(dead) == []
        async with store.open(heir):
            await store.create(mine := make_task(heir))
            adopted = {task.id: task for task in await store.adopt(heir)}
            assert adopted.keys() == {working.id, asking.id}
            for task in (working, asking):
                assert_same(adopted[task.id], replace(task, owner=heir))
                assert_same(await store.get(task.id), replace(task, owner=heir))
                assert await store.count(task.principal) == (1, 1)
                assert await store.save(task) is False
                assert await store.save(replace(task, owner=heir, message="further")) is True
            for task in (*final, mine):
                assert_same(await store.get(task.id), task)
            assert await store.adopt(heir) == []

    async def test_each_task_is_adopted_by_one_call_however_many_there_are(self) -> None:
        store, dead, heir = self.make_store(), name(), name()
        tasks = [make_task(dead) for _ in range(30)]
        async with store.open(dead):
            await at_once(*(partial(store.create, task) for task in tasks))
        adopted: Counter[str] = Counter()

        async def adopt() -> None:
            adopted.update(task.id for task in await store.adopt(heir))

        async with store.open(heir):
            await at_once(*[adopt] * 30)
        assert adopted == Counter(task.id for task in tasks)

    # -- send, receive

    @SETTINGS
    @given(payload=OBJECTS)
    @example(payload={"long": 2**64 + 1, "true": True, "one": 1})
    async def test_a_signal_comes_back_as_it_was_and_once(self, payload: dict[str, Any]) -> None:
        store = self.make_store()
        async with store.open(owner := name()):
            await store.create(task := make_task(owner))
            await store.send(Signal(task.id, "answer", payload))
            (signal,) = await take(store, owner)
            assert (signal.task_id, signal.kind) == (task.id, "answer")
            assert exact(signal.payload) == exact(payload)
            assert await take(store, owner) == []

    async def test_a_signal_is_kept_once_and_given_again_until_it_is_acknowledged(self) -> None:
        store = self.make_store()
        async with store.open(owner := name()):
            await store.create(task := make_task(owner))
            sent = [Signal(task.id, "cancel"), Signal(task.id, "answer", {"x": 1}), Signal(task.id, "answer", {"x": 2})]
            for signal in sent * 3:
                await store.send(signal)
            given = await store.receive(owner)
            assert given == sent
            await store.acknowledge(given[1:2])
            assert await store.receive(owner) == [sent[0], sent[2]]

    async def test_signals_come_in_order(self) -> None:
        store = self.make_store()
        async with store.open(owner := name()):
            tasks = [make_task(owner) for _ in range(3)]
            await at_once(*(partial(store.create, task) for task in tasks))
            sent = [Signal(tasks[number % 3].id, "answer", {"number": number}) for number in range(12)]
            for part in (sent[:9], sent[9:]):
                for signal in part:
                    await store.send(signal)
                assert await take(store, owner) == part

    async def test_signals_wait_for_the_owner_that_the_task_gets(self) -> None:
        store, dead, heir = self.make_store(), name(), name()
        task = make_task(dead)
        async with store.open(dead):
            await store.create(task)
            sent = [Signal(task.id, "answer", {"x": 1}), Signal(task.id, "cancel")]
            await store.send(sent[0])
            assert await store.receive(dead) == sent[:1]
        async with store.open(heir):
            for signal in sent:
                await store.send(signal)
            assert await take(store, heir) == []
            await store.adopt(heir)
            assert await take(store, dead) == []
            assert await take(store, heir) == sent

    @pytest.mark.parametrize("how", ["delete", "expire"])
    async def test_signals_are_gone_with_their_task(self, how: str) -> None:
        store = self.make_store()
        async with store.open(owner := name()):
            await store.create(task := make_task(owner))
            await store.send(Signal(task.id, "cancel"))
            if how == "delete":
                await store.delete(task.id)
            else:
                await store.save(replace(task, status="completed"))
                await store.expire(task.expires + 1)
            await store.create(task)
            assert await take(store, owner) == []

    # -- at once, and cancelled

    async def test_hundreds_of_calls_at_once(self) -> None:
        store = self.make_store()
        with trio.fail_after(3 * PATIENCE):
            async with store.open(owner := name()):
                principal = name()
                tasks = [make_task(owner, principal=principal) for _ in range(MANY)]
                await at_once(*(partial(store.create, task) for task in tasks))
                assert await store.count(principal) == (MANY, MANY)

                async def use(number: int) -> None:
                    task = tasks[number]
                    assert await store.save(replace(task, attempts=number))
                    assert_same(await store.get(task.id), replace(task, attempts=number))
                    await store.send(Signal(task.id, "cancel"))
                    if number % 3 == 0:
                        await store.delete(task.id)
                    elif number % 3 == 1:
                        assert await store.save(replace(task, status="completed"))

                await at_once(*(partial(use, number) for number in range(MANY)))
                assert await store.count(principal) == (MANY // 3, MANY // 3 * 2)
                received = [signal.task_id for signal in await take(store, owner)]
                assert sorted(received) == sorted(task.id for number, task in enumerate(tasks) if number % 3)
                assert await store.expire(tasks[0].expires + 1) == MANY // 3

    async def test_of_many_ends_of_one_task_one_is_kept(self) -> None:
        store, won = self.make_store(), list[int]()
        async with store.open(owner := name()):
            await store.create(task := make_task(owner))

            async def end(number: int) -> None:
                if await store.save(replace(task, status="completed", result={"number": number})):
                    won.append(number)

            await at_once(*(partial(end, number) for number in range(50)))
            assert len(won) == 1
            found = await store.get(task.id)
            assert found is not None and found.result == {"number": won[0]}

    async def test_no_signal_is_lost_however_many_calls_there_are(self) -> None:
        store, received = self.make_store(), list[int]()
        async with store.open(owner := name()):
            await store.create(task := make_task(owner))

            async def take_some() -> None:
                received.extend(signal.payload["number"] for signal in await take(store, owner))

            sends = [partial(store.send, Signal(task.id, "answer", {"number": number})) for number in range(MANY)]
            await at_once(*sends, *[take_some] * 50)
            await at_once(*[take_some] * 50)
        assert sorted(set(received)) == list(range(MANY))

    @pytest.mark.parametrize("method", METHODS)
    async def test_every_method_may_be_cancelled_at_any_moment(self, method: str) -> None:
        store = self.make_store()
        async with store.open(owner := name()):
            for moment in range(8):
                await store.create(task := make_task(owner))
                with trio.fail_after(PATIENCE):
                    async with trio.open_nursery() as nursery:
                        for _ in range(10):
                            nursery.start_soon(METHODS[method], store, task)
                        await pass_time(moment)
                        nursery.cancel_scope.cancel()
                await store.delete(task.id)
                await assert_usable(store, owner)

    @pytest.mark.parametrize("moment", range(8))
    async def test_what_is_cancelled_is_done_or_not_done(self, moment: int) -> None:
        store = self.make_store()
        async with store.open(owner := name()):
            principal = name()
            working, saved, gone = (make_task(owner, principal=principal, ttl=1e6) for _ in range(3))
            await store.create(saved)
            await store.create(gone)
            await store.send(Signal(gone.id, "cancel"))
            ended = replace(saved, status="completed", result={"x": 1})
            with trio.fail_after(PATIENCE):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(store.create, working)
                    nursery.start_soon(store.save, ended)
                    nursery.start_soon(store.delete, gone.id)
                    await pass_time(moment)
                    nursery.cancel_scope.cancel()
            # What was under way may still be done a little later.
            await trio.sleep(0.1)
            rows = [await store.get(task.id) for task in (working, saved, gone)]
            assert rows[0] in (None, working)
            assert rows[1] in (saved, ended)
            assert rows[2] in (None, gone)
            there = [row for row in rows if row is not None]
            assert await store.count(principal) == (sum(not row.final for row in there), len(there))
            assert await take(store, owner) == ([Signal(gone.id, "cancel")] if rows[2] else [])

    # -- wait_change

    async def test_it_waits_for_changes_of_other_processes(self) -> None:
        """Where there can be none it waits for ever."""
        store, changed = self.make_store(), False
        async with store.open(owner := name()), trio.open_nursery() as nursery:

            async def wait() -> None:
                nonlocal changed
                await store.wait_change()
                changed = True

            nursery.start_soon(wait)
            await assert_usable(store, owner)
            await trio.sleep(0.5)
            assert not changed
            nursery.cancel_scope.cancel()
