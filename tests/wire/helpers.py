"""A driver of one connection without input or output: what was read, and what was held on the way."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from trio_mcp import Limits
from trio_mcp.protocol.http import Refusal
from trio_mcp.wire.answers import AnswerState
from trio_mcp.wire.budget import BodyBudget
from trio_mcp.wire.http1 import Complete, Connection, Event, Fatal, Head, State

LIMITS = Limits(message_bytes=300, head_bytes=400, read_ahead=900, pipelined=3)
DATE = b"Mon, 30 Nov 2026 18:00:00 GMT"
Seen = tuple[Any, ...]


def by_verb(method: str) -> Refusal | None:
    """Judge as an endpoint does that takes POST alone."""
    return None if method == "POST" else Refusal(405, "Method not allowed", "POST")


def seen(event: Event) -> Seen:
    """What an event says, apart from what its request becomes later."""
    request = event.request
    if isinstance(event, Head):
        fields = tuple(sorted(request.headers.items()))
        return ("head", request.method, request.target, fields, request.length, request.keep_alive, request.expects)
    if isinstance(event, Complete):
        return ("complete", request.method, request.target, bytes(request.body), request.refusal)
    assert isinstance(event, Fatal)
    assert request.refusal is not None
    return ("fatal", request.method, request.refusal)


def most_held(limits: Limits) -> int:
    """What may be held once everything was parsed that can be: what waits, and one message that began below that."""
    return limits.read_ahead + 2 * limits.head_bytes + limits.message_bytes


class Driver:
    """Feeds pieces, judges heads, answers requests.

    Args:
        limits: Of the connection.
        eager: Whether requests are answered as soon as they are complete, or all at the end.
        late: How many pieces a verdict lets pass.
        judge: The verdict.
        budget: Of the bodies.
    """

    def __init__(
        self,
        limits: Limits = LIMITS,
        *,
        eager: bool = True,
        late: int = 0,
        judge: Callable[[str], Refusal | None] = by_verb,
        budget: BodyBudget | None = None,
    ) -> None:
        self.budget = BodyBudget(1 << 30) if budget is None else budget
        self.connection = Connection(limits, self.budget)
        self.limits = limits
        self.events: list[Seen] = []
        self.written: list[bytes] = []
        self._eager = eager
        self._late = late
        self._judge = judge
        self._wait: int | None = None
        self._head: Head | None = None

    def _go_on(self, event: Event | None) -> None:
        while event is not None:
            self.events.append(seen(event))
            if isinstance(event, Head):
                if self._late:
                    self._head, self._wait = event, self._late
                    return
                event = self._verdict(event)
            else:
                if self._eager:
                    self.answer_all()
                event = self.connection.next_event()

    def _verdict(self, head: Head) -> Event | None:
        refusal = self._judge(head.request.method)
        return self.connection.accept() if refusal is None else self.connection.refuse(refusal)

    def answer_all(self) -> None:
        """Answer all that waits."""
        while (answer := self.connection.take()) is not None:
            refusal = answer.request.refusal
            self.written.append(answer.respond(200 if refusal is None else refusal.status, DATE, b"text/plain", b"x"))
            assert answer.state is AnswerState.DONE
            answer.request.release()

    def feed(self, data: bytes) -> None:
        connection = self.connection
        connection.feed(data)
        if self._head is not None:
            assert self._wait is not None
            assert connection.next_event() is None
            self._wait -= 1
            if self._wait <= 0:
                self.judge_now()
            return
        self._go_on(connection.next_event())
        if connection.state is not State.JUDGED:
            assert connection.held <= most_held(self.limits)
        assert (connection.deadline_limit is None) == (
            connection.state in (State.JUDGED, State.CLOSING) or bool(connection._queue)
        )

    def judge_now(self) -> None:
        head, self._head = self._head, None
        if head is not None:
            self._go_on(self._verdict(head))

    def run(self, pieces: Iterable[bytes]) -> list[Seen]:
        """Feed all, answer all; what was read."""
        for piece in pieces:
            self.feed(piece)
        while True:
            before = len(self.events), len(self.written)
            # Requests are taken only when nothing more can be read, however late verdicts are.
            while self._head is not None:
                self.judge_now()
            self.answer_all()
            self._go_on(self.connection.next_event())
            if (len(self.events), len(self.written)) == before:
                break
        fatal = [number for number, event in enumerate(self.events) if event[0] == "fatal"]
        assert fatal in ([], [len(self.events) - 1])
        if self.connection.state is State.CLOSING:
            held = self.connection.held
            self.connection.feed(b"POST / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert self.connection.next_event() is None
            assert self.connection.held == held == 0
        self.connection.close()
        self.connection.close()
        assert self.connection.held == 0
        assert self.budget.taken == 0
        return self.events


def feed(connection: Connection, data: bytes) -> list[Event]:
    """Feed a connection, with all heads accepted; what was read."""
    connection.feed(data)
    events = []
    event = connection.next_event()
    while event is not None:
        events.append(event)
        event = connection.accept() if isinstance(event, Head) else connection.next_event()
    return events


def cut_at(data: bytes, places: Iterable[int]) -> list[bytes]:
    """Some bytes, cut at these places."""
    edges = sorted({0, len(data), *(place for place in places if place < len(data))})
    return [data[start:end] for start, end in itertools.pairwise(edges)]
