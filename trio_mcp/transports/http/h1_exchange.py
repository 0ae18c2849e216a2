"""An answer on an HTTP/1.1 connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...wire.answers import Answer
from .date import http_date
from .exchange import EMPTY, JSON, Exchange

if TYPE_CHECKING:
    from .h1 import H1Connection

__all__ = ["H1Exchange"]

_STREAM_FIELDS: Final = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)


class H1Exchange(Exchange):
    """One request on the connection, and its answer."""

    __slots__ = ("_answer", "_connection")

    def __init__(self, connection: H1Connection, answer: Answer) -> None:
        request = answer.request
        super().__init__(request.method, request.headers, request.body)
        self._connection = connection
        self._answer = answer
        # The exchange lets go of them once they were read, and so must the request, which lives as long as the answer.
        request.body, request.headers = EMPTY, {}

    def respond(
        self, status: int, body: bytes, content_type: bytes = JSON, extra: tuple[tuple[bytes, bytes], ...] = ()
    ) -> None:
        if self.done or self.gone:
            return
        self.done = True
        fields = extra + self.fields if self.fields else extra
        self._connection.post(self._answer.respond(status, http_date(), content_type, body, fields))

    def start_stream(self) -> None:
        if self.streaming or self.done or self.gone:
            return
        self.streaming = True
        self._connection.post(self._answer.start(200, http_date(), _STREAM_FIELDS + self.fields))
        self._connection.schedule()

    def send_chunk(self, data: bytes, *, last: bool = False) -> bool:
        if not self.gone and not self.done:
            self._connection.post(self._answer.chunk(data))
        return True

    def end_stream(self) -> None:
        if self.gone or self.done:
            return
        self.done: bool = True
        data = self._answer.end()
        if data:
            self._connection.post(data)

    @property
    def full(self) -> bool:
        return self._connection.outbox.full

    async def wait_room(self) -> None:
        await self._connection.outbox.wait_room()
