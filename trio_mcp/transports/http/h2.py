"""HTTP/2, one connection.

The protocol is in `trio_mcp.wire.http2`; here are the tasks and the timers. One task reads, and waits for nothing else. One
writes: it takes what is there in frames, streams in turn, when the one before is written. Each request is a task.

A client's reset, and its hang-up, are the end of that request. Timers cost nothing a request: the reader stands in one scope
whose deadline is at or before the next thing that is due.
"""

from __future__ import annotations

import contextvars
import logging
import os
from typing import Any, Final

import trio

from ...errors import InternalError
from ...protocol.envelope import encode_error
from ...protocol.http import Accepts, Refusal
from ...wire.http2 import Http2
from ...wire.http2_events import Body, Ended, Event, Fatal, GoneAway, Head, Reset
from ..progress import send_all
from .endpoint import HttpEndpoint
from .h2_exchange import H2Exchange

__all__ = ["H2Connection"]

logger: logging.Logger = logging.getLogger("trio_mcp.server.http")

_PIECE: Final = 16_384
_LINGER: Final = 0.25
_TURN: Final = 32
"""Frames that are read in one turn of the scheduler, about 16 requests: one read may have thousands, and others wait."""
_INTERNAL_ERROR: Final = 2


class H2Connection:
    """One HTTP/2 connection.

    Args:
        stream: The bytes; closed at the end of `run`.
        endpoint: Answers.
        first: What was read of it already.

    Attributes:
        wire: The protocol.
        room: Where those wait whose answers are not sent.
    """

    __slots__ = (
        "_arriving",
        "_begun",
        "_bodies",
        "_busy",
        "_chunk",
        "_context",
        "_due",
        "_ended",
        "_endpoint",
        "_exchanges",
        "_finishing",
        "_first",
        "_gone",
        "_head_due",
        "_left",
        "_limits",
        "_nursery",
        "_parts",
        "_quiet",
        "_reading",
        "_sock",
        "_stream",
        "_work",
        "_writing",
        "room",
        "wire",
    )

    def __init__(self, stream: Any, endpoint: HttpEndpoint, first: bytes = b"") -> None:
        self._stream = stream
        self._first = first
        self._endpoint = endpoint
        self._limits = endpoint.limits
        self._bodies = endpoint.bodies
        self._begun = trio.current_time()
        self.wire: Http2 = Http2(self._limits, self._begun)
        self.room: trio.lowlevel.ParkingLot = trio.lowlevel.ParkingLot()
        self._work = trio.lowlevel.ParkingLot()
        self._arriving: dict[int, H2Exchange] = {}
        self._parts: dict[int, bytearray] = {}
        self._exchanges: dict[int, H2Exchange] = {}
        self._quiet = self._begun
        self._busy = False
        self._head_due = float("inf")
        self._due = 0.0
        self._reading = trio.CancelScope()
        self._writing = trio.CancelScope()
        self._ended = False
        self._gone = False
        self._finishing = False
        self._sock = stream.socket if isinstance(stream, trio.SocketStream) else None
        self._chunk = _PIECE
        self._left = b""
        self._context = contextvars.copy_context()
        self._nursery: trio.Nursery | None = None

    # -- the life of the connection

    async def run(self) -> None:
        """Serve until either side ends. Closes the stream."""
        self._due = self._begun + self._limits.head_timeout
        try:
            async with trio.open_nursery() as self._nursery:
                written = trio.Event()
                self._nursery.start_soon(self._write, written)
                first, self._first = self._first, b""
                self._take(first)
                first = b""
                while not self._ended:
                    with trio.CancelScope(deadline=self._due) as self._reading:
                        await self._read()
                    if not self._ended:
                        self._overdue()
                # What is said last has as long as a write may take, and is not lost by a close on unread bytes.
                with trio.move_on_after(self._limits.write_stall):
                    await written.wait()
                self._writing.cancel()
                await self._linger()
                # Nobody is left for what still runs: its head came, and its answer has nowhere to go.
                self._peer_gone()
        finally:
            self._leave()
            self._nursery = None
            with trio.move_on_after(self._limits.write_stall, shield=True):
                await self._stream.aclose()

    def drain(self) -> None:
        """Take no more requests, finish what is being answered and close; at once when nothing is."""
        self._finishing = True
        self.wire.drain()
        self.wake()

    async def wait_sent(self) -> None:
        """Wait until what was answered is written, or the peer is gone. A connection that drains ends itself then."""
        while not self._gone:
            await self.room.park()

    def abandon(self) -> None:
        """End what is being answered, and write nothing more."""
        self._peer_gone()

    def _end(self) -> None:
        """Nothing more is read; what waits is still sent."""
        self._ended = True
        self._reading.cancel()
        self.wake()

    def _peer_gone(self) -> None:
        if self._gone:
            return
        self._gone = True
        self._end()
        self._leave()
        self._writing.cancel()

    def _leave(self) -> None:
        """Nobody waits for any answer."""
        for exchange in self._arriving.values():
            self._forget(exchange)
        for exchange in list(self._exchanges.values()):
            exchange.peer_gone()
        self._arriving.clear()
        self._exchanges.clear()
        self.room.unpark_all()

    async def _read(self) -> None:
        while not self._ended:
            if self.wire.behind:
                await trio.lowlevel.checkpoint()
                data = b""
            elif not (data := await self._receive()):
                # A half-closed connection counts as closed.
                self._peer_gone()
                return
            # A write may have found out meanwhile that nobody is there: then nothing begins any more.
            if not self._ended:
                self._take(data)

    async def _receive(self) -> bytes:
        """The next bytes; none at the end, however it came."""
        try:
            return await self._next()
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            return b""

    async def _next(self) -> bytes:
        if self._sock is None:
            return bytes(await self._stream.receive_some(self._limits.read_chunk))
        # After a request everything was read, so a read before the wait would only find that out again.
        while True:
            await trio.lowlevel.wait_readable(self._sock)
            try:
                data = os.read(self._sock.fileno(), self._chunk)
            except BlockingIOError:
                continue
            # Small reads for small requests: a large buffer for each connection leaves holes in the heap.
            self._chunk = self._limits.read_chunk if len(data) == self._chunk else _PIECE
            return data

    async def _linger(self) -> None:
        """Read on for a moment: closing on unread bytes would reset the connection and lose the last answer."""
        if self._gone:
            return
        with trio.move_on_after(_LINGER):
            try:
                if hasattr(self._stream, "send_eof"):
                    await self._stream.send_eof()
                for _ in range(64):
                    if not await self._stream.receive_some(self._limits.read_chunk):
                        return
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return

    # -- writing

    def wake(self) -> None:
        """There is something to send."""
        if not self._work:
            return  # the writer is at it
        alone = len(self._exchanges) + len(self._arriving) == 1
        if alone and self._sock is not None and not self._left and not self._gone:
            # Nothing else is under way that could go with it, so the task that writes is spared.
            self._left = self._write_now(self._sock, self.wire.take(trio.current_time()))
            self._took()
            if not self._left and not self.wire.answers.to_send and not self._ended:
                return
        self._work.unpark_all()

    def _took(self) -> None:
        """Frames were taken from the answers."""
        self.room.unpark_all()
        if not self.wire.streams:
            self._settle()
        if not self._ended:
            self._due_at(self.wire.due())

    def _write_now(self, sock: trio.socket.SocketType, data: bytes) -> bytes:
        """What is left of it."""
        try:
            # The number is asked for each time: that of a socket that was closed may be another file's by now.
            return data[os.write(sock.fileno(), data) :] if data else data
        except BlockingIOError:
            return data
        except OSError:
            self._peer_gone()
            return b""

    def full(self, stream: int) -> bool:
        """Whether an answer must wait before it says more.

        When the connection holds too much, those are kept back that have more than their share of it.
        """
        if self._gone:
            # What still waits here is never sent, and makes nobody wait.
            return False
        answers, limit = self.wire.answers, self._limits.write_buffer
        own = answers.pending(stream)
        return own > limit or (answers.waiting > limit and own > limit // answers.queues)

    async def _write(self, written: trio.Event) -> None:
        try:
            with self._writing:
                while True:
                    data, self._left = self._left or self.wire.take(trio.current_time()), b""
                    self._took()
                    if self._gone or (self._ended and not data):
                        return
                    if data:
                        await self._send(data)
                    else:
                        await self._work.park()
        finally:
            written.set()

    def _settle(self) -> None:
        """No stream is open."""
        if self._busy:
            self._busy, self._quiet = False, trio.current_time()
        self._due_at(self._quiet + self._limits.idle_timeout)
        if self._finishing and not self._ended and not self.wire.answers.to_send:
            self._end()

    async def _send(self, data: bytes) -> None:
        try:
            fd = None if self._sock is None else self._sock.fileno()
            await send_all(self._stream, data, self._limits.write_stall, fd=fd)
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            self._peer_gone()

    # -- time

    def _due_at(self, time: float) -> None:
        if time < self._due:
            self._due = time
            self._reading.deadline = time

    def streaming(self, exchange: H2Exchange) -> None:
        """An event stream has begun, so its silence is another."""
        exchange.due = trio.current_time() + self._limits.keep_alive
        self._due_at(exchange.due)

    def _overdue(self) -> None:
        # The deadline of the reader is never late, but it may be early: then nothing is due yet.
        now, limits = trio.current_time(), self._limits
        due = []
        if now >= min(self._head_due, self._begun + limits.head_timeout if not self.wire.settled else float("inf")):
            self.wire.leave()
            self._end()
            return
        for exchange in [one for one in self._arriving.values() if now >= one.due]:
            reason = "Request timeout: the body of the request did not arrive in time"
            self._refuse_body(exchange, Refusal(408, reason))
        for exchange in [one for one in self._exchanges.values() if now >= one.due]:
            exchange.due = now + limits.keep_alive
            exchange.silent()
        if now >= self.wire.due():
            self._hear(self.wire.look(now), now)
            self.wake()
        if not self.wire.streams and not self._ended:
            due.append(self._quiet + limits.idle_timeout)
            if now >= due[0]:
                self.wire.leave()
                self._end()
        due += [one.due for one in (*self._arriving.values(), *self._exchanges.values())]
        due += [self._head_due, self.wire.due(), now + limits.idle_timeout]
        if not self.wire.settled:
            due.append(self._begun + limits.head_timeout)
        self._due = min(due)

    # -- requests

    def _take(self, data: bytes) -> None:
        now = trio.current_time()
        self._hear(self.wire.receive(data, now, _TURN), now)
        if not self.wire.in_head:
            self._head_due = float("inf")
        elif self._head_due == float("inf"):
            self._head_due = now + self._limits.head_timeout
            self._due_at(self._head_due)
        if self.wire.answers.to_send:
            self.wake()

    def _hear(self, events: list[Event], now: float) -> None:
        for event in events:
            if self._gone:
                # What came in the same piece begins nothing: nobody would ever end it.
                return
            if isinstance(event, Head):
                self._begin(event, now)
            elif isinstance(event, Body):
                self._grow(event)
            elif isinstance(event, Ended):
                exchange = self._arriving.pop(event.stream, None)
                if exchange is not None:
                    exchange.body = bytes(self._parts.get(event.stream, b""))
                    self._forget(exchange)
                    self._start(exchange, now)
            elif isinstance(event, Reset):
                self._reset(event.stream)
            elif isinstance(event, Fatal):
                logger.info("an HTTP/2 connection is over: %s", event.reason)
                self._leave()
                self._end()
            elif isinstance(event, GoneAway):
                self._finishing = True
                if event.code:
                    self._peer_gone()
                self.wake()

    def _begin(self, head: Head, now: float) -> None:
        exchange, request, limits = H2Exchange(self, head), head.request, self._limits
        self._busy = True
        path, _, query = request.path.partition("?")
        verdict = self._endpoint.admit(request.method, path, request.headers, query)
        if request.size > limits.head_bytes:
            verdict = Refusal(431, f"Request head too large: the limit is {limits.head_bytes} bytes")
        elif isinstance(verdict, Accepts) and (request.length or 0) > limits.message_bytes:
            verdict = self._too_large()
        if isinstance(verdict, Refusal):
            self.wire.refuse_body(head.stream)
            self._endpoint.refuse(exchange, verdict)
            return
        exchange.accepts = verdict
        if head.ended:
            self._start(exchange, now)
            return
        self._arriving[head.stream] = exchange
        exchange.due = now + limits.body_timeout
        self._due_at(exchange.due)
        if request.headers.get(b"expect", b"").lower() == b"100-continue":
            self.wire.send_continue(head.stream)

    def _too_large(self) -> Refusal:
        return Refusal(413, f"Message too long: the limit is {self._limits.message_bytes} bytes")

    def _grow(self, body: Body) -> None:
        exchange = self._arriving.get(body.stream)
        if exchange is None:
            # It came in one piece with the head that was refused.
            self.wire.refuse_body(body.stream, body.size)
            return
        parts = self._parts.get(body.stream)
        if parts is None:
            parts = self._parts[body.stream] = bytearray()
        if len(parts) + len(body.data) > self._limits.message_bytes:
            self._refuse_body(exchange, self._too_large(), body.size)
        elif not self._bodies.take(len(body.data)):
            self._refuse_body(exchange, Refusal(503, "Too much arrives at once: try again"), body.size)
        else:
            exchange.held += len(body.data)
            parts += body.data
            self.wire.open_window(body.stream, body.size)

    def _refuse_body(self, exchange: H2Exchange, refusal: Refusal, size: int = 0) -> None:
        """Answer before the body is there; the rest is not taken."""
        del self._arriving[exchange.stream]
        self._forget(exchange)
        self.wire.refuse_body(exchange.stream, size)
        self._endpoint.refuse(exchange, refusal)

    def _forget(self, exchange: H2Exchange) -> None:
        """What arrived of a body is not held here any more."""
        self._parts.pop(exchange.stream, None)
        if exchange.held:
            self._bodies.give_back(exchange.held)
            exchange.held = 0

    def _reset(self, stream: int) -> None:
        exchange = self._arriving.pop(stream, None)
        if exchange is not None:
            self._forget(exchange)
        else:
            exchange = self._exchanges.get(stream)
        if exchange is not None:
            exchange.peer_gone()
            self.room.unpark_all()
        self.wake()

    def _start(self, exchange: H2Exchange, now: float) -> None:
        self._exchanges[exchange.stream] = exchange
        exchange.due = now + self._limits.silence
        self._due_at(exchange.due)
        assert self._nursery is not None
        # Every request starts from the context of the connection.
        self._context.run(self._nursery.start_soon, self._serve, exchange)

    async def _serve(self, exchange: H2Exchange) -> None:
        assert exchange.accepts is not None
        try:
            await self._endpoint.serve(exchange, exchange.accepts)
        except Exception:
            logger.exception("an HTTP request failed in a way that should not happen")
            if exchange.streaming and not exchange.done:
                self.wire.reset(exchange.stream, _INTERNAL_ERROR)
                self.wake()
            exchange.respond(500, encode_error(None, InternalError("Internal error")))
        finally:
            if self._exchanges.get(exchange.stream) is exchange:
                del self._exchanges[exchange.stream]
