"""What is listened on: slots of several listeners, socket files that two servers want, and files that cannot be used."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import pytest

from trio_mcp import MCPError, Server, serve_http

from .helpers import SERVERS, Running

UNIX = [sys.executable, "-m", "trio_mcp", "serve", str(SERVERS / "tools.py"), "--uds"]

TWO_LISTENERS = """
import socket, sys
import trio
from trio_mcp import Limits, Server, serve_http

class Names(trio.abc.HostnameResolver):
    async def getaddrinfo(self, host, port, family=0, type=0, proto=0, flags=0):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, 0)) for ip in ("127.0.0.1", "127.0.0.2")]

    async def getnameinfo(self, sockaddr, flags):
        raise NotImplementedError

async def main():
    trio.socket.set_custom_hostname_resolver(Names())
    server = Server("two", version="1", limits=Limits(connections=int(sys.argv[1])))
    async with trio.open_nursery() as nursery:
        http = await nursery.start(serve_http, server, "two.example:0")
        print(*[url.split("/")[2] for url in http.urls], flush=True)

trio.run(main)
"""

ASK = b"GET /elsewhere HTTP/1.1\r\nHost: localhost\r\n\r\n"


def answered(sock: socket.socket) -> bool:
    sock.sendall(ASK)
    return sock.recv(65536).startswith(b"HTTP/1.1 404")


@pytest.mark.parametrize("connections", [1, 2, 3])
def test_a_listener_that_waits_holds_no_slot(connections: int) -> None:
    with Running(sys.executable, "-c", TWO_LISTENERS, str(connections)) as server:
        line = server.line(30)
        assert line is not None, server.errors()
        hosts = [(host, int(port)) for host, _, port in (name.partition(":") for name in line.decode().split())]
        assert len(hosts) == 2
        for busy in hosts:
            # All that are allowed, over one of the two.
            peers = [socket.create_connection(busy, timeout=20) for _ in range(connections)]
            assert all(answered(peer) for peer in peers)
            late = [socket.create_connection(host, timeout=20) for host in hosts]
            for peer in late:
                peer.sendall(ASK)
            assert select.select(late, [], [], 0.2)[0] == [], "more than are allowed"
            # Those that waited get a slot each when one comes free, whichever listener they came to.
            for peer in peers:
                peer.close()
            while late:
                ready = select.select(late, [], [], 20)[0]
                assert ready, "nobody got the slot"
                for peer in ready:
                    assert peer.recv(65536).startswith(b"HTTP/1.1 404")
                    peer.close()
                    late.remove(peer)


def wait_until_open(process: subprocess.Popen[bytes], folder: Path) -> None:
    """Wait until a process has opened a folder."""
    end = time.monotonic() + 30
    while True:
        assert time.monotonic() < end
        for fd in Path(f"/proc/{process.pid}/fd").iterdir():
            try:
                if fd.readlink() == folder:
                    return
            except FileNotFoundError:
                continue
        time.sleep(0.001)


def test_a_server_that_is_between_bind_and_listen_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    folder = os.open(tmp_path, os.O_RDONLY)
    with closing(socket.socket(socket.AF_UNIX)) as first:
        fcntl.flock(folder, fcntl.LOCK_EX)
        first.bind(str(path))
        with Running(*UNIX, str(path)) as second:
            wait_until_open(second.process, tmp_path)
            # The same moment in which another server of this project goes on.
            first.listen()
            os.close(folder)
            assert second.process.wait(30) != 0
            assert f"cannot listen on unix:{path}: another process listens there" in second.errors()
        with closing(socket.socket(socket.AF_UNIX)) as client:
            client.connect(str(path))
            first.accept()[0].close()


def test_a_lock_that_somebody_keeps_holds_up_nobody_for_long(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        with Running(*UNIX, str(path)) as server:
            end = time.monotonic() + 30
            while not path.exists():
                assert time.monotonic() < end, server.errors()
                time.sleep(0.01)
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(30) == 0
        assert not path.exists()
    finally:
        os.close(folder)


async def test_a_socket_of_another_kind_is_named_and_left(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as other:
        other.bind(str(path))
        reason = f"cannot listen on unix:{path}: there is a socket of another kind (datagrams)"
        with pytest.raises(MCPError, match=re.escape(reason)):
            await serve_http(Server("s", version="1"), f"unix:{path}")
    assert path.exists()


AS_SOMEBODY = """
import importlib, os, sys
import trio
from trio_mcp import MCPError, Server, serve_http
importlib.import_module("trio_mcp.transports.http.edge")
if os.geteuid() == 0:
    os.seteuid(65534)
try:
    trio.run(serve_http, Server("s", version="1"), "unix:" + sys.argv[1])
except MCPError as exc:
    print(exc)
"""


def test_a_socket_that_may_not_be_asked_is_not_called_something_else() -> None:
    with tempfile.TemporaryDirectory() as folder, closing(socket.socket(socket.AF_UNIX)) as other:
        os.chmod(folder, 0o777)
        path = f"{folder}/socket"
        other.bind(path)
        other.listen()
        os.chmod(path, 0)
        done = subprocess.run(
            [sys.executable, "-c", AS_SOMEBODY, path], capture_output=True, text=True, timeout=60, check=False
        )
        reason = "there is a socket of another user, and whether somebody listens there cannot be asked"
        assert done.stdout == f"cannot listen on unix:{path}: {reason}\n", done.stderr
        assert os.path.exists(path)
