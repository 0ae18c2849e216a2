"""The load: a number of calls kept in flight over one connection, whatever the connection is."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from .processes import Cores, busy_seconds, cpu_seconds
from .wire import TEXT, CallTemplate

__all__ = ["Connection", "Figures", "Meter", "keep_in_flight"]

_NOISE = 0.06
_BUSY_LOAD = 0.9


class Connection(Protocol):
    """A connection to a server under test. Blocking: the load is one thread."""

    def send(self, data: bytes) -> None:
        """Send whole messages."""

    def lines(self) -> list[bytes]:
        """The messages that have come in, at least one."""


@dataclass(frozen=True)
class Figures:
    """One run.

    Attributes:
        calls: How many calls were counted.
        errors: How many of them had a wrong answer.
        per_second: Calls a second.
        p50_ms: Half of the calls were answered in this time.
        p99_ms: 99 of 100 were.
        cpu_us: CPU time of the server a call, in microseconds.
        load_share: How much of its core the load took, 0 to 1.
        foreign_share: How much of the server's core other processes took.
    """

    calls: int
    errors: int
    per_second: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    load_share: float
    foreign_share: float

    @property
    def noisy(self) -> bool:
        """Whether others took too much of the server's core for the throughput to mean much."""
        return self.foreign_share > _NOISE

    @property
    def bounded(self) -> bool:
        """Whether the load was the bottleneck, so that the throughput is a lower bound."""
        return self.load_share > _BUSY_LOAD


class Meter:
    """CPU time and wall time while a load is counted.

    Args:
        pid: The server's process.
        cores: Which core is whose.
    """

    def __init__(self, pid: int, cores: Cores) -> None:
        self._pid = pid
        self._cores = cores
        self._begin = 0.0
        self._before = (0.0, 0.0, 0.0)

    def _read(self) -> tuple[float, float, float]:
        return cpu_seconds(self._pid), busy_seconds(self._cores.server), time.process_time()

    def start(self) -> None:
        """Counting begins."""
        self._begin = time.perf_counter()
        self._before = self._read()

    def figures(self, took: list[int], errors: int) -> Figures:
        """Counting ends.

        Args:
            took: Nanoseconds of every call that was counted.
            errors: How many of them had a wrong answer.

        Raises:
            RuntimeError: there were none.
        """
        wall = time.perf_counter() - self._begin
        cpu, busy, own = (now - then for now, then in zip(self._read(), self._before, strict=True))
        foreign = busy - cpu - (own if self._cores.shared else 0)
        calls = len(took)
        if not calls:
            raise RuntimeError("no call was answered in time")
        took.sort()
        return Figures(
            calls=calls,
            errors=errors,
            per_second=calls / wall,
            p50_ms=took[calls // 2] / 1e6,
            p99_ms=took[int(calls * 0.99)] / 1e6,
            cpu_us=cpu / calls * 1e6,
            load_share=own / wall,
            foreign_share=max(0.0, foreign / wall),
        )


def keep_in_flight(
    connection: Connection,
    pid: int,
    cores: Cores,
    window: int,
    duration: float,
    *,
    batched: bool = False,
    legacy: bool = False,
    warmup: float = 1.5,
    counting: Callable[[bool], None] = lambda begins: None,
) -> Figures:
    """Call `echo` for `duration` seconds, with `window` calls under way at any time.

    Args:
        connection: An open connection.
        pid: The server's process.
        cores: Which core is whose.
        window: Calls in flight.
        duration: Seconds that are counted.
        batched: Whether the answers of one read are followed by one write of as many calls, which favours servers that
            write many answers at once; otherwise each answer is followed by a write of one call.
        legacy: Whether the calls are those of a session.
        warmup: Seconds before; long enough for a compiler to have seen everything.
        counting: Called when counting begins (True) and when it ends (False).
    """
    template = CallTemplate("echo", {"text": TEXT}, legacy=legacy)
    expected = TEXT.encode()
    sent: dict[int, int] = {}
    took: list[int] = []
    errors = 0
    last = 100
    now = time.perf_counter_ns

    def fire(count: int) -> None:
        nonlocal last
        batch = []
        for _ in range(count):
            last += 1
            batch.append(template.line(last))
            sent[last] = now()
        connection.send(b"".join(batch))

    for _ in range(window):
        fire(1)
    begin = now() + int(warmup * 1e9)
    end = begin + int(duration * 1e9)
    counted = False
    meter = Meter(pid, cores)
    while True:
        done = 0
        for line in connection.lines():
            moment = now()
            message = json.loads(line)
            begun = sent.pop(message.get("id"), None)
            if begun is None:
                continue
            done += 1
            if counted:
                took.append(moment - begun)
                if expected not in line or "result" not in message or message["result"].get("isError"):
                    errors += 1
            if not batched:
                fire(1)
        moment = now()
        if not counted and moment >= begin:
            counting(True)
            counted = True
            meter.start()
        elif moment >= end:
            break
        if batched and done:
            fire(done)
    figures = meter.figures(took, errors)
    counting(False)
    return figures
