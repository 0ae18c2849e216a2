"""The seam between MCP and HTTP: one request, with its body read, and one answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

__all__ = ["EMPTY", "JSON", "HttpExchange", "HttpFields"]

JSON: Final = b"application/json"
EMPTY: Final = b""

HttpFields: TypeAlias = tuple[tuple[bytes, bytes], ...]
"""Header fields of an answer: lower-case names and values."""

_STREAM_FIELDS: Final = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)


class HttpExchange(ABC):
    """One HTTP request under way, and its answer. A host makes a subclass that sends in its way.

    The endpoint calls `respond` once, or `start_stream`, then `send_chunk` any number of times, then `end_stream`. They keep
    the state, and pass on what is to be sent to the methods that a host writes: `send_answer`, or `send_head`,
    `send_piece` and `send_end`. Those are called in this order, never after the end and never once the peer is gone. They
    are sync and must not block: they put bytes into a buffer, which a task of the host sends. Whoever produces many asks
    `full` and waits in `wait_room`, which is the only method that may block.

    A host calls `peer_gone` and `silent`, from any task of the same event loop.

    Args:
        method: The verb.
        headers: Fields by lower-case name; those that came several times are joined by `, `.
        body: The whole body.

    Attributes:
        method: The verb.
        headers: Fields of the request. The endpoint lets go of them, and of the body, once they were read.
        body: The whole body.
        streaming: Whether an event stream was started.
        done: Whether the answer is complete.
        gone: Whether the peer went away.
        fields: Header fields that every answer has besides its own; set by the endpoint.
        on_gone: Called once when the peer goes away; set by the endpoint.
        on_silence: Called by `silent`; set by the endpoint.
    """

    __slots__ = ("body", "done", "fields", "gone", "headers", "method", "on_gone", "on_silence", "streaming")

    def __init__(self, method: str, headers: Mapping[bytes, bytes], body: bytes) -> None:
        self.method: str = method
        self.headers: Mapping[bytes, bytes] = headers
        self.body: bytes = body
        self.streaming: bool = False
        self.done: bool = False
        self.gone: bool = False
        self.fields: HttpFields = ()
        self.on_gone: Callable[[], object] | None = None
        self.on_silence: Callable[[], object] | None = None

    # -- called by the host

    def peer_gone(self) -> None:
        """The peer went away: the call is cancelled, and nothing more is sent. Harmless when repeated, or after the answer."""
        if not self.gone:
            # Also where the answer was complete: whoever has just sent it learns that nobody took it.
            self.gone = True
            if not self.done and self.on_gone is not None:
                self.on_gone()

    def silent(self) -> None:
        """Nothing was sent for `limits.silence` seconds, and then for every `limits.keep_alive` seconds.

        The answer becomes an event stream if the client takes one, and gets a comment, so that nothing on the way takes the
        connection for dead.
        """
        if self.on_silence is not None:
            self.on_silence()

    # -- called by the endpoint

    def respond(self, status: int, body: bytes, content_type: bytes = JSON, extra: HttpFields = ()) -> None:
        """Send a whole answer, head and body together."""
        if self.done or self.gone:
            return
        self.done = True
        fields = extra + self.fields if self.fields else extra
        self.send_answer(status, content_type if body else EMPTY, fields, body)

    def start_stream(self) -> None:
        """Send the head of an event stream."""
        if self.streaming or self.done or self.gone:
            return
        self.streaming = True
        self.send_head(_STREAM_FIELDS + self.fields)

    def send_chunk(self, data: bytes, *, last: bool = False) -> bool:
        """Send a piece of the event stream.

        Args:
            data: The piece.
            last: It is the answer.

        Returns:
            False where it was dropped, since nobody can tell whether the peer reads; the answer never is.
        """
        return self.done or self.gone or self.send_piece(data, last)

    def end_stream(self) -> None:
        """End the event stream."""
        if not self.done and not self.gone:
            self.done = True
            self.send_end()

    # -- written by the host

    @abstractmethod
    def send_answer(self, status: int, content_type: bytes, fields: HttpFields, body: bytes) -> None:
        """Send a whole answer.

        Args:
            status: Its status.
            content_type: The value of `Content-Type`; empty when there is no body, and then there is no such field.
            fields: The other fields, without those of the framing (`Content-Length`, `Date`).
            body: The body. The answer to HEAD goes without it.
        """

    @abstractmethod
    def send_head(self, fields: HttpFields) -> None:
        """Send the head of an answer that comes in pieces, with status 200.

        Args:
            fields: All fields but those of the framing.
        """

    @abstractmethod
    def send_piece(self, data: bytes, last: bool) -> bool:
        """Send a piece of that answer: at once, as far as the peer takes it, without waiting for more.

        Args:
            data: The piece.
            last: It is the result, after which little comes.

        Returns:
            True. A host that cannot tell whether the peer reads may drop a piece that is not the last, and return False.
        """

    @abstractmethod
    def send_end(self) -> None:
        """The answer in pieces is complete."""

    @property
    @abstractmethod
    def full(self) -> bool:
        """Whether so much waits for the peer that whoever has more should wait: `limits.write_buffer` is a good measure."""

    @abstractmethod
    async def wait_room(self) -> None:
        """Wait while `full`. Checkpoints only when it waits, and comes back when the peer is gone."""
