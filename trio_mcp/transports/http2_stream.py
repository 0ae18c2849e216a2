"""A request and its answer on an HTTP/2 connection of the client."""

from __future__ import annotations

import math
from collections.abc import Iterable

import h2.errors
import httpcore2
import httpx2
import trio

__all__ = ["Stream", "code_name", "not_taken"]


class Stream:
    """One request and its answer."""

    __slots__ = (
        "_changed",
        "body",
        "ended",
        "error",
        "fields",
        "got",
        "id",
        "length",
        "owed",
        "refused",
        "sent",
        "sent_at",
        "status",
    )

    def __init__(self, id: int) -> None:
        self.id: int = id
        self.status: int = 0
        self.fields: list[tuple[bytes, bytes]] = []
        self.body: bytearray = bytearray()
        self.length: int = -1  # by its content-length
        self.got: int = 0
        self.owed: int = 0  # received, and the server was not given room for it yet
        self.sent: bool = False
        self.sent_at: float = math.inf  # where its last frame ends in all that is written
        self.ended: bool = False
        self.refused: bool = False
        self.error: httpx2.TransportError | None = None
        self._changed = trio.Event()

    @property
    def over(self) -> bool:
        return self.ended or self.refused or self.error is not None

    def begin(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """The head of the answer."""
        fields = [(bytes(name), bytes(value)) for name, value in headers]
        status = next((value for name, value in fields if name == b":status"), b"")
        if not (len(status) == 3 and status.isdigit() and status >= b"200"):
            self.fail(httpx2.RemoteProtocolError("the server sent an answer without a status"))
            return
        self.status = int(status)
        self.fields = [(name, value) for name, value in fields if not name.startswith(b":")]
        length = next((value for name, value in fields if name == b"content-length"), b"")
        if length.isdigit() and len(length) < 19:
            self.length = int(length)

    def fail(self, error: httpx2.TransportError, *, refused: bool = False) -> None:
        """The stream is gone. What has come of an answer counts if it is whole."""
        if self.over:
            return
        if self.status and self.got == self.length:
            self.ended = True
        elif refused and not self.status:
            self.refused = True
        else:
            self.error = error
        self.wake()

    def wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def change(self) -> None:
        await self._changed.wait()


def not_taken(request: httpcore2.Request, why: str) -> Exception:
    """For a request that no server has looked at: it goes to another connection, once."""
    if request.extensions.get("trio_mcp.again"):
        return httpx2.RemoteProtocolError(why)
    request.extensions["trio_mcp.again"] = True
    return httpcore2.ConnectionNotAvailable()


def code_name(code: int) -> str:
    try:
        return h2.errors.ErrorCodes(code).name
    except ValueError:
        return str(code)
