"""A server of ours, for other people's clients. The peers' servers beside it offer the same.

python our_server.py                        on stdio
python our_server.py --http                 on HTTP/1.1 and HTTP/2; prints the URL
python our_server.py --http CERTFILE        the same with TLS; the file has the key too
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import trio

from trio_mcp import Context, HttpServer, Image, Server, ToolError
from trio_mcp.serve import run_http

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360f8cfc0000003010100"
    "c9fe92ef0000000049454e44ae426082"
)

server = Server("ours", version="1.0", instructions="Ask and it answers.")
going_on = trio.open_memory_channel[None](3)


def mark(event: str) -> None:
    """Append an event with its time to the file named in MARKS: the other end looks there."""
    with Path(os.environ["MARKS"]).open("a") as file:
        file.write(f"{event} {time.monotonic_ns()}\n")


@server.tool
async def echo(text: str) -> str:
    """Say it again."""
    return text


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
async def progress(ctx: Context) -> str:
    """Report three steps; after each, wait for a call of `go_on`."""
    for step in (1, 2, 3):
        await ctx.report_progress(step, total=3, message=f"step {step}")
        await going_on[1].receive()
    return "three steps"


@server.tool
async def go_on() -> str:
    """Let `progress` go on."""
    await going_on[0].send(None)
    return "gone on"


@server.tool
async def slow(ctx: Context) -> str:
    """Take 30 seconds."""
    end = "cancelled"
    try:
        mark("start")
        await ctx.report_progress(1, total=2, message="started")
        await trio.sleep(30)
        end = "done"
    finally:
        mark(end)
    return "slept"


@server.tool
async def fail() -> str:
    """Fail."""
    raise ToolError("it is broken")


@server.tool
async def picture() -> Image:
    """Show one pixel."""
    return Image(PIXEL, "image/png")


@server.resource("note://today", mime_type="text/plain")
def today() -> str:
    """The note of today."""
    return "all quiet"


@server.resource("note://day/{day}", mime_type="text/plain")
def note(day: str) -> str:
    """The note of a day."""
    return f"nothing on {day}"


@server.prompt
def review(code: str, language: str = "Python") -> str:
    """Ask for a code review."""
    return f"Review this {language} code: {code}"


def ready(http: HttpServer) -> None:
    """Say where it listens."""
    print(http.urls[0], flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--http"]:
        sys.exit(run_http(server, "127.0.0.1:0", ready, certfile=sys.argv[2] if sys.argv[2:] else None))
    server.run()
