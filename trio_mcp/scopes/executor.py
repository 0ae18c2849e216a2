"""Admission: how many calls run at once and how many wait.

A call draws a ticket, in the order of arrival, and waits for its place inside its own scope. It gives the place back, however it
ends. Nobody starts anything for anybody: a place that comes free wakes the task that waits for it.
Executors stand behind each other: a connection has a small one of its own in front of the one of the server, so that one peer
cannot take all places.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import trio

from ..errors import ServerBusy
from ..limits import DEFAULT, Limits

__all__ = ["Executor", "ExecutorStatistics", "Ticket"]


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
        waiting_bytes: Bytes of requests in the queue.
        then: The executor behind this one: a place here is worth nothing without one there.
        retry_after: Seconds that a refused caller is told to wait.
    """

    __slots__ = (
        "_bytes",
        "_queue",
        "_retry_after",
        "_returning",
        "_running",
        "_waiting",
        "_waiting_bytes",
        "places",
        "then",
    )

    def __init__(
        self,
        running: int,
        waiting: int,
        *,
        waiting_bytes: float = math.inf,
        then: Executor | None = None,
        retry_after: float = DEFAULT.retry_after,
    ) -> None:
        self.places: Final = running
        self._waiting = waiting
        self._waiting_bytes = waiting_bytes
        self.then: Final = then
        self._retry_after = retry_after
        self._running = 0
        self._bytes = 0
        # A dict is a queue from which anyone can leave without a search.
        self._queue: dict[Ticket, None] = {}
        # Those that have had a place and were away: they go first, and nobody refuses them.
        self._returning: dict[Ticket, None] = {}

    @staticmethod
    def of_server(limits: Limits) -> Executor:
        """The executor of a server."""
        return Executor(limits.running, limits.waiting, retry_after=limits.retry_after)

    @staticmethod
    def of_connection(limits: Limits, server: Executor) -> Executor:
        """The executor of one byte stream connection, in front of that of the server."""
        return Executor(
            limits.connection_running,
            limits.connection_waiting,
            waiting_bytes=limits.connection_waiting_bytes,
            then=server,
            retry_after=limits.retry_after,
        )

    def statistics(self) -> ExecutorStatistics:
        """Places taken and calls that wait."""
        return ExecutorStatistics(self._running, len(self._queue) + len(self._returning))

    @property
    def idle(self) -> bool:
        """Whether at most one call is under way."""
        return self._running <= 1

    def ticket(self, size: int = 0, *, returning: bool = False) -> Ticket:
        """Draw a ticket: for a place that is free, or for one that comes free later, in order.

        Whoever draws one must wait for the place, in a task that cannot end before, and then release it.

        Args:
            size: Bytes that are held while it waits.
            returning: Whether it has had a place before: then it was admitted, and goes first.

        Raises:
            ServerBusy: the queue is full, or that of the executor behind.
        """
        if self._running < self.places:
            behind = self.then.ticket(returning=returning) if self.then is not None else None
            self._running += 1
            return Ticket(self, size, granted=True, behind=behind)
        if returning:
            ticket = Ticket(self, 0, granted=False, returning=True)
            self._returning[ticket] = None
            return ticket
        if len(self._queue) >= self._waiting or self._bytes + size > self._waiting_bytes:
            raise ServerBusy(
                f"Server busy: {self._running} requests are running and {len(self._queue)} are waiting; "
                f"try again in {self._retry_after:g} s",
                {"retryAfter": self._retry_after},
            )
        ticket = Ticket(self, size, granted=False)
        self._queue[ticket] = None
        self._bytes += size
        return ticket

    def _withdraw(self, ticket: Ticket) -> None:
        del (self._returning if ticket.returning else self._queue)[ticket]
        self._bytes -= ticket.size

    def _release(self) -> None:
        """Give a place back; the next in the queue gets it at once."""
        if self._queue or self._returning:
            ticket = next(iter(self._returning or self._queue))
            self._withdraw(ticket)
            ticket.grant()
        else:
            self._running -= 1


class Ticket:
    """A place, or the right to the next one that comes free. Made by `Executor.ticket`; waited for once.

    Attributes:
        size: Bytes that are held while it waits.
        returning: Whether whoever drew it has had a place before.
    """

    __slots__ = ("_behind", "_executor", "_granted", "_refusal", "_task", "returning", "size")

    def __init__(
        self,
        executor: Executor,
        size: int,
        *,
        granted: bool,
        behind: Ticket | None = None,
        returning: bool = False,
    ) -> None:
        self._executor = executor
        self._granted = granted
        self._behind = behind
        self._refusal: ServerBusy | None = None
        self._task: trio.lowlevel.Task | None = None
        self.size: int = size
        self.returning: bool = returning

    def grant(self) -> None:
        """The place is there: draw the ticket for the one behind it, and wake whoever waits."""
        self._granted = True
        if self._executor.then is not None:
            try:
                self._behind = self._executor.then.ticket(returning=self.returning)
            except ServerBusy as exc:
                self._refusal = exc
        if self._task is not None:
            trio.lowlevel.reschedule(self._task)
            self._task = None

    @property
    def ready(self) -> bool:
        """Whether the place is there, so that there is nothing to wait for."""
        behind = self._behind
        return self._granted and self._refusal is None and (behind is None or behind.ready)

    async def wait(self) -> None:
        """Wait for the place, cancellable; whoever has it calls `release`.

        Raises:
            ServerBusy: the executor behind is full.
        """
        if not self._granted:
            await self._wait()
        try:
            if self._refusal is not None:
                raise self._refusal
            if self._behind is not None and not self._behind.ready:
                await self._behind.wait()
        except BaseException:
            self._executor._release()
            raise

    async def _wait(self) -> None:
        self._task = trio.lowlevel.current_task()

        def abort(_: object) -> trio.lowlevel.Abort:
            self._task = None
            self._executor._withdraw(self)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def again(self) -> Ticket:
        """A new ticket for whoever has given this place back for a while. It was admitted once, so nobody refuses it."""
        return self._executor.ticket(returning=True)

    def release(self) -> None:
        """Give the place back; the next in the queue gets it at once."""
        if self._behind is not None:
            self._behind.release()
        self._executor._release()
