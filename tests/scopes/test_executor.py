"""Admission: places, queue, refusal, order, withdrawal."""

from __future__ import annotations

import pytest
import trio
from trio.testing import assert_checkpoints, wait_all_tasks_blocked

from trio_mcp import ServerBusy
from trio_mcp.scopes.executor import Executor


async def test_starts_at_once_while_there_are_places_then_queues_in_order() -> None:
    executor = Executor(2, 3)
    started: list[str] = []
    for name in "abcde":
        executor.submit(name, lambda name=name: started.append(name))
    assert started == ["a", "b"]
    assert (executor.statistics().running, executor.statistics().waiting) == (2, 3)
    executor.release()
    executor.release()
    assert started == ["a", "b", "c", "d"]


async def test_refuses_beyond_the_queue_and_says_when_to_come_back() -> None:
    executor = Executor(1, 1, retry_after=7)
    executor.submit("a", lambda: None)
    executor.submit("b", lambda: None)
    with pytest.raises(ServerBusy) as caught:
        executor.submit("c", lambda: None)
    assert caught.value.message == "Server busy: 1 requests are running and 1 are waiting; try again in 7 s"
    assert caught.value.retry_after == 7
    assert caught.value.http_status == 503
    assert not -32768 <= caught.value.code <= -32000


async def test_who_withdraws_never_starts_and_leaves_room() -> None:
    executor = Executor(1, 1)
    started: list[str] = []
    executor.submit("a", lambda: started.append("a"))
    executor.submit("b", lambda: started.append("b"))
    assert executor.withdraw("b")
    assert not executor.withdraw("b")
    assert not executor.withdraw("a")
    executor.submit("c", lambda: started.append("c"))
    executor.release()
    assert started == ["a", "c"]


async def test_wait_room_waits_for_a_release_or_a_withdrawal() -> None:
    executor = Executor(1, 1)
    executor.submit("a", lambda: None)
    await executor.wait_room()
    executor.submit("b", lambda: None)
    passed: list[str] = []

    async def wait() -> None:
        with assert_checkpoints():
            await executor.wait_room()
        passed.append("through")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        assert passed == []
        executor.withdraw("b")
    assert passed == ["through"]


async def test_wait_room_can_be_cancelled() -> None:
    executor = Executor(1, 1)
    executor.submit("a", lambda: None)
    executor.submit("b", lambda: None)
    with trio.CancelScope() as scope:
        scope.cancel()
        await executor.wait_room()
    assert scope.cancelled_caught


@pytest.mark.parametrize("given", [False, True])
async def test_who_leaves_while_entering_keeps_no_place(given: bool) -> None:
    executor = Executor(1, 1)
    await executor.enter("a")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(executor.enter, "b")
        await wait_all_tasks_blocked()
        assert (executor.statistics().running, executor.statistics().waiting) == (1, 1)
        nursery.cancel_scope.cancel()
        if given:
            # The place comes in the step in which it leaves.
            executor.release()
    assert (executor.statistics().running, executor.statistics().waiting) == (1 - given, 0)
