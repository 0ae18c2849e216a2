"""Run a server under a profiler that the load switches on and off with SIGUSR1.

python profiled.py samples|calls OUT SCRIPT [ARGUMENT...]

`samples`: a timer on CPU time interrupts the program and the place where it stands is counted, the innermost frame
first. The program itself runs nearly as fast as without. `calls`: cProfile, which counts every call exactly and makes small
functions look dearer than they are. What was seen goes to OUT when it is switched off.
"""

from __future__ import annotations

import cProfile
import json
import runpy
import signal
import sys
from collections import Counter
from types import FrameType
from typing import Any

INTERVAL = 0.001
DEPTH = 8


def samples(out: str) -> None:
    """Count places."""
    seen: Counter[tuple[tuple[str, int, str], ...]] = Counter()
    running = False

    def sample(number: int, frame: FrameType | None) -> None:
        stack: list[tuple[str, int, str]] = []
        while frame is not None and len(stack) < DEPTH:
            code = frame.f_code
            stack.append((code.co_filename, frame.f_lineno or 0, code.co_qualname))
            frame = frame.f_back
        seen[tuple(stack)] += 1

    def toggle(number: int, frame: FrameType | None) -> None:
        nonlocal running
        running = not running
        signal.setitimer(signal.ITIMER_PROF, INTERVAL if running else 0, INTERVAL if running else 0)
        if not running:
            with open(out, "w") as file:
                json.dump([[stack, count] for stack, count in seen.items()], file)

    signal.signal(signal.SIGPROF, sample)
    signal.signal(signal.SIGUSR1, toggle)


def calls(out: str) -> None:
    """Count calls."""
    profile = cProfile.Profile()
    running = False

    def toggle(number: int, frame: FrameType | None) -> None:
        nonlocal running
        running = not running
        if running:
            profile.enable()
            return
        profile.disable()
        rows: list[Any] = []
        for entry in profile.getstats():
            code = entry.code
            if isinstance(code, str):
                where: tuple[str, int, str] = ("", 0, code)
            else:
                where = (code.co_filename, code.co_firstlineno, code.co_qualname)
            rows.append([where, entry.callcount, entry.inlinetime])
        with open(out, "w") as file:
            json.dump(rows, file)

    signal.signal(signal.SIGUSR1, toggle)


def main() -> None:
    """Run the script as if it were the program."""
    kind, out, *sys.argv = sys.argv[1:]
    (samples if kind == "samples" else calls)(out)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
