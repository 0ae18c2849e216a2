"""One of several servers that share nothing but their keys (`TRIO_MCP_STATE_KEYS`). The argument is a file to mark in."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import trio

from trio_mcp import Context, Server

server = Server("replica", version="1.0")
marks = Path(sys.argv[1])


@server.tool
async def travel(ctx: Context) -> list[Any]:
    """Ask twice, sample once, reserve once."""

    async def reserve() -> int:
        async with await trio.open_file(marks, "a") as file:
            await file.write("reserved\n")
        return 4711

    where = await ctx.elicit("Where to?", {"city": str})
    number = await ctx.once("reserve", reserve)
    slogan = await ctx.sample(f"A slogan for {where.value['city'] if where.value else '?'}")
    sure = await ctx.elicit("Sure?", {"sure": bool})
    return [where.value, number, slogan["content"]["text"], sure.value]


if __name__ == "__main__":
    server.run()
