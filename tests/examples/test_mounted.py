"""The web application with MCP in it, as a real process under Hypercorn: both of its halves, and its end."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import httpx2
import pytest
import trio

from trio_mcp import HttpError, MCPError, open_client

from .helpers import answers_of_docstring, running


@pytest.fixture
async def program() -> AsyncIterator[tuple[trio.Process, str]]:
    async with running("mounted") as found:
        yield found


async def test_the_page_and_the_tools_share_their_state(program: tuple[trio.Process, str]) -> None:
    _, url = program
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/mcp", url)
    page = url.removesuffix("mcp")
    with trio.fail_after(90):
        async with open_client(url) as client, httpx2.AsyncClient() as browser:
            assert client.server_info["name"] == "guestbook"
            # The lifespan has reached the server.
            assert (await client.call_tool("names")).data == ["the house"]
            assert (await browser.get(page)).text == "the house\n"
            thanks = await client.call_tool("sign", {"name": "Ada"})
            assert thanks.text == "Thank you. You are guest number 2."
            again = await client.call_tool("sign", {"name": "Ada"})
            assert (again.is_error, again.text) == (True, "Ada has signed already.")
            assert (await browser.get(page)).text == "the house\nAda\n"


async def test_other_paths_and_strange_hosts(program: tuple[trio.Process, str]) -> None:
    _, url = program
    with trio.fail_after(90):
        with pytest.raises(HttpError) as info:
            async with open_client(f"{url}/other"):
                pass
        assert info.value.status == 404
        # Bound to loopback, so a page that rebinds its own name gets nowhere.
        with pytest.raises(MCPError, match=r"host 'evil\.example' is not served here"):
            async with httpx2.AsyncClient(headers={"host": "evil.example"}) as http, open_client(url, http=http):
                pass


async def test_the_command_lines_of_its_docstring(program: tuple[trio.Process, str]) -> None:
    answers = await answers_of_docstring("mounted", {"URL": program[1]})
    assert list(answers) == ["sign", "names"]
    assert answers["sign"] == "Thank you. You are guest number 2.\n"
    assert '"Ada"' in answers["names"]
