"""What is measured over a pipe: start, memory, `echo` with 1 and 32 in flight, and how fast a cancellation arrives.

Every round measures every server, each in fresh processes, and the order moves on by one from round to round.
"""

from __future__ import annotations

import json
import os
import select
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from . import processes
from .load import keep_in_flight
from .processes import Cores
from .servers import Ready
from .wire import TEXT, CallTemplate, cancelled, request

__all__ = ["WINDOWS", "Pipe", "Result", "measure"]

WINDOWS: Final = (1, 32)
STARTS: Final = 3
"""Starts of each server in a round."""
CANCELS: Final = 10
"""Cancellations of each server in a round."""
TRIES: Final = 3
"""How often a run is repeated while others keep the server's core busy; the least disturbed one counts."""
SLOW_SECONDS: Final = 1.5
PATIENCE: Final = 30.0


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


@dataclass
class Result:
    """What was measured of one server: a list of figures a measure, one a run.

    Attributes:
        problem: Why it could not be measured (further), if so.
        figures: By the name of the measure.
        runs: The load runs in full.
    """

    problem: str | None = None
    figures: dict[str, list[float]] = field(default_factory=dict)
    runs: list[dict[str, Any]] = field(default_factory=list)

    def add(self, measure: str, value: float) -> None:
        """Note one figure."""
        self.figures.setdefault(measure, []).append(value)


def measure(servers: Mapping[str, Ready], cores: Cores, rounds: int, duration: float) -> dict[str, Result]:
    """Measure all servers, interleaved. A server that fails is left out from there on, with its problem noted."""
    results = {name: Result() for name in servers}
    names = list(servers)
    for name in names:
        # Once before anything counts: byte code is compiled, files are in memory.
        _attempt(results[name], lambda name=name: _start(servers[name], cores))
    for number in range(rounds):
        shift = number % len(names) if names else 0
        for name in names[shift:] + names[:shift]:
            print(f"round {number + 1} of {rounds}: {name}", file=sys.stderr, flush=True)
            result = results[name]
            _attempt(result, lambda name=name, result=result: _round(servers[name], cores, duration, result))
    return results


def _attempt(result: Result, work: Any) -> None:
    if result.problem is not None:
        return
    try:
        work()
    except (OSError, EOFError, RuntimeError, ValueError) as exc:
        result.problem = f"{type(exc).__name__}: {exc}"


def _round(ready: Ready, cores: Cores, duration: float, result: Result) -> None:
    for _ in range(STARTS):
        processes.wait_quiet(cores, 5)
        seconds, rss, pss = _start(ready, cores)
        result.add("start_ms", seconds * 1e3)
        result.add("rss_mb", rss)
        result.add("pss_mb", pss)
    for window in WINDOWS:
        _load(ready, cores, window, duration, result)
    _cancel(ready, cores, result)


def _start(ready: Ready, cores: Cores) -> tuple[float, float, float]:
    """Seconds from the start of the process to its first answer to `echo`; its memory then."""
    call = CallTemplate("echo", {"text": TEXT}).line(1)
    begin = time.perf_counter()
    with Pipe(ready.command, cores) as pipe:
        pipe.ask(1, call)
        seconds = time.perf_counter() - begin
        return seconds, processes.rss_mb(pipe.pid), processes.pss_mb(pipe.pid)


def _load(ready: Ready, cores: Cores, window: int, duration: float, result: Result) -> None:
    best = None
    for _ in range(TRIES):
        processes.wait_quiet(cores, 10)
        with Pipe(ready.command, cores) as pipe:
            pipe.ask(1, request(1, "server/discover"))
            figures = keep_in_flight(pipe, pipe.pid, cores, window, duration)
            rss = processes.rss_mb(pipe.pid)
        if best is None or figures.foreign_share < best[0].foreign_share:
            best = figures, rss
        if not figures.noisy:
            break
    assert best is not None
    figures, rss = best
    if figures.errors:
        raise RuntimeError(f"{figures.errors} of {figures.calls} answers were wrong")
    for name in ("per_second", "p50_ms", "p99_ms", "cpu_us"):
        result.add(f"{name}_{window}", getattr(figures, name))
    result.add(f"rss_mb_{window}", rss)
    result.runs.append({"window": window, "noisy": figures.noisy, "bounded": figures.bounded, **asdict(figures)})


def _cancel(ready: Ready, cores: Cores, result: Result) -> None:
    """From `notifications/cancelled` until the clean-up code of the tool runs; both sides read one clock."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        log.touch()
        with Pipe(ready.command, cores, {"SLOW_LOG": str(log)}) as pipe, log.open() as events:
            pipe.ask(1, request(1, "server/discover"))
            for number in range(CANCELS):
                tag, id = f"call-{number}", 1000 + number
                pipe.send(CallTemplate("slow", {"seconds": SLOW_SECONDS, "tag": tag}).line(id))
                if _await_event(events, tag, 5) is None:
                    raise RuntimeError("the slow tool did not start")
                time.sleep(0.02)
                begin = time.monotonic_ns()
                pipe.send(cancelled(id))
                event = _await_event(events, tag, SLOW_SECONDS + 1.5)
                stopped = event is not None and event[0] == "cancelled"
                result.add("cancelled", float(stopped))
                if stopped and event is not None:
                    result.add("cancel_ms", (event[1] - begin) / 1e6)
                elif number == 2 and not any(result.figures["cancelled"]):
                    return


def _await_event(events: Any, tag: str, timeout: float) -> tuple[str, int] | None:
    """The next event of a call, with its time."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        line = events.readline()
        if not line:
            time.sleep(0.001)
            continue
        event, of, moment = line.split()
        if of == tag:
            return event, int(moment)
    return None
