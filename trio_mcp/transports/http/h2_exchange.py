"""An answer on a stream of an HTTP/2 connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...protocol.http import Accepts
from ...wire.http2_events import Head
from ...wire.http2_fields import encode_head
from .date import http_date
from .exchange import JSON, Exchange

if TYPE_CHECKING:
    from .h2 import H2Connection

__all__ = ["H2Exchange"]

_STREAM_FIELDS: Final = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)


class H2Exchange(Exchange):
    """One request on the connection, and its answer.

    Attributes:
        accepts: What the client takes.
        stream: Its number.
        due: When the body must have come, and later when the answer counts as silent.
        held: Bytes of the body that the budget of the edge was asked for.
    """

    __slots__ = ("_connection", "accepts", "due", "held", "stream")

    def __init__(self, connection: H2Connection, head: Head) -> None:
        super().__init__(head.request.method, head.request.headers, b"")
        self._connection = connection
        self.accepts: Accepts | None = None
        self.stream: int = head.stream
        self.due: float = 0.0
        self.held: int = 0

    def respond(
        self, status: int, body: bytes, content_type: bytes = JSON, extra: tuple[tuple[bytes, bytes], ...] = ()
    ) -> None:
        if self.done or self.gone:
            return
        self.done = True
        fields = [(b"content-length", b"%d" % len(body)), (b"date", http_date()), *extra, *self.fields]
        if body:
            fields.append((b"content-type", content_type))
        if self.method == "HEAD":
            body = b""
        wire = self._connection.wire
        wire.send_head(self.stream, encode_head(status, fields), end=not body)
        if body:
            wire.send_data(self.stream, body, end=True)
        self._connection.wake()

    def start_stream(self) -> None:
        if self.streaming or self.done or self.gone:
            return
        self.streaming = True
        block = encode_head(200, (*_STREAM_FIELDS, (b"date", http_date()), *self.fields))
        self._connection.wire.send_head(self.stream, block)
        self._connection.streaming(self)
        self._connection.wake()

    def send_chunk(self, data: bytes, *, last: bool = False) -> bool:
        if not self.gone and not self.done:
            self._connection.wire.send_data(self.stream, data)
            self._connection.wake()
        return True

    def end_stream(self) -> None:
        if self.gone or self.done:
            return
        self.done: bool = True
        self._connection.wire.send_data(self.stream, b"", end=True)
        self._connection.wake()

    @property
    def full(self) -> bool:
        return not self.gone and self._connection.full(self.stream)

    async def wait_room(self) -> None:
        while self.full:
            await self._connection.room.park()
