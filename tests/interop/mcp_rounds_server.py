"""A server on `mcp` that asks the user, and changes, for our client. `rounds_server.py` does the same.

`mcp` asks before a tool runs, by resolvers of its parameters; a resolver that needs another one asks in a later round.

python mcp_rounds_server.py                 on stdio
python mcp_rounds_server.py --http          on HTTP/1.1; prints the URL
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Annotated, Any

import anyio
import uvicorn
from mcp.server import MCPServer
from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.resolve import Elicit, ListRoots, Resolve, Sample
from mcp_types import CreateMessageResult, ListRootsResult, SamplingMessage, TextContent
from pydantic import BaseModel

server = MCPServer("theirs", version="1.0", log_level="ERROR")


class Who(BaseModel):
    """The first form."""

    name: str
    age: int


class Sure(BaseModel):
    """The second form."""

    sure: bool


def mark(event: str) -> None:
    """Append an event to the file named in MARKS: the other end looks there."""
    with Path(os.environ["MARKS"]).open("a") as file:
        file.write(f"{event}\n")


async def ask_who(place: str) -> Elicit[Who]:
    """The first question."""
    return Elicit(f"Who goes to {place}?", Who)


async def ask_sure(who: Annotated[Who, Resolve(ask_who)]) -> Elicit[Sure]:
    """The second question, in the second round."""
    return Elicit("Is that all?", Sure)


async def ask_verse(place: str, who: Annotated[Who, Resolve(ask_who)]) -> Sample:
    """A sample, beside the second question."""
    text = TextContent(type="text", text=f"A verse on {place} for {who.name}.")
    return Sample([SamplingMessage(role="user", content=text)], max_tokens=50)


async def ask_roots(sure: Annotated[Sure, Resolve(ask_sure)]) -> ListRoots:
    """The roots, in the third round."""
    return ListRoots()


async def ask_really() -> Elicit[Sure]:
    """A question that is declined."""
    return Elicit("Really?", Sure)


@server.tool()
async def plan(
    place: str,
    who: Annotated[Who, Resolve(ask_who)],
    sure: Annotated[Sure, Resolve(ask_sure)],
    verse: Annotated[CreateMessageResult, Resolve(ask_verse)],
    roots: Annotated[ListRootsResult, Resolve(ask_roots)],
) -> dict[str, Any]:
    """Plan a trip."""
    mark("run")
    assert isinstance(verse.content, TextContent)
    return {
        "who": who.model_dump(),
        "sure": sure.model_dump(),
        "verse": [verse.role, verse.content.text, verse.model],
        "roots": [root.model_dump(mode="json", exclude_none=True) for root in roots.roots],
    }


@server.tool(structured_output=False)
async def ask_once(really: Annotated[ElicitationResult[Sure], Resolve(ask_really)]) -> str:
    """Ask, and say what the user did instead of answering."""
    return really.action


@server.tool(structured_output=False)
async def grow(name: str, ctx: Context) -> str:
    """Register another tool. `mcp` wants to be told that the list has changed."""

    async def grown() -> str:
        return f"I am {name}"

    server.add_tool(grown, name=name, description="New.", structured_output=False)
    await ctx.notify_tools_changed()
    return "grown"


@server.tool(structured_output=False)
async def touch(uri: str, ctx: Context) -> str:
    """Say that a resource has changed."""
    await ctx.notify_resource_updated(uri)
    return "touched"


@server.resource("note://today")
async def today() -> str:
    """The note of today."""
    return "all quiet"


async def serve_http() -> None:
    """Serve on a free port until a signal comes."""
    sock = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{sock.getsockname()[1]}/mcp", flush=True)
    await uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="error")).serve(sockets=[sock])


if __name__ == "__main__":
    anyio.run(serve_http if sys.argv[1:2] == ["--http"] else server.run_stdio_async)
