"""What a client needs of a transport."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any

from ..protocol.envelope import Notification

__all__ = ["Channel", "Listener", "LogCallback", "ProgressCallback"]

ProgressCallback = Callable[[float, float | None, str | None], Awaitable[None] | None]
"""Called with the progress, the total or None, and the message or None. Plain or async."""

LogCallback = Callable[[str, Any, str | None], Awaitable[None] | None]
"""Called with the level, the data and the name of the logger or None. Plain or async."""


class Listener:
    """What the caller wants to hear while a call is under way. The callbacks run in the caller's own task."""

    __slots__ = ("changes", "log", "log_level", "progress")

    def __init__(
        self,
        progress: ProgressCallback | None = None,
        log: LogCallback | None = None,
        log_level: str = "info",
        *,
        changes: Callable[[Notification], None] | None = None,
    ) -> None:
        # Hears every notification of a stream that listens, at once: it never waits.
        self.changes: Callable[[Notification], None] | None = changes
        self.progress: ProgressCallback | None = progress
        self.log: LogCallback | None = log
        self.log_level: str = log_level

    async def tell(self, message: Notification) -> None:
        """Call the callback that a progress or log notification is for, if there is one."""
        params = message.params
        outcome: Any = None
        if self.changes is not None:
            self.changes(message)
            return
        if message.method == "notifications/progress":
            number = params.get("progress")
            if self.progress is not None and isinstance(number, int | float):
                outcome = self.progress(number, params.get("total"), params.get("message"))
        elif message.method == "notifications/message" and self.log is not None:
            outcome = self.log(str(params.get("level")), params.get("data"), params.get("logger"))
        if inspect.isawaitable(outcome):
            await outcome


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
