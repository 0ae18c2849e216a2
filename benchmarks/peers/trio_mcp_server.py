"""The server on trio_mcp."""

from __future__ import annotations

import trio
from slow_log import mark

from trio_mcp import Server

server = Server("peer", version="1")


@server.tool
async def echo(text: str) -> str:
    """Echo the text."""
    return text


@server.tool
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@server.tool
async def slow(seconds: float, tag: str) -> str:
    """Sleep."""
    mark("start", tag)
    try:
        await trio.sleep(seconds)
    except trio.Cancelled:
        mark("cancelled", tag)
        raise
    mark("done", tag)
    return tag


if __name__ == "__main__":
    server.run()
