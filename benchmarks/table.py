"""One Markdown table: medians, and how ours compares."""

from __future__ import annotations

import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .processes import Cores
from .servers import OURS, SERVERS, Ready
from .stdio import Result

__all__ = ["Measure", "header", "stdio_report"]


@dataclass(frozen=True)
class Measure:
    """A row of the table."""

    key: str
    title: str
    digits: int = 0


MEASURES: Final = (
    Measure("start_ms", "process start to first answer, ms"),
    Measure("rss_mb", "resident after the first answer, MB", 1),
    Measure("pss_mb", "the same, shared pages in proportion, MB", 1),
    Measure("rss_mb_32", "resident after the load with 32 in flight, MB", 1),
    Measure("per_second_1", "`echo`, 1 in flight: calls/s"),
    Measure("cpu_us_1", "- server's CPU a call, µs", 1),
    Measure("p50_ms_1", "- latency p50, ms", 3),
    Measure("p99_ms_1", "- latency p99, ms", 3),
    Measure("per_second_32", "`echo`, 32 in flight: calls/s"),
    Measure("cpu_us_32", "- server's CPU a call, µs", 1),
    Measure("p50_ms_32", "- latency p50, ms", 3),
    Measure("p99_ms_32", "- latency p99, ms", 3),
    Measure("cancel_ms", "`notifications/cancelled` to the tool's clean-up, ms", 2),
)


def header(
    title: str, servers: Mapping[str, Ready], cores: Cores, priorities: bool, rounds: int, duration: float
) -> str:
    """What was measured, and where."""
    versions = dict.fromkeys(
        f"{name} {version}" for ready in servers.values() for name, version in ready.versions.items()
    )
    lines = [
        f"# {title}",
        "",
        f"- {platform.python_implementation()} {platform.python_version()}",
        "- " + ", ".join(versions),
        f"- Linux {platform.release()}, {platform.machine()}, {_model()}; {_cores(cores)}; "
        + ("with" if priorities else "without")
        + " precedence over other processes",
        (f"- medians of {rounds} rounds, interleaved, " if rounds > 1 else "- one round, ") + f"{duration:g} s a run",
        "- These figures are for this run on this machine. What carries over to another is the ratios, and not all of "
        "them.",
    ]
    return "\n".join(lines)


def _model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown processor"


def _cores(cores: Cores) -> str:
    if cores.shared:
        return f"server and load share core {cores.server}"
    return f"server on core {cores.server}, load on core {cores.load}"


def _median(result: Result | None, key: str) -> float | None:
    values = result.figures.get(key) if result is not None else None
    return statistics.median(values) if values else None


def _cell(measure: Measure, name: str, results: Mapping[str, Result]) -> str:
    value = _median(results[name], measure.key)
    if measure.key == "cancel_ms":
        asked = results[name].figures.get("cancelled", [])
        if asked and not all(asked):
            text = f"{sum(asked):.0f} of {len(asked)} cancelled"
            return text if value is None else f"{text}; {value:,.{measure.digits}f}"
    if value is None:
        return "-"
    text = f"{value:,.{measure.digits}f}"
    ours = _median(results.get(OURS), measure.key)
    if name != OURS and ours is not None and value:
        text += f" ({ours / value:.2f} ×)"
    return text


def stdio_report(results: Mapping[str, Result], missing: Mapping[str, str]) -> str:
    """The table, what to know about it, and how it stands with the targets.

    Args:
        results: By the name of the server.
        missing: Servers that could not be set up, and why.
    """
    names = [name for name in SERVERS if name in results or name in missing]
    rows = [["", *(SERVERS[name].title for name in names)]]
    rows += [
        [measure.title, *(_cell(measure, name, results) if name in results else "not set up" for name in names)]
        for measure in MEASURES
    ]
    parts = [_markdown(rows), "", "In brackets: ours ÷ this server. More is better for calls/s, less for the rest."]
    parts += [f"- **{SERVERS[name].title}** was not set up: {reason}" for name, reason in missing.items()]
    for name, result in results.items():
        if result.problem is not None:
            parts.append(f"- **{SERVERS[name].title}** failed, its figures are incomplete: {result.problem}")
    parts += _notes(results)
    if OURS in results:
        parts += ["", *_targets(results)]
    return "\n".join(parts)


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]

    def line(cells: Sequence[str]) -> str:
        first, *others = cells
        padded = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        return "| " + " | ".join([first.ljust(widths[0]), *padded]) + " |"

    rule = "|" + "|".join(["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])]) + "|"
    return "\n".join([line(rows[0]), rule, *(line(row) for row in rows[1:])])


def _notes(results: Mapping[str, Result]) -> list[str]:
    runs = [run for result in results.values() for run in result.runs]
    noisy = sum(run["noisy"] for run in runs)
    notes = []
    if noisy:
        notes.append(
            f"- {noisy} of {len(runs)} load runs were disturbed by other processes on the server's core, repeats "
            "included; CPU a call stands even so."
        )
    for name, result in results.items():
        if any(run["bounded"] for run in result.runs):
            notes.append(f"- **{SERVERS[name].title}**: the load was the bottleneck, its calls/s are a lower bound.")
    return notes


def _targets(results: Mapping[str, Result]) -> list[str]:
    def ours(key: str) -> float | None:
        return _median(results.get(OURS), key)

    def ratio(key: str, peer: str) -> float | None:
        value, other = ours(key), _median(results.get(peer), key)
        return value / other if value is not None and other else None

    checks = (
        ("start, ÷ TypeScript's", ratio("start_ms", "typescript"), 1.0, True, " ×"),
        ("resident after the load, MB", ours("rss_mb_32"), 40.0, True, ""),
        ("calls/s with 1 in flight, ÷ mcp's", ratio("per_second_1", "mcp"), 4.0, False, " ×"),
        ("calls/s with 32 in flight, ÷ mcp's", ratio("per_second_32", "mcp"), 6.0, False, " ×"),
    )
    rows = [["target", "wanted", "measured", "met"]]
    for title, value, bound, at_most, unit in checks:
        wanted = f"{'≤' if at_most else '≥'} {bound:g}{unit}"
        if value is None:
            rows.append([title, wanted, "not measured", "-"])
        else:
            met = value <= bound if at_most else value >= bound
            rows.append([title, wanted, f"{value:.2f}{unit}", "yes" if met else "**no**"])
    return [_markdown(rows)]
