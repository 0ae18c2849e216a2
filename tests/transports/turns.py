"""What happens in one turn of the scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio


class Turns(trio.abc.Instrument):
    """Counts the steps of tasks in each turn of the scheduler."""

    def __init__(self) -> None:
        self.now = 0
        self.most = 0
        self.all = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.all += 1
        self.now += 1

    def before_io_wait(self, timeout: float) -> None:
        self.most = max(self.most, self.now)
        self.now = 0


@contextmanager
def counting() -> Iterator[Turns]:
    """Count while the block lasts."""
    turns = Turns()
    trio.lowlevel.add_instrument(turns)
    try:
        yield turns
    finally:
        trio.lowlevel.remove_instrument(turns)
