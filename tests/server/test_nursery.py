"""`ctx.nursery`: what a handler starts belongs to its call."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from trio_mcp import Context, Server, ToolError, open_client
from trio_mcp.testing import open_raw, request


def make(log: list[str], **options: Any) -> Server[Any]:
    server = Server("s", **options)

    async def background(seconds: float, fails: bool = False) -> None:
        try:
            await trio.sleep(seconds)
            log.append("background done")
            if fails:
                raise ToolError("the background failed")
        finally:
            log.append("background ended")

    @server.tool
    async def starts(ctx: Context, seconds: float = 0, background_seconds: float = 1e9, fails: bool = False) -> str:
        ctx.nursery.start_soon(background, background_seconds, fails)
        await trio.sleep(seconds)
        return "returned"

    @server.tool
    def plain(ctx: Context) -> str:
        ctx.nursery.start_soon(background, 0)
        return "never"

    return server


async def test_tasks_of_a_handler_end_when_it_returns(autojump_clock: MockClock) -> None:
    log: list[str] = []
    async with open_client(make(log)) as client:
        assert (await client.call_tool("starts", {"seconds": 1})).text == "returned"
        assert log == ["background ended"]


async def test_a_crash_in_one_is_the_error_of_the_call(autojump_clock: MockClock) -> None:
    log: list[str] = []
    async with open_client(make(log)) as client:
        result = await client.call_tool("starts", {"seconds": 100, "background_seconds": 1, "fails": True})
        assert (result.is_error, result.text) == (True, "the background failed")
        assert trio.current_time() == pytest.approx(1)


async def test_a_cancelled_call_takes_them_along(autojump_clock: MockClock) -> None:
    log: list[str] = []
    async with open_raw(make(log)) as peer:
        await peer.send(request(1, "tools/call", name="starts", arguments={"seconds": 100}))
        await trio.sleep(1)
        await peer.cancel(1)
        assert await peer.nothing_for(10)
    assert log == ["background ended"]


async def test_they_go_along_when_the_call_becomes_a_task(autojump_clock: MockClock) -> None:
    log: list[str] = []
    server = make(log, task_inline_ms=100)

    @server.tool(task_support="optional")
    async def slow(ctx: Context) -> str:
        async def work() -> None:
            await trio.sleep(5)
            log.append(f"worked in a task: {ctx.task_id is not None}")

        ctx.nursery.start_soon(work)
        await trio.sleep(10)
        return "done"

    async with open_client(server) as client:
        assert (await client.call_tool("slow")).text == "done"
    assert log == ["worked in a task: True"]


async def test_a_plain_function_is_told_that_it_has_none(caplog: pytest.LogCaptureFixture) -> None:
    async with open_client(make([])) as client:
        assert (await client.call_tool("plain")).is_error
    assert "ctx.nursery is for 'async def' handlers" in caplog.text
