"""What is measured in the revisions with sessions (2025-11-25): the same loads, with one session a connection; over HTTP
also what ends a call there (`notifications/cancelled`, `DELETE`) and what a session costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from . import processes, stdio
from .events import CANCELS, SLOW_SECONDS, Events
from .http import CONNECTIONS, PATIENCE, STARTS, HttpProcess
from .http_load import SessionLoad, SessionSocket, keep_busy
from .load import Figures
from .processes import Cores
from .results import Result, in_rounds, least_disturbed
from .servers import OURS, Ready
from .table import Measure, Target, median
from .wire import TEXT, PostTemplate, cancelled, delete, post

__all__ = [
    "HTTP_MEASURES",
    "SESSIONS",
    "STDIO_MEASURES",
    "http_targets",
    "load_in_sessions",
    "measure_http",
    "measure_stdio",
    "stdio_targets",
]

SESSIONS: Final = 400
"""Sessions that are open at once."""
_FIRST: Final = 20

STDIO_MEASURES: Final = stdio.MEASURES
HTTP_MEASURES: Final = (
    Measure("start_ms", "process start to first answer in a session, ms"),
    Measure("rss_mb", "resident after the first answer, MB", 1),
    Measure("rss_mb_load", "resident after the load, MB", 1),
    *(
        row
        for count in CONNECTIONS
        for row in (
            Measure(f"per_second_{count}", f"`echo`, {count} session{'s' * (count > 1)}: calls/s"),
            Measure(f"cpu_us_{count}", "- server's CPU a call, µs", 1),
            Measure(f"p50_ms_{count}", "- latency p50, ms", 3),
            Measure(f"p99_ms_{count}", "- latency p99, ms", 3),
        )
    ),
    Measure("cancel_ms_notice", "`notifications/cancelled` to the tool's clean-up, ms", 2, "cancelled_notice"),
    Measure("cancel_ms_delete", "`DELETE` of the session to the same, ms", 2, "cancelled_delete"),
    Measure("session_kib", "an open session without a connection, KiB", 1),
)


def measure_stdio(servers: Mapping[str, Ready], cores: Cores, rounds: int, duration: float) -> dict[str, Result]:
    """Measure all servers over a pipe, interleaved."""
    return stdio.measure(servers, cores, rounds, duration, legacy=True)


def measure_http(servers: Mapping[str, Ready], cores: Cores, rounds: int, duration: float) -> dict[str, Result]:
    """Measure all servers over HTTP, interleaved."""
    return in_rounds(
        list(servers),
        rounds,
        lambda name: _start(servers[name], cores),
        lambda name, result: _round(servers[name], cores, duration, result),
    )


def _over(results: Mapping[str, Result], key: str, peer: str) -> float | None:
    value, other = median(results.get(OURS), key), median(results.get(peer), key)
    return value / other if value is not None and other else None


def stdio_targets(results: Mapping[str, Result]) -> list[Target]:
    """How ours stands with what is wanted of it."""
    return [
        Target("in a session: start, ÷ TypeScript's", _over(results, "start_ms", "typescript"), 1.0, True, " ×"),
        Target("in a session: `notifications/cancelled`, ms", median(results.get(OURS), "cancel_ms"), 1.0, True),
    ]


def http_targets(results: Mapping[str, Result]) -> list[Target]:
    """How ours stands with what is wanted of it."""
    ours = results.get(OURS)
    return [
        *(
            Target(
                f"calls/s in {count} sessions, ÷ {title}'s",
                _over(results, f"per_second_{count}", name),
                2.5,
                False,
                " ×",
            )
            for count in CONNECTIONS[1:]
            for name, title in (("typescript", "TypeScript"), ("mcp", "mcp"))
        ),
        Target("`notifications/cancelled` to clean-up, ms", median(ours, "cancel_ms_notice"), 1.0, True),
        Target("`DELETE` to clean-up, ms", median(ours, "cancel_ms_delete"), 1.0, True),
    ]


def _call(tool: str, arguments: dict[str, Any], session: str) -> PostTemplate:
    return PostTemplate("tools/call", {"name": tool, "arguments": arguments}, session=session)


def _echo(session: str) -> PostTemplate:
    return _call("echo", {"text": TEXT}, session)


def _open(server: HttpProcess) -> SessionSocket:
    """A session, as soon as the server listens."""
    server.connect().close()
    return SessionSocket(server.port, PATIENCE)


def _ask(server: HttpProcess) -> None:
    connection = _open(server)
    try:
        answer = connection.ask(_echo(connection.session).to(server.port)(1))
    finally:
        connection.close()
    if TEXT.encode() not in answer:
        raise RuntimeError(f"a wrong answer: {answer[:300].decode(errors='replace')}")


def _round(ready: Ready, cores: Cores, duration: float, result: Result) -> None:
    for _ in range(STARTS):
        processes.wait_quiet(cores, 5)
        seconds, rss = _start(ready, cores)
        result.add("start_ms", seconds * 1e3)
        result.add("rss_mb", rss)
    _calls(ready, cores, duration, result)
    for how in ("notice", "delete"):
        _cancel(ready, cores, how, result)
    _sessions(ready, cores, result)


def _start(ready: Ready, cores: Cores) -> tuple[float, float]:
    """Seconds from the start of the process to its first answer to `echo`; its memory a little later."""
    begin = time.perf_counter()
    with HttpProcess(ready.command, cores) as server:
        _ask(server)
        seconds = time.perf_counter() - begin
        time.sleep(0.3)
        return seconds, processes.rss_mb(server.pid)


def load_in_sessions(
    server: HttpProcess,
    cores: Cores,
    connections: int,
    duration: float,
    counting: Callable[[bool], None] = lambda begins: None,
) -> Figures:
    """Keep it busy, with a session a connection."""
    load = SessionLoad(server.port, _echo, TEXT.encode())
    return keep_busy(load, server.pid, cores, connections, duration, counting=counting)


def _calls(ready: Ready, cores: Cores, duration: float, result: Result) -> None:
    with HttpProcess(ready.command, cores) as server:
        _ask(server)
        # Long enough for a compiler to have seen everything.
        load_in_sessions(server, cores, 32, 1.5)
        for count in CONNECTIONS:
            run = partial(load_in_sessions, server, cores, count, duration)
            result.add_load(str(count), least_disturbed(cores, run))
        time.sleep(1)
        result.add("rss_mb_load", processes.rss_mb(server.pid))


def _cancel(ready: Ready, cores: Cores, how: str, result: Result) -> None:
    """From the client's request that ends a call until the clean-up code of the tool runs."""
    with Events() as events, HttpProcess(ready.command, cores, events.env) as server:
        _ask(server)
        for number in range(CANCELS):
            tag, id = f"call-{number}", 100_000_000 + number
            calling, ending = _open(server), server.connect()
            call = _call("slow", {"seconds": SLOW_SECONDS, "tag": tag}, calling.session)
            calling.sock.sendall(call.to(server.port)(number))
            events.await_start(tag)
            begin = time.monotonic_ns()
            if how == "notice":
                ending.sock.sendall(post(server.port, cancelled(id), calling.session))
            else:
                ending.sock.sendall(delete(server.port, calling.session))
            took = events.until_cancelled(tag, begin)
            calling.close()
            ending.close()
            result.add(f"cancelled_{how}", float(took is not None))
            if took is not None:
                result.add(f"cancel_ms_{how}", took)
            elif number == 2 and not any(result.figures[f"cancelled_{how}"]):
                return


def _sessions(ready: Ready, cores: Cores, result: Result) -> None:
    """What one more session costs, once its connection is closed."""
    with HttpProcess(ready.command, cores) as server:
        _ask(server)

        def more(count: int) -> float:
            for _ in range(count):
                _ask(server)
            time.sleep(0.5)
            return processes.rss_mb(server.pid)

        # The first ones load code and open caches.
        before = more(_FIRST)
        after = more(SESSIONS - _FIRST)
        result.add("session_kib", (after - before) * 1e6 / 1024 / (SESSIONS - _FIRST))
