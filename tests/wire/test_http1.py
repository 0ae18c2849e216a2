"""Requests in, events out: the rules of the table, one by one."""

from __future__ import annotations

import dataclasses
import gc

import pytest

from trio_mcp import Limits
from trio_mcp.protocol.http import Refusal
from trio_mcp.wire.budget import BodyBudget
from trio_mcp.wire.http1 import Complete, Connection, Event, Fatal, Head, State
from trio_mcp.wire.parser import Parser

from .helpers import DATE, Driver, Seen, feed

LIMITS = Limits(message_bytes=1_000, head_bytes=2_000, read_ahead=3_000, pipelined=2)
POST = b"POST /mcp HTTP/1.1\r\nHost: a\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


def post(body: bytes = b"", *fields: bytes) -> bytes:
    return POST + b"".join(field + b"\r\n" for field in fields) + b"Content-Length: %d\r\n\r\n" % len(body) + body


def read(data: bytes, limits: Limits = LIMITS) -> list[Seen]:
    """What is read of some bytes, whole and byte by byte."""
    events = Driver(limits, judge=lambda method: None).run([data])
    assert Driver(limits, judge=lambda method: None).run([data[i : i + 1] for i in range(len(data))]) == events
    return events


def statuses(data: bytes, limits: Limits = LIMITS) -> list[int | str]:
    """What becomes of requests: complete, or the status that ends all."""
    events = read(data, limits)
    return [event[2].status if event[0] == "fatal" else event[0] for event in events if event[0] != "head"]


def connect(data: bytes = b"", limits: Limits = LIMITS, budget: BodyBudget | None = None) -> Connection:
    """A connection that was fed, with all heads accepted."""
    connection = Connection(limits, budget)
    feed(connection, data)
    return connection


def answer(connection: Connection) -> bytes:
    """Take and answer the next request."""
    taken = connection.take()
    assert taken is not None
    return taken.respond(200, DATE, b"text/plain", b"x")


# -- heads


def test_a_head_says_what_it_is() -> None:
    connection = Connection(LIMITS)
    connection.feed(
        b"POST /mcp?x=1 HTTP/1.1\r\nHOST: a\r\nX-A: 1 \r\nx-a:\t2\r\nExpect: 100-Continue\r\nContent-Length: 3\r\n\r\n"
    )
    event = connection.next_event()
    assert isinstance(event, Head)
    request = event.request
    assert (request.method, request.target, request.path) == ("POST", b"/mcp?x=1", "/mcp")
    assert request.headers == {b"host": b"a", b"x-a": b"1, 2", b"expect": b"100-Continue", b"content-length": b"3"}
    assert (request.length, request.http10, request.keep_alive, request.expects) == (3, False, True, True)
    assert request.size == 93


@pytest.mark.parametrize(
    ("version", "field", "keep"),
    [
        (b"1.1", b"X: y", True),
        (b"1.1", b"Connection: Close", False),
        (b"1.1", b"Connection: foo , close", False),
        (b"1.1", b"Connection: keep-alive\r\nConnection: close", False),
        (b"1.1", b"Connection: closed", True),
        (b"1.0", b"X: y", False),
        (b"1.0", b"Connection: Keep-Alive", True),
        (b"1.0", b"Connection: keep-alive, close", False),
    ],
)
def test_whether_another_request_may_follow(version: bytes, field: bytes, keep: bool) -> None:
    data = b"POST / HTTP/" + version + b"\r\nHost: a\r\n" + field + b"\r\n\r\n"
    (_, *_, kept, _), _, *rest = read(data * 2)
    assert (kept, len(rest)) == (keep, 2 if keep else 0)


@pytest.mark.parametrize(
    ("target", "path", "host"),
    [
        (b"http://b:1/mcp", "/mcp", b"b:1"),
        (b"HTTPS://b", "/", b"b"),
        (b"http://b?x=/mcp", "/", b"b"),
        (b"http://b?x=@c/mcp", "/", b"b"),
        (b"//b/mcp", "//b/mcp", b"a"),
        (b"*", "", b"a"),
    ],
)
def test_the_authority_of_a_target_counts(target: bytes, path: str, host: bytes) -> None:
    connection = Connection(LIMITS)
    connection.feed(b"POST " + target + b" HTTP/1.1\r\nHost: a\r\n\r\n")
    event = connection.next_event()
    assert isinstance(event, Head)
    assert (event.request.path, event.request.headers[b"host"]) == (path, host)


def head(*lines: bytes) -> bytes:
    return b"\r\n".join([*lines, b"", b""])


@pytest.mark.parametrize(
    ("status", "data"),
    [
        (400, b"\x16\x03\x01"),
        (400, b"get"),
        (400, b"GET /\r\n"),
        (400, b"GET mcp HTTP/1.1\r\n"),
        (400, b"GET http://a#/mcp HTTP/1.1\r\n"),
        (400, head(b"GET /  HTTP/1.1", b"Host: a")),
        (400, head(b"GET  / HTTP/1.1", b"Host: a")),
        (400, head(b"OPTIONS / RTSP/1.0", b"Host: a")),
        (400, b"GET / HTTP/1.1\n"),
        (400, b"GET  / HTTP/1.1\r\n"),
        (400, b"GET / HTTP/1.1 \r\n"),
        (400, b"GET /\x80 HTTP/1.1\r\n"),
        (400, POST + b"a b: c\r\n"),
        (400, POST + b"a : c\r\n"),
        (400, POST + b": c\r\n"),
        (400, POST + b"a\r\n"),
        (400, POST + b" a: c\r\n"),
        (400, POST + b"a: b\r\n c\r\n"),
        (400, POST + b"a: \x00\r\n"),
        (400, POST + b"a: b\rc\r\n"),
        (400, POST + b"a: b\nc: d\r\n"),
        (400, POST + b"\n"),
        (400, head(b"GET / HTTP/1.1")),
        (400, head(b"GET / HTTP/1.1", b"Host: a", b"Host: a")),
        (400, head(b"GET / HTTP/1.0", b"Host: a", b"Host: b")),
        (400, head(b"CONNECT a:1 HTTP/1.1", b"Host: a:1")),
        (505, head(b"GET / HTTP/1.2", b"Host: a")),
        (505, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        (400, head(b"GET http://u@a/ HTTP/1.1", b"Host: a")),
        (400, head(b"GET ftp://a/ HTTP/1.1", b"Host: a")),
        (501, POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n"),
        (501, POST + b"Transfer-Encoding: gzip\r\nTransfer-Encoding: Chunked\r\n\r\n"),
        (400, POST + b"Transfer-Encoding: gzip\r\n\r\n"),
        (400, POST + b"Transfer-Encoding:\r\n\r\n"),
        (400, POST + b"Transfer-Encoding: , chunked\r\n\r\n"),
        (400, POST + b"Transfer-Encoding: chunked,\r\n\r\n"),
        (400, POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n"),
        (400, POST + b"Transfer-Encoding: chunked;q=1\r\n\r\n"),
        (400, POST + b"Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n"),
        (400, POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"),
        (400, head(b"POST / HTTP/1.0", b"Host: a", b"Transfer-Encoding: chunked")),
        (400, POST + b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n"),
        (400, POST + b"Content-Length: +0\r\n\r\n"),
        (400, POST + b"Content-Length: \r\n\r\n"),
        (400, POST + b"Content-Length: " + b"0" * 19 + b"\r\n\r\n"),
        (413, POST + b"Content-Length: 1001\r\n\r\n"),
        (431, POST + b"a:\r\n" * 600),
        (431, POST + b"a: " + b"x" * 2_000),
        (431, POST + b"x" * 2_000),
        (431, b"GET /" + b"x" * 2_000),
    ],
)
def test_what_is_no_request_that_could_be_answered(status: int, data: bytes) -> None:
    assert statuses(data + post(b"smuggled")) == [status]


@pytest.mark.parametrize(("data", "verb"), [(b"HEAD / HTTP/1.1\r\na b: c\r\n", "HEAD"), (b"HEAD /\x80", "")])
def test_a_refusal_knows_the_verb_where_there_is_one(data: bytes, verb: str) -> None:
    """An answer to HEAD has no body."""
    (event,) = feed(connection := connect(), data)
    assert (event.request.method, answer(connection).endswith(b"x")) == (verb, verb != "HEAD")


def test_http_1_0_needs_no_host() -> None:
    assert statuses(b"POST / HTTP/1.0\r\n\r\n") == ["complete"]


def test_an_error_is_found_before_the_head_has_come_whole() -> None:
    assert statuses(POST + b"a b: c\r\n") == [400]
    assert statuses(b"\x16") == [400]
    assert statuses(POST + b"a b") == [400]
    assert statuses(POST + b"a") == []


@pytest.mark.parametrize("more", [0, 1])
def test_a_head_may_be_just_as_long_as_the_limit(more: int) -> None:
    fixed = len(POST) + len(b"a: \r\n\r\n")
    data = POST + b"a: " + b"x" * (2_000 - fixed + more) + b"\r\n\r\n"
    # The next one is counted anew.
    assert statuses(data * 2) == ([431] if more else ["complete"] * 2)
    # Each line counts, also when fields of one name are joined.
    lines = (2_000 - len(POST) - 2) // 4
    data = POST + b"a:\r\n" * lines + b"\r\n"
    assert statuses(data) == ["complete"]
    assert statuses(POST + b"a:\r\n" * (lines + 1) + b"\r\n") == [431]


def test_offers_of_other_protocols_are_ignored() -> None:
    data = post(b"abc", b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: x")
    assert statuses(data + post(b"def")) == ["complete"] * 2


def test_empty_lines_begin_no_request() -> None:
    connection = connect(b"\r\n\n\r\n")
    assert (connection.state, connection.turn, connection.held) == (State.IDLE, 0, 0)
    assert statuses(b"\r\n" + post() + b"\r\n\r\n" + post()) == ["complete"] * 2


# -- bodies


def test_a_body_grows_in_one_buffer_and_is_bytes() -> None:
    connection = connect(post(b"x" * 900)[:-500])
    assert (connection.state, connection.deadline_limit) == (State.LENGTH, "body_timeout")
    for _ in range(4):
        assert feed(connection, b"x" * 100) == []
    (event,) = feed(connection, b"x" * 100)
    assert isinstance(event, Complete)
    assert event.request.body == b"x" * 900
    assert type(event.request.body) is bytes


def chunks(*pieces: bytes, trailers: bytes = b"", extension: bytes = b"") -> bytes:
    coded = b"".join(b"%x%b\r\n%b\r\n" % (len(piece), extension, piece) for piece in pieces)
    return CHUNKED + coded + b"0\r\n" + trailers + b"\r\n"


def test_chunks() -> None:
    events = read(chunks(b"abc", b"d" * 20, extension=b';a=b;c="d\xe9"', trailers=b"Host: b\r\nX: y\r\n") + post())
    assert [event[3] for event in events if event[0] == "complete"] == [b"abc" + b"d" * 20, b""]
    assert statuses(CHUNKED + b"0A;x\r\n" + b"a" * 10 + b"\r\n000;x\r\n\r\n") == ["complete"]
    (_, event) = feed(connect(), chunks(b"abc", trailers=b"Host: b\r\nX: y\r\n"))
    assert event.request.headers == {b"host": b"a", b"transfer-encoding": b"chunked"}


@pytest.mark.parametrize(
    ("status", "data"),
    [
        (400, b"\r\n\r\n"),
        (400, b"g\r\n"),
        (400, b"-1\r\n"),
        (400, b"0x0\r\n"),
        (400, b"1 \r\na\r\n"),
        (400, b"1\na\n"),
        (400, b"1\r\nab"),
        (400, b"1\r\na\n"),
        (400, b"f" * 17 + b"\r\n"),
        (400, b"1 ;a=b\r\na\r\n"),
        (400, b"1;\x00\r\na\r\n"),
        (400, b"0\r\na b: c\r\n"),
        (400, b"0\r\n a: c\r\n"),
        (400, b"0\r\na: c\n"),
        (400, b"0\r\nContent-Length: 5\r\n"),
        (400, b"0\r\nTransfer-encoding: chunked\r\n"),
        (413, b"3e9\r\n" + b"x" * 1_001),
        (400, b"1" * 1_000 + b"\r\n"),
        (413, b"f" * 16 + b"\r\n" + b"x" * 1_001),
        (413, b"7" + b"f" * 15 + b"\r\n" + b"x" * 1_001),
        (413, b"3e8\r\n" + b"x" * 1_000 + b"\r\n1\r\n"),
        (431, b"1;" + b"x" * 3_100),
        (431, b"1;" + b"x" * 3_100 + b"\r\n"),
        (431, (b"1;" + b"x" * 50 + b"\r\na\r\n") * 80),
        (431, b"0\r\na: " + b"x" * 3_100),
        (431, b"0\r\n" + b"x" * 3_100),
        (431, b"0\r\n" + b"a: b\r\n" * 336),
    ],
)
def test_what_is_no_body_in_chunks(status: int, data: bytes) -> None:
    assert statuses(CHUNKED + data + b"\r\n" + post(b"smuggled")) == [status]


def test_extensions_and_trailers_may_be_as_long_as_a_head() -> None:
    # Twenty bytes of a chunk are free.
    assert statuses(CHUNKED + b"0\r\n" + b"a: b\r\n" * 335 + b"\r\n") == ["complete"]
    assert statuses(CHUNKED + b"1;" + b"x" * 2_029 + b"\r\na\r\n0\r\n\r\n") == ["complete"]
    assert statuses(CHUNKED + b"1;" + b"x" * 2_030 + b"\r\na\r\n0\r\n\r\n") == [431]
    assert statuses(CHUNKED + b"0" * 2_015 + b"\r\n\r\n") == ["complete"]


def test_the_end_of_a_body_is_found_behind_what_looks_like_it() -> None:
    body = b"0\r\n\r\n" * 400
    sizes = [1, 2, 3, 4, 5, 6, 7, 1_019, 1_020, 1_021]
    limits = Limits(message_bytes=10_000, pipelined=2)
    for size in sizes:
        coded = chunks(*(body[at : at + size] for at in range(0, len(body), size)))
        events = read(coded + post(b"next"), limits)
        assert [event[3] for event in events if event[0] == "complete"] == [body, b"next"]


# -- verdicts


def test_nothing_is_parsed_or_lost_while_a_verdict_is_late() -> None:
    connection = Connection(LIMITS)
    data = post(b"abc") + post(b"def")
    connection.feed(data[:40])
    assert connection.next_event() is None
    connection.feed(data[40:60])
    assert isinstance(connection.next_event(), Head)
    assert (connection.state, connection.deadline_limit, connection.room) == (State.JUDGED, None, True)
    connection.feed(data[60:])
    assert connection.next_event() is None
    connection.feed(b"\r\n" * 2_000)
    assert connection.next_event() is None
    assert not connection.room
    event = connection.accept()
    assert isinstance(event, Complete)
    assert event.request.body == b"abc"
    assert isinstance(connection.next_event(), Head)
    event = connection.accept()
    assert isinstance(event, Complete)
    assert event.request.body == b"def"
    assert (connection.next_event(), connection.held, connection.room) == (None, event.request.size * 2, True)


def test_a_verdict_may_bound_the_body() -> None:
    for data, most, status in [(post(b"abc"), 2, 413), (post(b"abc"), 3, None), (chunks(b"ab", b"c"), 2, 413)]:
        connection = Connection(LIMITS)
        connection.feed(data)
        connection.next_event()
        event = connection.accept(most)
        assert event is not None
        assert (None if event.request.refusal is None else event.request.refusal.status) == status


def test_a_verdict_needs_a_head() -> None:
    for call in (Connection.accept, lambda connection: connection.refuse(Refusal(404, "no"))):
        with pytest.raises(RuntimeError, match="no head waits"):
            call(connect(post(b"abc")))


@pytest.mark.parametrize("field", [b"Content-Length: 5", b"Transfer-Encoding: chunked"])
def test_a_refusal_is_fatal_when_there_is_a_body(field: bytes) -> None:
    refusal = Refusal(404, "Not found")
    connection = Connection(LIMITS)
    connection.feed(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\nHEAD / HTTP/1.1\r\nHost: a\r\n" + field + b"\r\n\r\n")
    assert isinstance(connection.next_event(), Head)
    event = connection.refuse(refusal)
    assert isinstance(event, Complete)
    assert event.request.refusal == refusal
    assert isinstance(connection.next_event(), Head)
    event = connection.refuse(refusal)
    assert isinstance(event, Fatal)
    assert (event.request.refusal, event.request.method, event.request.keep_alive) == (refusal, "HEAD", False)
    assert b"connection" not in answer(connection)
    assert not connection.finished
    assert b"connection: close" in answer(connection)
    assert connection.finished


# -- order and bounds


def test_requests_wait_in_order_and_the_refusal_is_the_last() -> None:
    connection = connect(post(b"1") + post(b"2") + b"\x00", Limits())
    assert (connection.state, connection.deadline_limit) == (State.CLOSING, None)
    bodies = []
    while (taken := connection.take()) is not None:
        assert connection.take() is None
        assert connection.answering
        bodies.append((taken.request.body, taken.request.refusal is not None))
        taken.respond(200, DATE, b"text/plain", b"x")
    assert bodies == [(b"1", False), (b"2", False), (b"", True)]
    assert connection.finished


def test_what_is_behind_the_requests_that_may_wait_is_not_parsed() -> None:
    connection = connect(post(b"1") + post(b"2") + post(b"3"))
    assert (connection.held, connection.state) == (3 * len(post(b"1")), State.IDLE)
    assert feed(connection, b"") == []
    answer(connection)
    assert len(feed(connection, b"")) == 2
    assert connection.held == 2 * len(post(b"1"))


def test_too_much_behind_what_waits_is_fatal_and_is_not_held() -> None:
    connection = connect(post(b"1") + post(b"2") + post(b"3"))
    events: list[Event] = []
    while not events:
        assert connection.held <= 3_000
        events = feed(connection, b"x" * 100)
    (event,) = events
    assert isinstance(event, Fatal)
    assert event.request.refusal == Refusal(503, "Service unavailable: too much waits to be answered", retry_after=1.0)
    for _ in range(1_000):
        assert feed(connection, post(b"4") * 100) == []
    assert connection.held == 2 * len(post(b"1"))
    answer(connection)
    answer(connection)
    assert not connection.finished
    answer(connection)
    assert (connection.finished, connection.take()) == (True, None)


def test_one_message_may_be_longer_than_what_may_wait() -> None:
    limits = dataclasses.replace(LIMITS, read_ahead=500)
    connection = connect(post(b"1"), limits)
    assert connection.take() is not None
    (_, event) = feed(connection, post(b"x" * 1_000))
    assert isinstance(event, Complete)
    (event,) = feed(connection, b"P")
    assert isinstance(event, Fatal)


def test_a_budget_is_shared_and_given_back_once() -> None:
    budget = BodyBudget(1_500)
    one, two = connect(post(b"x" * 900), budget=budget), connect(post(b"x" * 900)[:-600], budget=budget)
    assert (budget.taken, two.held) == (1_200, len(post(b"x" * 900)) - 600)
    (event,) = feed(two, b"x" * 400)
    assert isinstance(event, Fatal)
    assert event.request.refusal is not None
    assert (event.request.refusal.status, event.request.refusal.retry_after, budget.taken) == (503, 1.0, 900)
    taken = one.take()
    assert taken is not None
    taken.request.release()
    taken.request.release()
    assert budget.taken == 0
    answer(two)
    feed(one, CHUNKED + b"5\r\nhello\r\n")
    assert budget.taken == 5
    feed(one, b"0\r\n\r\n" + post(b"abc"))
    assert budget.taken == 8
    two.close()
    one.close()
    one.close()
    assert (budget.taken, one.held) == (0, 0)


def test_a_budget_may_be_used_to_its_last_byte_and_comes_back_with_each_answer() -> None:
    connection = connect(post(b"x" * 600) + post(b"y" * 400), budget=(budget := BodyBudget(1_000)))
    assert budget.taken == 1_000
    answer(connection)
    assert connection.take() is not None
    assert budget.taken == 400
    # The peer is gone before it is answered.
    connection.close()
    assert budget.taken == 0


# -- time and the end


def test_what_bounds_the_time() -> None:
    connection = Connection(LIMITS)
    turns = []
    for data, limit in [
        (b"", "idle_timeout"),
        (b"P", "head_timeout"),
        (post(b"abc")[1:-1], "body_timeout"),
        (b"c", None),
    ]:
        feed(connection, data)
        turns.append(connection.turn)
        assert connection.deadline_limit == limit
    assert turns == sorted(set(turns))
    assert connection.time_out() is None
    answer(connection)
    assert connection.deadline_limit == "idle_timeout"
    feed(connection, post(b"abc")[:-1])
    before = connection.turn
    feed(connection, b"")
    assert connection.turn == before
    event = connection.time_out()
    assert event is not None
    assert event.request.refusal == Refusal(408, "Request timeout: the body of the request did not arrive in time")
    assert connect(CHUNKED).deadline_limit == "body_timeout"


@pytest.mark.parametrize("before", [0, 1, 20, len(POST), len(post(b"first")) - 1])
def test_while_an_answer_lasts_nothing_is_kept_for_parsing(before: int) -> None:
    """Whatever of the next request has come when it rests: that is read as always."""
    connection, following = connect(post()), post(b"first", b"X-A: 1") + post(b"second")
    taken = connection.take()
    assert taken is not None
    feed(connection, following[:before])
    connection.rest()
    kept = sum(isinstance(held, Parser) for held in gc.get_referents(connection))
    assert kept == (before > 0)
    feed(connection, following[before:])
    taken.respond(200, DATE, b"text/plain", b"x")
    for body, fields in ((b"first", {b"x-a": b"1"}), (b"second", {})):
        taken = connection.take()
        assert taken is not None
        assert taken.request.body == body
        assert taken.request.headers == {b"host": b"a", b"content-length": b"%d" % len(body), **fields}
        taken.respond(200, DATE, b"text/plain", b"x")


def test_an_idle_connection_just_ends() -> None:
    connection = connect(b"\r\n")
    assert connection.time_out() is None
    assert (connection.finished, connection.take(), connection.held) == (True, None, 0)


def test_a_client_that_waits_is_invited_when_its_turn_has_come() -> None:
    connection = connect(post(b"1") + post(b"abc", b"Expect: 100-continue")[:-3])
    assert connection.invite() == b""
    taken = connection.take()
    assert taken is not None
    assert connection.invite() == b""
    taken.respond(200, DATE, b"text/plain", b"x")
    assert connection.invite() == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert connection.invite() == b""
    # Whoever sends without waiting needs no invitation.
    assert connect(post(b"abc", b"Expect: 100-continue")[:-1]).invite() == b""
    assert connect(b"POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n").invite() == b""
    assert connect(b"POST / HTTP/1.1\r\nHost: a\r\nExpect: something\r\nContent-Length: 3\r\n\r\n").invite() == b""
    chunked = connect(CHUNKED.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"))
    feed(chunked, b"1")
    assert chunked.invite() == b""
    # Nobody reads any more.
    late = connect(post(b"abc", b"Expect: 100-continue")[:-3])
    assert late.time_out() is not None
    answer(late)
    assert late.invite() == b""


def test_a_drain_makes_the_answer_under_way_the_last_one() -> None:
    connection = connect(post(b"1") + post(b"2"))
    taken = connection.take()
    assert taken is not None
    connection.drain()
    assert not connection.finished
    assert b"connection: close" in taken.respond(200, DATE, b"text/plain", b"x")
    assert (connection.finished, connection.take()) == (True, None)
    for data in (b"", post(b"1")):
        idle = connect(data)
        idle.drain()
        assert (idle.finished, idle.take()) == (True, None)


def test_nothing_is_answered_behind_what_ends_with_the_connection() -> None:
    connection = connect(b"POST / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" * 2)
    taken = connection.take()
    assert taken is not None
    taken.start(200, DATE, ())
    taken.end()
    assert (connection.finished, connection.take()) == (True, None)
