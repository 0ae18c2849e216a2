"""A process that belongs to one server, as others expect a process to be: its streams, its signals, its children, its end."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from trio_mcp.testing import request

from .helpers import SERVERS, Running

FILE = str(SERVERS / "citizen.py")
RUN = [sys.executable, FILE]
SERVE = [sys.executable, "-m", "trio_mcp", "serve", FILE]
EMBEDDED = [sys.executable, FILE, "embedded"]
TASKS = {"io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}


def wait_for(path: Path, text: str, timeout: float = 30) -> None:
    end = time.monotonic() + timeout
    while not path.exists() or text not in path.read_text():
        assert time.monotonic() < end, f"{text!r} did not come"
        time.sleep(0.01)


def call_as_task(server: Running, id: int, tool: str) -> None:
    message = request(id, "tools/call", name=tool, arguments={})
    message["params"]["_meta"].update(TASKS)
    server.send(message)


def ended(server: Running, how: str) -> None:
    if how == "end of input":
        server.close_input()
    else:
        server.process.send_signal(signal.SIGTERM)


def text_of(message: dict[str, Any]) -> str:
    text: str = message["result"]["content"][0]["text"]
    return text


# -- standard output


@pytest.mark.parametrize("how", ["end of input", "SIGTERM"])
@pytest.mark.parametrize("command", [RUN, SERVE, EMBEDDED], ids=["run", "serve", "embedded"])
def test_whatever_is_printed_and_when_only_messages_reach_the_output(command: list[str], how: str) -> None:
    if command == EMBEDDED and how == "SIGTERM":
        how = "end of input"
    # What a file prints on its way to `server.run()` is safe as long as Python holds it.
    with Running(*command, env={"NOISE": "1", "PYTHONUNBUFFERED": ""}) as server:
        call_as_task(server, 1, "work")
        assert server.message(20)["result"]["resultType"] == "task"
        ended(server, how)
        rest = b""
        while (line := server.line(20)) is not None:
            rest += line + b"\n"
        rest += server.remainder()
        assert server.process.wait(30) == 0
        errors = server.errors()
    # A program of one's own has its output back in the end.
    assert rest.startswith(b"mine\nexit ") if command == EMBEDDED else rest == b""
    heard = ["import", "start", "written start", "child start", "task", "end", "written end", "child end"]
    for text in heard if command == EMBEDDED else [*heard, "exit", "written exit", "child exit"]:
        assert f"{text} " in errors, text


def test_a_closed_standard_error_disturbs_no_tool_that_prints() -> None:
    script = f"exec {' '.join(RUN)} 2>&-"
    with Running("/bin/sh", "-c", script) as server:
        server.call(1, "say")
        assert text_of(server.message()) == "said"
        server.close_input()
        assert server.process.wait(30) == 0


# -- standard error that nobody reads


@contextmanager
def unread(kind: str, command: list[str]) -> Iterator[tuple[Running, int]]:
    """A server whose standard error nobody reads, and the other end of that."""
    if kind == "pipe":
        source, sink = os.pipe()
    else:
        source, sink = (end.detach() for end in socket.socketpair())
    server = Running(*command, stderr=sink)
    os.close(sink)
    try:
        with server:
            yield server, source
    finally:
        os.close(source)


@pytest.mark.parametrize("how", ["end of input", "SIGTERM"])
@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_standard_error_that_nobody_reads_stops_neither_answers_nor_the_end(kind: str, how: str) -> None:
    with unread(kind, RUN if how == "SIGTERM" else SERVE) as (server, _):
        for id in range(60):
            server.call(id, ("fail", "loud", "loud_child")[id % 3])
            assert server.message()["id"] == id
        ended(server, how)
        assert server.process.wait(30) == 0


def test_a_reader_that_comes_back_reads_how_much_was_dropped() -> None:
    with unread("pipe", RUN) as (server, source):
        for id in range(12):
            server.call(id, "loud")
            server.message()
        seen = b""
        while b"bytes of standard error were dropped" not in seen:
            seen += os.read(source, 65536)
        server.close_input()
        assert server.process.wait(30) == 0


def test_standard_error_that_was_sent_elsewhere_costs_no_time(tmp_path: Path) -> None:
    file = tmp_path / "elsewhere.py"
    file.write_text(
        "import os\nfrom trio_mcp import Server\nserver = Server('elsewhere', version='1')\n"
        f"os.dup2(os.open({str(tmp_path / 'log')!r}, os.O_WRONLY | os.O_CREAT), 2)\n"
        "@server.tool\ndef spent() -> float:\n    return sum(os.times()[:2])\n"
    )
    port = free_port()
    with unread("pipe", [*SERVE[:-1], str(file), "--http", f"127.0.0.1:{port}"]) as (server, _):
        seconds = []
        for _ in range(2):
            seconds.append(json.loads(http_call(port, "spent").partition("\r\n\r\n")[2])["result"]["structuredContent"])
            time.sleep(1)
        assert seconds[1] - seconds[0] < 0.3
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0


def test_http_output_that_nobody_reads_stops_nobody() -> None:
    port = free_port()
    with unread("pipe", [*SERVE, "--http", f"127.0.0.1:{port}"]) as (server, _):
        for _ in range(10):
            assert "said" in http_call(port, "loud")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0


def test_the_words_before_the_end_and_the_traceback_of_a_crash_come_out() -> None:
    with Running(*RUN) as server:
        server.call(1, "loud")
        server.message()
        server.close_input()
        errors = server.errors()
        assert (errors.count("p"), errors.count("e"), errors.count("w")) == (50_000, 50_000, 50_000)
    with Running(*RUN) as server:
        server.call(1, "crash")
        assert server.process.wait(30) == -signal.SIGSEGV
        errors = server.errors()
    assert "Segmentation fault" in errors
    assert "in crash" in errors


# -- the end


@pytest.mark.parametrize("how", ["end of input", "SIGTERM"])
@pytest.mark.parametrize("command", [RUN, SERVE], ids=["run", "serve"])
def test_the_lifespan_ends_in_order_and_may_take_its_time(command: list[str], how: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    limits = json.dumps({"drain_timeout": 1.0})
    with Running(*command, env={"LOG": str(log), "CLOSE": "2", "LIMITS": limits}) as server:
        server.call(1, "ping")
        server.message()
        ended(server, how)
        assert server.process.wait(30) == 0
        assert log.read_text().split() == ["in", "out"]
        assert server.errors() == ""


def test_the_lifespan_ends_in_order_over_http(tmp_path: Path) -> None:
    log, port = tmp_path / "log", free_port()
    limits = json.dumps({"drain_timeout": 1.0})
    env = {"LOG": str(log), "CLOSE": "2", "LIMITS": limits}
    with Running(*SERVE, "--http", f"127.0.0.1:{port}", env=env) as server:
        assert "pong" in http_call(port, "ping")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0
        assert log.read_text().split() == ["in", "out"]


def test_a_lifespan_that_takes_too_long_is_cancelled_and_named(tmp_path: Path) -> None:
    log = tmp_path / "log"
    limits = json.dumps({"lifespan_timeout": 0.3})
    with Running(*RUN, env={"LOG": str(log), "CLOSE": "60", "LIMITS": limits}) as server:
        server.call(1, "ping")
        server.message()
        server.close_input()
        assert server.process.wait(30) == 0
        assert "the lifespan of 'citizen' did not end within 0.3 s" in server.errors()
        assert log.read_text().split() == ["in"]


@pytest.mark.parametrize("how", ["end of input", "SIGTERM"])
@pytest.mark.parametrize(
    "what, blame",
    [
        ("block", "a handler did not end within 1.4 s"),
        ("block_task", "a task did not end within 1.7 s (shielded, or blocking)"),
        ("lifespan", "the lifespan did not end within 1.2 s"),
        ("child", "a thread or a child process did not end within 0.4 s"),
    ],
)
def test_who_does_not_end_is_named_and_not_waited_for(what: str, blame: str, how: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    limits = {"drain_timeout": 0.2, "task_settle": 0.1, "lifespan_timeout": 0.2, "exit_timeout": 0.4}
    env = {"LOG": str(log), "LIMITS": json.dumps(limits), **({"HOLD": "60"} if what == "lifespan" else {})}
    with Running(*RUN, env=env) as server:
        server.call(1, "ping")
        server.message()
        if what.startswith("block"):
            call_as_task(server, 2, what)
            wait_for(log, "blocking")
            if what == "block_task":
                # A call whose input has ended does not become a task any more.
                assert server.message()["result"]["resultType"] == "task"
        elif what == "child":
            server.call(2, "leave", daemon=False)
            server.message()
        begin = time.monotonic()
        ended(server, how)
        assert server.process.wait(30) == 1
        assert time.monotonic() - begin < 20
        # Read while the child may live on: it does not hold this stream.
        assert f"citizen: {blame}" in server.errors()


# -- signals


def test_a_signal_that_was_ignored_at_the_start_stays_ignored() -> None:
    with Running("/bin/sh", "-c", 'trap "" HUP INT; exec "$@"', "sh", *SERVE) as server:
        server.call(1, "ping")
        server.message()
        for number in (signal.SIGHUP, signal.SIGINT):
            server.process.send_signal(number)
        server.call(2, "ping")
        assert text_of(server.message()) == "pong"
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0


def test_a_client_command_under_nohup_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "log"
    file = tmp_path / "slow.py"
    file.write_text(
        "import trio\nfrom trio_mcp import Server\nserver = Server('slow')\n"
        f"@server.tool\nasync def slow() -> str:\n    open({str(log)!r}, 'w').write('begun')\n"
        "    await trio.sleep(1)\n    return 'slept'\n"
    )
    command = [sys.executable, "-m", "trio_mcp", "call", str(file), "slow"]
    with Running("/bin/sh", "-c", 'trap "" HUP; exec "$@"', "sh", *command) as client:
        wait_for(log, "begun")
        client.process.send_signal(signal.SIGHUP)
        assert client.line(20) == b"slept"
        assert client.process.wait(30) == 0


# -- children


def test_a_forked_child_has_the_handlers_from_before_the_server() -> None:
    with Running(*RUN) as server:
        server.call(1, "handlers")
        found = server.message()["result"]["structuredContent"]
    assert found == [str(signal.SIG_DFL), str(signal.SIG_DFL), str(signal.default_int_handler), "-1"]


def test_workers_die_of_sigterm_and_pools_end() -> None:
    with Running(*RUN) as server:
        server.call(1, "terminated")
        assert server.message(50)["result"]["structuredContent"] == [-signal.SIGTERM] * 20
        for id in range(10):
            server.call(id, "pool")
            assert "9" in server.message(20)["result"]["structuredContent"]
        # None of these signals was taken for one to the server.
        server.call(11, "ping")
        assert text_of(server.message()) == "pong"


@pytest.mark.parametrize("how", ["end of input", "SIGTERM"])
def test_a_daemonic_child_that_is_left_does_not_hold_the_end(how: str) -> None:
    with Running(*RUN, env={"LIMITS": '{"drain_timeout": 60, "exit_timeout": 60}'}) as server:
        server.call(1, "leave", daemon=True)
        pid = server.message()["result"]["structuredContent"]
        begin = time.monotonic()
        ended(server, how)
        assert server.process.wait(30) == 0
        assert time.monotonic() - begin < 20
        assert not Path(f"/proc/{pid}").exists()


def test_a_daemonic_child_that_is_left_does_not_hold_the_end_over_http() -> None:
    port, env = free_port(), {"LIMITS": '{"drain_timeout": 60, "exit_timeout": 60}'}
    with Running(*SERVE, "--http", f"127.0.0.1:{port}", env=env) as server:
        http_call(port, "leave", daemon=True)
        begin = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0
        assert time.monotonic() - begin < 20


# -- open files


@pytest.mark.parametrize("hard", [256, 2048])
def test_connections_leave_room_for_open_files(hard: int) -> None:
    port = free_port()
    script = f'ulimit -S -n 256; ulimit -H -n {hard}; exec "$@"'
    with Running("/bin/sh", "-c", script, "sh", *SERVE, "--http", f"127.0.0.1:{port}") as server:
        http_call(port, "ping")
        with socket.create_connection(("127.0.0.1", port)) as first:
            crowd = [socket.create_connection(("127.0.0.1", port)) for _ in range(300)]
            try:
                assert "root" in http_call(port, "read", first)
            finally:
                for peer in crowd:
                    peer.close()
        soft = Path(f"/proc/{server.process.pid}/limits").read_text().split("Max open files")[1].split()[0]
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0
        errors = server.errors()
    assert errors.count("connections at once instead of 1024") == (1 if hard == 256 else 0)
    assert "cannot accept" not in errors
    assert int(soft) == 256 if hard == 256 else int(soft) > 1024 + 128


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def http_call(port: int, tool: str, peer: socket.socket | None = None, **arguments: Any) -> str:
    """One call over HTTP/1.1; waits until the server listens. Returns the body of the answer."""
    end = time.monotonic() + 60
    opened = None
    while peer is None:
        try:
            peer = opened = socket.create_connection(("127.0.0.1", port), timeout=20)
        except ConnectionRefusedError:
            assert time.monotonic() < end
            time.sleep(0.02)
    peer.settimeout(20)
    body = json.dumps(request(1, "tools/call", name=tool, arguments=arguments)).encode()
    head = [
        *("POST /mcp HTTP/1.1", "Host: localhost", "Content-Type: application/json"),
        *("Accept: application/json, text/event-stream", "MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call"),
        *(f"Mcp-Name: {tool}", f"Content-Length: {len(body)}"),
    ]
    peer.sendall("\r\n".join(head).encode() + b"\r\n\r\n" + body)
    seen = b""
    while b"}" not in seen:
        data = peer.recv(65536)
        assert data, seen
        seen += data
    if opened is not None:
        opened.close()
    return seen.decode()
