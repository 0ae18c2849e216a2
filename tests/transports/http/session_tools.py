"""The server of the tests of sessions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import trio

from trio_mcp import Context, Limits, Server


@dataclass
class Form:
    """What a user is asked for."""

    word: str


class Desk:
    """A server with tools that wait until the test lets them go on.

    Attributes:
        server: The server.
        count: How often something happened.
        gates: By name: a tool waits at one until it is open.
    """

    def __init__(self, **limits: Any) -> None:
        self.server: Server[None] = Server("desk", version="1", limits=Limits(**limits))
        self.count: Counter[str] = Counter()
        self.gates: dict[str, trio.Event] = {}
        for tool in (self.echo, self.wait, self.steps, self.poll, self.elicit, self.both, self.visit, self.sample):
            self.server.tool(tool)
        self.server.tool(self.roots)
        self.server.tool(self.log)
        self.server.tool(self.fails)
        self.server.tool(self.data)
        self.server.resource("test://{name}")(self.read)

    def gate(self, name: str) -> trio.Event:
        return self.gates.setdefault(name, trio.Event())

    async def data(self, number: int) -> dict[str, int]:
        return {"number": number}

    async def read(self, name: str) -> str:
        return name

    async def echo(self, text: str) -> str:
        return text

    async def fails(self) -> str:
        raise RuntimeError("a bug in a tool")

    async def wait(self, gate: str) -> str:
        """Wait at a gate, and say nothing meanwhile."""
        self.count["began"] += 1
        try:
            await self.gate(gate).wait()
        except trio.Cancelled:
            self.count["cancelled"] += 1
            raise
        finally:
            self.count["ended"] += 1
        return f"past {gate}"

    async def steps(self, count: int, gate: str, ctx: Context) -> str:
        """Report so many steps, and wait at a gate after the first."""
        self.count["began"] += 1
        try:
            for number in range(1, count + 1):
                await ctx.report_progress(number, count, "step")
                if number == 1:
                    await self.gate(gate).wait()
        except trio.Cancelled:
            self.count["cancelled"] += 1
            raise
        finally:
            self.count["ended"] += 1
        return f"all {count}"

    async def poll(self, gate: str, ctx: Context) -> str:
        """Let the client go, and come back for the answer."""
        await ctx.close_stream()
        await self.gate(gate).wait()
        return "polled"

    async def elicit(self, question: str, ctx: Context) -> str:
        answer = await ctx.elicit(question, Form)
        return f"{answer.action}: {answer.value.word if answer.value else None}"

    async def both(self, ctx: Context) -> str:
        """Two questions at once."""
        said: dict[str, str] = {}

        async def one(question: str) -> None:
            answer = await ctx.elicit(question, Form)
            said[question] = answer.value.word if answer.value else ""

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one, "first")
            nursery.start_soon(one, "second")
        return f"{said['first']} {said['second']}"

    async def visit(self, ctx: Context) -> str:
        return (await ctx.elicit_url("look", "https://example.com/page")).action

    async def sample(self, ctx: Context) -> str:
        answer = await ctx.sample("say something", max_tokens=10)
        return str(answer["content"]["text"])

    async def roots(self, ctx: Context) -> str:
        return " ".join(root["uri"] for root in await ctx.list_roots())

    async def log(self, level: str, ctx: Context) -> str:
        await ctx.log(level, "a line")
        return "logged"
