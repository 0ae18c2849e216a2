"""A server of ours that asks the user, and changes, for other people's clients. `mcp_rounds_server.py` does the same.

python rounds_server.py                     on stdio
python rounds_server.py --http              on HTTP; prints the URL
python rounds_server.py --http CERTFILE     on HTTP with TLS; the file has the key too
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from trio_mcp import Context, HttpServer, Server
from trio_mcp.serve import run_http

server = Server("rounds", version="1.0")


def mark(event: str) -> None:
    """Append an event to the file named in MARKS: the other end looks there."""
    with Path(os.environ["MARKS"]).open("a") as file:
        file.write(f"{event}\n")


@server.tool
async def plan(place: str, ctx: Context) -> dict[str, Any]:
    """Plan a trip: two forms, a sample, the roots, and one thing that must happen once."""
    mark("run")

    async def reserve() -> int:
        mark("reserve")
        return 4711

    number = await ctx.once("reserve", reserve)
    who = await ctx.elicit(f"Who goes to {place}?", {"name": str, "age": int})
    assert who.value is not None
    sure = await ctx.elicit("Is that all?", {"sure": bool})
    verse = await ctx.sample(f"A verse on {place} for {who.value['name']}.", max_tokens=50)
    roots = await ctx.list_roots()
    return {
        "number": number,
        "who": [who.action, who.value],
        "sure": [sure.action, sure.value],
        "verse": [verse["role"], verse["content"]["text"], verse["model"]],
        "roots": roots,
    }


@server.tool
async def ask_once(ctx: Context) -> str:
    """Ask, and say what the user did instead of answering."""
    return (await ctx.elicit("Really?", {"sure": bool})).action


@server.tool
async def grow(name: str, ctx: Context) -> str:
    """Register another tool."""

    async def grown() -> str:
        return f"I am {name}"

    ctx.server.tool(grown, name=name, description="New.")
    return "grown"


@server.tool
async def touch(uri: str, ctx: Context) -> str:
    """Say that a resource has changed."""
    ctx.server.notify_resource_updated(uri)
    return "touched"


@server.tool
async def process_id() -> str:
    """The number of this process."""
    return str(os.getpid())


@server.resource("note://today")
def today() -> str:
    """The note of today."""
    return "all quiet"


@server.resource("note://other")
def other() -> str:
    """A note that nobody listens to."""
    return "quiet, too"


def ready(http: HttpServer) -> None:
    """Say where it listens."""
    print(http.urls[0], flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--http"]:
        sys.exit(run_http(server, "127.0.0.1:0", ready, certfile=sys.argv[2] if sys.argv[2:] else None))
    server.run()
