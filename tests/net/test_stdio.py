"""The server on real pipes: life and death of the process, framing, noise, cancellation, latency."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from trio_mcp.testing import request

from .helpers import SERVERS, Running
from .needs import need


def text_of(message: dict[str, Any]) -> str:
    text: str = message["result"]["content"][0]["text"]
    return text


def wait_events(path: Path, count: int, timeout: float = 30) -> list[tuple[str, int]]:
    """The events in a log file, once there are enough of them."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        lines = path.read_text().splitlines() if path.exists() else []
        if len(lines) >= count:
            return [(line.split()[0], int(line.split()[1])) for line in lines]
        time.sleep(0.0005)
    raise TimeoutError(f"{count} events expected, {lines} came")


# -- the end of the process


def test_a_null_input_ends_the_server_at_once() -> None:
    with Running("tools.py", stdin=subprocess.DEVNULL) as server:
        assert server.process.wait(30) == 0
        assert server.line() is None
        assert server.errors() == ""


def test_a_regular_file_as_input_is_served_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "requests"
    path.write_text(json.dumps(request(1, "server/discover")))
    with path.open() as file, Running("tools.py", stdin=file) as server:
        assert server.message()["result"]["supportedVersions"] == ["2026-07-28"]
        assert server.process.wait(30) == 0


@pytest.mark.parametrize("how", ["end of input", "SIGTERM", "SIGINT"])
def test_every_ending_is_quick_and_clean_and_cancels_what_still_runs(how: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Running("tools.py", env={"LOG": str(log), "LIMITS": '{"drain_timeout": 0.8}'}) as server:
        server.send(request(1, "tools/call", name="slow", arguments={"seconds": 60}, meta={"progressToken": 1}))
        server.call(2, "slow", seconds=0.2)
        assert server.message()["method"] == "notifications/progress"
        begin = time.monotonic()
        if how == "end of input":
            server.close_input()
        else:
            server.process.send_signal(signal.Signals[how])
        # The answer of the call that can finish is written first.
        assert server.message()["id"] == 2
        # The other client is told, in the end, and hears nothing more.
        given_up = server.message()
        assert (given_up["id"], given_up["error"]["code"]) == (1, 504)
        assert server.line() is None
        assert server.process.wait(30) == 0
        assert 0.7 < time.monotonic() - begin < 20
        assert len(wait_events(log, 2)) == 2
        assert server.errors() == ""


@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT"])
def test_an_idle_server_ends_without_one_more_byte(how: str) -> None:
    with Running("tools.py", env={"LIMITS": '{"drain_timeout": 60}'}) as server:
        server.call(1, "echo", text="up")
        server.message()
        begin = time.monotonic()
        server.process.send_signal(signal.Signals[how])
        assert server.process.wait(30) == 0
        assert time.monotonic() - begin < 20
        assert server.errors() == ""


def test_a_program_that_serves_for_a_while_gets_its_streams_back() -> None:
    with Running("embedded.py") as server:
        server.call(1, "echo", text="inside")
        assert text_of(server.message()) == "inside"
        server.process.send_signal(signal.SIGUSR1)
        assert server.line() == b"after"
        assert server.process.wait(30) == 0


def test_cancelling_the_scope_around_serve_stdio_drains_and_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Running("embedded.py", env={"LOG": str(log), "LIMITS": '{"drain_timeout": 0.8}'}) as server:
        for id, seconds in ((1, 60), (2, 0.3)):
            server.send(
                request(id, "tools/call", name="slow", arguments={"seconds": seconds}, meta={"progressToken": id})
            )
        assert {server.message()["params"]["progressToken"] for _ in range(2)} == {1, 2}
        server.process.send_signal(signal.SIGUSR1)
        assert server.message()["id"] == 2
        given_up = server.message()
        assert (given_up["id"], given_up["error"]["code"]) == (1, 504)
        assert server.line() == b"after"
        assert server.process.wait(30) == 0
        assert [event for event, _ in wait_events(log, 2)] == ["finally", "finally"]


def test_a_thread_that_cannot_be_stopped_does_not_hold_the_process() -> None:
    with Running("tools.py", env={"LIMITS": '{"drain_timeout": 0.3}'}) as server:
        server.call(1, "thread", seconds=60)
        server.call(2, "echo", text="up")
        server.message()
        begin = time.monotonic()
        server.close_input()
        assert server.process.wait(30) == 0
        assert time.monotonic() - begin < 20


def test_a_client_that_stops_reading_and_vanishes_leaves_nothing_behind() -> None:
    with Running("tools.py") as server:
        for id in range(30):
            server.call(id, "big", size=200_000)
        assert server.process.stdout is not None
        server.line()
        server.process.stdout.close()
        server.close_input()
        assert server.process.wait(30) == 0
        assert server.errors() == ""


def test_a_client_that_is_gone_is_not_waited_for(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Running("tools.py", env={"LOG": str(log), "LIMITS": '{"drain_timeout": 60}'}) as server:
        server.call(1, "slow", seconds=60)
        server.call(2, "echo", text="up")
        server.message()
        assert server.process.stdout is not None
        begin = time.monotonic()
        server.process.stdout.close()
        server.close_input()
        assert server.process.wait(30) == 0
        assert time.monotonic() - begin < 20
        assert [event for event, _ in wait_events(log, 1)] == ["finally"]


@pytest.mark.parametrize("how", ["end of input", "SIGTERM", "two signals"])
def test_a_handler_that_cannot_be_cancelled_does_not_keep_the_process(how: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    limits = {"drain_timeout": 60 if how == "two signals" else 0.3}
    with Running("tools.py", env={"LOG": str(log), "LIMITS": json.dumps(limits)}) as server:
        if how == "two signals":
            server.send(request(4, "subscriptions/listen", notifications={"toolsListChanged": True}))
            assert server.message()["method"] == "notifications/subscriptions/acknowledged"
        server.call(1, "stubborn", seconds=60)
        server.call(3, "slow", seconds=60)
        server.call(2, "echo", text="up")
        server.message()
        if how == "end of input":
            server.close_input()
        else:
            server.process.send_signal(signal.SIGTERM)
        if how == "two signals":
            # Listening is over, so the first one was heard; the drain goes on for long.
            while server.message().get("id") != 4:
                pass
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(30) == -signal.SIGTERM
        else:
            assert server.process.wait(30) == 1
            # Twice the time of the drain, for requests and for tasks, and a second.
            assert "a handler did not end within 1.6 s (shielded, or blocking)" in server.errors()


# -- what is on standard output


def test_noise_lands_on_standard_error_and_only_messages_on_standard_output() -> None:
    with Running("tools.py") as server:
        server.call(1, "noise")
        server.call(2, "echo", text="a\u2028b\u0085c\u000b")
        answers = {(answer := server.message())["id"]: answer for _ in range(2)}
        server.close_input()
        assert server.line() is None
        assert (text_of(answers[1]), text_of(answers[2])) == ("made noise", "a\u2028b\u0085c\u000b")
        errors = server.errors()
    for noise in ("printed", "written", "logged", "of a child", "''"):
        assert noise in errors


def test_lines_end_in_a_line_feed_alone() -> None:
    with Running("tools.py") as server:
        assert server.process.stdin is not None
        server.process.stdin.write(json.dumps(request(1, "tools/list")).encode() + b"\r\n")
        line = server.line()
        assert line is not None
        assert not line.endswith(b"\r")


def test_answers_larger_than_the_pipe_stall_nobody() -> None:
    need("/proc")
    with Running("tools.py") as server:
        for id in range(20):
            server.call(id, "big", size=1 << 20)
        server.call(20, "echo", text="quick")
        # The client is in no hurry to read; the server must neither stop nor pile everything up.
        most, since = 0, 0
        assert server.process.stdout is not None
        select.select([server.process.stdout], [], [], 10)
        # It answers. What is resident has stopped to grow when nothing was added for a while.
        while since < 20:
            resident = int(Path(f"/proc/{server.process.pid}/status").read_text().split("VmRSS:")[1].split()[0])
            since = since + 1 if resident <= most else 0
            most = max(most, resident)
            time.sleep(0.02)
        answers = [server.message() for _ in range(21)]
    assert sorted(answer["id"] for answer in answers) == list(range(21))
    assert most < 100_000, f"{most} KiB resident with 20 MiB of answers unread"


# -- cancellation over real pipes


def test_a_cancel_reaches_the_finally_within_a_millisecond(tmp_path: Path) -> None:
    log = tmp_path / "log"
    quick: list[float] = []
    with Running("tools.py", env={"LOG": str(log)}) as server:
        # A busy machine may spoil most of a series, and a series, not the next ones as well.
        for first in range(0, 105, 21):
            quick.append(sorted(cancel_latencies(server, log, range(first, first + 21)))[5])
            if quick[-1] < 1.0:
                break
        # Nothing was sent for any of them: the next line is the next answer.
        server.call(200, "echo", text="after")
        assert server.message()["id"] == 200
    assert min(quick) < 1.0, quick


def cancel_latencies(server: Running, log: Path, ids: range) -> list[float]:
    """Milliseconds from the cancel in the pipe to the handler's `finally`, one by one."""
    out: list[float] = []
    for id in ids:
        server.send(request(id, "tools/call", name="slow", arguments={"seconds": 30}, meta={"progressToken": id}))
        assert server.message()["params"]["progressToken"] == id
        begin = time.monotonic_ns()
        server.cancel(id)
        out.append((wait_events(log, id + 1)[-1][1] - begin) / 1e6)
    return out


def test_a_cancelled_thread_is_left_behind_and_its_answer_dropped(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Running("tools.py", env={"LOG": str(log)}) as server:
        server.call(1, "thread", seconds=0.2)
        wait_events(log, 1)
        server.cancel(1)
        server.call(2, "thread", seconds=0.5)
        # The first thread ends while the second one runs; only the second is answered.
        assert server.message()["id"] == 2
        server.close_input()
        assert server.line() is None


# -- descriptors


def test_no_descriptor_is_left_over() -> None:
    need("/proc")
    script = f"""
import os, sys
sys.path.insert(0, {str(SERVERS)!r})
import trio
from tools import server
from trio_mcp import serve_stdio
null = os.open(os.devnull, os.O_RDONLY)
os.dup2(null, 0)
os.close(null)
trio.run(serve_stdio, server)
before = sorted(os.listdir("/proc/self/fd"))
trio.run(serve_stdio, server)
after = sorted(os.listdir("/proc/self/fd"))
assert before == after, (before, after)
print("same")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=20)
    assert (done.stdout, done.stderr) == ("same\n", "")


def test_closed_standard_streams_are_a_clear_error() -> None:
    need("/bin/sh")
    done = subprocess.run(
        ["/bin/sh", "-c", f"exec {sys.executable} {SERVERS / 'tools.py'} <&- 2>&1"],
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == 1
    assert done.stdout == "tools: standard input is closed; a server on stdio needs it\n"


def test_the_terminal_is_left_blocking() -> None:
    # A pseudo terminal stands for the shell's: standard input, output and error are one open file.
    master, slave = os.openpty()
    process = subprocess.Popen(
        [sys.executable, str(SERVERS / "tools.py")], stdin=slave, stdout=slave, stderr=slave, start_new_session=True
    )
    try:
        os.write(master, json.dumps(request(1, "tools/call", name="echo", arguments={"text": "tty"})).encode() + b"\n")
        seen = b""
        while b'"result"' not in seen:
            seen += os.read(master, 4096)
        assert os.get_blocking(slave)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        os.close(master)
        os.close(slave)
