"""The seam between MCP and HTTP: one request, with its body read, and one answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Final

__all__ = ["EMPTY", "JSON", "Exchange"]

JSON: Final = b"application/json"
EMPTY: Final = b""


class Exchange(ABC):
    """One HTTP request under way.

    Everything that answers is sync and does not block: bytes are posted, and whoever produces many waits for room.

    Attributes:
        method: The verb.
        headers: Fields by lower-case name.
        body: The whole body.
        streaming: Whether an event stream was started.
        done: Whether the answer is complete.
        gone: Whether the peer went away.
        fields: Header fields that every answer has besides its own.
        on_gone: Called once when it does.
        on_silence: Called by the transport when nothing was sent for `limits.silence`, and then every
            `limits.keep_alive` seconds.
    """

    __slots__ = ("body", "done", "fields", "gone", "headers", "method", "on_gone", "on_silence", "streaming")

    def __init__(self, method: str, headers: Mapping[bytes, bytes], body: bytes) -> None:
        self.method: str = method
        self.headers: Mapping[bytes, bytes] = headers
        self.body: bytes = body
        self.streaming: bool = False
        self.done: bool = False
        self.gone: bool = False
        self.fields: tuple[tuple[bytes, bytes], ...] = ()
        self.on_gone: Callable[[], object] | None = None
        self.on_silence: Callable[[], object] | None = None

    def peer_gone(self) -> None:
        """Told by the transport: the peer went away before the answer was complete."""
        if not self.gone and not self.done:
            self.gone = True
            if self.on_gone is not None:
                self.on_gone()

    def left(self) -> bool:
        """Whether the peer went away, as of now."""
        return self.gone

    @abstractmethod
    def respond(
        self, status: int, body: bytes, content_type: bytes = JSON, extra: tuple[tuple[bytes, bytes], ...] = ()
    ) -> None:
        """Send a whole answer, head and body together."""

    @abstractmethod
    def start_stream(self) -> None:
        """Send the head of an event stream."""

    @abstractmethod
    def send_chunk(self, data: bytes, *, last: bool = False) -> bool:
        """Send a piece of the event stream.

        Args:
            data: The piece.
            last: It is the answer.

        Returns:
            False where it was dropped, since nobody can tell whether the peer reads; the answer never is.
        """

    @abstractmethod
    def end_stream(self) -> None:
        """End the event stream."""

    @property
    @abstractmethod
    def full(self) -> bool:
        """Whether so much waits for the peer that whoever has more should wait."""

    @abstractmethod
    async def wait_room(self) -> None:
        """Wait while the peer is slow to read. Checkpoints only when it waits."""
