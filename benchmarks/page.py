"""docs/benchmarks.md, made of the figures of one run and of page.md, which holds what is prose.

The figures are kept beside it (figures.json), so that a change of the words needs no new run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from . import http, http2, legacy, profiling, stdio, table
from .machine import Setting
from .results import Result
from .servers import (
    HTTP_SERVERS,
    LEGACY_HTTP_SERVERS,
    LEGACY_STDIO_SERVERS,
    OURS,
    STDIO_SERVERS,
    VERSION_SERVERS,
)

__all__ = ["FIGURES", "load", "render", "save"]

FIGURES: Final = Path(__file__).parent / "figures.json"
_TEMPLATE: Final = Path(__file__).parent / "page.md"
_SESSIONS: Final = Path(__file__).parent / "sessions.md"
_DRAW: Final = 0.1
"""Two that are within a tenth of each other are called even: as much lies between two runs."""

Figures = Mapping[str, Any]


def save(figures: Figures) -> None:
    """Keep the figures of a run."""
    FIGURES.write_text(
        json.dumps(figures, ensure_ascii=False, separators=(",", ":")).replace('{"load"', '\n{"load"') + "\n"
    )


def load() -> Figures:
    """The figures of the run that the page shows."""
    figures: Figures = json.loads(FIGURES.read_text())
    return figures


def _results_of(part: Figures) -> dict[str, Result]:
    """The results of one part of a run."""
    return {name: Result(**result) for name, result in part["results"].items()}


def render(figures: Figures) -> str:
    """The page."""
    pipe, web = _results_of(figures["stdio"]), _results_of(figures["http"])
    targets = [*stdio.targets(pipe), *http.targets(web)]
    if "legacy_stdio" in figures:
        targets += legacy.stdio_targets(_results_of(figures["legacy_stdio"]))
        targets += legacy.http_targets(_results_of(figures["legacy_http"]))
    parts = {
        "made": figures["made"],
        "setting": "\n".join(_setting(figures)),
        "verdict": _verdict(figures, pipe, web),
        "stdio": table.report(STDIO_SERVERS, stdio.MEASURES, pipe, figures["stdio"]["missing"]),
        "http": table.report(HTTP_SERVERS, http.MEASURES, web, figures["http"]["missing"]),
        "http2": table.report(
            VERSION_SERVERS, http2.MEASURES, _results_of(figures["http2"]), figures["http2"]["missing"], http2.BASE
        ),
        "sessions": _sessions(figures),
        "targets": table.verdicts(targets),
        "missed": _missed(targets),
        "parts": profiling.parts_table(figures["profile"]),
    }
    return _filled(_TEMPLATE, parts)


def _filled(template: Path, parts: Mapping[str, str]) -> str:
    text = template.read_text()
    for name, value in parts.items():
        mark = "{{" + name + "}}"
        assert mark in text, mark
        text = text.replace(mark, value)
    return text


def _sessions(figures: Figures) -> str:
    """What was measured in sessions; nothing where a run has no such part."""
    if "legacy_stdio" not in figures:
        return ""
    pipe, web = figures["legacy_stdio"], figures["legacy_http"]
    parts = {
        "legacy_stdio": table.report(LEGACY_STDIO_SERVERS, legacy.STDIO_MEASURES, _results_of(pipe), pipe["missing"]),
        "legacy_http": table.report(LEGACY_HTTP_SERVERS, legacy.HTTP_MEASURES, _results_of(web), web["missing"]),
    }
    return _filled(_SESSIONS, parts)


def _setting(figures: Figures) -> list[str]:
    versions = dict.fromkeys(
        f"{name} {version}"
        for kind in ("stdio", "http", "http2", "legacy_stdio", "legacy_http")
        if kind in figures
        for found in figures[kind]["versions"].values()
        for name, version in found.items()
    )
    return [*Setting(**figures["setting"]).lines(), "- " + ", ".join(versions)]


def _verdict(figures: Figures, pipe: Mapping[str, Result], web: Mapping[str, Result]) -> str:
    """The result in two sentences; the harder comparison comes first."""
    node = figures["stdio"]["versions"].get("typescript", {}).get("Node", "?").partition(".")[0]
    typescript = f"the TypeScript SDK on Node {node}"
    loads = {"1": "with one call at a time", "32": "with 32 in flight", "32_batched": "with 32 in batched writes"}
    python = _ratios(pipe, ["mcp"], "per_second_32"), _ratios(web, ["mcp"], "per_second_32")
    over_pipe = {label: _ratios(pipe, ["typescript"], f"per_second_{label}") for label in stdio.LOADS}
    over_http = {count: _ratios(web, ["typescript"], f"per_second_{count}") for count in http.CONNECTIONS}
    lines = [
        f"**Over a pipe, against {typescript}: {_word(over_pipe.values())}.** Its calls a second are "
        + ", ".join(f"{_times(value)} {loads[label]}" for label, value in over_pipe.items())
        + ".",
        f"**Over HTTP, against the same: {_word(over_http.values())}.** "
        + ", ".join(f"{_times(value)} with {count} connection{'s' * (count > 1)}" for count, value in over_http.items())
        + ".",
        f"Against the official Python SDK, with 32 calls at once: {_times(python[0])} over a pipe, "
        f"{_times(python[1])} over HTTP.",
    ]
    return "\n".join(f"- {line}" for line in lines)


def _ratios(results: Mapping[str, Result], peers: Sequence[str], key: str) -> float | None:
    ours = table.median(results.get(OURS), key)
    others = [value for name in peers if (value := table.median(results.get(name), key))]
    return ours / max(others) if ours is not None and others else None


def _times(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.2f} ×"


def _word(ratios: Any) -> str:
    known = [value for value in ratios if value is not None]
    if not known:
        return "not measured"
    ahead = [value > 1 + _DRAW for value in known]
    behind = [value < 1 - _DRAW for value in known]
    if all(ahead):
        return "trio_mcp leads"
    if all(behind):
        return "trio_mcp is behind"
    if any(ahead) and any(behind):
        return "it depends on the load"
    if any(ahead):
        return "even or ahead, by the load"
    return "even or behind, by the load" if any(behind) else "a draw"


def _missed(targets: Sequence[table.Target]) -> str:
    missed = [target.title for target in targets if target.met is False]
    if not missed:
        return "All of them are met."
    return f"Not met: {'; '.join(missed)}."
