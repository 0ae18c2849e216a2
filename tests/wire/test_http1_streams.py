"""Any bytes, cut anywhere: the same events, no exception, nothing held beyond the bounds, and h11 agrees."""

from __future__ import annotations

import random

import h11
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trio_mcp import Limits
from trio_mcp.wire.answers import Answer
from trio_mcp.wire.budget import BodyBudget
from trio_mcp.wire.heads import Request

from ..scaled import scaled
from .helpers import DATE, LIMITS, Driver, Seen, cut_at
from .streams import PIECES, Sent, expected_by_h11, mutate, requests

pipelines = st.lists(requests, min_size=1, max_size=5).map(lambda sent: b"".join(one.to_bytes() for one in sent))
mutated = st.tuples(pipelines, st.randoms(use_true_random=False)).map(lambda pair: mutate(*pair))
anything = st.binary(max_size=300) | st.lists(st.sampled_from(PIECES), max_size=25).map(b"".join)
streams = pipelines | mutated | anything
cuts = st.just(range(10_000)) | st.lists(st.integers(0, 1_500), max_size=12)


@settings(max_examples=500)
@given(streams, cuts, st.booleans(), st.integers(0, 3))
def test_the_events_do_not_depend_on_where_the_bytes_are_cut(
    data: bytes, places: list[int], eager: bool, late: int
) -> None:
    whole = Driver(eager=eager)
    pieces = Driver(eager=eager, late=late)
    assert pieces.run(cut_at(data, places)) == whole.run([data])
    assert pieces.written == whole.written


@settings(max_examples=300)
@given(streams, cuts, st.integers(0, 400))
def test_neither_do_they_with_a_budget_that_is_small(data: bytes, places: list[int], most: int) -> None:
    whole = Driver(eager=False, budget=BodyBudget(most))
    pieces = Driver(eager=False, budget=BodyBudget(most))
    assert pieces.run(cut_at(data, places)) == whole.run([data])


@settings(max_examples=300)
@given(mutated | anything, cuts)
def test_what_is_complete_is_complete_for_h11_too(data: bytes, places: list[int]) -> None:
    events = Driver(judge=lambda method: None).run(cut_at(data, places))
    check_with_h11(data, events)


def check_with_h11(data: bytes, events: list[Seen]) -> None:
    ours = [event[1:4] for event in events if event[0] == "complete"]
    assert ours == expected_by_h11(data)[: len(ours)]


@settings(max_examples=300)
@given(st.lists(requests, max_size=6), cuts)
def test_what_the_client_of_h11_sends_is_read_as_it_was_meant(sent: list[Sent], places: list[int]) -> None:
    limits = Limits(pipelined=10)
    events = Driver(limits, eager=False, judge=lambda method: None).run(
        cut_at(b"".join(one.to_bytes() for one in sent), places)
    )
    heads = [event for event in events if event[0] == "head"]
    assert [event[1:4] for event in events if event[0] == "complete"] == [
        (one.method, one.target.encode(), one.body) for one in sent
    ]
    for one, (_, _, _, fields, *_) in zip(sent, heads, strict=True):
        wanted: dict[bytes, bytes] = {}
        for name, value in one.fields:
            key, text = name.lower().encode(), value.encode("latin-1")
            wanted[key] = wanted[key] + b", " + text if key in wanted else text
        assert wanted.items() <= dict(fields).items()


names = st.sampled_from([b"allow", b"retry-after", b"vary"])
answers = st.tuples(
    st.sampled_from(["POST", "POST", "HEAD"]),
    st.booleans(),  # HTTP/1.0
    st.booleans(),  # another may follow
    st.sampled_from([200, 202, 400, 404, 413, 503]),
    st.none() | st.lists(st.binary(max_size=40), max_size=5),  # in pieces
    st.binary(max_size=80),
    st.lists(st.tuples(names, st.sampled_from([b"1", b"POST", b"a, b"])), max_size=2, unique_by=lambda pair: pair[0]),
)


@settings(max_examples=300)
@given(answers)
def test_the_client_of_h11_reads_an_answer_as_it_was_meant(parts: tuple) -> None:  # type: ignore[type-arg]
    method, http10, keep, status, pieces, body, fields = parts
    request = Request(method)
    request.http10, request.keep_alive = http10, keep
    answer = Answer(request)
    if pieces is None:
        data = answer.respond(status, DATE, b"text/plain", body, fields)
    else:
        data = answer.start(status, DATE, fields) + b"".join(map(answer.chunk, pieces)) + answer.end()
        body = b"".join(pieces)
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
    client.send(h11.EndOfMessage())
    client.receive_data(data)
    if http10 and pieces is not None:
        assert not answer.keep_alive
        client.receive_data(b"")
    head = client.next_event()
    assert isinstance(head, h11.Response)
    assert head.status_code == status
    assert set(fields) <= set(head.headers)
    assert dict(head.headers)[b"date"] == DATE
    got = b""
    while isinstance(event := client.next_event(), h11.Data):
        got += bytes(event.data)
    assert isinstance(event, h11.EndOfMessage)
    assert got == (b"" if method == "HEAD" else body)
    assert client.trailing_data[0] == b""
    said = dict(head.headers).get(b"connection")
    assert said == (b"close" if not answer.keep_alive else b"keep-alive" if http10 else None)


@settings(max_examples=100)
@given(streams, st.integers(1, 50), st.integers(0, 30))
@example(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n1", 60, 0)
def test_time_runs_out_anywhere(data: bytes, size: int, after: int) -> None:
    driver = Driver()
    for piece in cut_at(data, range(0, len(data), size))[:after]:
        driver.feed(piece)
    connection = driver.connection
    limit, before = connection.deadline_limit, connection.state
    event = connection.time_out()
    if limit is None or limit == "idle_timeout":
        assert event is None
        assert connection.finished
    else:
        assert event is not None
        assert event.request.refusal is not None
        assert (event.request.refusal.status, connection.held) == (408, 0)
        assert before.name in ("HEAD", "LENGTH", "CHUNKS")
    driver.run([b"POST / HTTP/1.1\r\nHost: a\r\n\r\n"])
    assert driver.budget.taken == 0


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_mutated_streams() -> None:
    """A thousand, times `TRIO_MCP_DEEP`."""
    seed = random.randrange(1 << 32)
    for number in range(scaled(1_000)):
        rng = random.Random(seed + number)
        try:
            one_stream(rng)
        except BaseException as exc:
            exc.add_note(f"random.Random({seed + number})")
            raise


def one_stream(rng: random.Random) -> None:
    sent = []
    for _ in range(rng.randint(1, 4)):
        body = rng.randbytes(rng.randint(0, 150))
        chunks = None if rng.random() < 0.5 else [rng.randint(1, 60) for _ in range(rng.randint(0, 4))]
        sent.append(Sent("POST", rng.choice(["/mcp", "/"]), [("X-A", "b"), ("Accept", "*/*")], body, chunks))
    data = b"".join(one.to_bytes() for one in sent)
    kind = rng.randrange(10)
    if kind == 0:
        data = rng.randbytes(rng.randint(0, 300))
    elif kind < 9:
        data = mutate(data, rng)
    eager = rng.random() < 0.5
    whole = Driver(LIMITS, eager=eager, judge=lambda method: None)
    places = (
        range(0, len(data), rng.choice([1, 2, 7, 50]))
        if rng.random() < 0.5
        else [rng.randint(0, len(data)) for _ in range(rng.randint(0, 6))]
    )
    pieces = Driver(LIMITS, eager=eager, late=rng.choice([0, 0, 1, 2]), judge=lambda method: None)
    events = whole.run([data])
    assert pieces.run(cut_at(data, places)) == events
    check_with_h11(data, events)
