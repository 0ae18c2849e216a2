"""An answer on an HTTP/1.1 connection."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from .date import http_date
from .exchange import JSON, Exchange
from .incoming import Incoming

if TYPE_CHECKING:
    from .h1 import H1Connection

__all__ = ["H1Exchange"]

_REASONS: Final = {status.value: status.phrase.encode() for status in HTTPStatus}
_STREAM_FIELDS: Final = b"content-type: text/event-stream\r\ncache-control: no-store\r\nx-accel-buffering: no\r\n"


class H1Exchange(Exchange):
    """One request on the connection, and its answer."""

    __slots__ = ("_connection", "_head", "_old", "keep_alive")

    def __init__(self, connection: H1Connection, incoming: Incoming) -> None:
        super().__init__(incoming.method, incoming.headers, incoming.body)
        self._connection = connection
        self._head = incoming.method == "HEAD"
        self._old = incoming.old
        self.keep_alive: bool = incoming.keep_alive

    def respond(
        self, status: int, body: bytes, content_type: bytes = JSON, extra: tuple[tuple[bytes, bytes], ...] = ()
    ) -> None:
        if self.done or self.gone:
            return
        self.done = True
        fields = b"content-type: " + content_type + b"\r\n" if body else b""
        for name, value in extra + self.fields if self.fields else extra:
            fields += name + b": " + value + b"\r\n"
        fields += b"content-length: %d\r\n" % len(body)
        head = self._start(status, fields)
        self._connection.post(head if self._head else head + body)

    def _start(self, status: int, fields: bytes) -> bytes:
        if self._connection._draining:
            self.keep_alive = False
        if not self.keep_alive:
            fields += b"connection: close\r\n"
        elif self._old:
            fields += b"connection: keep-alive\r\n"
        return b"HTTP/1.1 %d %b\r\ndate: %b\r\n%b\r\n" % (status, _REASONS[status], http_date(), fields)

    def start_stream(self) -> None:
        if self.streaming or self.done or self.gone:
            return
        self.streaming = True
        if self._old:
            self.keep_alive = False
            fields = _STREAM_FIELDS
        else:
            fields = _STREAM_FIELDS + b"transfer-encoding: chunked\r\n"
        for name, value in self.fields:
            fields += name + b": " + value + b"\r\n"
        self._connection.post(self._start(200, fields))
        self._connection._schedule()

    def send_chunk(self, data: bytes, *, last: bool = False) -> bool:
        if not self.gone and not self.done:
            self._connection.post(data if self._old else b"%x\r\n%b\r\n" % (len(data), data))
        return True

    def end_stream(self) -> None:
        if self.gone or self.done:
            return
        self.done: bool = True
        if not self._old:
            self._connection.post(b"0\r\n\r\n")

    @property
    def full(self) -> bool:
        return self._connection.outbox.full

    async def wait_room(self) -> None:
        await self._connection.outbox.wait_room()
