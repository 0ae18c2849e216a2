"""The server of the tests that play requests and hang-ups in any order."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import trio

from trio_mcp import Context, Limits, Server, ToolError


@dataclass
class Handlers:
    """What the handlers went through, by the tag of the call."""

    started: list[int] = field(default_factory=list)
    finished: list[int] = field(default_factory=list)
    most: int = 0
    """How many were under way at once."""


def make_server(seen: Handlers, limits: Limits) -> Server[Any]:
    server = Server("model", version="1", limits=limits)

    @server.tool
    async def work(tag: int, seconds: float, size: int, ctx: Context) -> str:
        seen.started.append(tag)
        seen.most = max(seen.most, len(seen.started) - len(seen.finished))
        try:
            await ctx.report_progress(1)
            if seconds:
                await trio.sleep(seconds)
            await ctx.report_progress(2)
        finally:
            seen.finished.append(tag)
        return "x" * size

    @server.tool
    async def fail(tag: int) -> str:
        seen.started.append(tag)
        seen.finished.append(tag)
        raise ToolError(str(tag))

    return server


def add_swaps(server: Server[Any], variable: ContextVar[str]) -> None:
    """Tools that set a variable of their context and tell what it was, on the event loop and in a thread."""

    def swap_in_thread(value: str) -> str:
        before = variable.get()
        variable.set(value)
        return before

    async def swap(value: str) -> str:
        return swap_in_thread(value)

    server.tool(swap)
    server.tool(swap_in_thread)
