"""The first example, run as a user runs it: in memory, as a file, and from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from trio_mcp import InvalidParams, Server, StdioCommand, open_client

from .helpers import answers_of_docstring, load


@pytest.fixture
def file(examples: Path) -> Path:
    return examples / "quickstart.py"


@pytest.fixture
def server() -> Server[None]:
    return load("quickstart").server


@pytest.fixture(params=["memory", "file", "command"])
def target(request: pytest.FixtureRequest, file: Path, python: str) -> Any:
    if request.param == "memory":
        return request.getfixturevalue("server")
    if request.param == "file":
        return file
    return StdioCommand([python, str(file)])


async def test_everything_that_it_offers(target: Any) -> None:
    with trio.fail_after(20):
        async with open_client(target) as client:
            assert client.server_info["name"] == "quickstart"
            assert client.instructions == "Adds numbers and counts down."
            assert [tool.name for tool in await client.list_tools()] == ["add", "countdown"]
            result = await client.call_tool("add", {"a": 1, "b": 2})
            assert (result.data, result.text, result.is_error) == (3, "3", False)
            assert (await client.read_resource("greeting://Ada")).text == "Hello, Ada!"
            prompt = await client.get_prompt("review", {"code": "x = 1"})
            [message] = prompt.messages
            assert message.content.text == "Please review this Python code:\n\nx = 1"  # type: ignore[union-attr]


async def test_wrong_arguments_are_for_the_model(target: Any) -> None:
    with trio.fail_after(20):
        async with open_client(target) as client:
            result = await client.call_tool("add", {"a": "one"})
            assert result.is_error
            assert 'a: expected integer, got string "one"' in result.text
            assert "b: missing" in result.text
            with pytest.raises(InvalidParams, match="did you mean 'add'"):
                await client.call_tool("ad", {})
            with pytest.raises(InvalidParams, match="code"):
                await client.get_prompt("review")


async def test_the_countdown_in_virtual_time(server: Server[None], autojump_clock: object) -> None:
    heard: list[tuple[float, float | None, str | None]] = []
    async with open_client(server) as client:
        start = trio.current_time()
        result = await client.call_tool(
            "countdown", {"seconds": 3}, on_progress=lambda *progress: heard.append(progress)
        )
        assert result.text == "Liftoff!"
        assert trio.current_time() - start == pytest.approx(3)
        assert heard == [(0, 3, "3 …"), (1, 3, "2 …"), (2, 3, "1 …")]


async def test_the_countdown_stops_with_its_caller(file: Path) -> None:
    with trio.fail_after(20):
        async with open_client(file) as client:
            with trio.CancelScope() as scope:
                await client.call_tool("countdown", {"seconds": 1000}, on_progress=lambda *_: scope.cancel())
            assert scope.cancelled_caught
            assert (await client.call_tool("add", {"a": 2, "b": 2})).data == 4


async def test_the_command_lines_of_its_docstring(file: Path) -> None:
    instead = {"examples/quickstart.py": str(file), "seconds=3": "seconds=1"}
    assert await answers_of_docstring("quickstart", instead) == {"add": "3\n", "countdown": "Liftoff!\n"}
