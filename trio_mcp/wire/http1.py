"""HTTP/1.1, the server's side of one connection, without input or output.

Bytes go in with `feed`, events come out of `next_event`, and nothing is parsed before somebody asks. Answers are made by
`Answer` and are bytes again. There is no clock here: each state names the limit that bounds its time, and whoever has a
clock asks for it (`deadline_limit`) each time that `turn` has changed, and calls `time_out` when it is over.

    state    what comes next                  time             most bytes held
    IDLE     the first byte of a request      idle_timeout     -
    HEAD     the rest of its head             head_timeout     head_bytes
    JUDGED   accept() or refuse(), from here  -                head_bytes + read_ahead + one feed
    LENGTH   the rest of a body               body_timeout     message_bytes
    CHUNKS   the same, in chunks              body_timeout     message_bytes + head_bytes
    CLOSING  nothing: what comes is dropped   -                -

    A head is held twice while it comes: its bytes, and the fields that the parser has found.

    IDLE -> HEAD -> JUDGED -> LENGTH or CHUNKS -> IDLE, after the last request CLOSING
    any state -> CLOSING by an error

While a request is answered, or waits to be, no time is running but that of the answer.

Requests that are complete wait in order until `take`. `pipelined` of them may wait, and what is behind them is not parsed;
it may be `read_ahead` bytes together with them. One message may go beyond that, since it began below it; any byte more is
fatal (503). So the reader never has to stop reading, and it hears a peer that hangs up whatever waits.

An error is fatal: the refusal waits as the last request, behind those that were good, and no byte is parsed or kept any
more. Events do not depend on how the bytes were cut (the tests say so), as long as requests are taken at the same places.
What a request with a body is refused for is an error as well: nothing good comes of reading the rest.

Verdicts may come late: between a `Head` and `accept` or `refuse` nothing is parsed. Bytes may still be fed, and `room`
says when it is better to wait.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from ..limits import Limits
from ..protocol.http import Refusal
from .answers import Answer, AnswerState
from .budget import BodyBudget
from .heads import CHUNKED, MALFORMED, Refused, Request, read_head, too_long
from .parser import DONE, HEAD, Parser, verb_of

__all__ = ["Complete", "Connection", "Event", "Fatal", "Head", "State"]


class State(Enum):
    """What is read next; the value is the limit of its time, or why it has none."""

    IDLE = "idle_timeout"
    HEAD = "head_timeout"
    JUDGED = "the time of the judge"
    LENGTH = "body_timeout"
    CHUNKS = "body timeout in chunks"
    CLOSING = "nothing is awaited"


# Plain names: the look-up on the class costs more than the comparison.
_IDLE, _HEAD, _JUDGED = State.IDLE, State.HEAD, State.JUDGED
_LENGTH, _CHUNKS, _CLOSING = State.LENGTH, State.CHUNKS, State.CLOSING
_DONE = AnswerState.DONE

_TIMES: Final[dict[State, str | None]] = {
    _IDLE: "idle_timeout",
    _HEAD: "head_timeout",
    _JUDGED: None,
    _LENGTH: "body_timeout",
    _CHUNKS: "body_timeout",
    _CLOSING: None,
}

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_END: Final = b"\r\n\r\n"
_BLOCK: Final = 1_024  # of a body in chunks, what is parsed before extensions and trailers are counted
_FREE: Final = 20  # bytes of a chunk that are neither: a size in 16 digits and two line ends


class Event:
    """Something that was read.

    Attributes:
        request: Of which request.
    """

    __slots__ = ("request",)

    def __init__(self, request: Request) -> None:
        self.request: Request = request


class Head(Event):
    """A head is complete. `accept` or `refuse` goes on."""

    __slots__ = ()


class Complete(Event):
    """A request is complete and waits to be taken."""

    __slots__ = ()


class Fatal(Event):
    """Nothing is read any more. `request.refusal` is the last answer, and waits to be taken as a request does."""

    __slots__ = ()


class Connection:
    """One connection.

    Args:
        limits: The bounds.
        budget: What it shares with other connections; without one it has all for itself.

    Attributes:
        state: What is read next.
        turn: Changes with the state: a timer that was set in another turn is over.
        answer: What is or was answered last.
    """

    __slots__ = (
        "_budget",
        "_data",
        "_draining",
        "_fed",
        "_head",
        "_left",
        "_limits",
        "_most",
        "_parser",
        "_pos",
        "_queue",
        "_queued",
        "_request",
        "_tail",
        "_waits",
        "answer",
        "state",
        "turn",
    )

    def __init__(self, limits: Limits, budget: BodyBudget | None = None) -> None:
        self.state: State = _IDLE
        self.turn: int = 0
        self.answer: Answer | None = None
        self._limits = limits
        self._budget = BodyBudget(limits.message_bytes * (limits.pipelined + 2)) if budget is None else budget
        self._data: bytes | bytearray = b""
        self._pos = 0
        self._parser: Parser | None = Parser()
        self._head = b""  # what was parsed of one
        self._queue: list[Request] = []  # a few, and most connections never have two: a deque takes 760 bytes
        self._queued = 0
        self._request: Request | None = None
        self._left = 0  # of a body with a length
        self._most = 0  # of a body in chunks
        self._fed = 0  # of such a body, with all that is around it
        self._tail = b""  # the last bytes of that
        self._waits = False  # the client, for "100 Continue"
        self._draining = False

    # -- what whoever drives it asks

    @property
    def deadline_limit(self) -> str | None:
        """The name of the limit that bounds the time of this state; None where nothing is awaited of the peer."""
        if self._queue or self.answering:
            return None
        return _TIMES[self.state]

    @property
    def answering(self) -> bool:
        """Whether a request was taken whose answer is not complete."""
        return self.answer is not None and self.answer.state is not _DONE

    @property
    def finished(self) -> bool:
        """Whether nothing is answered any more: the connection may be closed once all is written."""
        if self.answering:
            return False
        if self._draining or (self.answer is not None and not self.answer.keep_alive):
            return True
        return self.state is _CLOSING and not self._queue

    @property
    def room(self) -> bool:
        """Whether it is time to read: false only while a verdict is late and much has come."""
        return self.state is not _JUDGED or len(self._data) - self._pos <= self._limits.read_ahead

    @property
    def held(self) -> int:
        """How many bytes are held: not parsed yet, of a head and a body under way, and of requests that wait."""
        held = len(self._data) - self._pos + self._queued + len(self._head)
        if self._request is not None:
            held += self._request.size
        return held + (0 if self._parser is None else len(self._parser.body))

    # -- reading

    def feed(self, data: bytes) -> None:
        """Take what was read. Dropped when nothing is awaited any more."""
        if self.state is _CLOSING:
            return
        if self._pos == len(self._data):
            self._data = data
        else:
            if isinstance(self._data, bytes):
                self._data = bytearray(self._data[self._pos :])
            else:
                del self._data[: self._pos]
            self._data += data
        self._pos = 0

    def next_event(self) -> Event | None:
        """The next event; None when more bytes are needed, a verdict, or room for requests that wait."""
        if self._pos == len(self._data):
            return None
        state = self.state
        try:
            if state is _IDLE or state is _HEAD:
                return self._read_head()
            if state is _LENGTH:
                return self._read_length()
            if state is _CHUNKS:
                return self._read_chunks()
        except Refused as exc:
            return self._fail(exc.refusal)
        return None

    def accept(self, most: int | None = None) -> Event | None:
        """Take the request whose head was told, and go on.

        Args:
            most: The longest body; without it `limits.message_bytes`.

        Returns:
            The next event, as `next_event` does.
        """
        request = self._request
        if request is None or self.state is not _JUDGED:
            raise RuntimeError("no head waits for a verdict")
        limits = self._limits
        if most is None:
            most = limits.message_bytes
        length = request.length
        parser = self._parser
        assert parser is not None
        if length == CHUNKED:
            parser.expect_body()
            self._most, self._fed, self._tail = most, 0, b""
            self._turn(_CHUNKS)
        elif length > most:
            return self._fail(too_long(most))
        elif not length:
            return self._complete(request, b"")
        else:
            parser.expect_body()
            self._left = length
            self._turn(_LENGTH)
        self._waits = request.expects
        return self.next_event()

    def refuse(self, refusal: Refusal) -> Event | None:
        """Refuse the request whose head was told, and go on; fatal when it has a body.

        Returns:
            The next event, as `next_event` does.
        """
        request = self._request
        if request is None or self.state is not _JUDGED:
            raise RuntimeError("no head waits for a verdict")
        if request.length:
            return self._fail(refusal)
        request.refusal = refusal
        return self._complete(request, b"")

    def time_out(self) -> Fatal | None:
        """The time of this state is over: the end of an idle connection, an error in a request."""
        if self.deadline_limit is None:
            return None
        if self.state is _IDLE:
            self.close()
            return None
        part = "head" if self.state is _HEAD else "body"
        return self._fail(Refusal(408, f"Request timeout: the {part} of the request did not arrive in time"))

    def close(self) -> None:
        """The connection is over: what waits is dropped, and what bodies took is given back. May be repeated."""
        self._stop()
        for request in self._queue:
            request.release()
        self._queue.clear()
        self._queued = 0
        if self.answer is not None:
            self.answer.request.release()

    # -- answering

    def take(self) -> Answer | None:
        """The next answer that is due; None while the last one is not complete, and when there is none."""
        last = self.answer
        if last is not None:
            if last.state is not _DONE:
                return None
            last.request.release()
            if not last.keep_alive:
                return None
        if not self._queue or self._draining:
            return None
        request = self._queue.pop(0)
        self._queued -= request.size
        self.answer = answer = Answer(request)
        self.turn += 1
        return answer

    def invite(self) -> bytes:
        """What tells a client that waits for it to send its body, once its turn has come; empty otherwise."""
        if not self._waits or self._queue or self.answering:
            return b""
        self._waits = False
        return _CONTINUE

    def rest(self) -> None:
        """An answer will last: hold nothing that only parsing needs, as long as nothing is being parsed."""
        if self.state is _IDLE:
            self._parser = None

    def drain(self) -> None:
        """Take no more requests; the answer that is under way is the last one."""
        self._draining = True
        if self.answer is not None:
            self.answer.keep_alive = False

    # -- inside

    def _turn(self, state: State) -> None:
        self.state = state
        self.turn += 1

    def _stop(self) -> None:
        """Read nothing any more, and hold nothing of what was read."""
        if self._request is not None:
            self._request.release()
        self._data = b""
        self._head = b""
        self._pos = 0
        # The parser and its callbacks hold each other.
        self._request = self._parser = None
        self._waits = False
        if self.state is not _CLOSING:
            self._turn(_CLOSING)

    def _fail(self, refusal: Refusal) -> Fatal:
        request = self._request
        if request is None:
            request = Request(verb_of(self._head))
        self._stop()
        request.keep_alive = False
        request.refusal = refusal
        request.size = 0
        self._queue.append(request)
        return Fatal(request)

    def _complete(self, request: Request, body: bytes) -> Complete:
        request.body = body
        request.size += len(body)
        self._request = None
        self._waits = False
        if self._pos == len(self._data):
            self._data = b""
            self._pos = 0
        self._queue.append(request)
        self._queued += request.size
        self.state = _IDLE
        self.turn += 1
        if not request.keep_alive:
            self._stop()
        return Complete(request)

    def _crowded(self) -> Refusal:
        seconds = self._limits.retry_after
        return Refusal(503, "Service unavailable: too much waits to be answered", retry_after=seconds)

    def _read_head(self) -> Head | None:
        data, pos, limits, parser = self._data, self._pos, self._limits, self._parser
        if parser is None:
            parser = self._parser = Parser()
        if self.state is _IDLE:
            if data[pos] == 13 or data[pos] == 10:
                # Empty lines before a request are allowed, and begin none.
                data = self._data = bytes(data[pos:]).lstrip(b"\r\n")
                pos = self._pos = 0
                if not data:
                    return None
            if len(self._queue) >= limits.pipelined or self._queued > limits.read_ahead:
                if self._queued + len(data) - pos > limits.read_ahead:
                    raise Refused(self._crowded())
                return None
            parser.begin()
        head = self._head
        end = data.find(_END, pos, pos + limits.head_bytes) + 4
        if not head and end >= 4 and type(data) is bytes:
            # Most heads come in one piece.
            piece = head = data[pos:end]
        else:
            tail = head[-3:]  # the end may lie across two pieces
            piece = tail + data[pos : pos + limits.head_bytes - len(head)]
            end = piece.find(_END) + 4
            piece = piece[len(tail) :] if end < 4 else piece[len(tail) : end]
            head += piece
        self._head = head
        self._pos = pos + len(piece)
        parser.feed(piece)
        if end < 4:
            if self._pos < len(data):
                raise Refused(Refusal(431, f"Request head too large: the limit is {limits.head_bytes} bytes"))
            if self.state is _IDLE:
                self._turn(_HEAD)
            return None
        request = read_head(head, parser.headers, parser.hosts)
        if parser.upgrade:
            parser.reframe(request.length)
        if parser.stage != (HEAD if request.length else DONE):
            raise Refused(MALFORMED)
        # They are of the request now, which may last for hours and lets go of them at its beginning.
        parser.headers = {}
        self._head = b""
        self._request = request
        self.state = _JUDGED
        self.turn += 1
        return Head(request)

    def _read_length(self) -> Event | None:
        data, pos, left = self._data, self._pos, self._left
        request, parser = self._request, self._parser
        assert request is not None
        assert parser is not None
        there = min(left, len(data) - pos)
        if not request.take(self._budget, there):
            raise Refused(self._crowded())
        self._pos = pos + there
        self._left = left = left - there
        self._waits = False
        parser.feed(data[pos : pos + there])
        if (parser.stage == DONE) != (left == 0):
            raise Refused(MALFORMED)
        return None if left else self._complete(request, parser.take_body())

    def _read_chunks(self) -> Event | None:
        data, limits = self._data, self._limits
        request, parser = self._request, self._parser
        assert request is not None
        assert parser is not None
        self._waits = False
        while self._pos < len(data):
            tail, pos = self._tail, self._pos
            piece = tail + data[pos : pos + _BLOCK - self._fed % _BLOCK]
            # The message can end only there, and what is behind it is not its own.
            end = piece.find(_END) + 4
            if end >= 4:
                piece = piece[:end]
            there = len(piece) - len(tail)
            self._tail = piece[-3:]
            self._pos = pos + there
            self._fed = fed = self._fed + there
            try:
                parser.feed(piece[len(tail) :])
            finally:
                # Also when the bytes are wrong: which error comes first must not depend on how they were cut.
                size = len(parser.body)
                if not request.take(self._budget, min(size, self._most) - request.taken):
                    raise Refused(self._crowded())
                if size > self._most:
                    raise Refused(too_long(self._most))
            done = parser.stage == DONE
            if done or fed % _BLOCK == 0:
                most = limits.head_bytes
                if fed - size - _FREE * parser.chunks > most:
                    raise Refused(Refusal(431, f"Chunk extensions and trailers too large: the limit is {most} bytes"))
            if done:
                if end < 4:
                    raise Refused(MALFORMED)
                return self._complete(request, parser.take_body())
        return None
