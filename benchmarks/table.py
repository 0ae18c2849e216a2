"""One Markdown table: medians, and how ours compares."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .results import Result
from .servers import OURS, Row

__all__ = ["Measure", "Target", "median", "report", "table", "verdicts"]


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

    @property
    def met(self) -> bool | None:
        """Whether it is reached; None when it was not measured."""
        if self.value is None:
            return None
        return self.value <= self.bound if self.at_most else self.value >= self.bound


def median(result: Result | None, key: str) -> float | None:
    """The median of a figure, or None when it was not measured."""
    values = result.figures.get(key) if result is not None else None
    return statistics.median(values) if values else None


def _cell(measure: Measure, name: str, results: Mapping[str, Result], base: str) -> str:
    value = median(results[name], measure.key)
    if measure.asked is not None:
        asked = results[name].figures.get(measure.asked, [])
        if asked and not all(asked):
            text = f"{sum(asked):.0f} of {len(asked)} cancelled"
            return text if value is None else f"{text}; {value:,.{measure.digits}f}"
    if value is None:
        return "-"
    text = f"{value:,.{measure.digits}f}"
    ours = median(results.get(base), measure.key)
    if name != base and ours is not None and value:
        text += f" ({ours / value:.2f} ×)"
    return text


def report(
    rows: Mapping[str, Row],
    measures: Sequence[Measure],
    results: Mapping[str, Result],
    missing: Mapping[str, str],
    base: str = OURS,
) -> str:
    """The table, and what to know about it.

    Args:
        rows: The servers.
        measures: The rows of the table.
        results: By the name of the server.
        missing: Servers that could not be set up, and why.
        base: The server that the others are compared with.
    """
    names = [name for name in rows if name in results or name in missing]
    cells = [["", *(rows[name].title for name in names)]]
    cells += [
        [measure.title, *(_cell(measure, name, results, base) if name in results else "not set up" for name in names)]
        for measure in measures
    ]
    notes = [f"- In brackets: {rows[base].title} ÷ this column. More is better for calls/s, less for the rest."]
    notes += [f"- **{rows[name].title}** was not set up: {reason}" for name, reason in missing.items()]
    for name, result in results.items():
        if result.problem is not None:
            notes.append(f"- **{rows[name].title}** failed, its figures are incomplete: {result.problem}")
    return "\n".join([table(cells), "", *notes, *_notes(rows, results)])


def verdicts(targets: Sequence[Target]) -> str:
    """How it stands with what is wanted."""
    return table([["target", "wanted", "measured", "met"], *map(_verdict, targets)])


def _verdict(target: Target) -> list[str]:
    wanted = f"{'≤' if target.at_most else '≥'} {target.bound:g}{target.unit}"
    if target.value is None:
        return [target.title, wanted, "not measured", "-"]
    return [target.title, wanted, f"{target.value:.2f}{target.unit}", "yes" if target.met else "**no**"]


def table(rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; the first row is its head."""
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
    notes = [
        f"- {noisy or 'None'} of {len(runs)} load runs {'was' if noisy == 1 else 'were'} disturbed by other processes."
    ]
    if noisy:
        notes[0] += " CPU a call stands even so; calls/s and latencies suffer."
    bounded: dict[str, list[str]] = {}
    for name, result in results.items():
        for run in result.runs:
            if run["bounded"] and run["load"] not in bounded.setdefault(rows[name].title, []):
                bounded[rows[name].title].append(run["load"])
    loads = "; ".join(f"{title} ({', '.join(labels)})" for title, labels in bounded.items() if labels)
    if loads:
        notes.append(f"- The load was the bottleneck, so that calls/s are a lower bound: {loads}.")
    else:
        notes.append("- The load was not the bottleneck in any run.")
    return notes
