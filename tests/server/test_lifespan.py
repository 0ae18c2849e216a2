"""The lifespan: entered first, left last, in order, whatever ends the block."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
import trio
import trio.testing

from trio_mcp import Limits, Server, open_server

Life = Callable[[object], AbstractAsyncContextManager[None]]
current: contextvars.ContextVar[str] = contextvars.ContextVar("current")


def make(life: Life) -> Server[None]:
    return Server("s", lifespan=life, limits=Limits(lifespan_timeout=10.0))


async def test_what_stands_behind_a_bare_yield_runs_when_the_block_is_cancelled(
    autojump_clock: trio.testing.MockClock,
) -> None:
    log: list[str] = []

    @asynccontextmanager
    async def life(server: object) -> AsyncIterator[None]:
        yield
        await trio.sleep(5)
        log.append("closed")

    server = make(life)
    with trio.CancelScope() as scope:
        async with open_server(server):
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert log == ["closed"]
    assert server.stage[0] == "closed"


async def test_what_the_lifespan_has_started_goes_on_until_the_block_has_ended(
    autojump_clock: trio.testing.MockClock,
) -> None:
    log: list[str] = []

    @asynccontextmanager
    async def life(server: object) -> AsyncIterator[None]:
        async def keep() -> None:
            try:
                await trio.sleep_forever()
            finally:
                log.append("keeper ended")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep)
            yield
            await trio.sleep(1)
            log.append("handed in")
            nursery.cancel_scope.cancel()

    with trio.CancelScope() as scope:
        async with open_server(make(life)):
            scope.cancel()
            with trio.CancelScope(shield=True):
                await trio.sleep(3)
            log.append("drained")
    assert log == ["drained", "handed in", "keeper ended"]


async def test_the_end_has_a_bound_and_says_so(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    @asynccontextmanager
    async def life(server: object) -> AsyncIterator[None]:
        yield
        await trio.sleep_forever()

    begin = trio.current_time()
    with caplog.at_level(logging.ERROR):
        async with open_server(make(life)):
            pass
    assert trio.current_time() - begin == pytest.approx(10)
    assert "the lifespan of 's' did not end within 10 s" in caplog.text


async def test_an_error_of_the_block_is_raised_at_the_yield() -> None:
    log: list[str] = []

    @asynccontextmanager
    async def life(server: object) -> AsyncIterator[None]:
        try:
            yield
        except KeyError as exc:
            log.append(f"heard {exc}")
            raise

    with pytest.raises(KeyError, match="mine"):
        async with open_server(make(life)):
            raise KeyError("mine")
    assert log == ["heard 'mine'"]


async def test_a_lifespan_may_take_an_error_of_the_block_for_settled() -> None:
    @asynccontextmanager
    async def life(server: object) -> AsyncIterator[None]:
        try:
            yield
        except KeyError:
            pass

    reached = False
    async with open_server(make(life)):
        reached = True
        raise KeyError("mine")
    assert reached


async def test_an_error_of_the_block_is_not_lost_to_an_end_that_takes_too_long(
    autojump_clock: trio.testing.MockClock,
) -> None:
    @asynccontextmanager
    async def life(server: object) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await trio.sleep_forever()

    with pytest.raises(KeyError, match="mine"):
        async with open_server(make(life)):
            raise KeyError("mine")


async def test_an_error_of_the_end_comes_out_of_the_block() -> None:
    @asynccontextmanager
    async def life(server: object) -> AsyncIterator[None]:
        yield
        raise OSError("cannot close")

    with pytest.raises(OSError, match="cannot close"):
        async with open_server(make(life)):
            pass


async def test_a_crash_of_what_the_lifespan_has_started_ends_the_block() -> None:
    @asynccontextmanager
    async def life(server: object) -> AsyncIterator[None]:
        async def crash() -> None:
            await trio.lowlevel.checkpoint()
            raise OSError("the pool is gone")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(crash)
            yield

    with pytest.raises(OSError, match="the pool is gone"):
        async with open_server(make(life)):
            await trio.sleep_forever()


async def test_a_cancellation_while_the_lifespan_is_entered_leaves_it() -> None:
    log: list[str] = []

    @asynccontextmanager
    async def life(server: object) -> AsyncIterator[None]:
        scope.cancel()
        log.append("entered")
        yield
        await trio.lowlevel.checkpoint()
        log.append("left")

    with trio.CancelScope() as scope:
        async with open_server(make(life)):
            log.append("never")
    assert scope.cancelled_caught
    assert log == ["entered", "left"]


async def test_context_variables_of_the_lifespan_are_seen_inside() -> None:
    @asynccontextmanager
    async def life(server: object) -> AsyncIterator[None]:
        current.set("of the lifespan")
        yield

    async with open_server(make(life)):
        assert current.get() == "of the lifespan"
