"""A server of ours, for other people's clients of revisions with sessions.

python session_server.py             on stdio
python session_server.py --http      on HTTP/1.1 and HTTP/2; prints the URL
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import trio

from trio_mcp import Context, HttpServer, Limits, Server, ToolError, UrlElicitationRequired
from trio_mcp.serve import run_http

# A client that polls comes back at once, so that nobody waits here.
server = Server("sessions", version="1.0", limits=Limits(resume_after=0.05, task_poll=0.05))
going_on = trio.open_memory_channel[None](3)


def mark(event: str) -> None:
    """Append an event to the file named in MARKS: the other end looks there."""
    with Path(os.environ["MARKS"]).open("a") as file:
        file.write(f"{event} {time.monotonic_ns()}\n")


@server.tool
async def echo(text: str) -> str:
    """Say it again."""
    return text


@server.tool
async def numbers() -> list[int]:
    """Data that is no object."""
    return [1, 2, 3]


@server.tool
async def fail() -> str:
    """Fail."""
    raise ToolError("it is broken")


@server.tool
async def visit() -> str:
    """Need a page to be visited first."""
    raise UrlElicitationRequired([{"url": "https://example.com/", "message": "Sign in", "elicitationId": "1"}])


@server.tool
async def count(ctx: Context) -> str:
    """Report three steps; after each, wait for a call of `go_on`: some clients drop what comes together with the answer."""
    for step in (1, 2, 3):
        await ctx.report_progress(step, total=3)
        await going_on[1].receive()
    return "three steps"


@server.tool
async def go_on() -> str:
    """Let `count` go on."""
    await going_on[0].send(None)
    return "gone on"


@server.tool
async def grumble(ctx: Context) -> str:
    """Write a log line of each weight."""
    for level in ("debug", "info", "warning", "error"):
        await ctx.log(level, f"a line of level {level}")
    return "four lines"


@server.tool
async def name(ctx: Context) -> str:
    """Ask the user for a name."""
    answer = await ctx.elicit("Your name?", {"name": str})
    return f"Hello, {answer.value['name']}!" if answer.accepted else answer.action


@server.tool
async def think(ctx: Context) -> str:
    """Ask the client's model."""
    answer = await ctx.sample("Capital of France?", max_tokens=100)
    return f"The model says {answer['content']['text']}"


@server.tool
async def places(ctx: Context) -> str:
    """Ask the client for its roots."""
    return " ".join(root["uri"] for root in await ctx.list_roots())


@server.tool
async def touch() -> str:
    """Tell that the note has changed."""
    server.notify_resource_updated("note://today")
    return "touched"


@server.tool
async def grow() -> str:
    """Change the list of tools."""
    server.tool(echo, name="passing")
    server.remove_tool("passing")
    return "grown"


@server.tool
async def slow() -> str:
    """Take 30 seconds."""
    end = "cancelled"
    try:
        mark("start")
        await trio.sleep(30)
        end = "done"
    finally:
        mark(end)
    return "slept"


@server.tool(task_support="optional")
async def job(wait: bool = False) -> str:
    """Work, perhaps as a task."""
    if wait:
        await trio.sleep(30)
    return "the job is done"


@server.tool
async def polled(ctx: Context) -> str:
    """Close the stream of the answer, so that the client comes back for it."""
    await ctx.close_stream()
    return "answered after all"


@server.resource("note://today", mime_type="text/plain")
def today() -> str:
    """The note of today."""
    return "all quiet"


def ready(http: HttpServer) -> None:
    """Say where it listens."""
    print(http.urls[0], flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--http"]:
        sys.exit(run_http(server, "127.0.0.1:0", ready))
    server.run()
