"""MCP as a part of a web application: one address, a page for people at `/`, tools for models at `/mcp`.

python examples/mounted.py [HOST:PORT]       prints the URL of the endpoint, which the commands below take
trio-mcp call URL sign name=Ada
trio-mcp call URL names

The application is plain ASGI, served by Hypercorn on trio. With a framework it is the same: mount `http_app(server)`,
and see to it that the ASGI lifespan reaches it, for that is what opens the server.
"""

import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio
from hypercorn.config import Config
from hypercorn.trio import serve

from trio_mcp import Server, ToolError, http_app

guests: list[str] = []


@asynccontextmanager
async def opened(server: Server[None]) -> AsyncIterator[None]:
    """Entered when Hypercorn starts up, left when it shuts down."""
    guests.append("the house")
    yield
    guests.clear()


server = Server("guestbook", version="1.0", lifespan=opened)


@server.tool
async def sign(name: str) -> str:
    """Put a name into the guest book."""
    if name in guests:
        raise ToolError(f"{name} has signed already.")
    guests.append(name)
    return f"Thank you. You are guest number {len(guests)}."


@server.tool
async def names() -> list[str]:
    """Who has signed."""
    return guests


mcp = http_app(server, path="/mcp")


# Whoever has no types for ASGI of his own calls them Any, as here.
async def app(scope: Any, receive: Any, send: Any) -> None:
    """The page at `/`; everything else, the lifespan too, goes to MCP, which answers 404 where nothing is."""
    if scope["type"] == "http" and scope["path"] == "/":
        body = "".join(f"{guest}\n" for guest in guests).encode()
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})
    else:
        await mcp(scope, receive, send)


async def main(bind: str) -> None:
    config = Config()
    config.bind = [bind]
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:

        async def signalled() -> None:
            await anext(signals)

        async with trio.open_nursery() as nursery:
            [address] = await nursery.start(partial(serve, app, config, shutdown_trigger=signalled))
            print(f"{address}/mcp", flush=True)


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8000")
