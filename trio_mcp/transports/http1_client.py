"""An HTTP/1.1 connection of the client: one request at a time, httptools for the answer.

Why not httpcore2's: it reads an answer in Python, chunk by chunk (2 MB in chunks of one byte took 15 s), and does not read
while it writes, so an answer that comes before the request has been read can be lost with the connection.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Final

import httpcore2
import httptools
import httpx2
import trio

from .http_wire import BODY, SAFE, AnswerBody, Wire, request_body

__all__ = ["AnswerReader", "Http1Connection"]

_HEAD_BYTES: Final = 100 * 1024
"""Most bytes of an answer that say nothing: its head, what stands between two pieces of its body, and its trailers."""
_TLS: Final = (b"\x15", b"\x16")
"""How a server begins that speaks TLS: with an alert, or a handshake."""
_AT_ONCE: Final = 65_536
"""A request up to this is written before anything is read: it fits into the buffers of the system."""
_GRACE: Final = 1.0
"""Seconds that a request is still written after its answer has come: to a peer that reads on, it can be ended in order."""


class AnswerReader:
    """Reads one answer from bytes. Does no I/O.

    Attributes:
        status: Of the final answer; 0 until its head is whole.
        reason: What stands behind the status.
        headers: Its fields.
        body: What has come of the body and was not taken yet.
        complete: Whether the answer is whole.
        keep: Whether the connection can be used again.
        begun: Whether anything has come at all.
        fault: Why nothing more can come, or None.
        plain: Whether these are the first bytes of a connection without TLS.
    """

    def __init__(self) -> None:
        self.status: int = 0
        self.reason: bytes = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.body: bytearray = bytearray()
        self.complete: bool = False
        self.keep: bool = False
        self.begun: bool = False
        self.fault: httpx2.RemoteProtocolError | None = None
        self.plain: bool = False
        self._to_the_end = False
        self._quiet = 0
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Take the next bytes. What is wrong with them is in `fault`, since what was right before it counts."""
        if self.complete:
            self.keep = False
            return
        if self.plain and not self.begun and data[:1] in _TLS:
            self._fail("the server speaks TLS there: its URL begins with https://")
        self.begun = True
        before, had_head = len(self.body), self.status
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail("the server switched to another protocol, which nobody asked for")
        except httptools.HttpParserError as exc:
            self._fail(f"the server does not speak HTTP/1.1: {exc}")
        self._quiet = 0 if len(self.body) > before or self.status != had_head else self._quiet + len(data)
        if self._quiet > _HEAD_BYTES:
            self._fail(f"a head, or what is between the pieces of a body, is over {_HEAD_BYTES} bytes")

    def end(self) -> None:
        """The connection has ended."""
        if not self.begun:
            hint = "; if it speaks TLS, its URL begins with https://" if self.plain else ""
            self._fail(f"the server closed the connection without an answer{hint}")
        elif not self.status or not self._to_the_end:
            self._fail("the server closed the connection in the middle of an answer")
        else:
            self.complete = True

    def _fail(self, text: str) -> None:
        # What follows an answer is nothing that was asked for, and does not touch the answer.
        self.keep = False
        if not self.complete and self.fault is None:
            self.fault = httpx2.RemoteProtocolError(text)

    # -- called by the parser

    def on_message_begin(self) -> None:
        self.reason = b"" if not self.complete else self.reason
        self.keep = False

    def on_status(self, text: bytes) -> None:
        if not self.complete:
            self.reason += text

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers come here, too.
        if not self.status and not self.complete:
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.complete:
            return
        status = self._parser.get_status_code()
        if status < 200:
            self.headers.clear()  # 1xx: the answer is still to come (RFC 9110, section 15.2)
            return
        self.status = status
        fields = {name.lower(): value.lower() for name, value in self.headers}
        coding = fields.get(b"transfer-encoding")
        self._to_the_end = b"content-length" not in fields and (coding is None or not coding.endswith(b"chunked"))

    def on_body(self, data: bytes) -> None:
        if not self.complete:
            self.body += data

    def on_message_complete(self) -> None:
        if self.status and not self.complete:
            self.complete = True
            self.keep = self._parser.should_keep_alive()


class Http1Connection(httpcore2.AsyncConnectionInterface):
    """One connection.

    Args:
        origin: What it leads to.
        wire: Its bytes; closed with it.
        idle: Seconds that it is kept without a request, or None.
        write_timeout: Seconds for a request to go out.
        proxy_headers: What goes to a proxy that forwards, which is also told the whole URL; None where there is no such.
    """

    def __init__(
        self,
        origin: httpcore2.Origin,
        wire: Wire,
        *,
        idle: float | None,
        write_timeout: float,
        proxy_headers: list[tuple[bytes, bytes]] | None = None,
    ) -> None:
        self._origin = origin
        self._wire = wire
        self._idle = idle
        self._write_timeout = write_timeout
        self._proxy_headers = proxy_headers
        self._reader: AnswerReader | None = None
        self._served = 0
        self._expires: float | None = None
        self._written = False

    async def handle_async_request(self, request: httpcore2.Request) -> httpcore2.Response:
        if self._reader is not None or self._wire.closed:
            raise httpcore2.ConnectionNotAvailable
        reader = self._reader = AnswerReader()
        self._expires = None
        self._written = False
        try:
            body = await request_body(request)
            if self._served:
                # The last moment to see that the server has closed the connection: what can be read without having been
                # asked for is the end.
                await trio.lowlevel.checkpoint()
                if self._wire.readable():
                    raise httpcore2.ConnectionNotAvailable
            reader.plain = self._origin.scheme == b"http" and self._proxy_headers is None and not self._served
            await self._write(self._head(request) + body, reader)
            try:
                while not reader.status:
                    await self._read(reader)
            except httpx2.TransportError:
                # Of a request that could not be written to its end nothing can have been done. A connection that has worked
                # may have been closed by the server meanwhile, so another one may do.
                again = self._wire.broken or request.extensions.get(SAFE)
                if again and self._served and not reader.begun:
                    raise httpcore2.ConnectionNotAvailable from None
                raise
        except BaseException:
            self._close()
            raise
        answer = AnswerBody(partial(self.next, reader), partial(self.leave, reader))
        return httpcore2.Response(
            reader.status,
            headers=reader.headers,
            content=answer,
            extensions={"http_version": b"HTTP/1.1", BODY: answer, "reason_phrase": reader.reason},
        )

    def _head(self, request: httpcore2.Request) -> bytes:
        target = request.url.target
        headers = request.headers
        if self._proxy_headers is not None:
            target = bytes(request.url)
            headers = [*headers, *self._proxy_headers]
        lines = [b"%b %b HTTP/1.1" % (request.method, target)]
        for name, value in headers:
            if b"\n" in value or b"\r" in value or b"\0" in value:
                raise httpx2.LocalProtocolError(f"the header {name.decode('latin-1')!r} cannot be sent")
            lines.append(b"%b: %b" % (name, value))
        return b"\r\n".join(lines) + b"\r\n\r\n"

    async def _write(self, data: bytes, reader: AnswerReader) -> None:
        with trio.move_on_after(self._write_timeout) as patience:
            if len(data) <= _AT_ONCE:
                await self._wire.send(data)
                self._written = not self._wire.broken
                return
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._hear_early, reader)
                await self._wire.send(data)
                self._written = not self._wire.broken
                nursery.cancel_scope.cancel()
        if patience.cancelled_caught:
            raise httpx2.WriteTimeout(f"the server did not take the request within {self._write_timeout:g} s")

    async def _hear_early(self, reader: AnswerReader) -> None:
        """An answer that comes before the request has been read: it is kept, and the rest of the request counts less."""
        try:
            while not reader.status:
                await self._read(reader)
        except httpx2.TransportError:
            # Told again by whoever reads after the request.
            return
        self._wire.send_until(trio.current_time() + _GRACE)

    async def _read(self, reader: AnswerReader) -> None:
        if reader.fault is not None:
            raise reader.fault
        data = await self._wire.receive()
        if data:
            reader.feed(data)
        else:
            reader.end()

    async def next(self, reader: AnswerReader) -> bytes:
        """The next piece of the body of the answer; none at its end."""
        while not reader.body and not reader.complete:
            await self._read(reader)
        chunk = bytes(reader.body)
        reader.body.clear()
        return chunk

    def leave(self, reader: AnswerReader) -> None:
        """The answer is not needed any more; the connection is, if the answer was whole."""
        if reader is not self._reader:
            return
        self._reader = None
        if not (reader.complete and reader.keep and self._written):
            self._close()
            return
        self._served += 1
        if self._idle is not None:
            self._expires = time.monotonic() + self._idle

    def _close(self) -> None:
        self._wire.close()

    # -- what the pool asks

    async def aclose(self) -> None:
        self._close()
        await trio.lowlevel.checkpoint()

    def can_handle_request(self, origin: httpcore2.Origin) -> bool:
        return origin == self._origin

    def is_available(self) -> bool:
        return self._reader is None and not self._wire.closed

    def has_expired(self) -> bool:
        # Whether the server has closed it is asked when a request is about to be written.
        return self._expires is not None and time.monotonic() > self._expires

    def is_idle(self) -> bool:
        return self._reader is None and not self._wire.closed

    def is_closed(self) -> bool:
        return self._wire.closed

    def info(self) -> str:
        return f"HTTP/1.1, {self._served} requests"
