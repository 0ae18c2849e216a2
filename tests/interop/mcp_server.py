"""A server on `mcp`, for our client. It offers what `our_server.py` offers.

python mcp_server.py                        on stdio
python mcp_server.py --http                 on HTTP/1.1, as `mcp` serves it; prints the URL
python mcp_server.py --http CERTFILE        on HTTP/2 with TLS, in Hypercorn; the file has the key too
"""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path

import anyio
import hypercorn.asyncio
import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Image
from mcp.server.mcpserver.exceptions import ToolError

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360f8cfc0000003010100"
    "c9fe92ef0000000049454e44ae426082"
)

server = MCPServer("theirs", version="1.0", instructions="Ask and it answers.", log_level="ERROR")
going_on = anyio.create_memory_object_stream[None](3)


def mark(event: str) -> None:
    """Append an event with its time to the file named in MARKS: the other end looks there."""
    with Path(os.environ["MARKS"]).open("a") as file:
        file.write(f"{event} {time.monotonic_ns()}\n")


@server.tool()
async def echo(text: str) -> str:
    """Say it again."""
    return text


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool(structured_output=False)
async def progress(ctx: Context) -> str:
    """Report three steps; after each, wait for a call of `go_on`."""
    for step in (1, 2, 3):
        await ctx.report_progress(step, total=3, message=f"step {step}")
        await going_on[1].receive()
    return "three steps"


@server.tool(structured_output=False)
async def go_on() -> str:
    """Let `progress` go on."""
    await going_on[0].send(None)
    return "gone on"


@server.tool(structured_output=False)
async def slow(ctx: Context) -> str:
    """Take 30 seconds."""
    end = "cancelled"
    try:
        mark("start")
        await ctx.report_progress(1, total=2, message="started")
        await anyio.sleep(30)
        end = "done"
    finally:
        mark(end)
    return "slept"


@server.tool(structured_output=False)
async def fail() -> str:
    """Fail."""
    raise ToolError("it is broken")


@server.tool(structured_output=False)
async def picture() -> Image:
    """Show one pixel."""
    return Image(data=PIXEL, format="png")


@server.resource("note://today", mime_type="text/plain")
async def today() -> str:
    """The note of today."""
    return "all quiet"


@server.resource("note://day/{day}", mime_type="text/plain")
async def note(day: str) -> str:
    """The note of a day."""
    return f"nothing on {day}"


@server.prompt()
async def review(code: str, language: str = "Python") -> str:
    """Ask for a code review."""
    return f"Review this {language} code: {code}"


async def serve_http(certfile: str | None = None) -> None:
    """Serve on a free port until a signal comes."""
    app = server.streamable_http_app()
    sock = socket.create_server(("127.0.0.1", 0))
    scheme = "http" if certfile is None else "https"
    print(f"{scheme}://127.0.0.1:{sock.getsockname()[1]}/mcp", flush=True)
    if certfile is None:
        await uvicorn.Server(uvicorn.Config(app, log_level="error")).serve(sockets=[sock])
        return
    config = hypercorn.Config()
    config.bind = [f"fd://{sock.detach()}"]
    config.certfile = config.keyfile = certfile
    config.alpn_protocols = ["h2"]
    config.errorlog = None
    await hypercorn.asyncio.serve(app, config)  # type: ignore[arg-type]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--http"]:
        anyio.run(serve_http, *sys.argv[2:])
    else:
        anyio.run(server.run_stdio_async)
