"""The web application with MCP in it, as a real process under Hypercorn: both of its halves, and its end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import httpx2
import pytest
import trio

from trio_mcp import HttpError, MCPError, open_client


@pytest.fixture
async def program(examples: Path, python: str) -> AsyncIterator[tuple[trio.Process, str]]:
    command = [python, "-u", str(examples / "mounted.py"), "127.0.0.1:0"]
    run = partial(trio.run_process, command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    async with trio.open_nursery() as nursery:
        process: trio.Process = await nursery.start(run)
        assert process.stdout is not None
        with trio.fail_after(20):
            line = b""
            while not line.endswith(b"\n"):
                line += await process.stdout.receive_some()
        yield process, line.decode().strip()
        nursery.cancel_scope.cancel()


async def test_the_page_and_the_tools_share_their_state(program: tuple[trio.Process, str]) -> None:
    _, url = program
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/mcp", url)
    page = url.removesuffix("mcp")
    with trio.fail_after(30):
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
    with trio.fail_after(30):
        with pytest.raises(HttpError) as info:
            async with open_client(f"{url}/other"):
                pass
        assert info.value.status == 404
        # Bound to loopback, so a page that rebinds its own name gets nowhere.
        with pytest.raises(MCPError, match=r"host 'evil\.example' is not served here"):
            async with httpx2.AsyncClient(headers={"host": "evil.example"}) as http, open_client(url, http=http):
                pass


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_the_program(program: tuple[trio.Process, str], number: signal.Signals) -> None:
    process, _ = program
    with trio.fail_after(30):
        os.kill(process.pid, number)
        assert await process.wait() == 0


async def test_the_command_lines_of_its_docstring(
    program: tuple[trio.Process, str], examples: Path, python: str
) -> None:
    _, url = program
    text = (examples / "mounted.py").read_text()
    commands = [line.split() for line in text.splitlines() if line.startswith("trio-mcp ")]
    answers = []
    for words in commands:
        words = [word.replace("URL", url) for word in words]
        done = await trio.run_process(
            [python, "-m", "trio_mcp", *words[1:]],
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b""), words
        answers.append(done.stdout.decode())
    assert answers[0] == "Thank you. You are guest number 2.\n"
    assert '"Ada"' in answers[1]
