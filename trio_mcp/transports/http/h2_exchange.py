"""An answer on a stream of an HTTP/2 connection."""

from __future__ import annotations

from typing import Protocol

import trio

from ...protocol.http import Accepts
from ...wire.http2 import Http2
from ...wire.http2_events import Head
from ...wire.http2_fields import encode_head
from .date import http_date
from .exchange import HttpExchange, HttpFields

__all__ = ["H2Exchange"]


class Connection(Protocol):
    """What an answer needs of its connection."""

    wire: Http2
    room: trio.lowlevel.ParkingLot

    def wake(self) -> None:
        """There is something to write."""

    def streaming(self, exchange: H2Exchange) -> None:
        """An answer has become a stream, which is kept alive from now on."""

    def full(self, stream: int) -> bool:
        """Whether the client is slow to read this stream."""
        ...


class H2Exchange(HttpExchange):
    """One request on the connection, and its answer.

    Attributes:
        accepts: What the client takes.
        stream: Its number.
        due: When the body must have come, and later when the answer counts as silent.
        held: Bytes of the body that the budget of the edge was asked for.
    """

    __slots__ = ("_connection", "accepts", "due", "held", "stream")

    def __init__(self, connection: Connection, head: Head) -> None:
        super().__init__(head.request.method, head.request.headers, b"")
        self._connection = connection
        self.accepts: Accepts | None = None
        self.stream: int = head.stream
        self.due: float = 0.0
        self.held: int = 0

    def send_answer(self, status: int, content_type: bytes, fields: HttpFields, body: bytes) -> None:
        kind = ((b"content-type", content_type),) if content_type else ()
        block = encode_head(status, ((b"content-length", b"%d" % len(body)), (b"date", http_date()), *fields, *kind))
        if self.method == "HEAD":
            body = b""
        wire = self._connection.wire
        wire.send_head(self.stream, block, end=not body)
        if body:
            wire.send_data(self.stream, body, end=True)
        self._connection.wake()

    def send_head(self, fields: HttpFields) -> None:
        self._connection.wire.send_head(self.stream, encode_head(200, (*fields, (b"date", http_date()))))
        self._connection.streaming(self)
        self._connection.wake()

    def send_piece(self, data: bytes, last: bool) -> bool:
        self._connection.wire.send_data(self.stream, data)
        self._connection.wake()
        return True

    def send_end(self) -> None:
        self._connection.wire.send_data(self.stream, b"", end=True)
        self._connection.wake()

    @property
    def full(self) -> bool:
        return not self.gone and self._connection.full(self.stream)

    async def wait_room(self) -> None:
        while self.full:
            await self._connection.room.park()
