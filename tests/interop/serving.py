"""Programs that print where they listen."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

__all__ = ["serving", "wait_for"]


@contextmanager
def serving(command: Sequence[str]) -> Iterator[str]:
    """Run a program for the time of a block; the value is the URL that it printed first."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert url, f"{command} ended with status {process.wait(10)}"
            yield url
        finally:
            process.terminate()


def wait_for(condition: Callable[[], bool]) -> bool:
    """Whether something becomes true within 10 seconds."""
    for _ in range(1000):
        if condition():
            return True
        time.sleep(0.01)
    return False
