"""The server on trio_mcp.

python trio_mcp_server.py [http PORT]
"""

from __future__ import annotations

import os
import sys

import trio
from slow_log import mark
from tools import extra, extra_tools

from trio_mcp import Context, Limits, Server, serve_http

# Where many calls stay open at once (one stream each), there must be places for them.
places = int(os.environ.get("BENCH_PLACES", "0"))
# A list is one page, as it is in the other libraries.
server = Server("peer", version="1", page_size=1000, limits=Limits(running=places) if places else Limits())


@server.tool
async def echo(text: str) -> str:
    """Echo the text."""
    return text


@server.tool
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@server.tool
async def slow(seconds: float, tag: str, ctx: Context, progress: bool = False) -> str:
    """Sleep."""
    if progress:
        await ctx.report_progress(0, 1)
    mark("start", tag)
    try:
        await trio.sleep(seconds)
    except trio.Cancelled:
        mark("cancelled", tag)
        raise
    mark("done", tag)
    return tag


for name, description in extra_tools():
    server.tool(extra, name=name, description=description)


if __name__ == "__main__":
    if sys.argv[1:2] == ["http"]:
        trio.run(serve_http, server, f"127.0.0.1:{sys.argv[2]}")
    else:
        server.run()
