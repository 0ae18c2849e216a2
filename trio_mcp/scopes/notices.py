"""Fan-out of changes to those who listen.

To publish never waits: a listener holds what it has not sent yet as a set of distinct notices, so what it holds is bounded by
its own filter, however fast changes come and however slowly it reads; the same change twice is told once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio

from ..errors import ServerBusy
from ..limits import DEFAULT

__all__ = ["Notice", "Notices", "Subscription"]

Notice = tuple[str, str | None]
"""A notification, and the URI that it is about if it is about one."""


class Subscription:
    """One listener. Made by `Notices.subscribe`."""

    __slots__ = ("_changed", "_ended", "_pending", "_wants")

    def __init__(self, wants: Callable[[str, str | None], bool]) -> None:
        self._wants = wants
        # A dict is a set that keeps the order.
        self._pending: dict[Notice, None] = {}
        self._ended = False
        self._changed = trio.lowlevel.ParkingLot()

    def offer(self, notice: Notice) -> None:
        """Take a notice, if it is wanted."""
        if self._wants(*notice):
            self._pending[notice] = None
            self._changed.unpark_all()

    def end(self) -> None:
        """Let the listener end, once it has been told what there is."""
        self._ended = True
        self._changed.unpark_all()

    async def next(self) -> list[Notice] | None:
        """Wait for notices; None at the end."""
        while not self._pending and not self._ended:
            await self._changed.park()
        if not self._pending:
            return None
        notices = list(self._pending)
        self._pending.clear()
        return notices


class Notices:
    """Those who listen to one server.

    Args:
        most: Listeners at once.
        retry_after: Seconds that one more is told to wait.
    """

    def __init__(self, most: int, *, retry_after: float = DEFAULT.retry_after) -> None:
        self._most = most
        self._retry_after = retry_after
        self._subscriptions: dict[Subscription, None] = {}
        self._hearers: dict[Callable[[Notice], None], None] = {}
        self._token: trio.lowlevel.TrioToken | None = None
        self._thread = 0

    def __len__(self) -> int:
        return len(self._subscriptions)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Held while the server is open; before and after, changes interest nobody."""
        self._token = trio.lowlevel.current_trio_token()
        self._thread = threading.get_ident()
        try:
            yield
        finally:
            self._token = None

    @contextmanager
    def subscribe(self, wants: Callable[[str, str | None], bool]) -> Iterator[Subscription]:
        """Listen until the block is left.

        Args:
            wants: Whether a notice is wanted.

        Raises:
            ServerBusy: there are as many listeners as there may be.
        """
        if len(self._subscriptions) >= self._most:
            raise ServerBusy(
                f"Server busy: {self._most} streams are listening already; try again in {self._retry_after:g} s",
                {"retryAfter": self._retry_after},
            )
        subscription = Subscription(wants)
        self._subscriptions[subscription] = None
        try:
            yield subscription
        finally:
            del self._subscriptions[subscription]

    @contextmanager
    def attach(self, hear: Callable[[Notice], None]) -> Iterator[None]:
        """Have a function called with each notice, until the block is left. It must not wait."""
        self._hearers[hear] = None
        try:
            yield
        finally:
            del self._hearers[hear]

    def publish(self, method: str, uri: str | None = None) -> None:
        """Tell everyone who wants to know. Callable from any thread; never waits."""
        token = self._token
        if token is None:
            return
        if threading.get_ident() == self._thread:
            self._publish((method, uri))
            return
        try:
            token.run_sync_soon(self._publish, (method, uri))
        except trio.RunFinishedError:
            pass

    def _publish(self, notice: Notice) -> None:
        for subscription in self._subscriptions:
            subscription.offer(notice)
        for hear in self._hearers:
            hear(notice)
