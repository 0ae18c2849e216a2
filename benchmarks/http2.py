"""What our server does over HTTP/2 (prior knowledge, without TLS) beside HTTP/1.1: the same server, load by load.

Rounds alternate between the two, each in fresh processes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from . import processes
from .http import ECHO, PATIENCE, HttpProcess, slow_call
from .http2_load import Http2Load, Http2Socket
from .http_load import Http1Load, HttpSocket, Load, keep_busy
from .load import Figures
from .processes import Cores
from .results import Result, in_rounds, least_disturbed
from .servers import Ready
from .table import Measure, Target
from .wire import TEXT

__all__ = ["BASE", "LOADS", "MEASURES", "measure", "targets"]

BASE: Final = "http2"
"""The column that the other is compared with."""
LOADS: Final = {"1": (1, 1), "32": (32, 1), "one_32": (1, 32)}
"""Connections, and calls under way on each, by the name of the figures."""
STREAMS: Final = 200
"""Event streams that are open at once."""
SHARED: Final = 50
"""How many of them are on one connection where it carries several."""

MEASURES: Final = (
    *(
        row
        for label, title in {
            "1": "`echo`, 1 connection: calls/s",
            "32": "`echo`, 32 connections: calls/s",
            "one_32": "`echo`, 32 streams on one connection: calls/s",
        }.items()
        for row in (
            Measure(f"per_second_{label}", title),
            Measure(f"cpu_us_{label}", "- server's CPU a call, µs", 1),
            Measure(f"p50_ms_{label}", "- latency p50, ms", 3),
            Measure(f"p99_ms_{label}", "- latency p99, ms", 3),
        )
    ),
    Measure("rss_mb_load", "resident after the load, MB", 1),
    Measure("stream_kib", "an open event stream on a connection of its own, KiB", 1),
    Measure("stream_kib_shared", f"an open event stream, {SHARED} on each connection, KiB", 1),
)


def measure(servers: Mapping[str, Ready], cores: Cores, rounds: int, duration: float) -> dict[str, Result]:
    """Measure both, interleaved."""
    return in_rounds(
        list(servers),
        rounds,
        lambda name: _first(servers[name], cores),
        lambda name, result: _round(name == "http2", servers[name], cores, duration, result),
    )


def targets(results: Mapping[str, Result]) -> list[Target]:
    """There are none."""
    return []


def _first(ready: Ready, cores: Cores) -> None:
    with HttpProcess(ready.command, cores) as server:
        server.ask()


def _round(two: bool, ready: Ready, cores: Cores, duration: float, result: Result) -> None:
    with HttpProcess(ready.command, cores) as server:
        server.ask()
        for label, (connections, streams) in LOADS.items():
            if not two and streams > 1:
                continue

            def run(server: HttpProcess = server, connections: int = connections, streams: int = streams) -> Figures:
                load: Load[Any]
                if two:
                    load = Http2Load(server.port, ECHO, TEXT.encode(), streams)
                else:
                    load = Http1Load(server.port, ECHO, TEXT.encode())
                return keep_busy(load, server.pid, cores, connections, duration)

            result.add_load(label, least_disturbed(cores, run))
        time.sleep(1)
        result.add("rss_mb_load", processes.rss_mb(server.pid))
    _streams("stream_kib", partial(_open, two, 1), ready, cores, result)
    if two:
        _streams("stream_kib_shared", partial(_open, two, SHARED), ready, cores, result)


def _open(two: bool, each: int, port: int, count: int) -> list[HttpSocket | Http2Socket]:
    """Connections with so many event streams in all, each of which has begun."""
    call = slow_call("stream", 60, True)
    out: list[HttpSocket | Http2Socket] = []
    for number in range(count):
        if not two:
            one = HttpSocket(port, PATIENCE)
            one.sock.sendall(call.to(port)(number))
            one.wait_for(b"notifications/progress")
            out.append(one)
            continue
        if number % each == 0:
            out.append(Http2Socket(port, PATIENCE))
        other = out[-1]
        assert isinstance(other, Http2Socket)
        stream = other.open()
        other.sock.sendall(call.frames(port)(number, stream))
        other.wait_for(stream, b"notifications/progress")
    return out


def _streams(
    key: str,
    connect: Callable[[int, int], list[HttpSocket | Http2Socket]],
    ready: Ready,
    cores: Cores,
    result: Result,
) -> None:
    """What one more event stream costs, with a tool that is silent after its first progress."""
    with HttpProcess(ready.command, cores, {"BENCH_PLACES": str(2 * STREAMS + 10)}) as server:
        server.ask()
        open_now = []
        try:
            # The first ones load code and open caches.
            open_now += connect(server.port, SHARED)
            time.sleep(0.5)
            before = processes.rss_mb(server.pid)
            open_now += connect(server.port, STREAMS)
            time.sleep(0.5)
            after = processes.rss_mb(server.pid)
        finally:
            for connection in open_now:
                connection.close()
        result.add(key, (after - before) * 1e6 / 1024 / STREAMS)
