"""Server-sent events, both ways (WHATWG HTML, section 9.2).

Lines end at CR LF, LF or CR and nowhere else; text is decoded per line, so a character may be cut between two chunks.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["COMMENT", "Event", "EventTooLarge", "SSEParser", "encode_endpoint", "encode_event", "encode_prime"]

COMMENT: Final = b":\n\n"
"""A comment: keeps a quiet stream alive, carries nothing."""


def encode_event(message: bytes, id: str | None = None) -> bytes:
    """One message as an event. JSON text has no line ends of its own."""
    if id is not None:
        return b"event: message\nid: " + id.encode() + b"\ndata: " + message + b"\n\n"
    return b"event: message\ndata: " + message + b"\n\n"


def encode_endpoint(uri: str) -> bytes:
    """The event that tells a client where its messages go (2024-11-05, basic/transports)."""
    return b"event: endpoint\ndata: " + uri.encode() + b"\n\n"


def encode_prime(id: str, retry: float | None = None) -> bytes:
    """An event without data, which tells from where to go on, and after how many seconds (2025-11-25, basic/transports)."""
    wait = b"" if retry is None else b"retry: %d\n" % round(retry * 1000)
    return b"id: " + id.encode() + b"\n" + wait + b"data:\n\n"


_FIELD: Final = len(b"data: ")


class Event(NamedTuple):
    """A received event that has data."""

    data: bytes
    event: str = "message"
    id: str | None = None


class EventTooLarge(ValueError):
    """An event, or a line of one, is over the limit."""


class SSEParser:
    """Cuts a stream of bytes into events.

    Args:
        limit: Most bytes of one event.
        before: What has read the stream that this one takes up again: `retry` and `last_id` hold on.

    Attributes:
        retry: The last `retry` field, in milliseconds, or None.
        last_id: The last `id` field, or None.
    """

    def __init__(self, limit: int, before: SSEParser | None = None) -> None:
        self._limit = limit
        self._line = bytearray()
        self._after_cr = False
        self._first = True
        # Joined as it comes: a list of many short lines takes fifty times their bytes.
        self._data = bytearray()
        self._has_data = False
        self._size = 0
        self._event = ""
        self.retry: int | None = None if before is None else before.retry
        self.last_id: str | None = None if before is None else before.last_id

    def feed(self, chunk: bytes) -> list[Event]:
        """Take the next bytes; return the events that they complete. Events without data are not events.

        Raises:
            EventTooLarge: an event is over the limit.
        """
        out: list[Event] = []
        if not chunk:
            return out
        after_cr, self._after_cr = self._after_cr, chunk.endswith(b"\r")
        if after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        # CR LF and CR become LF; a CR at the end of the chunk was one line end, whatever follows it.
        *lines, rest = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            if self._line:
                line = bytes(self._line) + line
                self._line.clear()
            self._take(line, out)
        self._line += rest
        if len(self._line) + self._size > self._limit + _FIELD:
            raise EventTooLarge(f"an event is over {self._limit} bytes")
        return out

    def _take(self, line: bytes, out: list[Event]) -> None:
        if self._first:
            self._first = False
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            if self._has_data:
                out.append(Event(bytes(self._data), self._event or "message", self.last_id))
            self._data = bytearray()
            self._has_data = False
            self._size = 0
            self._event = ""
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._size += len(value) + 1
            if self._size > self._limit:
                raise EventTooLarge(f"an event is over {self._limit} bytes")
            if self._has_data:
                self._data += b"\n"
            self._data += value
            self._has_data = True
        elif field == b"event":
            self._event = value.decode(errors="replace")
        elif field == b"id" and b"\0" not in value:
            self.last_id = value.decode(errors="replace")
        elif field == b"retry" and value.isdigit() and len(value) <= 18:
            self.retry = int(value)
