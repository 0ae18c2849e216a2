"""What is said to a client of a session over HTTP: streams of events that can be taken up again where they broke off.

Every event has an id, and is kept after it was sent, within bounds: of a session by number and bytes, of a server by bytes. The
oldest is dropped first. A stream has at most one taker, so that a message goes out on exactly one connection.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final, Protocol

import trio

from ...errors import InvalidRequest
from ...limits import Limits
from ...protocol.envelope import RequestId, encode_error, encode_notification

__all__ = ["Event", "EventLog", "EventStore", "EventStream", "Taker"]


# An empty deque has 600 bytes, and most sessions say nothing. Nothing is ever put into this one.
_NONE: Final[deque[Event]] = deque()


class Taker(Protocol):
    """The connection that a stream is written to."""

    @property
    def full(self) -> bool:
        """Whether the client is slow to read."""
        ...

    async def wait_room(self) -> None:
        """Wait while it is."""

    def send(self, event: Event, id: str) -> bool:
        """Send one event; does not block. False where it cannot be, and nothing more can."""
        ...

    def tell(self, message: bytes) -> None:
        """Send a message that is no event of the stream, and is not kept; does not block."""

    def end(self) -> None:
        """Nothing more comes on this stream."""


class Event:
    """One message.

    Attributes:
        number: Its place in its stream; 0 is what comes before the first.
        message: JSON text.
        key: What it says, where a second one of the same would tell nothing new; otherwise None.
    """

    __slots__ = ("key", "message", "number", "stream")

    def __init__(self, stream: EventStream, number: int, message: bytes, key: str | None) -> None:
        self.stream: EventStream = stream
        self.number: int = number
        self.message: bytes = message
        self.key: str | None = key


class EventStore:
    """The bytes of events of all sessions of a server.

    Args:
        most: Bytes; the oldest events make room for new ones.
    """

    __slots__ = ("_most", "_order", "bytes")

    def __init__(self, most: int) -> None:
        self._most = most
        # A queue from which anyone can leave without a search; the first of a plain dict is looked for behind all that have left.
        self._order: OrderedDict[Event, None] = OrderedDict()
        self.bytes: int = 0

    def add(self, event: Event) -> None:
        """Keep an event; the oldest ones go."""
        self._order[event] = None
        self.bytes += len(event.message)
        while self.bytes > self._most and len(self._order) > 1:
            next(iter(self._order)).stream.log.drop()

    def remove(self, event: Event) -> None:
        """It is kept no more."""
        del self._order[event]
        self.bytes -= len(event.message)


class EventLog:
    """All streams of one session.

    Args:
        store: Counts the bytes of all sessions.
        limits: Bounds.

    Attributes:
        streams: By number; 0 carries what belongs to no call.
        bytes: What is kept.
        closed: Whether the session is over, so that nothing is kept any more.
    """

    __slots__ = ("_limits", "_next", "_order", "bytes", "closed", "store", "streams")

    def __init__(self, store: EventStore, limits: Limits) -> None:
        self.store: EventStore = store
        self._limits = limits
        self._order: deque[Event] = _NONE
        # 0 is for what belongs to no call.
        self._next = 1
        self.bytes: int = 0
        self.closed: bool = False
        self.streams: dict[int, EventStream] = {}

    def open_stream(self) -> EventStream:
        """A new stream, for a call."""
        stream = EventStream(self, self._next)
        self._next += 1
        self.streams[stream.number] = stream
        if len(self.streams) > self._limits.session_events:
            # One whose answer waits for its client is worth more than one that only might be asked for again.
            over = [one for one in self.streams.values() if one.finished]
            old = next((one for one in over if not one.behind), over[0] if over else None)
            if old is not None:
                del self.streams[old.number]
        return stream

    @property
    def standalone(self) -> EventStream:
        """The stream of what belongs to no call."""
        stream = self.streams.get(0)
        if stream is None:
            stream = EventStream(self, 0)
            if self.closed:
                stream.finished = True
            else:
                self.streams[0] = stream
        return stream

    def find(self, event_id: str) -> tuple[EventStream, int] | None:
        """The stream of an event that was sent, and its number there; None where nothing is known of it any more."""
        stream, dash, number = event_id.partition("-")
        if not dash or not (stream.isascii() and stream.isdigit() and number.isascii() and number.isdigit()):
            return None
        if len(event_id) > 40:
            return None
        found = self.streams.get(int(stream))
        return None if found is None or int(number) > found.last else (found, int(number))

    def add(self, event: Event) -> None:
        """Keep an event; the oldest ones go."""
        if self._order is _NONE:
            self._order = deque()
        self._order.append(event)
        self.bytes += len(event.message)
        self.store.add(event)
        limits = self._limits
        while len(self._order) > 1 and (len(self._order) > limits.session_events or self.bytes > limits.session_bytes):
            self.drop()

    def replace(self, event: Event, message: bytes) -> None:
        """Say something newer in the place of an event that was not sent yet."""
        more = len(message) - len(event.message)
        event.message = message
        self.bytes += more
        self.store.bytes += more

    def drop(self) -> None:
        """Forget the oldest event."""
        event = self._order.popleft()
        self.bytes -= len(event.message)
        self.store.remove(event)
        event.stream.dropped(event)

    def clear(self) -> None:
        """Forget all of them: the session is over."""
        self.closed = True
        for event in self._order:
            self.store.remove(event)
        self._order = _NONE
        self.bytes = 0
        for stream in [*self.streams.values()]:
            stream.close()
        self.streams.clear()


class EventStream:
    """The messages of one stream, in order: those that were sent and are kept, and those that wait for a taker.

    Attributes:
        log: The session's.
        number: Which stream of it.
        last: Number of the newest event.
        taker: Who takes it now, or None.
        finished: Whether nothing more will come.
        subject: The id of the request that it answers, or None.
    """

    __slots__ = (
        "_events",
        "_sent",
        "_wake",
        "finished",
        "last",
        "log",
        "number",
        "subject",
        "taker",
    )

    def __init__(self, log: EventLog, number: int) -> None:
        self._events: deque[Event] = _NONE
        self._sent = 0
        self._wake: trio.lowlevel.ParkingLot | None = None
        self.log: EventLog = log
        self.number: int = number
        self.last: int = 0
        self.taker: Taker | None = None
        self.finished: bool = False
        self.subject: RequestId | None = None

    def id_of(self, number: int) -> str:
        """The id of an event, which tells its stream as well."""
        return f"{self.number}-{number}"

    @property
    def place(self) -> str:
        """The id of the newest event that was sent."""
        return self.id_of(self._sent)

    @property
    def behind(self) -> bool:
        """Whether there is something that was not sent yet."""
        return self._sent < self.last

    @property
    def lost(self) -> int:
        """How many events were dropped that should come next."""
        return max(0, self.last - len(self._events) - self._sent)

    def post(self, message: bytes, key: str | None = None, *, last: bool = False, at_once: bool = True) -> None:
        """Say something: now, if somebody takes it.

        Args:
            message: JSON text.
            key: As for `Event`. It takes the place of what waits already under this key.
            last: Nothing more comes.
            at_once: Whether it may go out without room, since whoever posts has waited for it.
        """
        if self.log.closed:
            return
        if key is not None and (waiting := self._waiting(key)) is not None:
            self.log.replace(waiting, message)
            return
        self.last += 1
        event = Event(self, self.last, message, key)
        if self._events is _NONE:
            self._events = deque()
        self._events.append(event)
        self.finished = self.finished or last
        self.log.add(event)
        taker = self.taker
        if taker is None:
            return
        if self._sent == self.last - 1 and (at_once or not taker.full):
            self._send(taker, event)
        elif self._wake is not None:
            self._wake.unpark_all()

    def _waiting(self, key: str) -> Event | None:
        for event in reversed(self._events):
            if event.number <= self._sent:
                return None
            if event.key == key:
                return event
        return None

    def _send(self, taker: Taker, event: Event) -> None:
        if not taker.send(event, self.id_of(event.number)):
            # The client comes back for it.
            self._let_go(taker)
            return
        self._sent = event.number
        if self.finished and not self.behind:
            self._let_go(taker)

    def finish(self, known: bool = True) -> None:
        """Nothing more comes.

        Args:
            known: Whether its client may come back to it, also where nothing was said.
        """
        self.finished = True
        if self.taker is not None and not self.behind:
            self._let_go(self.taker)
        if not self.last and not known:
            self.log.streams.pop(self.number, None)

    def _let_go(self, taker: Taker) -> None:
        if self.taker is taker:
            self.taker = None
        taker.end()
        if self._wake is not None:
            self._wake.unpark_all()

    def attach(self, taker: Taker) -> None:
        """Write to this connection from now on. Whoever took the stream before gets nothing more of it."""
        self.taker = taker
        if self._wake is not None:
            self._wake.unpark_all()

    def detach(self, taker: Taker) -> None:
        """This connection is gone; what is said meanwhile waits."""
        if self.taker is taker:
            self.taker = None
        if self._wake is not None:
            self._wake.unpark_all()

    def rewind(self, number: int) -> None:
        """Go on behind an event that the client has: what it lost on the way is sent again."""
        self._sent = min(number, self.last)

    async def pump(self, taker: Taker) -> None:
        """Write to a connection until it is gone, another one takes the stream, or nothing more comes."""
        self.attach(taker)
        if self._wake is None:
            self._wake = trio.lowlevel.ParkingLot()
        while self.taker is taker:
            if self.behind:
                if taker.full:
                    await taker.wait_room()
                    continue
                if self.lost:
                    self._tell_cut(taker)
                else:
                    self._send(taker, next(event for event in self._events if event.number > self._sent))
            elif self.finished:
                self._let_go(taker)
            else:
                await self._wake.park()

    async def wait_change(self) -> None:
        """Wait until another connection takes the stream, or the one that did is gone."""
        if self._wake is None:
            self._wake = trio.lowlevel.ParkingLot()
        await self._wake.park()

    def _tell_cut(self, taker: Taker) -> None:
        """Some of what should come next is gone: the client waited too long, or too much was said."""
        lost = self.lost
        self._sent += lost
        if self.finished and not self._events and self.subject is not None:
            error = InvalidRequest("The answer was dropped: it waited for this client for too long, or too much did")
            taker.tell(encode_error(self.subject, error))
            self.log.streams.pop(self.number, None)
            return
        text = f"{lost} messages were dropped, since they waited for too long"
        params = {"level": "warning", "logger": "trio_mcp", "data": text}
        taker.tell(encode_notification("notifications/message", params))

    def dropped(self, event: Event) -> None:
        """Called by the log: its oldest event, which is this stream's oldest, is forgotten."""
        self._events.popleft()
        told = event.number <= self._sent or self.subject is None
        if self.finished and not self._events and self.number and told:
            self.log.streams.pop(self.number, None)

    def close(self) -> None:
        """The session is over."""
        self.finished = True
        self._events = _NONE
        self._sent = self.last
        if self.taker is not None:
            self._let_go(self.taker)
        if self._wake is not None:
            self._wake.unpark_all()
