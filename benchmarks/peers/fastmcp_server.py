"""The server on fastmcp."""

from __future__ import annotations

import os

import anyio
from slow_log import mark

os.environ["FASTMCP_LOG_LEVEL"] = "ERROR"
os.environ["FASTMCP_CHECK_FOR_UPDATES"] = "off"

from fastmcp import FastMCP  # it reads its settings when it is imported

server = FastMCP("peer")


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
        await anyio.sleep(seconds)
    except anyio.get_cancelled_exc_class():
        mark("cancelled", tag)
        raise
    mark("done", tag)
    return tag


if __name__ == "__main__":
    anyio.run(lambda: server.run_stdio_async(show_banner=False))
