"""An ASGI application, as somebody has one, and a server beside it in the same file."""

import json
import os

import trio

from trio_mcp import Limits, Server

server = Server("shop", version="1", limits=Limits(**json.loads(os.environ.get("LIMITS", "{}"))))
pages = 0


def note(text):
    with open(os.environ.get("LOG", os.devnull), "a") as file:
        file.write(f"{text}\n")


@server.tool
async def visits() -> int:
    """How often the page was seen."""
    return pages


@server.tool
async def sleep(seconds: float) -> str:
    note("sleeping")
    try:
        await trio.sleep(seconds)
    finally:
        note("tool over")
    return "slept"


async def app(scope, receive, send):
    global pages
    if scope["type"] == "lifespan":
        await receive()
        if "FAIL" in os.environ:
            await send({"type": "lifespan.startup.failed", "message": "no database"})
            return
        note("up")
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await trio.sleep(float(os.environ.get("CLOSE", "0")))
        note("down")
        await send({"type": "lifespan.shutdown.complete"})
        return
    if scope["type"] == "http":
        pages += 1
        note(scope["path"])
        if scope["path"] == "/sleep":
            await trio.sleep(60)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
        await send({"type": "http.response.body", "body": b"hello"})


def two(environ, start_response):
    """A WSGI application."""


number = 7
