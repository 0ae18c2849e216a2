"""The server of the HTTP tests: in the test's own trio run, or a process that prints its URL.

`python http_tools.py BIND` serves until SIGINT or SIGTERM. `LOG` names a file for `EVENT NANOSECONDS` lines; `LIMITS` is a
JSON object of bounds.
"""

import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from trio_mcp import Context, Limits, Server
from trio_mcp.serve import run_http


class Lab:
    """A server that notes what happens in it.

    Args:
        limits: Bounds, by name.

    Attributes:
        server: The server.
        notes: What happened, with the time in nanoseconds.
        release: Set, it wakes whoever sleeps in `slow`.
    """

    def __init__(self, **limits: Any) -> None:
        self.notes: list[tuple[str, int]] = []
        self.release = trio.Event()
        self._changed = trio.lowlevel.ParkingLot()
        self._log = os.environ.get("LOG")
        # Far beyond what a test waits for, so that what waits for a timer that it does not name fails it.
        slow = dict.fromkeys(("head_timeout", "body_timeout", "write_stall", "silence", "keep_alive"), 60)
        self.server = Server("lab", version="1", lifespan=self._lifespan, limits=Limits(**{**slow, **limits}))
        for tool in (self.echo, self.slow, self.chatter, self.big, self.crash):
            self.server.tool(tool)

    def note(self, event: str) -> None:
        """Write down that something happens now."""
        self.notes.append((event, time.monotonic_ns()))
        self._changed.unpark_all()
        if self._log:
            with open(self._log, "a") as file:
                file.write(f"{event} {self.notes[-1][1]}\n")

    def count(self, event: str) -> int:
        """How often something happened."""
        return sum(name == event for name, _ in self.notes)

    async def wait(self, event: str, count: int = 1, timeout: float = 20) -> int:
        """Wait until something happened so often; the time of the last, in nanoseconds."""
        with trio.fail_after(timeout):
            while self.count(event) < count:
                await self._changed.park()
        return [when for name, when in self.notes if name == event][-1]

    @asynccontextmanager
    async def _lifespan(self, server: Server[None]) -> AsyncIterator[None]:
        self.note("entered")
        try:
            yield None
        finally:
            self.note("left")

    async def echo(self, text: str) -> str:
        return text

    async def slow(self, seconds: float, ctx: Context) -> str:
        """Reports progress once, if it is wanted, and sleeps."""
        try:
            self.note("start")
            await ctx.report_progress(0)
            with trio.move_on_after(seconds):
                await self.release.wait()
            self.note("slept")
        finally:
            self.note("finally")
        return "slept"

    async def chatter(self, count: int, size: int, ctx: Context) -> str:
        """Reports progress `count` times with `size` characters."""
        try:
            for number in range(1, count + 1):
                await ctx.report_progress(number, count, "x" * size)
                self.note("said")
        finally:
            self.note("finally")
        return "said all"

    async def big(self, size: int) -> str:
        return "x" * size

    async def crash(self) -> str:
        raise RuntimeError("a bug in a tool")


if __name__ == "__main__":
    sys.exit(
        run_http(
            Lab(**json.loads(os.environ.get("LIMITS", "{}"))).server,
            sys.argv[1],
            lambda bound: print(bound.urls[0], flush=True),
        )
    )
