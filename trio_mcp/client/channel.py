"""What a client needs of a transport."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import trio

from ..errors import ConnectionClosed, MCPError
from ..limits import DEFAULT
from ..protocol.envelope import Notification, Request
from ..protocol.meta import LOG_LEVELS

__all__ = ["Channel", "Hears", "Listener", "LogCallback", "ProgressCallback", "SessionLost", "SessionWire"]

ProgressCallback = Callable[[float, float | None, str | None], Awaitable[None] | None]
"""Called with the progress, the total or None, and the message or None. Plain or async."""

LogCallback = Callable[[str, Any, str | None], Awaitable[None] | None]
"""Called with the level, the data and the name of the logger or None. Plain or async."""


class Listener:
    """What the caller wants to hear while a call is under way, and what has come for it.

    Whoever reads the connection gives it messages and the answer, and never waits. The callbacks run in the caller's own
    task, in `wait`.

    Args:
        progress: Hears progress.
        log: Hears log lines.
        log_level: The least severe level of those.
        changes: Hears every notification of a stream that listens, at once: it never waits.
        most: Messages that may wait for the callbacks; beyond it the oldest goes.
    """

    __slots__ = ("_error", "_events", "_news", "changes", "log", "log_level", "progress", "result")

    def __init__(
        self,
        progress: ProgressCallback | None = None,
        log: LogCallback | None = None,
        log_level: str = "info",
        *,
        changes: Callable[[Notification], None] | None = None,
        most: int = DEFAULT.client_events,
    ) -> None:
        self.changes: Callable[[Notification], None] | None = changes
        self.progress: ProgressCallback | None = progress
        self.log: LogCallback | None = log
        self.log_level: str = log_level
        self.result: dict[str, Any] | None = None
        self._error: Exception | None = None
        self._events: deque[Notification] = deque(maxlen=most)
        self._news = trio.lowlevel.ParkingLot()

    @property
    def calls_back(self) -> bool:
        """Whether there is a callback that may take its time."""
        return self.progress is not None or self.log is not None

    @property
    def settled(self) -> bool:
        """Whether the answer is here."""
        return self.result is not None or self._error is not None

    def post(self, message: Notification) -> None:
        """Take a notification; what nobody wants to hear is dropped."""
        if self.changes is not None:
            self.changes(message)
        elif self._wants(message):
            self._events.append(message)
            self._news.unpark_all()

    def _wants(self, message: Notification) -> bool:
        if message.method == "notifications/progress":
            return self.progress is not None and type(message.params.get("progress")) in (int, float)
        if message.method == "notifications/message" and self.log is not None:
            return LOG_LEVELS.get(str(message.params.get("level")), -1) >= LOG_LEVELS[self.log_level]
        return False

    def settle(self, *, result: dict[str, Any] | None = None, error: Exception | None = None) -> None:
        """Take the answer; the first one counts."""
        if not self.settled:
            self.result, self._error = result, error
            self._news.unpark_all()

    def answer(self) -> dict[str, Any] | None:
        """The result, if it is here; an error is raised."""
        if self._error is not None:
            raise self._error
        return self.result

    async def wait(self) -> dict[str, Any]:
        """Tell the callbacks what has come, and return the answer when there is nothing more to tell."""
        while True:
            while self._events:
                await self._tell(self._events.popleft())
            result = self.answer()
            if result is not None:
                return result
            await self._news.park()

    async def _tell(self, message: Notification) -> None:
        params = message.params
        outcome: Any = None
        if message.method == "notifications/progress" and self.progress is not None:
            total, text = params.get("total"), params.get("message")
            outcome = self.progress(
                params["progress"],
                total if type(total) in (int, float) else None,
                text if isinstance(text, str) else None,
            )
        elif self.log is not None:
            name = params.get("logger")
            outcome = self.log(str(params.get("level")), params.get("data"), name if isinstance(name, str) else None)
        if inspect.isawaitable(outcome):
            await outcome


class Hears(Protocol):
    """Who takes what a server says by itself, in the revisions with sessions."""

    def asked(self, request: Request) -> None:
        """The server asks something. Does not wait."""

    def told(self, message: Notification) -> None:
        """The server tells something that belongs to no call. Does not wait."""

    def ended(self, error: ConnectionClosed) -> None:
        """Nothing more can come. Does not wait."""

    def lost(self, error: ConnectionClosed) -> None:
        """The server cannot be reached now, so what it tells is missed. Does not wait."""


class SessionWire(Protocol):
    """What a session needs of its transport besides calls."""

    @property
    def peer(self) -> str:
        """What the server is."""
        ...

    async def call(self, method: str, params: dict[str, Any], listener: Listener) -> dict[str, Any]:
        """As of `Channel`."""
        ...

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        """Tell the server something. An error is an error of the connection."""

    async def respond(self, message: bytes) -> None:
        """Answer a question of the server.

        Args:
            message: The response, as JSON text.
        """

    def begin(self, hears: Hears, revision: str) -> None:
        """The server has answered `initialize`."""

    async def listen(self) -> None:
        """Hear what belongs to no call, while the session lasts. May come back at once where nothing has to be done for it."""

    async def end(self) -> None:
        """End the session, if the server has to be told. Bounded by whoever calls."""

    @property
    def reconnects(self) -> bool:
        """As of `Channel`."""
        ...

    @property
    def note(self) -> str:
        """As of `Channel`."""
        ...


class SessionLost(MCPError):
    """The server does not know the session any more. It has not run what it was asked.

    Args:
        error: What it answered, for whoever cannot open another session.
    """

    def __init__(self, error: MCPError) -> None:
        super().__init__(f"{error}; the session is lost")
        self.error: MCPError = error


class Channel(ABC):
    """One way to one server. Requests may overlap."""

    @abstractmethod
    async def call(self, method: str, params: dict[str, Any], listener: Listener) -> dict[str, Any]:
        """Send a request and return its result.

        Cancelling this cancels the request on the server, in the way of the transport.

        Args:
            method: Its method.
            params: Its parameters with their `_meta`; the channel adds the progress token if progress is wanted.
            listener: Callbacks.

        Raises:
            ProtocolError: the server answered with an error.
            ConnectionClosed: the connection ended first.
        """

    def learn_tools(self, tools: list[Any]) -> list[Any]:
        """Hear of the tools of the server, as they came; return those that can be called this way."""
        return tools

    @property
    @abstractmethod
    def peer(self) -> str:
        """What the server is, for error messages: a command, a URL, a name."""

    @property
    def reconnects(self) -> bool:
        """Whether a request may succeed after one that failed with `ConnectionClosed`."""
        return False

    @property
    def note(self) -> str:
        """Anything odd that was received and may explain a missing answer; empty if there was nothing."""
        return ""
