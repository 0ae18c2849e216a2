"""Servers as child processes of the client: always reaped, and never a caller that waits for a dead one."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest
import trio

from trio_mcp import ConnectionClosed, Limits, StdioCommand, open_client

from .helpers import SERVERS
from .needs import need

IMPATIENT = Limits(child_exit=0.3, child_terminate=0.3)
"""For servers that do not end by themselves; the ends of good ones are tried with the usual patience."""


def command(name: str, *args: str, env: dict[str, str] | None = None, **options: object) -> StdioCommand:
    return StdioCommand([sys.executable, str(SERVERS / name), *args], env=env, **options)  # type: ignore[arg-type]


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    need("/proc")
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] not in ("Z", "X")


async def gone(pid: int, within: float) -> bool:
    with trio.move_on_after(within):
        while alive(pid):
            await trio.sleep(0.01)
        return True
    return False


async def test_a_good_server_ends_by_itself_when_the_block_is_left() -> None:
    begin = time.monotonic()
    async with open_client(command("tools.py"), limits=Limits(child_exit=60)) as client:
        assert (await client.call_tool("echo", {"text": "é\u2028"})).text == "é\u2028"
    assert time.monotonic() - begin < 20


async def test_a_cancelled_call_stops_the_tool_in_the_process(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with open_client(command("tools.py", env={"LOG": str(log)})) as client:
        heard = trio.Event()
        async with trio.open_nursery() as nursery:

            async def call() -> None:
                await client.call_tool("slow", {"seconds": 60}, on_progress=lambda *what: heard.set())

            nursery.start_soon(call)
            await heard.wait()
            nursery.cancel_scope.cancel()
        # Answered after the cancel was read, so by now the handler has been cancelled.
        assert (await client.call_tool("echo", {"text": "next"})).text == "next"
        with trio.fail_after(20):
            while not log.exists():
                await trio.sleep(0.001)


@pytest.mark.parametrize(
    ("how", "status", "words"),
    [
        ("exit", 3, "exited with status 3; the last it said: giving up"),
        ("kill", -9, "was ended by signal SIGKILL"),
    ],
)
async def test_a_process_that_dies_fails_every_pending_call_at_once(how: str, status: int, words: str) -> None:
    async with open_client(command("fake.py", how)) as client:
        failed: list[ConnectionClosed] = []

        async def call() -> None:
            with pytest.raises(ConnectionClosed) as caught:
                await client.call_tool("any")
            failed.append(caught.value)

        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(call)
            await call()
    assert len(failed) == 4
    for error in failed:
        assert error.exit_status == status
        assert str(error).endswith(words)


async def test_a_process_that_closes_its_output_fails_the_call() -> None:
    begin = time.monotonic()
    async with open_client(command("fake.py", "close"), limits=IMPATIENT) as client:
        with trio.fail_after(20), pytest.raises(ConnectionClosed, match="closed its output"):
            await client.call_tool("any")
        # It neither exits by itself nor is it waited for longer than it takes to end it.
    assert time.monotonic() - begin < 20


async def test_a_grandchild_that_holds_the_output_hides_no_death() -> None:
    async with open_client(command("fake.py", "orphan")) as client:
        with trio.fail_after(20), pytest.raises(ConnectionClosed, match="exited with status 4"):
            await client.call_tool("any")


async def test_standard_error_never_blocks_the_server() -> None:
    lines: list[str] = []
    async with open_client(command("fake.py", "chatty", on_stderr=lines.append)) as client:
        with trio.fail_after(20):
            for _ in range(3):
                await client.call_tool("any")
    assert len(lines) == 600
    assert set(map(len, lines)) == {10_000}


async def test_a_wrapper_and_the_stubborn_server_behind_it_are_both_ended(tmp_path: Path) -> None:
    need("/bin/sh")
    log = tmp_path / "pid"
    script = f"{sys.executable} {SERVERS / 'stubborn.py'}; :"
    begin = time.monotonic()
    shell = StdioCommand(["sh", "-c", script], env={"LOG": str(log)})
    async with open_client(shell, limits=IMPATIENT) as client:
        assert (await client.call_tool("echo", {"text": "up"})).text == "up"
        pid = int(log.read_text())
        assert alive(pid)
    assert time.monotonic() - begin < 20
    assert await gone(pid, 20)


async def test_a_cancelled_block_reaps_its_child_too(tmp_path: Path) -> None:
    log = tmp_path / "pid"
    with trio.move_on_after(30) as scope:
        async with open_client(command("stubborn.py", env={"LOG": str(log)}), limits=IMPATIENT):
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert await gone(int(log.read_text()), 20)


async def test_what_cannot_be_started_is_a_plain_error(tmp_path: Path) -> None:
    with pytest.raises(ConnectionClosed, match=r"cannot start the server \(no-such-program\): No such file"):
        async with open_client(StdioCommand(["no-such-program"])):
            pass
    need("/bin/sh")
    with pytest.raises(ConnectionClosed, match=r"exited with status 7"):
        async with open_client(StdioCommand(["sh", "-c", "exit 7"])):
            pass
    with pytest.raises(ValueError, match="needs a list"):
        StdioCommand("python server.py")
    with pytest.raises(ValueError, match="needs a list"):
        StdioCommand([])


async def test_a_python_file_is_a_target() -> None:
    async with open_client(SERVERS / "tools.py") as client:
        assert client.server_info["name"] == "tools"
    async with open_client(f"{SERVERS / 'tools.py'}:server") as client:
        assert [tool.name for tool in await client.list_tools()] == [
            "echo",
            "slow",
            "thread",
            "noise",
            "stubborn",
            "big",
        ]


async def test_no_descriptor_and_no_process_is_left_over() -> None:
    need("/proc")
    async with open_client(command("tools.py")):
        pass
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(3):
        async with open_client(command("tools.py")) as client:
            await client.call_tool("echo", {"text": "x"})
    assert sorted(os.listdir("/proc/self/fd")) == before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
