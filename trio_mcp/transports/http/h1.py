"""HTTP/1.1, one connection.

The task that reads is the watcher of the request that is being answered: it reads on all the time, so it hears the peer hang
up, also behind requests that wait (a half-closed connection counts as closed). Each request is answered in a task of its own,
one at a time, in order. httptools parses; what it does not bound (heads, bodies, waiting requests, time) is bounded here.

Timers cost nothing a request: the reader stands in one scope whose deadline is at or before the next thing that is due.
"""

from __future__ import annotations

import contextvars
import logging
import os
from typing import Any, Final

import httptools
import trio

from ...errors import InternalError
from ...protocol.envelope import encode_error
from ...protocol.http import Accepts, Refusal
from ..outbox import Outbox
from .endpoint import Endpoint
from .h1_exchange import H1Exchange
from .incoming import Incoming

__all__ = ["H1Connection"]

logger: logging.Logger = logging.getLogger("trio_mcp.server.http")

_SMALL: Final = 16_384
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class H1Connection:
    """One HTTP/1.1 connection.

    Args:
        stream: The bytes; closed at the end of `run`.
        endpoint: Answers.
        first: What was read of it already.
        fd: The non-blocking descriptor under the stream, when it is a plain socket.
    """

    __slots__ = (
        "_active",
        "_chunk",
        "_context",
        "_draining",
        "_due",
        "_ended",
        "_endpoint",
        "_fatal",
        "_fd",
        "_fed",
        "_first",
        "_incoming",
        "_limits",
        "_moved",
        "_nursery",
        "_parser",
        "_queue",
        "_queued",
        "_quiet",
        "_reading",
        "_refused",
        "_room",
        "_stream",
        "_upgrade",
        "outbox",
    )

    def __init__(
        self, stream: trio.abc.Stream, endpoint: Endpoint, first: bytes = b"", *, fd: int | None = None
    ) -> None:
        self._stream = stream
        self._first = first
        self._endpoint = endpoint
        self._limits = endpoint.limits
        self.outbox: Outbox = Outbox(stream, self._limits, fd=fd)
        self._fd = fd
        self._chunk = _SMALL
        self._parser = httptools.HttpRequestParser(self)
        self._incoming: Incoming | None = None
        self._upgrade: Incoming | None = None
        self._queue: list[Incoming] = []
        self._queued = 0
        self._active: H1Exchange | None = None
        self._fatal: Refusal | None = None
        self._refused: Incoming | None = None
        self._fed = 0
        self._quiet = 0
        self._moved = False
        self._ended = False
        self._draining = False
        self._due = 0.0
        self._reading = trio.CancelScope()
        self._room = trio.lowlevel.ParkingLot()
        self._context = contextvars.copy_context()
        self._nursery: trio.Nursery | None = None

    # -- the life of the connection

    async def run(self, first: bytes = b"") -> None:
        """Serve until either side ends. Closes the stream.

        Args:
            first: What was read of it since.
        """
        self._due = trio.current_time() + self._limits.idle_timeout
        try:
            async with trio.open_nursery() as self._nursery:
                # Not kept for the life of the connection: it may be 64 KiB.
                first, self._first = self._first + first, b""
                self._take(first)
                first = b""
                while not self._ended:
                    with trio.CancelScope(deadline=self._due) as self._reading:
                        await self._read()
                    if self._reading.cancelled_caught and not self._ended:
                        self._overdue()
                if self._active is None:
                    with trio.move_on_after(self._limits.write_stall):
                        await self.outbox.wait_flushed()
                    await self._linger()
        finally:
            # The parser and the connection hold each other.
            del self._parser
            self._active = self._incoming = self._nursery = None
            with trio.move_on_after(self._limits.write_stall, shield=True):
                await self._stream.aclose()

    def drain(self) -> None:
        """Finish what is being answered and close; at once when nothing is."""
        self._draining = True
        if self._active is None:
            self._end()

    def abandon(self) -> None:
        """End what is being answered, and write nothing more."""
        self._peer_gone()
        self._reading.cancel()

    def _end(self) -> None:
        self._ended = True
        self._reading.cancel()

    async def _read(self) -> None:
        limits = self._limits
        while not self._ended:
            while self._queued > limits.read_ahead or len(self._queue) >= limits.pipelined:
                await self._room.park()
            data = await self._receive()
            if not data:
                self._peer_gone()
                return
            self._take(data)

    async def _receive(self) -> bytes:
        """The next bytes; empty when the peer is gone."""
        try:
            if self._fd is None:
                return bytes(await self._stream.receive_some(self._limits.read_chunk))
            # After a request everything was read, so a read before the wait would only find that out again.
            while True:
                await trio.lowlevel.wait_readable(self._fd)
                try:
                    data = os.read(self._fd, self._chunk)
                except BlockingIOError:
                    continue
                # Small reads for small requests: a large buffer for each connection leaves holes in the heap.
                self._chunk = self._limits.read_chunk if len(data) == self._chunk else _SMALL
                return data
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            return b""

    def _peer_gone(self) -> None:
        self._ended = True
        self._queue.clear()
        self.outbox.break_off()
        if self._active is not None:
            self._active.peer_gone()

    async def _linger(self) -> None:
        """Read on for a moment: closing on unread bytes would reset the connection and lose the last answer."""
        if self.outbox.broken or self._fatal is None or not isinstance(self._stream, trio.SocketStream):
            return
        with trio.move_on_after(1.0):
            try:
                await self._stream.send_eof()
                for _ in range(64):
                    if not await self._stream.receive_some(self._limits.read_chunk):
                        return
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return

    # -- time

    def _schedule(self) -> None:
        """What is due next, and when."""
        now, limits = trio.current_time(), self._limits
        if self._active is not None:
            due = now + (limits.keep_alive if self._active.streaming else limits.silence)
        elif self._incoming is None:
            due = now + limits.idle_timeout
        else:
            due = now + (limits.body_timeout if self._incoming.head_done else limits.head_timeout)
        self._due = due
        if due < self._reading.deadline:
            self._reading.deadline = due

    def _overdue(self) -> None:
        # The deadline of the reader is never late, but it may be early: then nothing is due yet.
        if trio.current_time() < self._due:
            return
        active = self._active
        if active is not None:
            if active.on_silence is not None:
                active.on_silence()
            self._due = trio.current_time() + self._limits.keep_alive
        elif self._incoming is not None:
            part = "body" if self._incoming.head_done else "head"
            self._refuse(Refusal(408, f"Request timeout: the {part} of the request did not arrive in time"))
        else:
            self._end()

    # -- parsing

    def _take(self, data: bytes) -> None:
        head_open = self._incoming is not None and not self._incoming.head_done
        before = self._incoming
        self._fed = len(data) + (before.size if before is not None and head_open else 0)
        self._moved = False
        self._feed(data)
        incoming = self._incoming
        if self._fatal is None and incoming is not None and not incoming.head_done:
            # The parser keeps an unfinished field to itself, so what it was given is counted.
            incoming.size += len(data) if head_open and incoming is before else 0
            if incoming.size > self._limits.head_bytes:
                self._head_too_large()
        elif self._fatal is None and incoming is not None:
            # Behind the body there may be trailers, which are bounded as heads are.
            self._quiet = 0 if self._moved or incoming is not before else self._quiet + len(data)
            if self._quiet > self._limits.head_bytes:
                self._head_too_large()
        if self._fatal is not None:
            self._refuse(self._fatal)
        elif self._active is None and (
            self._pump() or incoming is not before or (incoming is not None and incoming.head_done and head_open)
        ):
            # What arrives while a request is answered moves no timer, and neither do line ends on an idle connection.
            self._schedule()

    def _head_too_large(self) -> None:
        self._fatal = Refusal(431, f"Request head too large: the limit is {self._limits.head_bytes} bytes")

    def _feed(self, data: bytes) -> None:
        while data:
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as exc:
                # Upgrades are not offered, but the parser believes in them and skips the body. So the request is read
                # again without the offer.
                (offset,) = exc.args
                data = data[offset:]
                self._parser = httptools.HttpRequestParser(self)
                upgrade, self._upgrade = self._upgrade, None
                if upgrade is not None:
                    data = upgrade.head_without_upgrade() + data
            except httptools.HttpParserError as exc:
                self._fatal = self._fatal or Refusal(400, f"Bad request: {exc}")
                return

    def on_message_begin(self) -> None:
        """Called by the parser."""
        self._incoming = Incoming()

    def on_url(self, url: bytes) -> None:
        """Called by the parser, perhaps in pieces."""
        incoming = self._incoming
        assert incoming is not None
        incoming.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser, for trailers as well."""
        incoming = self._incoming
        if incoming.head_done:  # type: ignore[union-attr]  # the parser has begun a message
            return
        headers = incoming.headers  # type: ignore[union-attr]
        name = name.lower()
        value = value.rstrip(b" \t")  # the parser leaves it
        if name in headers:
            if name == b"host" and self._fatal is None:
                self._fatal = Refusal(400, "Bad request: more than one Host header")
            value = headers[name] + b", " + value
        headers[name] = value

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        incoming = self._incoming
        assert incoming is not None
        parser = self._parser
        incoming.head_done = True
        incoming.method = parser.get_method().decode("latin-1")
        incoming.old = parser.get_http_version() == "1.0"
        incoming.keep_alive = parser.should_keep_alive()
        headers = incoming.headers
        if parser.get_http_version() not in ("1.0", "1.1"):
            self._fatal = self._fatal or Refusal(505, "HTTP version not supported: this is HTTP/1.1")
            return
        if incoming.method == "CONNECT" or (incoming.old and b"transfer-encoding" in headers):
            # What follows is a tunnel, or framed in a way that its version does not know.
            self._fatal = self._fatal or Refusal(400, "Bad request: no tunnels, and no chunks in HTTP/1.0")
            return
        if self._fed > self._limits.head_bytes:
            # Only a piece that is larger than a head may be can hold one that is too large.
            size = len(incoming.url) + sum(len(name) + len(value) + 4 for name, value in headers.items())
            if size > self._limits.head_bytes:
                self._head_too_large()
                return
        if not incoming.old and b"host" not in headers:
            self._fatal = self._fatal or Refusal(400, "Bad request: HTTP/1.1 requires a Host header")
            return
        if not incoming.url.startswith(b"/") and b"://" in incoming.url:
            # The authority of an absolute target counts, not the header (RFC 9112, section 3.2.2).
            headers[b"host"] = incoming.url.partition(b"://")[2].partition(b"/")[0].rpartition(b"@")[2]
        incoming.verdict = self._endpoint.refuse(incoming.method, incoming.path, headers)
        length = headers.get(b"content-length", b"0")
        if isinstance(incoming.verdict, Accepts) and length.isdigit() and int(length) > self._limits.message_bytes:
            self._too_large(incoming)
        if not incoming.old and headers.get(b"expect", b"").lower() == b"100-continue":
            if isinstance(incoming.verdict, Refusal):
                self._fatal = self._fatal or incoming.verdict  # no body will come
            else:
                incoming.waits = True
                self._invite()

    def _invite(self) -> None:
        """Tell a client that waits for it to send its body, once its turn has come."""
        incoming = self._incoming
        if incoming is not None and incoming.waits and self._active is None and not self._queue:
            incoming.waits = False
            self.post(_CONTINUE)

    def _too_large(self, incoming: Incoming) -> None:
        incoming.verdict = Refusal(413, f"Message too long: the limit is {self._limits.message_bytes} bytes")
        incoming.parts.clear()

    def on_body(self, body: bytes) -> None:
        """Called by the parser, perhaps in pieces."""
        incoming = self._incoming
        assert incoming is not None
        self._moved = True
        if isinstance(incoming.verdict, Accepts):
            incoming.parts.append(body)
            incoming.body_size += len(body)
            if incoming.body_size > self._limits.message_bytes:
                self._too_large(incoming)
        if isinstance(incoming.verdict, Refusal) and self._fatal is None:
            self._refused = incoming
            # Nothing good comes of reading the rest.
            self._fatal = incoming.verdict

    def on_chunk_header(self) -> None:
        """Called by the parser."""
        self._moved = True

    def on_message_complete(self) -> None:
        """Called by the parser."""
        incoming, self._incoming = self._incoming, None
        assert incoming is not None
        if self._parser.should_upgrade() and incoming.method != "CONNECT":
            self._upgrade = incoming
        elif self._fatal is None:
            incoming.complete = True
            incoming.body = b"".join(incoming.parts)
            incoming.parts.clear()
            self._queue.append(incoming)
            self._queued += len(incoming.body)

    # -- answering

    def _pump(self) -> bool:
        """Start the next request, if none is being answered; True if one was started."""
        if self._active is not None or not self._queue or self._ended:
            return False
        incoming = self._queue.pop(0)
        self._queued -= len(incoming.body)
        if self._room:
            self._room.unpark()
        self._active = H1Exchange(self, incoming)
        assert self._nursery is not None
        # Every request starts from the context of the connection, never from that of the one before.
        self._context.run(self._nursery.start_soon, self._serve, self._active, incoming.verdict)
        return True

    async def _serve(self, exchange: H1Exchange, verdict: Any) -> None:
        try:
            if isinstance(verdict, Refusal):
                self._endpoint.answer_refusal(exchange, verdict)
            else:
                await self._endpoint.handle(exchange, verdict)
            # The next one is answered when this answer has room: a client that does not read is not read from for ever.
            await exchange.wait_room()
        except Exception:
            logger.exception("an HTTP request failed in a way that should not happen")
            if not exchange.done and not exchange.streaming:
                exchange.respond(500, encode_error(None, InternalError("Internal error")))
            exchange.keep_alive = False
        finally:
            self._active = None
        if not exchange.done or not exchange.keep_alive or self._draining:
            self._end()
        elif self._fatal is not None:
            self._refuse(self._fatal)
        elif not self._ended:
            self._pump()
            self._invite()
            self._schedule()

    def _refuse(self, refusal: Refusal) -> None:
        """Answer a request that cannot be read to its end, and close."""
        self._fatal = refusal
        if self._active is not None or self._ended:
            return  # after the answer that is under way
        if self._queue:
            self._pump()
            return
        exchange = H1Exchange(self, self._refused or self._incoming or Incoming())
        exchange.keep_alive = False
        self._endpoint.answer_refusal(exchange, refusal)
        self._end()

    def post(self, data: bytes) -> None:
        """Send bytes: at once, or in a task when the peer is slow."""
        outbox = self.outbox
        outbox.post(data, now=True)
        if outbox.broken:
            self._peer_gone()
            self._reading.cancel()
        elif outbox.pending:
            assert self._nursery is not None
            self._context.run(self._nursery.start_soon, self._flush)

    async def _flush(self) -> None:
        await self.outbox.drain()
        if self.outbox.broken and not self._ended:
            self._peer_gone()
            self._reading.cancel()
