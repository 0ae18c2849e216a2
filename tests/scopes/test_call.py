"""One settlement a call, whoever comes first."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_mcp.protocol.meta import RequestMeta
from trio_mcp.scopes.call import Call, LastingCall, Settlement
from trio_mcp.scopes.call import run_call as run_answering
from trio_mcp.scopes.executor import Executor, ExecutorStatistics, Ticket


class Sent:
    """An outlet that keeps what it is given."""

    def __init__(self) -> None:
        self.room = trio.Event()
        self.room.set()
        self.taken = True
        self.notes: list[bytes] = []
        self.answers: list[bytes] = []

    def begin(self) -> None:
        pass

    full = False

    async def wait_room(self) -> None:
        await self.room.wait()

    def post(self, message: bytes) -> None:
        self.notes.append(message)

    def answer(self, message: bytes) -> bool:
        self.answers.append(message)
        return self.taken


def make(timeout: float = 100) -> tuple[Call, Sent]:
    sent = Sent()
    return Call(1, "tools/call", {}, RequestMeta("2026-07-28", {}), sent, timeout), sent


def late(call: Call) -> bytes:
    return b"late"


async def run_call(call: Call, work: Callable[[Call], Awaitable[bytes]], timed_out: Callable[[Call], bytes]) -> None:
    """A call whose worker answers what it returns."""

    async def answering(call: Call) -> None:
        call.answer(await work(call))

    await run_answering(call, answering, timed_out)


async def test_an_answer_is_sent_once_and_a_cancel_after_it_loses() -> None:
    call, sent = make()

    async def work(call: Call) -> bytes:
        return b"done"

    await run_call(call, work, late)
    assert sent.answers == [b"done"]
    assert call.settlement is Settlement.ANSWERED
    assert not call.cancel("too late")
    assert not call.scope.cancel_called


async def test_a_cancel_ends_the_worker_and_nothing_is_sent_after_it(autojump_clock: MockClock) -> None:
    call, sent = make()
    ended = trio.Event()

    async def work(call: Call) -> bytes:
        try:
            await trio.sleep(50)
        finally:
            ended.set()
            # Whoever cleans up may still try to talk; nobody listens.
            with trio.CancelScope(shield=True):
                await call.notify("notifications/progress", {"progress": 1})
        return b"done"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_call, call, work, late)
        await trio.sleep(1)
        assert call.cancel("by the client")
    assert ended.is_set()
    assert trio.current_time() < 10
    assert (sent.notes, sent.answers) == ([], [])
    assert call.reason == "by the client"


async def test_a_cancel_in_the_same_tick_as_the_answer_drops_the_answer() -> None:
    call, sent = make()

    async def work(call: Call) -> bytes:
        call.cancel("meets the answer")
        return b"done"

    await run_call(call, work, late)
    assert sent.answers == []
    assert call.settlement is Settlement.CANCELLED


async def test_a_call_that_was_cancelled_while_it_waited_never_runs() -> None:
    call, sent = make()
    call.cancel("before its turn")

    async def work(call: Call) -> bytes:
        await trio.lowlevel.checkpoint()
        raise AssertionError("user code ran")

    await run_call(call, work, late)
    assert sent.answers == []


async def test_the_deadline_answers_for_the_worker(autojump_clock: MockClock) -> None:
    call, sent = make(timeout=3)

    async def work(call: Call) -> bytes:
        await trio.sleep(50)
        return b"done"

    await run_call(call, work, late)
    assert trio.current_time() == pytest.approx(3)
    assert sent.answers == [b"late"]


async def test_a_worker_may_narrow_its_own_deadline(autojump_clock: MockClock) -> None:
    call, sent = make(timeout=30)

    async def work(call: Call) -> bytes:
        call.limit(None)
        call.limit(2)
        await trio.sleep(50)
        return b"done"

    await run_call(call, work, late)
    assert trio.current_time() == pytest.approx(2)
    assert sent.answers == [b"late"]


async def forever(call: Call) -> bytes:
    await trio.sleep_forever()
    return b"never"


async def test_a_cancellation_from_outside_passes_through_and_answers_nothing() -> None:
    call, sent = make()
    with trio.CancelScope() as outer:
        outer.cancel()
        await run_call(call, forever, late)
    assert outer.cancelled_caught
    assert sent.answers == []
    # Whatever still runs for it has nothing more to say.
    assert call.settlement is Settlement.CANCELLED


async def test_notify_always_checkpoints() -> None:
    call, _ = make()
    with trio.testing.assert_checkpoints():
        await call.notify("notifications/progress", {})
    call.cancel("over")
    with trio.testing.assert_checkpoints():
        await call.notify("notifications/progress", {})


@pytest.mark.parametrize("over", [False, True])
async def test_progress_waits_for_room_and_is_not_said_when_the_call_ends_meanwhile(over: bool) -> None:
    call, sent = make()
    sent.room = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call.notify, "notifications/progress", {})
        await wait_all_tasks_blocked()
        assert sent.notes == []
        if over:
            call.cancel("over")
        sent.room.set()
    assert len(sent.notes) == (not over)


class Task:
    """What a call has become; counts how often it was abandoned."""

    id = "t"

    def __init__(self) -> None:
        self.abandoned = 0

    def note(self, message: str) -> None:
        raise AssertionError(message)

    def record(self) -> None:
        raise AssertionError

    async def ask(self, questions: Any) -> dict[str, dict[str, Any]]:
        raise AssertionError(questions)

    def abandon(self) -> None:
        self.abandoned += 1


@pytest.mark.parametrize(
    ("end", "abandoned", "answered"),
    [("answer", 0, 1), ("gone", 1, 1), ("cancel", 1, 0), ("outside", 1, 0), ("crash", 1, 0)],
)
async def test_a_task_whose_handle_does_not_arrive_is_abandoned(end: str, abandoned: int, answered: int) -> None:
    call, sent = make()
    sent.taken = end != "gone"
    call.task = task = Task()

    async def work(call: Call) -> bytes:
        if end == "cancel":
            call.cancel("by the client")
        elif end == "outside":
            outside.cancel()
        elif end == "crash":
            raise ZeroDivisionError
        await trio.lowlevel.checkpoint()
        return b"handle"

    with trio.CancelScope() as outside, suppress(ZeroDivisionError):
        await run_call(call, work, late)
    assert (task.abandoned, len(sent.answers)) == (abandoned, answered)


def test_a_call_that_lasts_hears_of_the_end_whenever_it_comes() -> None:
    for early in (False, True):
        call = LastingCall(1, "subscriptions/listen", {}, RequestMeta("2026-07-28", {}), Sent())
        ended: list[bool] = []
        if early:
            call.end()
        call.on_end(lambda ended=ended: ended.append(True))  # type: ignore[misc]
        assert ended == [True] * early
        if not early:
            call.end()
        assert ended == [True]


# -- a call that waits for its client


def running() -> Call:
    """One whose time has begun."""
    call, _ = make()
    call.scope = trio.CancelScope()
    return call


async def go_away(call: Call, back: trio.Event) -> None:
    async with call.away():
        await back.wait()


async def test_a_call_that_is_away_has_no_place_and_its_time_stands(autojump_clock: MockClock) -> None:
    executor = Executor(1, 1)
    call, _ = make(10)
    call.place = executor.ticket()
    began = trio.current_time()

    async def work(call: Call) -> bytes:
        await trio.sleep(4)
        async with call.away():
            assert executor.statistics() == ExecutorStatistics(0, 0)
            assert call.place is None
            await trio.sleep(1_000)
        assert executor.statistics() == ExecutorStatistics(1, 0)
        await trio.sleep_forever()
        raise AssertionError

    await run_call(call, work, late)
    assert trio.current_time() - began == pytest.approx(1_010)
    assert call.settlement is Settlement.ANSWERED
    assert call.place is not None
    call.place.release()
    assert executor.statistics() == ExecutorStatistics(0, 0)


async def test_a_call_comes_back_in_turn_and_its_time_stands_meanwhile(autojump_clock: MockClock) -> None:
    executor = Executor(1, 2)
    call = running()
    call.place = executor.ticket()
    call.scope.deadline = trio.current_time() + 10
    back = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(go_away, call, back)
        await wait_all_tasks_blocked()
        other = executor.ticket()
        back.set()
        await trio.sleep(500)
        assert executor.statistics() == ExecutorStatistics(1, 1)
        assert call.place is None
        other.release()
    assert executor.statistics() == ExecutorStatistics(1, 0)
    assert call.scope.deadline == pytest.approx(trio.current_time() + 10)


async def test_a_call_that_comes_back_goes_first_and_is_never_busy(autojump_clock: MockClock) -> None:
    executor = Executor(1, 1)
    call = running()
    call.place = executor.ticket()
    order: list[str] = []

    async def wait(ticket: Ticket) -> None:
        await ticket.wait()
        order.append("waiting")
        ticket.release()

    async with trio.open_nursery() as nursery:
        with pytest.raises(ZeroDivisionError):
            async with call.away():
                other = executor.ticket()
                nursery.start_soon(wait, executor.ticket())
                nursery.start_soon(leave_after, other, 5)
                # Also where something else went wrong before.
                raise ZeroDivisionError
        order.append("back")
        assert call.place is not None
        assert executor.statistics() == ExecutorStatistics(1, 1)
        call.place.release()
    assert order == ["back", "waiting"]
    assert executor.statistics() == ExecutorStatistics(0, 0)


async def leave_after(ticket: Ticket, seconds: float) -> None:
    await trio.sleep(seconds)
    ticket.release()


async def test_a_call_that_is_cancelled_while_it_is_away_takes_no_place() -> None:
    executor = Executor(1, 0)
    call = running()
    call.place = executor.ticket()
    with trio.CancelScope() as scope:
        async with call.away():
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert call.place is None
    assert executor.statistics() == ExecutorStatistics(0, 0)


@pytest.mark.parametrize("order", ["ab", "ba"])
async def test_a_call_that_is_away_twice_comes_back_with_the_last(autojump_clock: MockClock, order: str) -> None:
    executor = Executor(1, 0)
    call = running()
    call.place = executor.ticket()
    call.scope.deadline = trio.current_time() + 10
    ways = {"a": trio.Event(), "b": trio.Event()}
    async with trio.open_nursery() as nursery:
        for name in "ab":
            nursery.start_soon(go_away, call, ways[name])
            await wait_all_tasks_blocked()
        await trio.sleep(100)
        ways[order[0]].set()
        await trio.sleep(100)
        # One question is still open: nothing runs for this call.
        assert executor.statistics() == ExecutorStatistics(0, 0)
        assert call.scope.deadline == math.inf
        ways[order[1]].set()
    assert executor.statistics() == ExecutorStatistics(1, 0)
    assert call.scope.deadline == pytest.approx(trio.current_time() + 10)


async def test_a_call_without_a_place_may_be_away() -> None:
    call = running()
    async with call.away():
        await trio.lowlevel.checkpoint()
    assert call.place is None
