"""One call: its cancel scope, its relay and its one settlement.

Whatever ends a call does it here. `settle` decides once; everything else asks. After a cancellation nothing is sent for
the call any more, and a cancellation that meets an answer on its way loses quietly.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from enum import Enum
from typing import Any, Final, Protocol

import trio

from ..protocol.envelope import RequestId, encode_notification
from ..protocol.legacy import Dialect
from ..protocol.meta import RequestMeta
from .executor import Ticket

__all__ = ["ENDING", "Call", "LastingCall", "Outlet", "Settlement", "Successor", "run_call"]


ENDING: Final = "The server is shutting down, and did not wait for this request any longer"
"""What is answered to a call that is given up at the end of the server."""


class Settlement(Enum):
    """How a call stands."""

    OPEN = "open"
    ANSWERED = "answered"
    CANCELLED = "cancelled"


class Outlet(Protocol):
    """Where the messages of one call go, before and after its answer. A transport provides it."""

    def begin(self) -> None:
        """The call has its place, and its work begins."""

    @property
    def full(self) -> bool:
        """Whether the peer is slow to read, so that whoever has more for it should wait."""
        ...

    async def wait_room(self) -> None:
        """Wait while the peer is slow to read. Cancellable; checkpoints only when it waits."""

    def post(self, message: bytes) -> None:
        """Send a notification that belongs to the call. Does not block: whoever posts has waited for room just before.

        Args:
            message: JSON text without line ends.
        """

    def answer(self, message: bytes) -> bool:
        """Send the answer: called at most once, never after a cancellation. Does not block.

        Returns:
            Whether it was taken; False where the peer is known to be gone.
        """
        ...


class Successor(Protocol):
    """What a call has become when its work outlives the request: a task."""

    @property
    def id(self) -> str:
        """How the client finds it."""
        ...

    def note(self, message: str) -> None:
        """Take progress or a log line, as text. Does not wait."""

    async def record(self) -> None:
        """There is more that a run after this one wants to find: it is stored when this returns."""

    async def ask(self, entries: Sequence[Any]) -> None:
        """Ask the client, and wait for answers that fit: each entry has its own then."""

    def abandon(self) -> None:
        """The client does not know of it and never will: end the work."""


class Inquirer(Protocol):
    """Who asks the client while a call waits: its session, in the revisions that have some."""

    async def ask(self, call: Call, entries: Sequence[Any]) -> None:
        """Ask the client, and wait for answers that fit: each entry has its own then."""

    def begun(self, task_id: str) -> None:
        """A call of it has become a task."""


class _Lent:
    """What a call has given back while it waits for its client."""

    __slots__ = ("left", "place", "ways")

    def __init__(self, place: Ticket | None, left: float) -> None:
        self.place = place
        self.left = left
        self.ways = 0


class Call:
    """One request under way.

    Attributes:
        id: The id of the request.
        method: Its method.
        params: Its parameters, checked against the method table.
        meta: Its `_meta`.
        scope: The one cancel scope around everything that works for it.
        outlet: Where its messages go.
        timeout: Seconds that it may run.
        settlement: How it stands.
        reason: Why it was cancelled, for the log.
        status: The HTTP status of the answer.
        retry_after: Seconds that the answer tells the caller to wait, or None.
        principal: Who calls, as an authenticated name; empty where nobody is.
        task: What it has become, when its work was handed over.
        place: Its ticket, while it waits for its place or has it.
        dialect: How the revision of its session says things; None in the modern one, which has no sessions.
        session: Its session, or None.
        close_stream: Ends the stream of its answer, so that its client comes back for the rest; None where it could not.
        stays: Whether it may not become a task any more: its client could not be told, or its answer is decided.
        delivered: Whether its answer was taken.
    """

    __slots__ = (
        "_lent",
        "close_stream",
        "delivered",
        "dialect",
        "id",
        "meta",
        "method",
        "outlet",
        "params",
        "place",
        "principal",
        "reason",
        "retry_after",
        "scope",
        "session",
        "settlement",
        "status",
        "stays",
        "task",
        "timeout",
    )

    def __init__(
        self,
        id: RequestId,
        method: str,
        params: dict[str, Any],
        meta: RequestMeta,
        outlet: Outlet,
        timeout: float = math.inf,
    ) -> None:
        self.id: RequestId = id
        self.method: str = method
        self.params: dict[str, Any] = params
        self.meta: RequestMeta = meta
        self.outlet: Outlet = outlet
        self.timeout: float = timeout
        # Counts anew from the moment at which it has its places: waiting is not running.
        self.scope: trio.CancelScope = trio.CancelScope(relative_deadline=timeout)
        self.settlement: Settlement = Settlement.OPEN
        self.reason: str | None = None
        self.status: int = 200
        self.retry_after: float | None = None
        self.principal: str = ""
        self.task: Successor | None = None
        self.place: Ticket | None = None
        self.stays: bool = False
        self.delivered: bool = False
        self.dialect: Dialect | None = None
        self.session: Inquirer | None = None
        self.close_stream: Callable[[], None] | None = None
        self._lent: _Lent | None = None

    def __repr__(self) -> str:
        return f"<Call {self.id!r} {self.method} {self.settlement.value}>"

    @property
    def open(self) -> bool:
        """Whether it is not settled yet."""
        return self.settlement is Settlement.OPEN

    def settle(self, settlement: Settlement) -> bool:
        """Settle the call; True for the one who did."""
        if self.settlement is not Settlement.OPEN:
            return False
        self.settlement = settlement
        return True

    def cancel(self, reason: str) -> bool:
        """Cancel the scope, unless the call is settled; True if it was this that ended it."""
        if not self.settle(Settlement.CANCELLED):
            return False
        self.reason = reason
        self.scope.cancel()
        return True

    def answer(self, message: bytes) -> None:
        """Send the answer, unless the call is settled."""
        if self.settle(Settlement.ANSWERED):
            self.delivered = self.outlet.answer(message)

    def give_up(self, message: bytes) -> None:
        """Answer that the server ends, and cancel the scope. What the call has become ends too: its client was not told of it."""
        if self.settle(Settlement.ANSWERED):
            self.reason = "the server ends"
            self.outlet.answer(message)
            self.scope.cancel()

    def limit(self, timeout: float | None) -> None:
        """Give the running call another timeout, in seconds from now; None leaves it as it is."""
        if timeout is not None:
            self.timeout = timeout
            self.scope.deadline = trio.current_time() + timeout

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        """Held while the call waits for its client: its place is given back, and its time does not run.

        Several tasks of a call may be away at once. It has a place again as soon as one of them is back.
        """
        if self._lent is None:
            self._lent = _Lent(self.place, self.scope.deadline - trio.current_time())
            self.scope.deadline = math.inf
            if self.place is not None:
                self.place.release()
                self.place = None
        lent = self._lent
        lent.ways += 1
        try:
            try:
                yield
            except Exception:
                await self._come_back(lent)
                raise
            await self._come_back(lent)
        finally:
            lent.ways -= 1
            if not lent.ways:
                self._lent = None
                self.scope.deadline = trio.current_time() + lent.left

    async def _come_back(self, lent: _Lent) -> None:
        # Several tasks of one call may ask at once: it is back when the last one is.
        if lent.ways == 1 and lent.place is not None and self.place is None:
            ticket = lent.place.again()
            if not ticket.ready:
                await ticket.wait()
            self.place = ticket

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        """Relay a notification of the worker, once there is room for it. Says nothing once the call is settled."""
        await trio.lowlevel.checkpoint()
        if self.settlement is Settlement.OPEN:
            # Between this and the post nobody else runs, so what waits for the peer is bounded.
            await self.outlet.wait_room()
            if self.settlement is Settlement.OPEN:
                self.outlet.post(encode_notification(method, params))


class LastingCall(Call):
    """A call that lasts until somebody ends it, and takes no place of an executor: it waits, it does not work.

    Attributes:
        ended: Whether the server ended it.
    """

    __slots__ = ("_on_end", "ended")

    def __init__(self, id: RequestId, method: str, params: dict[str, Any], meta: RequestMeta, outlet: Outlet) -> None:
        super().__init__(id, method, params, meta, outlet)
        self.ended: bool = False
        self._on_end: Callable[[], None] | None = None

    def on_end(self, fn: Callable[[], None]) -> None:
        """Have `fn` called when the server ends; at once if it has."""
        self._on_end = fn
        if self.ended:
            fn()

    def end(self) -> None:
        """The server ends: let the call finish with its result."""
        self.ended = True
        if self._on_end is not None:
            self._on_end()


async def run_call(call: Call, work: Callable[[Call], Awaitable[None]], timed_out: Callable[[Call], bytes]) -> None:
    """Run one call to its settlement, inside its scope.

    Args:
        call: The call; one that was cancelled before is over at the first thing that it waits for.
        work: The worker: waits for the places of the call, and answers it. Turns its own errors into answers.
        timed_out: The response for a call whose deadline passed.
    """
    try:
        with call.scope:
            await work(call)
        if call.scope.cancelled_caught and call.open:
            # Nobody cancelled it, so its deadline passed.
            call.answer(timed_out(call))
    finally:
        # Ended from outside: nothing is said for it any more.
        call.settle(Settlement.CANCELLED)
        if call.task is not None and not call.delivered:
            call.task.abandon()
