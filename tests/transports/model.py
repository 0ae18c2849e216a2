"""The server of the tests that play requests and hang-ups in any order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import trio

from trio_mcp import Context, Limits, Server, ToolError


@dataclass
class Handlers:
    """What the handlers went through, by the tag of the call."""

    started: list[int] = field(default_factory=list)
    finished: list[int] = field(default_factory=list)


def make_server(seen: Handlers, limits: Limits) -> Server[Any]:
    server = Server("model", version="1", limits=limits)

    @server.tool
    async def work(tag: int, seconds: float, size: int, ctx: Context) -> str:
        seen.started.append(tag)
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
