"""An answer on an HTTP/1.1 connection."""

from __future__ import annotations

from typing import Protocol

from ...wire.answers import Answer
from ..outbox import Outbox
from .date import http_date
from .exchange import EMPTY, HttpExchange, HttpFields

__all__ = ["H1Exchange"]


class Connection(Protocol):
    """What an answer needs of its connection."""

    outbox: Outbox

    def post(self, data: bytes) -> None:
        """Have bytes written."""

    def streams(self) -> None:
        """An answer has become a stream, which is kept alive from now on."""


class H1Exchange(HttpExchange):
    """One request on the connection, and its answer."""

    __slots__ = ("_answer", "_connection")

    def __init__(self, connection: Connection, answer: Answer) -> None:
        request = answer.request
        super().__init__(request.method, request.headers, request.body)
        self._connection = connection
        self._answer = answer
        # The exchange lets go of them once they were read, and so must the request, which lives as long as the answer.
        request.body, request.headers = EMPTY, {}

    def send_answer(self, status: int, content_type: bytes, fields: HttpFields, body: bytes) -> None:
        self._connection.post(self._answer.respond(status, http_date(), content_type, body, fields))

    def send_head(self, fields: HttpFields) -> None:
        self._connection.post(self._answer.start(200, http_date(), fields))
        self._connection.streams()

    def send_piece(self, data: bytes, last: bool) -> bool:
        self._connection.post(self._answer.chunk(data))
        return True

    def send_end(self) -> None:
        data = self._answer.end()
        if data:
            self._connection.post(data)

    @property
    def full(self) -> bool:
        return self._connection.outbox.full

    async def wait_room(self) -> None:
        await self._connection.outbox.wait_room()
