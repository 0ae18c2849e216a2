"""A server with the tools that the tests of real pipes need.

`LOG` names a file for `EVENT NANOSECONDS` lines; `LIMITS` is a JSON object of bounds.
"""

import json
import logging
import os
import subprocess
import sys
import time

import trio

from trio_mcp import Context, Limits, Server

server = Server("tools", version="1", limits=Limits(**json.loads(os.environ.get("LIMITS", "{}"))))


def note(event: str) -> None:
    path = os.environ.get("LOG")
    if path:
        with open(path, "a") as file:
            file.write(f"{event} {time.monotonic_ns()}\n")


@server.tool
async def echo(text: str) -> str:
    return text


@server.tool
async def slow(seconds: float, ctx: Context) -> str:
    try:
        await ctx.report_progress(0)
        await trio.sleep(seconds)
    finally:
        note("finally")
    return "slept"


@server.tool
def thread(seconds: float) -> str:
    note("thread")
    time.sleep(seconds)
    return "slept"


@server.tool
def noise() -> str:
    print("printed")
    os.write(1, b"written\n")
    logging.getLogger("noise").addHandler(logging.StreamHandler(sys.stdout))
    logging.getLogger("noise").warning("logged")
    subprocess.run([sys.executable, "-c", "print('of a child'); import sys; print(repr(sys.stdin.read()))"], check=True)
    return "made noise"


@server.tool
async def stubborn(seconds: float) -> str:
    with trio.CancelScope(shield=True):
        await trio.sleep(seconds)
    return "slept"


@server.tool
async def big(size: int) -> str:
    return "x" * size


if __name__ == "__main__":
    server.run()
