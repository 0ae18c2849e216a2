"""What is measured over HTTP: start, memory, `echo` on 1, 32 and 128 connections, a list of 100 tools, how fast a
handler hears that its client is gone, and what an open event stream costs.

Every round measures every server in fresh processes, and the order moves on by one from round to round.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final

from . import processes
from .events import CANCELS, SLOW_SECONDS, Events
from .http_load import Http1Load, HttpSocket, keep_busy
from .load import Figures
from .processes import Cores
from .results import Result, in_rounds, least_disturbed
from .servers import HTTP_SERVERS, OURS, Ready
from .table import Measure, Target, median
from .wire import TEXT, PostTemplate

__all__ = ["CONNECTIONS", "ECHO", "MEASURES", "PATIENCE", "HttpProcess", "measure", "slow_call", "targets"]

CONNECTIONS: Final = (1, 32, 128)
STARTS: Final = 2
"""Starts of each server in a round."""
TOOLS: Final = 100
STREAMS: Final = 400
"""Event streams that are open at once."""
PATIENCE: Final = 30.0

ECHO: Final = PostTemplate("tools/call", {"name": "echo", "arguments": {"text": TEXT}})
_LIST: Final = PostTemplate("tools/list")

MEASURES: Final = (
    Measure("start_ms", "process start to first answer, ms"),
    Measure("rss_mb", "resident after the first answer, MB", 1),
    Measure("rss_mb_load", "resident after the load, MB", 1),
    *(
        row
        for count in CONNECTIONS
        for row in (
            Measure(f"per_second_{count}", f"`echo`, {count} connection{'s' * (count > 1)}: calls/s"),
            Measure(f"cpu_us_{count}", "- server's CPU a call, µs", 1),
            Measure(f"p50_ms_{count}", "- latency p50, ms", 3),
            Measure(f"p99_ms_{count}", "- latency p99, ms", 3),
        )
    ),
    Measure("per_second_list", f"`tools/list` of {TOOLS} tools, 32 connections: calls/s"),
    Measure("cpu_us_list", "- server's CPU a call, µs", 1),
    Measure("cancel_ms_json", "client gone to the tool's clean-up, before an answer, ms", 2, "cancelled_json"),
    Measure("cancel_ms_sse", "the same, in an event stream, ms", 2, "cancelled_sse"),
    Measure("stream_kib", "an open event stream, KiB", 1),
)


class HttpProcess:
    """A server under test. A context manager: leaving it ends the server."""

    def __init__(self, command: Sequence[str], cores: Cores, env: Mapping[str, str] | None = None) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self._process = processes.spawn([*command, str(self.port)], cores, env)
        self.pid = self._process.pid

    def __enter__(self) -> HttpProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        processes.stop(self._process, by_input=False)

    def connect(self) -> HttpSocket:
        """A connection, as soon as the server listens.

        Raises:
            EOFError: the server has ended.
            TimeoutError: it never listens.
        """
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                return HttpSocket(self.port, PATIENCE)
            except ConnectionRefusedError:
                if self._process.poll() is not None:
                    raise EOFError(f"the server exited with {self._process.returncode}") from None
                time.sleep(0.001)
        raise TimeoutError(f"the server did not listen within {PATIENCE:g} s")

    def ask(self, template: PostTemplate = ECHO, expected: bytes = TEXT.encode()) -> None:
        """One request on a connection of its own.

        Raises:
            RuntimeError: the answer is wrong.
        """
        connection = self.connect()
        try:
            answer = connection.ask(template.to(self.port)(1))
        finally:
            connection.close()
        if expected not in answer:
            raise RuntimeError(f"a wrong answer: {answer[:300].decode(errors='replace')}")

    def load(
        self,
        cores: Cores,
        connections: int,
        duration: float,
        template: PostTemplate = ECHO,
        expected: bytes = TEXT.encode(),
        counting: Callable[[bool], None] = lambda begins: None,
    ) -> Figures:
        """Keep it busy."""
        load = Http1Load(self.port, template, expected)
        return keep_busy(load, self.pid, cores, connections, duration, counting=counting)


def measure(servers: Mapping[str, Ready], cores: Cores, rounds: int, duration: float) -> dict[str, Result]:
    """Measure all servers, interleaved."""
    return in_rounds(
        list(servers),
        rounds,
        lambda name: _start(servers[name], cores),
        lambda name, result: _round(name, servers[name], cores, duration, result),
    )


def targets(results: Mapping[str, Result]) -> list[Target]:
    """How ours stands with what is wanted of it."""
    ours = results.get(OURS)

    def over(key: str, names: Sequence[str]) -> float | None:
        value = median(ours, key)
        others = [other for name in names if (other := median(results.get(name), key))]
        return value / max(others) if value is not None and others else None

    peers = [name for name, row in HTTP_SERVERS.items() if row.peer and name != OURS]
    idle, loaded = median(ours, "rss_mb"), median(ours, "rss_mb_load")
    rows = [
        Target(f"calls/s, {count} connection{'s' * (count > 1)}, ÷ the fastest peer's", value, bound, False, " ×")
        for count, bound in zip(CONNECTIONS, (1.8, 2.0, 2.0), strict=True)
        for value in [over(f"per_second_{count}", peers)]
    ]
    rows += [
        Target(f"calls/s, {count} connection{'s' * (count > 1)}, ÷ mcp's", value, 4.0, False, " ×")
        for count in CONNECTIONS
        for value in [over(f"per_second_{count}", ["mcp"])]
    ]
    return [
        *rows,
        Target("CPU a call with 32 connections, µs", median(ours, "cpu_us_32"), 140.0, True),
        Target("lists/s, ÷ the fastest peer's", over("per_second_list", peers), 10.0, False, " ×"),
        Target("client gone to clean-up, before an answer, ms", median(ours, "cancel_ms_json"), 1.0, True),
        Target("client gone to clean-up, in an event stream, ms", median(ours, "cancel_ms_sse"), 1.0, True),
        Target("an open event stream, KiB", median(ours, "stream_kib"), 15.0, True),
        Target("resident, idle, MB", idle, 42.0, True),
        Target("resident after the load, ÷ idle", loaded / idle if loaded and idle else None, 1.1, True, " ×"),
    ]


def _round(name: str, ready: Ready, cores: Cores, duration: float, result: Result) -> None:
    for _ in range(STARTS):
        processes.wait_quiet(cores, 5)
        seconds, rss = _start(ready, cores)
        result.add("start_ms", seconds * 1e3)
        result.add("rss_mb", rss)
    _calls(ready, cores, duration, result)
    _list(ready, cores, duration, result)
    row = HTTP_SERVERS[name]
    if row.slow:
        _cancel(ready, cores, "json", result)
    if row.slow and row.streams:
        _cancel(ready, cores, "sse", result)
        _streams(ready, cores, result)


def _start(ready: Ready, cores: Cores) -> tuple[float, float]:
    """Seconds from the start of the process to its first answer to `echo`; its memory a little later."""
    begin = time.perf_counter()
    with HttpProcess(ready.command, cores) as server:
        server.ask()
        seconds = time.perf_counter() - begin
        time.sleep(0.3)
        return seconds, processes.rss_mb(server.pid)


def _calls(ready: Ready, cores: Cores, duration: float, result: Result) -> None:
    with HttpProcess(ready.command, cores) as server:
        server.ask()
        # Long enough for a compiler to have seen everything.
        server.load(cores, 32, 1.5)
        for count in CONNECTIONS:
            result.add_load(str(count), least_disturbed(cores, partial(server.load, cores, count, duration)))
        time.sleep(1)
        result.add("rss_mb_load", processes.rss_mb(server.pid))


def _list(ready: Ready, cores: Cores, duration: float, result: Result) -> None:
    expected = b'"tool_%d"' % (TOOLS - 4)
    with HttpProcess(ready.command, cores, {"BENCH_TOOLS": str(TOOLS)}) as server:
        server.ask(_LIST, expected)
        figures = least_disturbed(cores, lambda: server.load(cores, 32, duration, _LIST, expected))
        result.add_load("list", figures)


def slow_call(tag: str, seconds: float, sse: bool) -> PostTemplate:
    """A call of the `slow` tool, as an event stream or not."""
    arguments: dict[str, Any] = {"seconds": seconds, "tag": tag}
    if sse:
        arguments["progress"] = True
    return PostTemplate("tools/call", {"name": "slow", "arguments": arguments}, token=sse)


def _cancel(ready: Ready, cores: Cores, how: str, result: Result) -> None:
    """From the client's hanging up until the clean-up code of the tool runs."""
    with Events() as events, HttpProcess(ready.command, cores, events.env) as server:
        server.ask()
        for number in range(CANCELS):
            tag = f"call-{number}"
            connection = server.connect()
            connection.sock.sendall(slow_call(tag, SLOW_SECONDS, how == "sse").to(server.port)(number))
            events.await_start(tag)
            if how == "sse":
                connection.wait_for(b"notifications/progress")
            begin = time.monotonic_ns()
            connection.close()
            took = events.until_cancelled(tag, begin)
            result.add(f"cancelled_{how}", float(took is not None))
            if took is not None:
                result.add(f"cancel_ms_{how}", took)
            elif number == 2 and not any(result.figures[f"cancelled_{how}"]):
                return


def _streams(ready: Ready, cores: Cores, result: Result) -> None:
    """What one more event stream costs, with a tool that is silent after its first progress."""
    with HttpProcess(ready.command, cores, {"BENCH_PLACES": str(STREAMS + 10)}) as server:
        server.ask()
        request = slow_call("stream", 60, True).to(server.port)
        open_now: list[HttpSocket] = []

        def more(count: int) -> float:
            for _ in range(count):
                open_now.append(server.connect())
                open_now[-1].sock.sendall(request(len(open_now)))
                open_now[-1].wait_for(b"notifications/progress")
            time.sleep(0.5)
            return processes.rss_mb(server.pid)

        try:
            # The first ones load code and open caches.
            before = more(20)
            after = more(STREAMS - 20)
        finally:
            for connection in open_now:
                connection.close()
        result.add("stream_kib", (after - before) * 1e6 / 1024 / (STREAMS - 20))
