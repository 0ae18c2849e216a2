"""256 listeners, one of which never reads, and a publisher that never waits: what it costs, in bytes."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_mcp import Limits, Server, open_client, open_server
from trio_mcp.protocol.listening import RESOURCE_UPDATED
from trio_mcp.scopes.notices import Notices, Subscription
from trio_mcp.testing import open_raw, request

BUFFER = 16_384
PIPE = 4_096
WATCHED = [f"shop://{number}" for number in range(1_000)]


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def shop(**limits: Any) -> Server[Any]:
    server = Server("shop", limits=Limits(**limits))

    @server.resource("shop://{item}")
    async def item(item: str) -> str:
        return item

    return server


def publish(server: Server[Any], first: int, last: int) -> None:
    """Changes, half of them to URIs that are watched and come again and again, half to ones that come once."""
    for number in range(first, last):
        if number % 2:
            server.notify_resource_updated(f"shop://{number // 2 % len(WATCHED)}")
        else:
            server.notify_resource_updated(f"other://{number}")


def held(subscription: Subscription) -> int:
    """Bytes that a listener holds of what it has not sent: the set and everything in it."""
    pending = subscription._pending
    return sys.getsizeof(pending) + sum(
        sys.getsizeof(notice) + sum(sys.getsizeof(part) for part in notice) for notice in pending
    )


async def test_one_that_never_reads_slows_nobody(autojump_clock: MockClock) -> None:
    """The other 255 hear every change, at once, in no time; and what is held for the deaf one does not grow."""
    server = shop(write_buffer=BUFFER)
    mine = WATCHED[::100]
    heard: list[list[str]] = []
    async with open_server(server) as running, trio.open_nursery() as nursery, open_raw(running, pipe=PIPE) as deaf:
        await deaf.send(request(1, "subscriptions/listen", notifications={"resourceSubscriptions": WATCHED}))
        await wait_all_tasks_blocked()
        [subscription] = server.notices._subscriptions

        async def hear(task_status: trio.TaskStatus[None]) -> None:
            got: list[str] = []
            heard.append(got)
            async with open_client(running) as client, client.listen(uris=mine) as changes:
                task_status.started()
                async for change in changes:
                    assert change.uri is not None
                    got.append(change.uri)

        for _ in range(255):
            await nursery.start(hear)
        assert len(server.notices) == 256
        start, sizes = trio.current_time(), list[int]()
        for first, last in ((0, 2_000), (2_000, 4_000), (4_000, 12_000)):
            publish(server, first, last)
            sizes.append(held(subscription))
            await wait_all_tasks_blocked()
            # Each of the 255 has heard of each of its URIs once since the burst began.
            assert all(got == mine for got in heard)
            for got in heard:
                got.clear()
        assert trio.current_time() == start
        # Each watched URI once: the same after two thousand changes as after twelve thousand.
        assert sizes[2] <= sizes[1] <= sizes[0] + 16_384
        assert len(subscription._pending) <= len(WATCHED)
        nursery.cancel_scope.cancel()
    assert len(server.notices) == 0


async def test_memory_behind_a_deaf_listener_does_not_grow(traced: None, autojump_clock: MockClock) -> None:
    """All that is allocated anywhere, with 255 other listeners that read."""
    server = shop(write_buffer=BUFFER)
    heard = [0] * 255
    async with open_server(server) as running, trio.open_nursery() as nursery, open_raw(running, pipe=PIPE) as deaf:
        await deaf.send(request(1, "subscriptions/listen", notifications={"resourceSubscriptions": WATCHED}))
        await wait_all_tasks_blocked()

        async def hear(number: int, task_status: trio.TaskStatus[None]) -> None:
            with server.notices.subscribe(lambda method, uri: uri in ("shop://1", "shop://2")) as subscription:
                task_status.started()
                while notices := await subscription.next():
                    heard[number] += len(notices)

        for number in range(255):
            await nursery.start(hear, number)
        sizes: list[int] = []
        done = 0
        # The first burst fills the buffer of the deaf one and what its stream has in hand, the second what waits behind.
        for burst in (4_000, 4_000, 1_000, 9_000, 10_000):
            publish(server, done, done + burst)
            done += burst
            await wait_all_tasks_blocked()
            sizes.append(tracemalloc.get_traced_memory()[0])
        _, filled, after_1000, after_10_000, after_20_000 = sizes
        assert max(after_1000, after_10_000, after_20_000) - filled < 4_096
        # They heard all the while: two changes in each burst.
        assert heard == [10] * 255
        nursery.cancel_scope.cancel()


async def test_memory_during_a_burst_is_bounded_by_the_filter(traced: None) -> None:
    """Before anybody could read: nothing but what the filter names, whoever publishes and however much."""
    notices = Notices(256)
    watched = frozenset(WATCHED)
    with notices.open(), notices.subscribe(lambda method, uri: uri in watched) as deaf:
        sizes: list[int] = []
        for changes in (2_000, 10_000, 50_000):
            for number in range(changes):
                notices.publish(RESOURCE_UPDATED, f"shop://{number % 3_000}")
            sizes.append(tracemalloc.get_traced_memory()[0])
        assert sizes[2] - sizes[0] < 4_096
        assert held(deaf) < 300 * len(WATCHED)
        told = await deaf.next()
        assert told == [(RESOURCE_UPDATED, uri) for uri in WATCHED]
        assert held(deaf) < 1_024


async def test_to_publish_is_no_checkpoint() -> None:
    """Ten thousand changes from one turn of the scheduler: no other task runs in between, and nothing is awaited."""
    server = shop()
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with open_server(server), trio.open_nursery() as nursery:
        nursery.start_soon(count)
        with server.notices.subscribe(lambda method, uri: True) as subscription:
            await trio.lowlevel.checkpoint()
            before = turns
            with trio.testing.assert_no_checkpoints():
                publish(server, 0, 10_000)
            assert turns == before
            # It is with the listener already, not on its way.
            assert len(subscription._pending) == 5_000 + len(WATCHED)
            told = await subscription.next()
            assert told is not None
            assert len(told) == 5_000 + len(WATCHED)
        nursery.cancel_scope.cancel()
