"""One Markdown table: medians, and how ours compares."""

from __future__ import annotations

import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .processes import Cores
from .results import Result
from .servers import OURS, Ready, Row

__all__ = ["Measure", "Target", "header", "median", "report"]


@dataclass(frozen=True)
class Measure:
    """A row of the table.

    Attributes:
        key: The figure.
        title: What the row says.
        digits: After the point.
        asked: The figure that says of each attempt whether it succeeded (1 or 0), if some may not.
    """

    key: str
    title: str
    digits: int = 0
    asked: str | None = None


@dataclass(frozen=True)
class Target:
    """What is wanted, and what was measured.

    Attributes:
        title: Of what.
        value: The measured figure, or None.
        bound: The wanted one.
        at_most: Whether it is an upper bound.
        unit: Behind both.
    """

    title: str
    value: float | None
    bound: float
    at_most: bool
    unit: str = ""


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


def median(result: Result | None, key: str) -> float | None:
    """The median of a figure, or None when it was not measured."""
    values = result.figures.get(key) if result is not None else None
    return statistics.median(values) if values else None


def _cell(measure: Measure, name: str, results: Mapping[str, Result]) -> str:
    value = median(results[name], measure.key)
    if measure.asked is not None:
        asked = results[name].figures.get(measure.asked, [])
        if asked and not all(asked):
            text = f"{sum(asked):.0f} of {len(asked)} cancelled"
            return text if value is None else f"{text}; {value:,.{measure.digits}f}"
    if value is None:
        return "-"
    text = f"{value:,.{measure.digits}f}"
    ours = median(results.get(OURS), measure.key)
    if name != OURS and ours is not None and value:
        text += f" ({ours / value:.2f} ×)"
    return text


def report(
    rows: Mapping[str, Row],
    measures: Sequence[Measure],
    results: Mapping[str, Result],
    missing: Mapping[str, str],
    targets: Sequence[Target],
) -> str:
    """The table, what to know about it, and how it stands with the targets.

    Args:
        rows: The servers.
        measures: The rows of the table.
        results: By the name of the server.
        missing: Servers that could not be set up, and why.
        targets: What is wanted.
    """
    names = [name for name in rows if name in results or name in missing]
    table = [["", *(rows[name].title for name in names)]]
    table += [
        [measure.title, *(_cell(measure, name, results) if name in results else "not set up" for name in names)]
        for measure in measures
    ]
    parts = [_markdown(table), "", "In brackets: ours ÷ this server. More is better for calls/s, less for the rest."]
    parts += [f"- **{rows[name].title}** was not set up: {reason}" for name, reason in missing.items()]
    for name, result in results.items():
        if result.problem is not None:
            parts.append(f"- **{rows[name].title}** failed, its figures are incomplete: {result.problem}")
    parts += _notes(rows, results)
    if OURS in results:
        parts += ["", _markdown([["target", "wanted", "measured", "met"], *map(_verdict, targets)])]
    return "\n".join(parts)


def _verdict(target: Target) -> list[str]:
    wanted = f"{'≤' if target.at_most else '≥'} {target.bound:g}{target.unit}"
    if target.value is None:
        return [target.title, wanted, "not measured", "-"]
    met = target.value <= target.bound if target.at_most else target.value >= target.bound
    return [target.title, wanted, f"{target.value:.2f}{target.unit}", "yes" if met else "**no**"]


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]

    def line(cells: Sequence[str]) -> str:
        first, *others = cells
        padded = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        return "| " + " | ".join([first.ljust(widths[0]), *padded]) + " |"

    rule = "|" + "|".join(["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])]) + "|"
    return "\n".join([line(rows[0]), rule, *(line(row) for row in rows[1:])])


def _notes(rows: Mapping[str, Row], results: Mapping[str, Result]) -> list[str]:
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
            notes.append(f"- **{rows[name].title}**: the load was the bottleneck, its calls/s are a lower bound.")
    return notes
