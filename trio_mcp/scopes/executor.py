"""Admission: how many calls run at once and how many wait.

An executor starts nothing by itself: it hands a start function its place, now or later, in the order of arrival. Whoever
was started gives the place back with `release`. Executors chain: a connection has a small one of its own in front of the
one of the server, so that one peer cannot take all places.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

import trio

from ..errors import ServerBusy
from ..limits import DEFAULT, Limits

__all__ = ["Executor", "ExecutorStatistics"]


@dataclass(frozen=True, slots=True)
class ExecutorStatistics:
    """What an executor holds right now."""

    running: int
    waiting: int


class Executor:
    """Bounded admission.

    Args:
        running: Places.
        waiting: Length of the queue.
        retry_after: Seconds that a refused caller is told to wait.
    """

    __slots__ = ("_queue", "_retry_after", "_room", "_running", "_waiting", "places")

    def __init__(self, running: int, waiting: int, *, retry_after: float = DEFAULT.retry_after) -> None:
        self.places: Final = running
        self._waiting = waiting
        self._retry_after = retry_after
        self._running = 0
        # A dict is a queue from which anyone can leave without a search.
        self._queue: dict[Hashable, Callable[[], None]] = {}
        self._room = trio.lowlevel.ParkingLot()

    @staticmethod
    def of_server(limits: Limits) -> Executor:
        """The executor of a server."""
        return Executor(limits.running, limits.waiting, retry_after=limits.retry_after)

    @staticmethod
    def of_connection(limits: Limits) -> Executor:
        """The executor of one byte stream connection."""
        return Executor(limits.connection_running, limits.connection_waiting, retry_after=limits.retry_after)

    def statistics(self) -> ExecutorStatistics:
        """Places taken and calls that wait."""
        return ExecutorStatistics(self._running, len(self._queue))

    @property
    def idle(self) -> bool:
        """Whether at most one call is under way."""
        return self._running <= 1

    @property
    def crowded(self) -> bool:
        """Whether the next call would have to wait."""
        return self._running >= self.places

    def submit(self, key: Hashable, start: Callable[[], None]) -> None:
        """Give a call its place: `start` runs now, or when one is free.

        Args:
            key: Identifies the call while it waits.
            start: Sync; what it starts must end with `release`. It must not raise.

        Raises:
            ServerBusy: the queue is full.
        """
        if self._running < self.places:
            self._running += 1
            start()
        elif len(self._queue) < self._waiting:
            self._queue[key] = start
        else:
            raise ServerBusy(
                f"Server busy: {self._running} requests are running and {len(self._queue)} are waiting; "
                f"try again in {self._retry_after:g} s",
                {"retryAfter": self._retry_after},
            )

    def withdraw(self, key: Hashable) -> bool:
        """Take a waiting call out of the queue; False when it was not waiting."""
        if self._queue.pop(key, None) is None:
            return False
        if self._room:
            self._room.unpark()
        return True

    def release(self) -> None:
        """Give a place back; the next in the queue gets it at once."""
        if self._queue:
            start = self._queue.pop(next(iter(self._queue)))
            start()
        else:
            self._running -= 1
        if self._room:
            self._room.unpark()

    async def enter(self, key: Hashable) -> None:
        """Wait for a place, in order; whoever enters calls `release`. Checkpoints only when it waits.

        Args:
            key: Identifies the call while it waits.

        Raises:
            ServerBusy: the queue is full.
        """
        if self._running < self.places:
            self._running += 1
            return
        entered = trio.Event()
        self.submit(key, entered.set)
        try:
            await entered.wait()
        except BaseException:
            if not self.withdraw(key):
                self.release()
            raise

    async def wait_room(self) -> None:
        """Wait until `submit` would not refuse. Cancellable; checkpoints only when it waits."""
        while self._running >= self.places and len(self._queue) >= self._waiting:
            await self._room.park()
