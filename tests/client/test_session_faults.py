"""What the client of an older server shows to its user."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from trio_mcp import ConnectionClosed, StdioCommand, open_client

SERVER = '''
from trio_mcp import Context, Server

server = Server("old", eras=["legacy"])


@server.tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@server.tool(task_support="required")
async def job(ctx: Context) -> str:
    """A task only."""
    return "done"


if __name__ == "__main__":
    server.run()
'''


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "old.py"
    path.write_text(SERVER)
    return path


@asynccontextmanager
async def over_http(old: Path, *more: str) -> AsyncIterator[tuple[trio.Process, str]]:
    """The server as a process; its endpoint."""
    command = [sys.executable, "-m", "trio_mcp", "serve", str(old), "--http", "127.0.0.1:0", *more]
    async with trio.open_nursery() as nursery:
        process = await nursery.start(partial(trio.run_process, command, stderr=-1, check=False))
        assert process.stderr is not None
        said = ""
        with trio.fail_after(60):
            while not (found := re.search(r"http://\S+/mcp", said)):
                said += (await process.stderr.receive_some()).decode()
        yield process, found[0]
        nursery.cancel_scope.cancel()


async def test_a_tool_that_is_a_task_only_is_called_without_the_list(old: Path) -> None:
    async with open_client(StdioCommand([sys.executable, str(old)])) as client:
        assert (await client.call_tool("job")).text == "done"


@pytest.mark.parametrize("sse", [False, True])
async def test_who_listens_hears_that_the_server_is_gone(old: Path, sse: bool) -> None:
    more = ["--sse"] if sse else []
    async with (
        over_http(old, *more) as (process, url),
        open_client(url.replace("/mcp", "/sse") if sse else url) as client,
    ):
        with pytest.raises(ConnectionClosed), trio.fail_after(30):
            async with client.listen(tools=True) as changes:
                process.kill()
                async for _change in changes:
                    pass
