"""HTTP/1.1, one connection: the half that reads, writes and waits, around `wire.http1`, which says what it all means.

The task that reads is the watcher of the request that is being answered: it reads on all the time, whatever waits, so it
hears the peer hang up (a half-closed connection counts as closed). Each request is answered in a task of its own, one at a
time, in order; a refusal is answered as a request is.

Timers cost nothing a request: the reader stands in one scope whose deadline is at or before the next thing that is due.
"""

from __future__ import annotations

import contextvars
import logging
import math
import os
from typing import Final

import trio

from ...errors import InternalError
from ...protocol.envelope import encode_error
from ...protocol.http import Refusal
from ...wire.answers import Answer
from ...wire.http1 import Complete, Connection, Head
from ..outbox import Outbox
from .endpoint import HttpEndpoint
from .h1_exchange import H1Exchange

__all__ = ["H1Connection"]

logger: logging.Logger = logging.getLogger("trio_mcp.server.http")

_SMALL: Final = 16_384
_LINGER: Final = 1.0


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
        "_closed",
        "_context",
        "_due",
        "_ended",
        "_endpoint",
        "_fd",
        "_first",
        "_limits",
        "_nursery",
        "_reading",
        "_refused",
        "_stream",
        "_turn",
        "_wire",
        "outbox",
    )

    def __init__(
        self, stream: trio.abc.Stream, endpoint: HttpEndpoint, first: bytes = b"", *, fd: int | None = None
    ) -> None:
        self._stream = stream
        self._first = first
        self._endpoint = endpoint
        self._limits = endpoint.limits
        self.outbox: Outbox = Outbox(stream, self._limits, fd=fd)
        self._fd = fd
        self._chunk = _SMALL
        self._wire = Connection(self._limits, endpoint.bodies)
        self._turn = self._wire.turn
        self._active: H1Exchange | None = None
        self._refused = False
        self._ended = False
        self._closed = False
        self._due = 0.0
        self._reading = trio.CancelScope()
        self._context = contextvars.copy_context()
        self._nursery: trio.Nursery | None = None

    @property
    def held(self) -> int:
        """How many bytes of requests are held that are not being answered."""
        return self._wire.held

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
                if first:
                    self._take(first)
                first = b""
                while not self._ended:
                    with trio.CancelScope(deadline=self._due) as self._reading:
                        await self._read()
                    if self._reading.cancelled_caught and not self._ended:
                        self._overdue()
                if self._active is None:
                    await self._finish()
        finally:
            self._active = self._nursery = None
            self._wire.close()
            # From here on the number of the descriptor may be somebody else's.
            self._closed = True
            self.outbox.break_off()
            with trio.move_on_after(self._limits.write_stall, shield=True):
                await self._stream.aclose()

    def drain(self) -> None:
        """Finish what is being answered and close; at once when nothing is."""
        self._wire.drain()
        if self._wire.finished:
            self._end()

    async def wait_sent(self) -> None:
        """Wait until what was answered is written, or the peer is gone."""
        await self.outbox.wait_flushed()

    def abandon(self) -> None:
        """End what is being answered, and write nothing more."""
        self._peer_gone()
        # The reader may have been woken already.
        self._closed = True
        self._reading.cancel()

    def _end(self) -> None:
        self._ended = True
        self._reading.cancel()

    async def _read(self) -> None:
        while not self._ended:
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
                if self._closed:
                    return b""
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
        self._wire.close()
        self.outbox.break_off()
        if self._active is not None:
            self._active.peer_gone()

    async def _finish(self) -> None:
        """Let the last answer out. What still comes is read and dropped: closing on unread bytes would reset the connection
        and lose that answer."""
        outbox = self.outbox
        at_once = outbox.flushed and not self._refused
        if at_once or not isinstance(self._stream, trio.SocketStream | trio.SSLStream):
            await outbox.wait_flushed()
            return
        async with trio.open_nursery() as nursery:
            over = trio.Event()

            async def drop() -> None:
                while await self._receive():
                    pass
                over.set()

            nursery.start_soon(drop)
            # However slow the peer reads: a write that makes no progress ends this.
            await outbox.wait_flushed()
            if not outbox.broken:
                with trio.move_on_after(_LINGER):
                    try:
                        # TLS has no half of a connection that could be closed; there the peer is asked to close by the answer.
                        if isinstance(self._stream, trio.SocketStream):
                            await self._stream.send_eof()
                    except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
                        over.set()
                    await over.wait()
            nursery.cancel_scope.cancel()

    # -- time

    def streams(self) -> None:
        """The answer has become an event stream, which may stay open for hours."""
        self._wire.rest()
        self.schedule()

    def schedule(self) -> None:
        """What is due next, and when."""
        limits = self._limits
        self._turn = self._wire.turn
        if self._active is not None:
            seconds = limits.keep_alive if self._active.streaming else limits.silence
        else:
            name = self._wire.deadline_limit
            seconds = math.inf if name is None else getattr(limits, name)
        self._due = due = trio.current_time() + seconds
        if due < self._reading.deadline:
            self._reading.deadline = due

    def _overdue(self) -> None:
        # The deadline of the reader is never late, but it may be early: then nothing is due yet.
        if trio.current_time() < self._due:
            return
        active = self._active
        if active is not None:
            active.silent()
            self._due = trio.current_time() + self._limits.keep_alive
        else:
            self._refused = self._wire.time_out() is not None
            self._pump()
            self._advance()

    # -- requests

    def _take(self, data: bytes) -> None:
        self._wire.feed(data)
        self._advance()

    def _advance(self) -> None:
        """Judge what has come, and start a request that it completes if none is being answered."""
        wire, endpoint = self._wire, self._endpoint
        event = wire.next_event()
        while event is not None:
            if type(event) is Head:
                request = event.request
                query = request.target.partition(b"?")[2].decode("latin-1")
                request.verdict = verdict = endpoint.admit(request.method, request.path, request.headers, query)
                event = wire.refuse(verdict) if type(verdict) is Refusal else wire.accept()
            else:
                if type(event) is not Complete:
                    self._refused = True
                self._pump()
                event = wire.next_event()
        if self._active is not None:
            # What arrives while a request is answered moves no timer.
            return
        if wire.finished:
            self._end()
            return
        if invitation := wire.invite():
            self.post(invitation)
        if wire.turn != self._turn:
            # Neither do line ends on an idle connection.
            self.schedule()

    def _pump(self) -> None:
        if self._active is not None or self._ended:
            return
        answer = self._wire.take()
        if answer is None:
            return
        self._active = exchange = H1Exchange(self, answer)
        answer.request.release()
        self.schedule()
        assert self._nursery is not None
        # Every request starts from the context of the connection, never from that of the one before.
        self._context.run(self._nursery.start_soon, self._serve, exchange, answer)

    async def _serve(self, exchange: H1Exchange, answer: Answer) -> None:
        request = answer.request
        try:
            if request.refusal is not None:
                self._endpoint.refuse(exchange, request.refusal)
            else:
                await self._endpoint.serve(exchange, request.verdict)
            # The next one is answered when this answer has room: a client that does not read is not answered for ever.
            if self.outbox.full:
                await exchange.wait_room()
        except Exception:
            logger.exception("an HTTP request failed in a way that should not happen")
            answer.keep_alive = False
            if not exchange.done and not exchange.streaming:
                exchange.respond(500, encode_error(None, InternalError("Internal error")))
        finally:
            self._active = None
        if self._ended:
            return
        if exchange.done:
            # Time runs from here, whatever has arrived since.
            self._turn = -1
            self._pump()
            self._advance()
        else:
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
