"""What a run was made with: machine, day, commit, rounds."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .processes import Cores

__all__ = ["Setting", "day_and_commit"]

_ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Setting:
    """What holds for every figure of a run.

    Attributes:
        python: The interpreter of the Python servers.
        machine: Kernel, processor and the number of cores.
        cores: Which core is whose, and with what precedence.
        rounds: How often everything was measured.
        duration: Seconds of each load run.
    """

    python: str
    machine: str
    cores: str
    rounds: int
    duration: float

    @classmethod
    def here(cls, cores: Cores, priorities: bool, rounds: int, duration: float) -> Setting:
        """This machine, now."""
        placed = (
            f"server and load share core {cores.server}"
            if cores.shared
            else f"server on core {cores.server}, load on core {cores.load}"
        )
        return cls(
            python=f"{platform.python_implementation()} {platform.python_version()}",
            machine=f"Linux {platform.release()}, {platform.machine()}, {_model()}, {os.cpu_count()} cores",
            cores=f"{placed}, {'with' if priorities else 'without'} precedence over other processes",
            rounds=rounds,
            duration=duration,
        )

    def lines(self) -> list[str]:
        """As items of a list."""
        rounds = f"medians of {self.rounds} rounds, interleaved" if self.rounds > 1 else "one round"
        return [
            f"- {self.machine}",
            f"- {self.cores}",
            f"- {self.python}",
            f"- {rounds}, {self.duration:g} s a load run, each after a warm-up",
        ]


def day_and_commit() -> str:
    """When this is, and what is measured."""
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    head = _git("rev-parse", "--short=12", "HEAD")
    if head is None:
        return f"{day}, of no known commit"
    changed = _git("status", "--porcelain", "--", "trio_mcp", "benchmarks/*.py", "benchmarks/peers")
    return f"{day}, commit {head}" + (" with changes that are not committed" if changed else "")


def _git(*words: str) -> str | None:
    try:
        done = subprocess.run(["git", *words], cwd=_ROOT, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown processor"
