"""The HTTP server on h11, as a real process: its tools, and its end. What a peer may do to it is in `net/test_edges`."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import AsyncIterator

import pytest
import trio

from trio_mcp import HttpError, open_client

from .helpers import answers_of_docstring, running


@pytest.fixture
async def program() -> AsyncIterator[tuple[trio.Process, str]]:
    async with running("own_host") as found:
        yield found


async def test_its_tools_and_the_path(program: tuple[trio.Process, str]) -> None:
    _, url = program
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/mcp", url)
    with trio.fail_after(30):
        async with open_client(url) as client:
            assert client.server_info["name"] == "own-host"
            assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
        with pytest.raises(HttpError) as info:
            async with open_client(f"{url}/other"):
                pass
        assert info.value.status == 404


async def test_a_listener_hears_of_the_end(program: tuple[trio.Process, str]) -> None:
    process, url = program
    with trio.fail_after(30):
        async with open_client(url) as client, client.listen(tools=True) as changes:
            os.kill(process.pid, signal.SIGTERM)
            assert [change async for change in changes] == []
        assert await process.wait() == 0


async def test_the_command_lines_of_its_docstring(program: tuple[trio.Process, str]) -> None:
    answers = await answers_of_docstring("own_host", {"URL": program[1]})
    assert answers == {"add": "3\n", "wait": "That was 0.1 s.\n"}
