"""The collector in virtual time: what drains when, and what bounds it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

import pytest
import trio
from trio.testing import MockClock

from trio_mcp.scopes.collector import open_collector

DRAIN, SETTLE = 10.0, 3.0


class Diary:
    """What happened when, in seconds from the beginning."""

    def __init__(self) -> None:
        self.entries: list[tuple[float, str]] = []
        self._begin = trio.current_time()

    def note(self, what: str) -> None:
        self.entries.append((round(self.now(), 3), what))

    def now(self) -> float:
        return trio.current_time() - self._begin

    async def work(self, name: str, seconds: float) -> None:
        try:
            await trio.sleep(seconds)
            self.note(f"{name} done")
        except trio.Cancelled:
            self.note(f"{name} cancelled")
            raise

    @asynccontextmanager
    async def around(self, enter: float = 0, leave: float = 0) -> AsyncIterator[None]:
        await self.work("enter", enter)
        try:
            yield
        finally:
            self.note("leave")
            await self.work("left", leave)


def collector(
    around: AbstractAsyncContextManager[object], drain: float = DRAIN, settle: float = SETTLE
) -> AbstractAsyncContextManager[trio.Nursery]:
    return open_collector(around, drain, settle)


# -- the end of the block


async def test_tasks_may_go_on_after_the_block_until_they_end(autojump_clock: MockClock) -> None:
    diary = Diary()
    async with collector(diary.around()) as nursery:
        nursery.start_soon(diary.work, "short", 2)
        nursery.start_soon(diary.work, "long", 9)
        await trio.sleep(1)
        diary.note("block left")
    diary.note("over")
    assert diary.entries == [
        (0, "enter done"),
        (1, "block left"),
        (2, "short done"),
        (9, "long done"),
        (9, "leave"),
        (9, "left done"),
        (9, "over"),
    ]


async def test_an_empty_collector_ends_at_once(autojump_clock: MockClock) -> None:
    diary = Diary()
    async with collector(diary.around(enter=1, leave=2)):
        diary.note("block")
    assert diary.entries == [(1, "enter done"), (1, "block"), (1, "leave"), (3, "left done")]
    assert diary.now() == 3


async def test_tasks_that_take_longer_than_the_drain_are_cancelled(autojump_clock: MockClock) -> None:
    diary = Diary()
    async with collector(diary.around()) as nursery:
        nursery.start_soon(diary.work, "endless", 1e9)
        await trio.sleep(5)
    assert diary.entries == [(0, "enter done"), (15, "endless cancelled"), (15, "leave"), (15, "left done")]


async def test_tasks_may_be_added_while_it_drains(autojump_clock: MockClock) -> None:
    diary = Diary()

    async def first(nursery: trio.Nursery) -> None:
        await diary.work("first", 4)
        nursery.start_soon(diary.work, "second", 4)

    async with collector(diary.around()) as nursery:
        nursery.start_soon(first, nursery)
    assert diary.entries == [(0, "enter done"), (4, "first done"), (8, "second done"), (8, "leave"), (8, "left done")]


async def test_an_error_of_the_block_comes_out_as_it_is_after_the_drain(autojump_clock: MockClock) -> None:
    diary = Diary()
    with pytest.raises(KeyError, match="of the block"):
        async with collector(diary.around()) as nursery:
            nursery.start_soon(diary.work, "task", 4)
            raise KeyError("of the block")
    assert diary.entries == [(0, "enter done"), (4, "task done"), (4, "leave"), (4, "left done")]


# -- cancellation from outside


async def test_a_cancellation_from_outside_reaches_the_tasks_last(autojump_clock: MockClock) -> None:
    diary = Diary()
    with trio.CancelScope() as outside:
        async with collector(diary.around(leave=1)) as nursery:
            nursery.start_soon(diary.work, "task", 8)
            await trio.sleep(3)
            outside.cancel()
            await diary.work("block", 100)
    assert outside.cancelled_caught
    assert diary.entries == [
        (0, "enter done"),
        (3, "block cancelled"),
        (8, "task done"),
        (8, "leave"),
        (9, "left done"),
    ]


@pytest.mark.parametrize(("clean_up", "cancelled"), [(0, 13), (4, 13), (9.5, 13), (12, 15)])
async def test_the_drain_counts_from_the_cancellation_and_not_from_the_end_of_the_block(
    autojump_clock: MockClock, clean_up: float, cancelled: float
) -> None:
    diary = Diary()
    with trio.CancelScope() as outside:
        async with collector(diary.around()) as nursery:
            nursery.start_soon(diary.work, "endless", 1e9)
            await trio.sleep(3)
            outside.cancel()
            with trio.CancelScope(shield=True):
                await trio.sleep(clean_up)
    assert diary.entries[1:] == [
        (cancelled, "endless cancelled"),
        (cancelled, "leave"),
        (cancelled, "left done"),
    ]


async def test_a_deadline_outside_is_a_cancellation_from_outside(autojump_clock: MockClock) -> None:
    diary = Diary()
    with trio.move_on_after(2):
        async with collector(diary.around()) as nursery:
            nursery.start_soon(diary.work, "endless", 1e9)
            await trio.sleep_forever()
    assert diary.entries[1:] == [(12, "endless cancelled"), (12, "leave"), (12, "left done")]


async def test_a_cancellation_while_it_drains_does_not_shorten_it(autojump_clock: MockClock) -> None:
    diary = Diary()
    with trio.move_on_after(5):
        async with collector(diary.around()) as nursery:
            nursery.start_soon(diary.work, "task", 8)
            await trio.sleep(1)
    assert (8, "task done") in diary.entries


async def test_a_scope_that_is_cancelled_already_lets_nothing_begin(autojump_clock: MockClock) -> None:
    diary = Diary()
    with trio.CancelScope() as outside:
        outside.cancel()
        async with collector(diary.around(enter=1)):
            diary.note("block")
    assert diary.entries == [(0, "enter cancelled")]


async def test_nothing_begins_either_when_entering_does_not_notice_the_cancellation(autojump_clock: MockClock) -> None:
    with trio.CancelScope() as outside:
        outside.cancel()
        async with collector(nullcontext()):
            raise AssertionError("begun")
    assert outside.cancelled_caught


# -- the bound of what follows


async def test_leaving_around_has_no_longer_than_the_bound(autojump_clock: MockClock) -> None:
    diary = Diary()
    async with collector(diary.around(leave=1e9)) as nursery:
        nursery.start_soon(diary.work, "task", 2)
    assert diary.entries[1:] == [(2, "task done"), (2, "leave"), (13, "left cancelled")]
    assert diary.now() == DRAIN + SETTLE


async def test_a_task_that_does_not_want_to_end_has_no_longer_than_the_bound(autojump_clock: MockClock) -> None:
    diary = Diary()

    async def stubborn() -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True) as clean_up:
                clean_up.deadline = trio.current_time() + SETTLE
                await diary.work("clean-up", 1e9)

    async with collector(diary.around(leave=1e9)) as nursery:
        nursery.start_soon(stubborn)
    assert diary.entries[1:] == [(13, "clean-up cancelled"), (13, "leave"), (13, "left cancelled")]


async def test_the_bound_counts_from_the_end_of_the_block_when_that_comes_later(autojump_clock: MockClock) -> None:
    diary = Diary()
    with trio.CancelScope() as outside:
        async with collector(diary.around(leave=1e9)):
            outside.cancel()
            with trio.CancelScope(shield=True):
                await trio.sleep(20)
    assert diary.entries[1:] == [(20, "leave"), (23, "left cancelled")]


# -- errors


@pytest.mark.parametrize(
    ("block", "leave", "then"),
    [
        (100, 1, [(2, "leave"), (3, "left done"), (3, "block cancelled")]),
        (100, 1e9, [(2, "leave"), (2 + SETTLE, "left cancelled"), (2 + SETTLE, "block cancelled")]),
        (0, 0, [(2, "leave"), (2, "left done")]),
        (0, 1e9, [(2, "leave"), (DRAIN + SETTLE, "left cancelled")]),
    ],
    ids=[
        "in the block",
        "in the block, leaving takes too long",
        "in the drain",
        "in the drain, leaving takes too long",
    ],
)
async def test_a_task_that_crashes_ends_everything_else_and_its_error_is_not_lost(
    autojump_clock: MockClock, block: float, leave: float, then: list[tuple[float, str]]
) -> None:
    diary = Diary()

    async def crash() -> None:
        await trio.sleep(2)
        raise ValueError("of a task")

    with pytest.raises(ValueError, match="of a task"), trio.fail_after(1000):
        async with collector(diary.around(leave=leave)) as nursery:
            nursery.start_soon(diary.work, "other", 100)
            nursery.start_soon(crash)
            if block:
                await diary.work("block", block)
    assert diary.entries[1:] == [(2, "other cancelled"), *then]


async def test_an_error_on_entering_comes_out_as_it_is_and_nothing_begins(autojump_clock: MockClock) -> None:
    diary = Diary()

    @asynccontextmanager
    async def broken() -> AsyncIterator[None]:
        await trio.sleep(1)
        raise OSError("no room")
        yield

    with pytest.raises(OSError, match="no room"):
        async with collector(broken()):
            diary.note("block")
    assert diary.entries == []


async def test_an_error_on_leaving_comes_out_as_it_is(autojump_clock: MockClock) -> None:
    diary = Diary()

    @asynccontextmanager
    async def broken() -> AsyncIterator[None]:
        yield
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        async with collector(broken()) as nursery:
            nursery.start_soon(diary.work, "task", 1)
    assert diary.entries == [(1, "task done")]


async def test_entering_can_be_cancelled(autojump_clock: MockClock) -> None:
    diary = Diary()
    with trio.fail_after(1000), trio.move_on_after(2):
        async with collector(diary.around(enter=1e9)):
            diary.note("block")
    assert diary.entries == [(2, "enter cancelled")]
    assert diary.now() == 2


# -- workers that are moved here


class Worker:
    """Begins under whoever starts it, and belongs to the collector from `move` on."""

    def __init__(self, diary: Diary) -> None:
        self.scope = trio.CancelScope()
        self.inner = trio.CancelScope()
        self.move = trio.Event()
        self._diary = diary

    async def run(self, seconds: float, *, task_status: trio.TaskStatus[None]) -> None:
        with self.scope, self.inner:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._diary.work, "child", seconds)
                await self.move.wait()
                task_status.started()
        self._diary.note("worker ended")


async def start(diary: Diary, nursery: trio.Nursery, seconds: float) -> Worker:
    """A worker that was moved after a second, by a request that has ended since."""
    worker = Worker(diary)
    with trio.CancelScope() as request:
        async with trio.open_nursery() as own:
            own.start_soon(nursery.start, worker.run, seconds)
            await trio.sleep(1)
            worker.move.set()
        request.cancel()
        await trio.lowlevel.checkpoint()
    return worker


async def test_a_moved_worker_outlives_its_request_and_is_drained(autojump_clock: MockClock) -> None:
    diary = Diary()
    async with collector(diary.around()) as nursery:
        await start(diary, nursery, 9)
    assert diary.entries[1:] == [(9, "child done"), (9, "worker ended"), (9, "leave"), (9, "left done")]


async def test_a_worker_that_is_not_moved_yet_ends_with_its_request(autojump_clock: MockClock) -> None:
    diary = Diary()
    async with collector(diary.around()) as nursery:
        with trio.move_on_after(4):
            await nursery.start(Worker(diary).run, 100)
        assert diary.now() == 4
    assert diary.entries[1:] == [(4, "child cancelled"), (4, "leave"), (4, "left done")]


@pytest.mark.parametrize("which", ["scope", "inner"])
async def test_the_scopes_of_a_moved_worker_still_work(autojump_clock: MockClock, which: str) -> None:
    diary = Diary()
    async with collector(diary.around()) as nursery:
        worker = await start(diary, nursery, 100)
        scope: trio.CancelScope = getattr(worker, which)
        await trio.sleep(1)
        scope.deadline = trio.current_time() + 3
        await trio.sleep(10)
        assert scope.cancelled_caught
    assert diary.entries[1:] == [(5, "child cancelled"), (5, "worker ended"), (12, "leave"), (12, "left done")]


async def test_a_moved_worker_is_shielded_from_the_outside_and_cancelled_by_the_drain(
    autojump_clock: MockClock,
) -> None:
    diary = Diary()
    with trio.CancelScope() as outside:
        async with collector(diary.around()) as nursery:
            worker = await start(diary, nursery, 100)
            outside.cancel()
            await trio.sleep_forever()
    assert not worker.scope.cancelled_caught
    assert diary.entries[1:] == [(11, "child cancelled"), (11, "leave"), (11, "left done")]
