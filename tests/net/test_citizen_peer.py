"""What the client and the endpoint do to processes and sockets that are not theirs: nothing."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from trio_mcp import ConnectionClosed, MCPError, Server, StdioCommand, open_client, serve_http

from .helpers import SERVERS

COMMAND = StdioCommand([sys.executable, str(SERVERS / "citizen.py")], on_stderr=lambda line: None)


async def test_a_group_is_signalled_only_while_its_number_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    signalled: list[signal.Signals] = []
    killpg = os.killpg

    def watched(pid: int, number: signal.Signals) -> None:
        # A child that is not reaped yet: nobody else can have its number. Otherwise this raises ChildProcessError.
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        signalled.append(number)
        killpg(pid, number)

    monkeypatch.setattr(os, "killpg", watched)
    async with open_client(COMMAND) as client:
        left = (await client.call_tool("leave_quiet")).data
        with pytest.raises(ConnectionClosed, match="was ended by signal SIGKILL"):
            await client.call_tool("die", {"number": int(signal.SIGKILL)})
        # What is left of the group ends now, and not when the block is left.
        with trio.fail_after(30):
            while alive(left):
                await trio.sleep(0.01)
            while signalled[-1] != signal.SIGKILL:
                await trio.sleep(0.01)
        before = list(signalled)
    assert signalled == before
    async with open_client(COMMAND) as client:
        await client.call_tool("ping")
    assert len(signalled) > len(before)


def alive(pid: int) -> bool:
    path = Path(f"/proc/{pid}/stat")
    return path.exists() and path.read_text().rpartition(")")[2].split()[0] != "Z"


async def test_a_signal_without_a_name_is_told_by_its_number() -> None:
    async with open_client(COMMAND) as client:
        with pytest.raises(ConnectionClosed, match="was ended by signal 40"):
            await client.call_tool("die", {"number": 40})


async def test_a_socket_file_of_a_busy_process_is_looked_at_without_waiting(tmp_path: Path) -> None:
    file = tmp_path / "busy"
    path = str(file)
    crowd: list[socket.socket] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(0)
        # Until the next one would have to wait.
        while True:
            peer = socket.socket(socket.AF_UNIX)
            peer.setblocking(False)
            crowd.append(peer)
            try:
                peer.connect(path)
            except BlockingIOError:
                break
        try:
            with pytest.raises(MCPError, match="another process listens there"):
                await serve_http(Server("s"), f"unix:{path}")
        finally:
            for peer in crowd:
                peer.close()
    assert file.is_socket()


def test_a_number_that_standard_error_had_may_be_somebody_elses(tmp_path: Path) -> None:
    # Standard error is closed, so the first file that the program opens gets its number.
    file = tmp_path / "theirs"
    script = f"""
import os, sys
theirs = os.open({str(file)!r}, os.O_CREAT | os.O_WRONLY)
assert theirs == 2
from contextlib import asynccontextmanager
import trio
from trio_mcp import Server, serve_stdio
@asynccontextmanager
async def life(server):
    yield
    print("noise", flush=True)
server = Server("s", lifespan=life)
trio.run(serve_stdio, server)
os.write(theirs, b"whole")
"""
    command = 'exec 2>&-; exec "$@"'
    done = subprocess.run(
        ["/bin/sh", "-c", command, "sh", sys.executable, "-c", script], input=b"", capture_output=True, timeout=30
    )
    assert (done.returncode, done.stdout) == (0, b"")
    assert file.read_bytes() == b"whole"


async def test_an_address_without_a_host_listens_over_ipv4_and_ipv6() -> None:
    async with trio.open_nursery() as nursery:
        http = await nursery.start(serve_http, Server("s"), ":0")
        assert sorted(url.rpartition(":")[0] for url in http.urls) == ["http://0.0.0.0", "http://[::]"]
        nursery.cancel_scope.cancel()
