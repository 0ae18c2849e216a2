"""Admission: places, the queue and its bounds, order, and tickets that are given up."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_mcp import ServerBusy
from trio_mcp.scopes.executor import Executor, ExecutorStatistics, Ticket


async def hold(ticket: Ticket, name: str, entered: list[str], release: trio.Event) -> None:
    if not ticket.ready:
        await ticket.wait()
    try:
        entered.append(name)
        await release.wait()
    finally:
        ticket.release()


async def test_places_are_given_at_once_then_in_the_order_of_the_tickets() -> None:
    executor, entered = Executor(2, 3), list[str]()
    releases = {name: trio.Event() for name in "abcde"}
    async with trio.open_nursery() as nursery:
        tickets = {name: executor.ticket() for name in "abcde"}
        assert [tickets[name].ready for name in "abcde"] == [True, True, False, False, False]
        # The order of the tickets counts, and not that in which the scheduler runs their tasks.
        for name in "edcba":
            nursery.start_soon(hold, tickets[name], name, entered, releases[name])
        await wait_all_tasks_blocked()
        assert sorted(entered) == ["a", "b"]
        assert executor.statistics() == ExecutorStatistics(running=2, waiting=3)
        for name in "abcde":
            releases[name].set()
            await wait_all_tasks_blocked()
    assert entered[2:] == ["c", "d", "e"]
    assert executor.statistics() == ExecutorStatistics(running=0, waiting=0)


async def test_refuses_beyond_the_queue_and_says_when_to_come_back() -> None:
    executor = Executor(1, 1, retry_after=7)
    executor.ticket()
    executor.ticket()
    with pytest.raises(ServerBusy) as caught:
        executor.ticket()
    assert caught.value.message == "Server busy: 1 requests are running and 1 are waiting; try again in 7 s"
    assert caught.value.retry_after == 7
    assert caught.value.http_status == 503
    assert not -32768 <= caught.value.code <= -32000


async def test_a_refusal_of_the_executor_behind_takes_no_place() -> None:
    executor = Executor(2, 5, then=Executor(1, 0))
    executor.ticket()
    with pytest.raises(ServerBusy):
        executor.ticket()
    assert executor.statistics() == ExecutorStatistics(running=1, waiting=0)


@pytest.mark.parametrize("entered", [True, False])
async def test_a_place_behind_which_there_is_none_is_no_place(entered: bool) -> None:
    """Whoever gets one in front meanwhile is refused, and gives it on."""
    behind = Executor(1, 1)
    executor, begun, refused, never = Executor(1, 1, then=behind), list[str](), list[ServerBusy](), trio.Event()
    behind.ticket()
    leaving = trio.CancelScope()

    async def wait(ticket: Ticket) -> None:
        try:
            await hold(ticket, "second", begun, never)
        except ServerBusy as exc:
            refused.append(exc)

    async def leave(ticket: Ticket) -> None:
        with leaving:
            await hold(ticket, "first", begun, never)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(leave, executor.ticket())
        second = executor.ticket()
        if entered:
            nursery.start_soon(wait, second)
        await wait_all_tasks_blocked()
        leaving.cancel()
        # The first has left the queue behind and not yet its place in front.
        behind.ticket()
        await wait_all_tasks_blocked()
        if not entered:
            nursery.start_soon(wait, second)
            await wait_all_tasks_blocked()
        assert (begun, len(refused)) == ([], 1)
        assert executor.statistics() == ExecutorStatistics(running=0, waiting=0)
        nursery.cancel_scope.cancel()


async def test_what_waits_has_a_bound_in_bytes_as_well() -> None:
    executor, never = Executor(1, 100, waiting_bytes=1_000), trio.Event()
    executor.ticket(5_000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(hold, executor.ticket(600), "a", [], never)
        await wait_all_tasks_blocked()
        with pytest.raises(ServerBusy):
            executor.ticket(500)
        executor.ticket(400)
        nursery.cancel_scope.cancel()
    # Who has left holds nothing.
    executor.ticket(600)


async def test_who_leaves_the_queue_never_enters_and_leaves_room() -> None:
    executor, entered, never = Executor(1, 1), list[str](), trio.Event()
    place, leaving = executor.ticket(), trio.CancelScope()

    async def wait() -> None:
        with leaving:
            await hold(executor.ticket(), "b", entered, never)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        leaving.cancel()
        await wait_all_tasks_blocked()
        assert executor.statistics() == ExecutorStatistics(running=1, waiting=0)
        nursery.start_soon(hold, executor.ticket(), "c", entered, never)
        place.release()
        await wait_all_tasks_blocked()
        assert entered == ["c"]
        nursery.cancel_scope.cancel()
    assert executor.statistics() == ExecutorStatistics(running=0, waiting=0)


async def test_a_place_that_comes_free_while_its_task_is_cancelled_comes_back(autojump_clock: MockClock) -> None:
    """In one step: the place is granted, and whoever waited for it is cancelled, in either order."""
    for cancel_first in (True, False):
        executor, entered, never = Executor(1, 1), list[str](), trio.Event()
        async with trio.open_nursery() as nursery:
            place = executor.ticket()
            nursery.start_soon(hold, executor.ticket(), "b", entered, never)
            await wait_all_tasks_blocked()
            if cancel_first:
                nursery.cancel_scope.cancel()
            place.release()
            nursery.cancel_scope.cancel()
        assert executor.statistics() == ExecutorStatistics(running=0, waiting=0)


async def test_a_task_that_is_cancelled_before_it_begins_gives_its_place_back() -> None:
    executor, entered, never = Executor(1, 1), list[str](), trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(hold, executor.ticket(), "a", entered, never)
        nursery.start_soon(hold, executor.ticket(), "b", entered, never)
        nursery.cancel_scope.cancel()
    assert executor.statistics() == ExecutorStatistics(running=0, waiting=0)
