"""Integers outside 64 bits travel exact, also through what is kept between two requests."""

from __future__ import annotations

from typing import Any

import trio

from trio_mcp import Context, Server, open_client

HUGE = 10**30


async def test_an_argument_that_no_machine_word_holds_can_be_asked_about() -> None:
    server = Server("s")

    @server.tool
    async def ask(n: int, ctx: Context) -> str:
        kept = await ctx.once("double", lambda: double(n))
        answer = await ctx.elicit("How many?", {"count": int})
        assert answer.value is not None
        return f"{n} {kept} {answer.value['count']}"

    async def double(n: int) -> int:
        await trio.lowlevel.checkpoint()
        return 2 * n

    def fill_in(params: dict[str, Any]) -> dict[str, Any]:
        return {"count": HUGE + 1}

    async with open_client(server, on_elicit=fill_in) as client:
        result = await client.call_tool("ask", {"n": HUGE})
        assert result.text == f"{HUGE} {2 * HUGE} {HUGE + 1}"


async def test_a_failure_to_tell_of_a_question_is_an_error_of_the_call_alone() -> None:
    server = Server("s")

    @server.tool
    async def bad(ctx: Context) -> None:
        await ctx.sample("x", temperature=float("nan"))

    @server.tool
    async def good() -> str:
        return "yes"

    async with open_client(server, on_sample=lambda params: "x") as client:
        assert (await client.call_tool("bad")).is_error
        assert (await client.call_tool("good")).text == "yes"


async def test_the_result_of_a_task_keeps_it() -> None:
    server = Server("s", task_inline_ms=0)

    @server.tool(task_support="required")
    async def square(n: int) -> int:
        return n * n

    async with open_client(server) as client:
        assert (await client.call_tool("square", {"n": HUGE})).data == HUGE * HUGE
