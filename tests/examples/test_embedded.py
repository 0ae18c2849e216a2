"""The program with a boiler, as a real process: its state through HTTP, and its end."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
import trio

from trio_mcp import open_client

from .helpers import answers_of_docstring, running


@pytest.fixture
async def program() -> AsyncIterator[tuple[trio.Process, str]]:
    async with running("embedded") as found:
        yield found


async def test_tools_read_and_change_what_the_program_has(program: tuple[trio.Process, str]) -> None:
    _, url = program
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/mcp", url)
    with trio.fail_after(90):
        async with open_client(url) as client:
            assert [tool.name for tool in await client.list_tools()] == ["state", "set_target", "wait_for"]
            first = (await client.call_tool("state")).data
            assert first["target"] == 40 and isinstance(first["heating"], bool)
            assert (await client.call_tool("set_target", {"celsius": 60})).text == "The target is 60 now."
            heard: list[str | None] = []
            wanted = first["temperature"] + 3
            result = await client.call_tool(
                "wait_for", {"celsius": wanted}, on_progress=lambda _progress, _total, message: heard.append(message)
            )
            assert result.data >= wanted
            assert len(heard) >= 2 and all(re.fullmatch(r"\d+\.\d °C", str(message)) for message in heard)
            state = (await client.call_tool("state")).data
            assert state["temperature"] > first["temperature"] and state["target"] == 60
            refused = await client.call_tool("set_target", {"celsius": 200})
            assert (refused.is_error, refused.text) == (True, "The target must be from 10 to 90, not 200.")


async def test_a_caller_that_leaves_stops_only_its_own_waiting(program: tuple[trio.Process, str]) -> None:
    _, url = program
    with trio.fail_after(90):
        async with open_client(url) as client:
            with trio.CancelScope() as scope:
                await client.call_tool("wait_for", {"celsius": 1000}, on_progress=lambda *_: scope.cancel())
            assert scope.cancelled_caught
            before = (await client.call_tool("state")).data["temperature"]
            await client.call_tool("wait_for", {"celsius": before + 1})


async def test_two_clients_see_one_boiler(program: tuple[trio.Process, str]) -> None:
    _, url = program
    with trio.fail_after(90):
        async with open_client(url) as one, open_client(url) as other:
            await one.call_tool("set_target", {"celsius": 55})
            assert (await other.call_tool("state")).data["target"] == 55


async def test_the_command_lines_of_its_docstring(program: tuple[trio.Process, str]) -> None:
    _, url = program
    # Less heat than it says, which takes less time.
    instead = {"URL": url, "wait_for celsius=60": "wait_for celsius=25"}
    answers = await answers_of_docstring("embedded", instead)
    assert list(answers) == ["state", "set_target", "wait_for"]
    assert '"target"' in answers["state"]
    assert answers["set_target"] == "The target is 60 now.\n"
    assert float(answers["wait_for"]) >= 25
