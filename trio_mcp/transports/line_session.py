"""The session of a connection that is one, in the revisions before 2026-07-28 (lines, and the pair of 2024-11-05): it begins with
`initialize`, and ends with the connection."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any, Protocol

import trio

from ..errors import InvalidRequest
from ..limits import Limits
from ..protocol.envelope import ErrorResponse, Notification, Request, Response
from ..scopes.call import Outlet
from ..server.peer.events import Event
from ..server.peer.session import Session
from ..server.serve.engine import Engine

__all__ = ["Batch", "LineSession", "Sink", "check_batch"]

logger: logging.Logger = logging.getLogger("trio_mcp.server")


class Sink(Protocol):
    """The half of a connection that goes to the client."""

    @property
    def full(self) -> bool:
        """Whether the client is slow to read."""
        ...

    @property
    def broken(self) -> bool:
        """Whether it is known to be gone."""
        ...

    async def wait_room(self) -> None:
        """Wait while it is slow. Checkpoints only when it waits."""

    def post(self, message: bytes, *, now: bool = False) -> None:
        """Send one message. Does not block, and does nothing once the client is gone.

        Args:
            message: JSON text.
            now: Write at once, if nothing else is under way.
        """


class LineSession:
    """What a connection has when its client has said `initialize`.

    Args:
        engine: The server.
        link: Where messages go.
        nursery: Of the connection.
    """

    def __init__(self, engine: Engine, link: Sink, nursery: trio.Nursery) -> None:
        self._engine = engine
        self._link = link
        self._nursery = nursery
        self.session: Session | None = None

    def begin(self, request: Request) -> bytes:
        """Answer `initialize`. A second one begins the session anew.

        Raises:
            InvalidParams: the parameters are not those of `initialize`.
        """
        dialect, hello, answer = self._engine.welcome(request)
        self.end()
        self.session = session = self._engine.sessions.join(dialect, hello)
        self._nursery.start_soon(session.events.standalone.pump, _LinkTaker(self._link))
        if self._engine.limits.session_ping < math.inf:
            self._nursery.start_soon(self._keep_alive, session)
        return answer

    async def _keep_alive(self, session: Session) -> None:
        await session.keep_alive(self._engine.limits.session_ping)
        if not session.closed:
            logger.warning("%r does not answer pings: its connection ends", session)
            self._nursery.cancel_scope.cancel()

    def end(self) -> None:
        """The connection has ended."""
        if self.session is not None:
            self._engine.sessions.leave(self.session)

    def deafen(self) -> None:
        """Nothing more is read: answers to questions will not come."""
        if self.session is not None:
            self.session.deafen("the end of its input has come")

    def take(self, message: Notification | Response | ErrorResponse) -> None:
        """Take what is no request."""
        if isinstance(message, Notification):
            if self.session is not None:
                self.session.notified(message)
        elif self.session is None or not self.session.answered(message):
            logger.warning("ignored a response from the client: nobody waits for it")


class _LinkTaker:
    """What belongs to no call goes out as everything else does."""

    def __init__(self, link: Sink) -> None:
        self._link = link

    @property
    def full(self) -> bool:
        return self._link.full

    async def wait_room(self) -> None:
        await self._link.wait_room()

    def send(self, event: Event, id: str) -> bool:
        self._link.post(event.message)
        return True

    def tell(self, message: bytes) -> None:
        self._link.post(message)

    def end(self) -> None:
        pass


def check_batch(messages: list[Any], limits: Limits) -> None:
    """Check how many messages a batch has.

    Raises:
        InvalidRequest: none, or too many.
    """
    if not messages:
        raise InvalidRequest("Invalid request: an empty batch")
    if len(messages) > limits.batch_messages:
        raise InvalidRequest(
            f"Invalid request: {len(messages)} messages in a batch; the limit is {limits.batch_messages}"
        )


class Batch:
    """The answers to one batch (2025-03-26 only): they go out together. What belongs to a call besides goes out at once.

    Args:
        outlet: Where all of it goes.
        send: Sends the array of the answers; called once, unless there is none.

    Attributes:
        on_end: Called after that.
    """

    def __init__(self, outlet: Outlet, send: Callable[[bytes], object]) -> None:
        self._outlet = outlet
        self._send = send
        self._answers: list[bytes] = []
        self._left = 1
        self.on_end: Callable[[], None] | None = None

    def begin(self) -> None:
        self._outlet.begin()

    @property
    def full(self) -> bool:
        return self._outlet.full

    async def wait_room(self) -> None:
        await self._outlet.wait_room()

    def post(self, message: bytes) -> None:
        self._outlet.post(message)

    def answer(self, message: bytes) -> bool:
        self._answers.append(message)
        return True

    def add(self) -> None:
        """One more is under way."""
        self._left += 1

    def ended(self) -> None:
        """One is not under way any more; called once more when all of them have begun."""
        self._left -= 1
        if not self._left:
            if self._answers:
                self._send(b"[" + b",".join(self._answers) + b"]")
            if self.on_end is not None:
                self.on_end()
