"""The server on fastmcp.

python fastmcp_server.py [http default|json plain|fast PORT]
"""

from __future__ import annotations

import os
import sys

import anyio
from slow_log import mark
from tools import extra, extra_tools

os.environ["FASTMCP_LOG_LEVEL"] = "ERROR"
os.environ["FASTMCP_CHECK_FOR_UPDATES"] = "off"

from fastmcp import Context, FastMCP  # it reads its settings when it is imported

# Text only, as the others answer: by default this library adds the same text once more as data (`output_schema`).
server = FastMCP("peer")


@server.tool(output_schema=None)
async def echo(text: str) -> str:
    """Echo the text."""
    return text


@server.tool(output_schema=None)
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@server.tool(output_schema=None)
async def slow(seconds: float, tag: str, ctx: Context, progress: bool = False) -> str:
    """Sleep."""
    if progress:
        await ctx.report_progress(0, 1)
    mark("start", tag)
    try:
        await anyio.sleep(seconds)
    except anyio.get_cancelled_exc_class():
        mark("cancelled", tag)
        raise
    mark("done", tag)
    return tag


for name, description in extra_tools():
    server.tool(extra, name=name, description=description, output_schema=None)


if __name__ == "__main__":
    if sys.argv[1:2] == ["http"]:
        from serving import serve

        _, _, mode, how, port = sys.argv
        serve(server.http_app(json_response=mode == "json"), how, port)
    else:
        anyio.run(lambda: server.run_stdio_async(show_banner=False))
