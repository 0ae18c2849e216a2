"""What is measured over a pipe: start, memory, `echo` with 1 and 32 in flight (one write a call, and many calls a
write), and how fast a cancellation arrives.

Every round measures every server, each in fresh processes, and the order moves on by one from round to round.
"""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final

from . import processes
from .events import CANCELS, SLOW_SECONDS, Events
from .load import Figures, keep_in_flight
from .processes import Cores
from .results import Result, in_rounds, least_disturbed
from .servers import OURS, Ready
from .table import Measure, Target, median
from .wire import TEXT, CallTemplate, cancelled, hello, initialized, request

__all__ = ["LOADS", "MEASURES", "Pipe", "begin", "measure", "targets"]

LOADS: Final = {"1": (1, False), "32": (32, False), "32_batched": (32, True)}
"""Calls in flight, and whether they are written in batches, by the name of the figures."""
STARTS: Final = 3
"""Starts of each server in a round."""
PATIENCE: Final = 30.0

MEASURES: Final = (
    Measure("start_ms", "process start to first answer, ms"),
    Measure("rss_mb", "resident after the first answer, MB", 1),
    Measure("pss_mb", "the same, shared pages in proportion, MB", 1),
    Measure("rss_mb_32", "resident after the load with 32 in flight, MB", 1),
    Measure("per_second_1", "`echo`, 1 in flight: calls/s"),
    Measure("cpu_us_1", "- server's CPU a call, µs", 1),
    Measure("p50_ms_1", "- latency p50, ms", 3),
    Measure("p99_ms_1", "- latency p99, ms", 3),
    Measure("per_second_32", "`echo`, 32 in flight, one write a call: calls/s"),
    Measure("cpu_us_32", "- server's CPU a call, µs", 1),
    Measure("p50_ms_32", "- latency p50, ms", 3),
    Measure("p99_ms_32", "- latency p99, ms", 3),
    Measure("per_second_32_batched", "`echo`, 32 in flight, batched writes: calls/s"),
    Measure("cpu_us_32_batched", "- server's CPU a call, µs", 1),
    Measure("p50_ms_32_batched", "- latency p50, ms", 3),
    Measure("p99_ms_32_batched", "- latency p99, ms", 3),
    Measure("cancel_ms", "`notifications/cancelled` to the tool's clean-up, ms", 2, "cancelled"),
)


class Pipe:
    """A server under test, and the pipes to it. A context manager: leaving it ends the server."""

    def __init__(self, command: Sequence[str], cores: Cores, env: Mapping[str, str] | None = None) -> None:
        self._process = processes.spawn(command, cores, env)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._write, self._read = self._process.stdin.fileno(), self._process.stdout.fileno()
        self._held = b""
        self.pid = self._process.pid

    def __enter__(self) -> Pipe:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        processes.stop(self._process)

    def send(self, data: bytes) -> None:
        """Send whole messages."""
        view = memoryview(data)
        while view:
            view = view[os.write(self._write, view) :]

    def lines(self) -> list[bytes]:
        """The messages that have come in, at least one."""
        while True:
            end = self._held.rfind(b"\n")
            if end >= 0:
                lines, self._held = self._held[:end].split(b"\n"), self._held[end + 1 :]
                return lines
            if not self.readable(PATIENCE):
                raise TimeoutError(f"no answer within {PATIENCE:g} s")
            data = os.read(self._read, 1 << 16)
            if not data:
                raise EOFError("the server ended its output")
            self._held += data

    def readable(self, timeout: float) -> bool:
        """Whether something comes in within this time."""
        return bool(self._held or select.select([self._read], [], [], timeout)[0])

    def ask(self, id: int, line: bytes) -> dict[str, Any]:
        """Send one request and wait for its answer.

        Raises:
            RuntimeError: it is an error.
        """
        self.send(line)
        while True:
            for answer in self.lines():
                message: dict[str, Any] = json.loads(answer)
                if message.get("id") == id:
                    if "result" not in message:
                        raise RuntimeError(f"refused: {answer[:200].decode(errors='replace')}")
                    return message


def begin(pipe: Pipe, legacy: bool) -> None:
    """Open a session, in the revisions that have some, or ask what the server is."""
    if legacy:
        pipe.ask(1, hello(1))
        pipe.send(initialized())
    else:
        pipe.ask(1, request(1, "server/discover"))


def measure(
    servers: Mapping[str, Ready], cores: Cores, rounds: int, duration: float, *, legacy: bool = False
) -> dict[str, Result]:
    """Measure all servers, interleaved.

    Args:
        servers: By name.
        cores: Which core is whose.
        rounds: How many.
        duration: Seconds of each load run.
        legacy: Whether in sessions.
    """
    return in_rounds(
        list(servers),
        rounds,
        # Once before anything counts: byte code is compiled, files are in memory.
        lambda name: _start(servers[name], cores, legacy),
        lambda name, result: _round(servers[name], cores, duration, result, legacy),
    )


def targets(results: Mapping[str, Result]) -> list[Target]:
    """How ours stands with what is wanted of it."""

    def ratio(key: str, peer: str) -> float | None:
        value, other = median(results.get(OURS), key), median(results.get(peer), key)
        return value / other if value is not None and other else None

    return [
        Target("start, ÷ TypeScript's", ratio("start_ms", "typescript"), 1.0, True, " ×"),
        Target("resident after the load, MB", median(results.get(OURS), "rss_mb_32"), 40.0, True),
        Target("calls/s with 1 in flight, ÷ mcp's", ratio("per_second_1", "mcp"), 4.0, False, " ×"),
        Target("calls/s with 32 in flight, ÷ mcp's", ratio("per_second_32", "mcp"), 6.0, False, " ×"),
    ]


def _round(ready: Ready, cores: Cores, duration: float, result: Result, legacy: bool) -> None:
    for _ in range(STARTS):
        processes.wait_quiet(cores, 5)
        seconds, rss, pss = _start(ready, cores, legacy)
        result.add("start_ms", seconds * 1e3)
        result.add("rss_mb", rss)
        result.add("pss_mb", pss)
    for label in LOADS:
        _load(ready, cores, label, duration, result, legacy)
    _cancel(ready, cores, result, legacy)


def _start(ready: Ready, cores: Cores, legacy: bool) -> tuple[float, float, float]:
    """Seconds from the start of the process to its first answer to `echo`; its memory then."""
    call = CallTemplate("echo", {"text": TEXT}, legacy=legacy).line(2)
    since = time.perf_counter()
    with Pipe(ready.command, cores) as pipe:
        if legacy:
            begin(pipe, True)
        pipe.ask(2, call)
        seconds = time.perf_counter() - since
        return seconds, processes.rss_mb(pipe.pid), processes.pss_mb(pipe.pid)


def _load(ready: Ready, cores: Cores, label: str, duration: float, result: Result, legacy: bool) -> None:
    window, batched = LOADS[label]
    memory: dict[Figures, float] = {}

    def run() -> Figures:
        with Pipe(ready.command, cores) as pipe:
            begin(pipe, legacy)
            figures = keep_in_flight(pipe, pipe.pid, cores, window, duration, batched=batched, legacy=legacy)
            memory[figures] = processes.rss_mb(pipe.pid)
        return figures

    figures = least_disturbed(cores, run)
    if figures.errors:
        raise RuntimeError(f"{figures.errors} of {figures.calls} answers were wrong")
    result.add_load(label, figures)
    result.add(f"rss_mb_{label}", memory[figures])


def _cancel(ready: Ready, cores: Cores, result: Result, legacy: bool) -> None:
    """From `notifications/cancelled` until the clean-up code of the tool runs."""
    with Events() as events, Pipe(ready.command, cores, events.env) as pipe:
        begin(pipe, legacy)
        for number in range(CANCELS):
            tag, id = f"call-{number}", 1000 + number
            pipe.send(CallTemplate("slow", {"seconds": SLOW_SECONDS, "tag": tag}, legacy=legacy).line(id))
            events.await_start(tag)
            since = time.monotonic_ns()
            pipe.send(cancelled(id))
            took = events.until_cancelled(tag, since)
            result.add("cancelled", float(took is not None))
            if took is not None:
                result.add("cancel_ms", took)
            elif number == 2 and not any(result.figures["cancelled"]):
                return
