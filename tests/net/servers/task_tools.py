"""Tools that become tasks, kept in a file: `python task_tools.py FILE BIND [LIMITS]` prints its URL and serves until SIGTERM.

`LIMITS` is a JSON object. On stdio: `trio-mcp serve task_tools.py`, with `TASKS` for the file and `LIMITS` for the limits.
`MARKS` names a file for lines about what was done.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import trio

from trio_mcp import Context, Limits, Server, SQLiteTaskStore
from trio_mcp.serve import run_http


def expected(tool: str, number: int) -> str:
    """What a tool answers for a number: long enough that a part of it would show."""
    return f"{tool} {number} " + f"<{number * 7919}>" * (1 + number % 200)


def marked(text: str) -> bool:
    """Whether something was done already."""
    with open(os.environ["MARKS"]) as file:
        return text in file.read().splitlines()


def mark(text: str) -> None:
    """Write down that something was done."""
    path = os.environ.get("MARKS")
    if path:
        with open(path, "a") as file:
            file.write(text + "\n")


async def quick(number: int, seconds: float) -> str:
    """Ends soon."""
    await trio.sleep(seconds)
    return expected("quick", number)


async def long(number: int, ctx: Context) -> str:
    """Goes on, and tells how far it is."""
    for step in range(240):
        await ctx.report_progress(step + 1, 240)
        await trio.sleep(0.25)
    return expected("long", number)


def thread(number: int, seconds: float) -> str:
    """Works in a thread."""
    time.sleep(seconds)
    return expected("thread", number)


async def ask(number: int, ctx: Context) -> str:
    """Asks, and goes on only when it is answered."""
    answer = await ctx.elicit(f"Number {number}?", {"text": str})
    assert answer.value is not None
    return f"{expected('ask', number)}{answer.value['text']}"


async def again(number: int, seconds: float) -> str:
    """Can be run again."""
    mark(f"again {number}")
    await trio.sleep(seconds)
    return expected("again", number)


async def second_time(number: int) -> str:
    """Can be run again, and ends only then."""
    text = f"second_time {number}"
    ends = marked(text)
    mark(text)
    if not ends:
        await trio.sleep(60)
    return expected("second_time", number)


async def again_ask(number: int, ctx: Context) -> str:
    """Can be run again, and then knows what it was told."""

    async def make() -> int:
        mark(f"once {number}")
        return number * 3

    kept = await ctx.once("kept", make)
    answer = await ctx.elicit(f"Number {number}?", {"text": str})
    await trio.sleep(0.05)
    assert answer.value is not None
    return f"{expected('again_ask', number)}{answer.value['text']} {kept}"


async def again_once(number: int, seconds: float, ctx: Context) -> str:
    """Can be run again, and does two things once, one a moment after the other."""

    async def make() -> int:
        mark(f"once {number}")
        return number * 3

    first = await ctx.once("first", make)
    await trio.sleep(0.3)
    second = await ctx.once("second", make)
    mark(f"kept {number}")
    await trio.sleep(seconds)
    return expected("again_once", first + second)


def make(path: str, limits: dict[str, Any]) -> Server[None]:
    """The server over a file."""
    server = Server("tasks", tasks=SQLiteTaskStore(path, poll=0.02), limits=Limits(**limits))
    inline: list[Callable[..., Any]] = [quick, long, thread]
    for tool in inline:
        server.tool(tool, task_support="optional", task_inline_ms=20)
    server.tool(ask, task_support="required", task_inline_ms=0)
    server.tool(again, task_support="optional", task_inline_ms=20, restartable=True)
    at_once: list[Callable[..., Any]] = [second_time, again_ask, again_once]
    for tool in at_once:
        server.tool(tool, task_support="required", task_inline_ms=0, restartable=True)
    return server


if __name__ == "__main__":
    served = make(sys.argv[1], json.loads(sys.argv[3]) if len(sys.argv) > 3 else {})
    sys.exit(run_http(served, sys.argv[2], lambda bound: print(bound.urls[0], flush=True)))
elif "TASKS" in os.environ:
    server = make(os.environ["TASKS"], json.loads(os.environ.get("LIMITS", "{}")))
