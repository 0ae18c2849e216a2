"""The load over HTTP/2 with prior knowledge (h2c): frames written by hand, so that the server is what is measured.

It reads no header block further than to the status, and minds no flow control: the server's window for a connection, 64
KiB, holds all the requests that are ever under way on one.
"""

from __future__ import annotations

import time
from typing import Final

from .http_load import Load, Socket
from .wire import (
    ACK,
    DATA,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    PostTemplate,
    frame_start,
)

__all__ = ["Http2Load", "Http2Socket"]

_MAX_WINDOW: Final = 2**31 - 1
_ZERO: Final = (0).to_bytes(4)
# No table for header fields, so that each block can be read by itself, no pushes, and windows that never close.
_OUR_SETTINGS: Final = b"".join(
    name.to_bytes(2) + value.to_bytes(4) for name, value in {1: 0, 2: 0, 4: _MAX_WINDOW}.items()
)
_HELLO: Final = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    + (frame_start(len(_OUR_SETTINGS), SETTINGS) + _ZERO + _OUR_SETTINGS)
    + (frame_start(4, WINDOW_UPDATE) + _ZERO + (_MAX_WINDOW - 65_535).to_bytes(4))
)
_SETTINGS_ACK: Final = frame_start(0, SETTINGS, ACK) + _ZERO
_STATUS_200: Final = b"\x88"


class Http2Socket(Socket):
    """One connection of HTTP/2.

    Args:
        port: Where the server listens.
        timeout: Seconds that one read may take.

    Attributes:
        begun: When the call on each stream began (nanoseconds).
        seen: What has come in on a stream that is not complete.
    """

    def __init__(self, port: int, timeout: float | None = None) -> None:
        super().__init__(port, timeout)
        self.sock.sendall(_HELLO)
        self.begun: dict[int, int] = {}
        self.seen: dict[int, bytes] = {}
        self._held = b""
        self._next = 1

    def open(self) -> int:
        """A new stream."""
        stream, self._next = self._next, self._next + 2
        self.begun[stream] = time.perf_counter_ns()
        self.seen[stream] = b""
        return stream

    def complete(self) -> list[tuple[int, bytes]]:
        """Read once; the streams that are complete now, with their bodies.

        Raises:
            EOFError: the server ended the connection or a stream.
            RuntimeError: a status is not 200.
        """
        data = self.sock.recv(1 << 18)
        if not data:
            raise EOFError("the server ended the connection")
        if self._held:
            data = self._held + data
        done: list[tuple[int, bytes]] = []
        at, size = 0, len(data)
        while size - at >= 9:
            end = at + 9 + int.from_bytes(data[at : at + 3])
            if size < end:
                break
            kind, flags, stream = data[at + 3], data[at + 4], int.from_bytes(data[at + 5 : at + 9])
            if kind == DATA:
                self.seen[stream] += data[at + 9 : end]
            elif kind == HEADERS:
                # In front of the status there may be an update of the table's size, which is one byte for none.
                if _STATUS_200 not in data[at + 9 : at + 12]:
                    raise RuntimeError(f"refused: {data[at:end]!r}"[:300])
            else:
                self._other(kind, flags, data[at + 9 : end])
            if kind in (DATA, HEADERS) and flags & END_STREAM:
                done.append((stream, self.seen.pop(stream)))
            at = end
        self._held = data[at:]
        return done

    def _other(self, kind: int, flags: int, payload: bytes) -> None:
        if kind in (RST_STREAM, GOAWAY):
            raise EOFError(f"the server ended a stream (frame {kind}, {payload.hex()})")
        if kind == SETTINGS and not flags & ACK:
            self.sock.sendall(_SETTINGS_ACK)
        elif kind == PING and not flags & ACK:
            self.sock.sendall(frame_start(len(payload), PING, ACK) + _ZERO + payload)

    def wait_for(self, stream: int, text: bytes) -> None:
        """Read until this text has come in on a stream that is open."""
        while text not in self.seen[stream]:
            self.complete()


class Http2Load(Load[Http2Socket]):
    """A number of streams busy on each connection.

    Args:
        port: Where the server listens.
        template: The request.
        expected: What must be in a right answer.
        streams: Calls under way on each connection.
    """

    def __init__(self, port: int, template: PostTemplate, expected: bytes, streams: int = 1) -> None:
        super().__init__(port, expected, streams)
        self._frames = template.frames(port)

    def _dial(self) -> Http2Socket:
        return Http2Socket(self._port)

    def _fire(self, connection: Http2Socket) -> None:
        self._last += 1
        connection.sock.sendall(self._frames(self._last, connection.open()))

    def _take(self, number: int, connection: Http2Socket, again: bool) -> None:
        for stream, body in connection.complete():
            self._answered(connection.begun.pop(stream), self._expected in body, body)
            if again:
                self._fire(connection)
        if not connection.begun:
            self._drop(number)
