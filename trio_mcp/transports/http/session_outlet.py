"""Where the messages of one call of a session go, over HTTP: a plain answer, or a stream that can be taken up again.

The call does not end with the connection that brought it (2025-11-25, basic/transports): it stands in the nursery of its session,
and what it says goes on into its stream, for a client that comes back.
"""

from __future__ import annotations

import trio

from ...protocol.envelope import RequestId
from ...protocol.sse import COMMENT, encode_event, encode_prime
from ...server.peer.events import Event, EventStream
from ...server.peer.session import Session
from .exchange import EMPTY, HttpExchange

__all__ = ["SessionOutlet", "SseTaker"]


class SseTaker:
    """An exchange that takes the events of a stream.

    Attributes:
        over: Set when it takes nothing more.
    """

    __slots__ = ("_stream", "exchange", "over")

    def __init__(self, exchange: HttpExchange, stream: EventStream) -> None:
        self._stream = stream
        self.exchange: HttpExchange = exchange
        self.over: trio.Event = trio.Event()

    @property
    def full(self) -> bool:
        return self.exchange.full

    async def wait_room(self) -> None:
        await self.exchange.wait_room()

    def send(self, event: Event, id: str) -> bool:
        exchange = self.exchange
        return not exchange.gone and not exchange.done and exchange.send_chunk(encode_event(event.message, id))

    def tell(self, message: bytes) -> None:
        self.exchange.send_chunk(encode_event(message))

    def end(self) -> None:
        self._stream.detach(self)
        self.exchange.end_stream()
        self.over.set()

    def gone(self) -> None:
        """The connection is gone."""
        self._stream.detach(self)
        self.over.set()

    def silent(self) -> None:
        """Nothing was sent for a while."""
        self.exchange.send_chunk(COMMENT)


class SessionOutlet:
    """Of one call, or of all calls of a batch.

    Args:
        session: The session.
        exchange: The request that brought the call.
        may_stream: Whether its client takes an event stream.
        stream_only: Whether it takes nothing else.

    Attributes:
        subject: The id of the call, if it is one.
        over: Set when nothing more comes on this connection.
    """

    __slots__ = ("_exchange", "_session", "_stream", "_taker", "may_stream", "over", "stream_only", "subject")

    def __init__(self, session: Session, exchange: HttpExchange, may_stream: bool, stream_only: bool) -> None:
        self._session = session
        # None once it is gone, or complete.
        self._exchange: HttpExchange | None = exchange
        self._stream: EventStream | None = None
        self._taker: SseTaker | None = None
        self.may_stream: bool = may_stream
        self.stream_only: bool = stream_only
        self.subject: RequestId | None = None
        self.over: trio.Event = trio.Event()

    # -- what a call needs of its transport

    def begin(self) -> None:
        if self.stream_only:
            self._open()

    @property
    def full(self) -> bool:
        taker = self._stream.taker if self._stream is not None else None
        if taker is not None:
            return taker.full
        return self._exchange is not None and self._exchange.full

    async def wait_room(self) -> None:
        while self.full:
            taker = self._stream.taker if self._stream is not None else None
            if taker is not None:
                await taker.wait_room()
            elif self._exchange is not None:
                await self._exchange.wait_room()

    def post(self, message: bytes) -> None:
        if self.may_stream and (self._stream is not None or self._exchange is not None):
            self._open().post(message)
        else:
            # A client that takes no stream with its answer, or whose connection was gone before it was told of one, has one for
            # all else, if any.
            self._session.events.standalone.post(message, at_once=False)

    def answer(self, message: bytes) -> bool:
        exchange = self._exchange
        if self._stream is not None:
            self._stream.post(message, last=True)
            return True
        if exchange is None:
            # It knows of no event from which it could go on.
            return False
        exchange.respond(200, message)
        return not exchange.gone

    # -- the stream

    def _open(self) -> EventStream:
        stream, exchange = self._stream, self._exchange
        if stream is None:
            stream = self._stream = self._session.events.open_stream()
            stream.subject = self.subject
        if exchange is not None and self._taker is None and not exchange.done:
            exchange.start_stream()
            self._taker = SseTaker(exchange, stream)
            if self._session.dialect.primed:
                # Older clients take an event without data for a message that is no JSON.
                exchange.send_chunk(encode_prime(stream.place, self._session.resume_after))
            stream.attach(self._taker)
        return stream

    def silent(self) -> None:
        """Nothing was sent for a while."""
        exchange = self._exchange
        if exchange is not None and self.may_stream and not exchange.done:
            self._open()
            exchange.send_chunk(COMMENT)

    def detach(self) -> None:
        """The connection is gone, and the call goes on."""
        if self._stream is not None and self._taker is not None:
            self._stream.detach(self._taker)
        self._exchange = None
        self.over.set()

    def close_stream(self) -> None:
        """Let the client come back for the rest."""
        exchange = self._exchange
        if not self.may_stream or not self._session.dialect.primed:
            return
        if exchange is None:
            if self._stream is not None and self._stream.taker is not None:
                # The one that has taken it up again.
                self._stream.taker.end()
            return
        self._open()
        self.detach()
        exchange.end_stream()

    def finish(self) -> None:
        """The call has ended: nothing more comes, also where nothing was answered since it was cancelled."""
        exchange = self._exchange
        if self._stream is not None:
            self._stream.finish(self._session.dialect.primed)
        if exchange is not None and not exchange.done:
            if exchange.streaming:
                exchange.end_stream()
            elif self.may_stream:
                exchange.start_stream()
                exchange.end_stream()
            else:
                exchange.respond(204, EMPTY)
        self.over.set()
