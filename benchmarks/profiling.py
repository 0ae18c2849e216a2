"""Where the time of one `echo` call goes in our server, with calls in flight all the time.

Two runs. The first samples on a timer of CPU time, which barely slows the server down: shares and microseconds are
from there. A function in C has no frame of its own, so its time stands at the line that calls it; what belongs to
orjson, to httptools and to the system calls is told apart by that line. "By part" gives the time of the standard library
and of generated code to whoever called it. The second run is cProfile's, for how often what is called, and for the time
inside functions in C.
"""

from __future__ import annotations

import json
import linecache
import os
import re
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from .environments import PEERS
from .http import HttpProcess
from .legacy import load_in_sessions
from .load import Figures, keep_in_flight
from .processes import Cores, wait_quiet
from .servers import Ready
from .stdio import Pipe, begin

__all__ = ["parts", "parts_table", "report"]

Where = tuple[str, int, str]
_SYSTEM: Final = re.compile(r"\bos\.(read|write)\(|\.poll\(|\bselect\.|\b_?sock(et)?\.(recv|send)\(|\bfn\(")
_HTTPTOOLS: Final = re.compile(r"\bparser\.(feed_data|get_method|get_http_version|should_keep_alive|should_upgrade)\(")
_ORJSON: Final = re.compile(r"\borjson\.(loads|dumps)\(")
_MODULE: Final = re.compile(r"(?:^|/)(trio_mcp|trio|outcome|orjson|sniffio)/(.*)\.py$")


def report(
    ready: Ready, cores: Cores, window: int, duration: float, top: int, http: bool = False, legacy: bool = False
) -> str:
    """Run a server under both profilers and describe what they saw, as Markdown.

    Args:
        ready: The server.
        cores: Which core is whose.
        window: Calls in flight; over HTTP, connections.
        duration: Seconds of each run.
        top: Rows of the longer tables.
        http: Whether over HTTP instead of a pipe.
        legacy: Whether in sessions.
    """
    plain, _ = _run(ready, cores, window, duration, None, http, legacy)
    sampled, stacks = _run(ready, cores, window, duration, "samples", http, legacy)
    counted, rows = _run(ready, cores, window, duration, "calls", http, legacy)
    places: Counter[Where] = Counter()
    groups: Counter[str] = Counter()
    for stack, count in stacks:
        frames: list[Where] = [(file, line, name) for file, line, name in stack]
        places[frames[0]] += count
        groups[_group(frames)] += count
    busy = "connections" if http else "in flight"
    parts = [
        f"`echo` with {window} {busy}: {plain.cpu_us:.1f} µs of CPU a call ({plain.per_second:,.0f} calls/s); "
        f"{sampled.cpu_us:.1f} while sampled ({places.total():,} samples), {counted.cpu_us:.1f} under cProfile.",
        "",
        *_shares("by part", groups, plain.cpu_us, 40),
        "",
        *_shares("own time by function", _sum(places, _function), plain.cpu_us, top),
        "",
        *_shares("own time by line", _sum(places, _line), plain.cpu_us, top),
        "",
        *_calls(rows, counted.calls, top),
    ]
    return "\n".join(parts)


def parts(ready: Ready, cores: Cores, window: int, duration: float) -> dict[str, Any]:
    """What the page tells of it, over a pipe: CPU a call without a profiler, and samples by part."""
    plain, _ = _run(ready, cores, window, duration, None, False, False)
    _, stacks = _run(ready, cores, window, duration, "samples", False, False)
    groups: Counter[str] = Counter()
    for stack, count in stacks:
        groups[_group([(file, line, name) for file, line, name in stack])] += count
    return {"window": window, "cpu_us": plain.cpu_us, "per_second": plain.per_second, "samples": dict(groups)}


def parts_table(found: Mapping[str, Any]) -> str:
    """The same as Markdown; what is less than a hundredth is added up."""
    samples: Counter[str] = Counter(found["samples"])
    least = samples.total() / 100
    small = [name for name, count in samples.items() if count < least]
    rest = sum(samples.pop(name) for name in small)
    rows = _shares("by part", samples, found["cpu_us"], len(samples), rest)
    head = (
        f"`echo` with {found['window']} in flight, one write a call: {found['cpu_us']:.1f} µs of CPU a call, "
        f"{samples.total() + rest:,} samples."
    )
    return "\n".join([head, "", *rows])


def _run(
    ready: Ready, cores: Cores, window: int, duration: float, kind: str | None, http: bool, legacy: bool
) -> tuple[Figures, list[Any]]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        python, *script = ready.command
        command = [python, str(PEERS / "profiled.py"), kind, str(out), *script] if kind else ready.command

        def toggle(pid: int) -> None:
            if kind is not None:
                os.kill(pid, signal.SIGUSR1)

        wait_quiet(cores, 10)
        if http:
            with HttpProcess(command, cores) as server:
                server.connect().close()
                run = load_in_sessions if legacy else HttpProcess.load
                figures = run(server, cores, window, duration, counting=lambda begins: toggle(server.pid))
                return figures, _written(out) if kind else []
        with Pipe(command, cores) as pipe:
            begin(pipe, legacy)
            figures = keep_in_flight(
                pipe, pipe.pid, cores, window, duration, legacy=legacy, counting=lambda begins: toggle(pipe.pid)
            )
            return figures, _written(out) if kind else []


def _written(out: Path) -> list[Any]:
    """What the profiler left; the server writes it when it comes to the signal."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            rows: list[Any] = json.loads(out.read_text())
        except (OSError, ValueError):
            time.sleep(0.05)
            continue
        return rows
    raise RuntimeError("the profiler left nothing behind")


def _source(where: Where) -> str:
    return linecache.getline(where[0], where[1]).strip()


def _short(file: str) -> str:
    found = _MODULE.search(file)
    if found is not None:
        return f"{found[1]}/{found[2]}.py"
    return Path(file).name if file else "(in C)"


def _group(frames: Sequence[Where]) -> str:
    source = _source(frames[0])
    if _SYSTEM.search(source):
        return "system calls: read, write, epoll"
    if _HTTPTOOLS.search(source):
        return "httptools"
    if _ORJSON.search(source):
        return "orjson"
    for file, _, _ in frames:
        found = _MODULE.search(file)
        if found is not None:
            return f"trio_mcp/{found[2]}.py" if found[1] == "trio_mcp" else found[1]
        if Path(file).parent == PEERS:
            return "the tool itself"
    return "other"


def _function(where: Where) -> str:
    return f"`{_short(where[0])}` {where[2].replace('<locals>.', '')}"


def _line(where: Where) -> str:
    return f"`{_short(where[0])}:{where[1]}` `{_source(where)[:70].replace('|', '¦')}`"


def _sum(places: Counter[Where], name: Any) -> Counter[str]:
    out: Counter[str] = Counter()
    for where, count in places.items():
        out[name(where)] += count
    return out


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    out = ["| " + " | ".join(head) + " |", "|---" + "|--:" * (len(head) - 1) + "|"]
    return out + ["| " + " | ".join(row) + " |" for row in rows]


def _shares(title: str, counts: Counter[str], cpu_us: float, most: int, rest: int = 0) -> list[str]:
    total = counts.total() + rest or 1
    shown = [*counts.most_common(most), *([("the rest", rest)] if rest else [])]
    rows = [(name, f"{count / total:.1%}", f"{count / total * cpu_us:.2f}") for name, count in shown]
    return _table((title, "share", "µs a call"), rows)


def _calls(rows: Sequence[Any], calls: int, most: int) -> list[str]:
    total = sum(count for _, count, _ in rows) / calls
    busiest = sorted(rows, key=lambda row: -row[2])[:most]
    out = [f"Under cProfile: {total:.0f} function calls an `echo`."]
    table = []
    for where, count, seconds in busiest:
        file, line, name = where
        text = f"`{_short(file)}:{line}` {name}" if file else f"`{name}`"
        table.append((text.replace("|", "¦"), f"{count / calls:.2f}", f"{seconds / calls * 1e6:.2f}"))
    return [*out, "", *_table(("own time under cProfile", "calls", "µs a call"), table)]
