"""A server whose end waits for the file `GO`: in its lifespan, in a call that is shielded, or in a thread, as `WHO` says.

It notes in the file `LOG` that it waits, and that it went on.
"""

import os
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from trio_mcp import Limits, Server

WHO = os.environ["WHO"]
GO = Path(os.environ["GO"])


def note(text: str) -> None:
    with open(os.environ["LOG"], "a") as file:
        file.write(f"{text}\n")


def may_go() -> bool:
    return GO.exists()


async def wait() -> None:
    with trio.CancelScope(shield=True):
        note("waits")
        while not may_go():
            await trio.sleep(0.01)
        note("went on")


@asynccontextmanager
async def life(server: object) -> AsyncIterator[None]:
    yield
    if WHO == "lifespan":
        await wait()
    if WHO == "thread":
        threading.Thread(target=wait_in_thread).start()


def wait_in_thread() -> None:
    # The server has ended when the main thread waits for this one.
    while threading.main_thread().is_alive():
        time.sleep(0.01)
    note("waits")
    while not may_go():
        time.sleep(0.01)
    note("went on")


# Each of the three may take 3 s.
LIMITS = Limits(drain_timeout=1.0, lifespan_timeout=2.0, exit_timeout=3.0)
server = Server("waits", version="1", lifespan=life, limits=LIMITS)


@server.tool
async def ping() -> str:
    if WHO == "call":
        await wait()
    return "pong"


if __name__ == "__main__":
    server.run()
