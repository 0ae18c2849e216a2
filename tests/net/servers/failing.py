"""A server whose lifespan notes that it began, and fails as `HOW` says; and an application that ends the process."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from trio_mcp import MCPError, Server

HOW = os.environ["HOW"]
ERROR = {"RuntimeError": RuntimeError, "ValueError": ValueError, "MCPError": MCPError}.get(
    os.environ.get("KIND", ""), RuntimeError
)


def note() -> None:
    with open(os.environ["LOG"], "a") as file:
        file.write("began\n")


def connect() -> None:
    raise ERROR("no database")


async def crash() -> None:
    try:
        connect()
    except Exception as exc:
        raise ERROR("later") from exc


@asynccontextmanager
async def life(server: object) -> AsyncIterator[None]:
    note()
    if HOW == "start":
        connect()
    async with trio.open_nursery() as nursery:
        if HOW == "middle":
            nursery.start_soon(crash)
        yield
    if HOW == "end":
        connect()


server = Server("failing", version="1", lifespan=life)


async def app(scope: Any, receive: Any, send: Any) -> None:
    raise SystemExit(4)


if __name__ == "__main__":
    server.run()
