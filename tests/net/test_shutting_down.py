"""A call that outlasts the drain of a server is answered with an error that says so: its client need not guess from a cut."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from trio_mcp import open_client
from trio_mcp.errors import TimedOut
from trio_mcp.testing import request

from .helpers import SERVERS, Running

WORDS = "The server is shutting down, and did not wait for this request any longer"
TOOLS = ["plain", "streaming", "clings"]


def wait_for(path: Path, text: str) -> None:
    end = time.monotonic() + 30
    while not path.exists() or text not in path.read_text():
        assert time.monotonic() < end, f"{text!r} did not come"
        time.sleep(0.005)


@pytest.mark.parametrize("how", ["SIGTERM", "end of input"])
def test_over_stdio(how: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Running("stays.py", env={"LOG": str(log)}) as server:
        for id, tool in enumerate(TOOLS):
            message = request(id, "tools/call", name=tool, arguments={})
            message["params"]["_meta"]["progressToken"] = id
            server.send(message)
        wait_for(log, "began\n" * 3)
        if how == "SIGTERM":
            server.process.send_signal(signal.SIGTERM)
        else:
            server.close_input()
        seen: list[dict[str, Any]] = []
        while (line := server.line(30)) is not None:
            seen.append(json.loads(line))
        assert server.process.wait(30) == 0
    answers = [message for message in seen if "id" in message]
    assert sorted(answer["id"] for answer in answers) == [0, 1, 2]
    assert {answer["error"]["code"] for answer in answers} == {504}
    assert {answer["error"]["message"] for answer in answers} == {WORDS}
    # Nothing behind the answer of a call.
    assert [message["params"]["progress"] for message in seen if "method" in message] == [1]


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("http2", [False, True], ids=["HTTP/1.1", "HTTP/2"])
async def test_over_http(http2: bool, tool: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-m", "trio_mcp", "serve", str(SERVERS / "stays.py"), "--http", "127.0.0.1:0"]
    heard: list[float] = []
    with Running(*command, env={"LOG": str(log)}) as server:
        assert server.process.stderr is not None
        url = server.process.stderr.readline().decode().split()[-1]
        async with (
            httpx2.AsyncClient(http1=not http2, http2=http2, timeout=60) as http,
            open_client(url, http=http) as client,
            trio.open_nursery() as nursery,
        ):

            async def end() -> None:
                await trio.to_thread.run_sync(wait_for, log, "began")
                server.process.send_signal(signal.SIGTERM)

            nursery.start_soon(end)
            with pytest.raises(TimedOut, match=WORDS):
                await client.call_tool(tool, on_progress=lambda done, *more: heard.append(done))
        assert server.process.wait(30) == 0
    assert heard == ([1.0] if tool == "streaming" else [])
