"""What was measured, and the rounds in which it is measured: every server in each, in an order that moves on by one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from . import processes
from .load import Figures
from .processes import Cores

__all__ = ["Result", "in_rounds", "least_disturbed"]

TRIES: Final = 3
"""How often a run is repeated while others keep the server's core busy; the least disturbed one counts."""


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

    def add_load(self, label: str, figures: Figures) -> None:
        """Note a load run."""
        for name in ("per_second", "p50_ms", "p99_ms", "cpu_us"):
            self.add(f"{name}_{label}", getattr(figures, name))
        self.runs.append({"load": label, "noisy": figures.noisy, "bounded": figures.bounded, **asdict(figures)})


def in_rounds(
    names: Sequence[str], rounds: int, once: Callable[[str], object], measure: Callable[[str, Result], object]
) -> dict[str, Result]:
    """Measure all servers, interleaved. A server that fails is left out from there on, with its problem noted.

    Args:
        names: The servers.
        rounds: How many rounds.
        once: Done for each server before anything counts.
        measure: One round of one server.
    """
    results = {name: Result() for name in names}
    for name in names:
        _attempt(results[name], lambda name=name: once(name))
    for number in range(rounds):
        shift = number % len(names) if names else 0
        for name in [*names[shift:], *names[:shift]]:
            print(f"round {number + 1} of {rounds}: {name}", file=sys.stderr, flush=True)
            _attempt(results[name], lambda name=name: measure(name, results[name]))
    return results


def _attempt(result: Result, work: Any) -> None:
    if result.problem is not None:
        return
    try:
        work()
    except (OSError, EOFError, RuntimeError, ValueError) as exc:
        result.problem = " ".join(f"{type(exc).__name__}: {exc}".split())[:300]


def least_disturbed(cores: Cores, run: Callable[[], Figures]) -> Figures:
    """Repeat a load run while other processes disturb it; the best one."""
    best: Figures | None = None
    for _ in range(TRIES):
        processes.wait_quiet(cores, 10)
        figures = run()
        if best is None or figures.foreign_share < best.foreign_share:
            best = figures
        if not figures.noisy:
            break
    assert best is not None
    return best
