"""Server-sent events, against the rules of the WHATWG (HTML, section 9.2)."""

from __future__ import annotations

import itertools
import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trio_mcp.protocol.sse import COMMENT, Event, EventTooLarge, SSEParser, encode_event

from ..scaled import scaled

LARGE = 1 << 20


def parse(*chunks: bytes, limit: int = LARGE) -> list[Event]:
    parser = SSEParser(limit)
    return [event for chunk in chunks for event in parser.feed(chunk)]


def in_bytes(stream: bytes) -> list[bytes]:
    return [stream[index : index + 1] for index in range(len(stream))]


def model(stream: bytes) -> tuple[list[Event], int | None, str | None]:
    """The rules, written as a function of the whole stream of text."""
    text = stream.decode(errors="replace").removeprefix("\ufeff")
    lines, line, index = [], "", 0
    while index < len(text):
        if text[index] in "\r\n":
            lines.append(line)
            line = ""
            index += 2 if text[index : index + 2] == "\r\n" else 1
        else:
            line += text[index]
            index += 1
    events: list[Event] = []
    data, kind, last, retry = "", "", None, None
    for line in lines:
        if line == "":
            if data:
                events.append(Event(data.removesuffix("\n").encode(), kind or "message", last))
            data = kind = ""
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            data += value + "\n"
        elif name == "event":
            kind = value
        elif name == "id" and "\0" not in value:
            last = value
        elif name == "retry" and value and all(digit in "0123456789" for digit in value):
            retry = int(value)
    return events, retry, last


ENDS = st.sampled_from([b"\n", b"\r", b"\r\n", b"\n\n", b"\r\n\n", b"\r\n\r\n", b"\n\r\n", b"\r\r"])
LINES = st.sampled_from(
    [
        *(b"data", b":", b" ", b"", b"data: x", b"data: x", b"data:", b"data:  y", b"event: ping", b"id: 7", b"id"),
        *(b"id: \0", b"retry: 500", b"retry: -1", b"retry: x", b"retry:", b": hi", b"Data: no", b"datax: no"),
        *("data: a\u2028b\u2029c\u0085d".encode(), "é世\U0001f600".encode(), b"\xef\xbb\xbf", b"data: \x0b\x0c\x1c"),
    ]
)
PIECES = st.tuples(LINES, ENDS).map(b"".join) | LINES | ENDS
STREAMS = st.lists(PIECES, max_size=25).map(b"".join)


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"", []),
        (b"data: a\n\n", [Event(b"a")]),
        (b"data: a\r\n\r\n", [Event(b"a")]),
        (b"data: a\r\r", [Event(b"a")]),
        (b"data: a\r\n\n", [Event(b"a")]),
        (b"data: a\n\r\n", [Event(b"a")]),
        (b"data: a\r\n\r", [Event(b"a")]),
        (b"data: a\n\ndata: b\r\rdata: c\r\n\r\n", [Event(b"a"), Event(b"b"), Event(b"c")]),
        (b"data:a\n\n", [Event(b"a")]),
        (b"data:  a\n\n", [Event(b" a")]),
        (b"data: a: b\n\n", [Event(b"a: b")]),
        (b"data: a\ndata: b\ndata:\ndata: c\n\n", [Event(b"a\nb\n\nc")]),
        # The example of section 9.2.6: one event of nothing, one of a line end, and one that never ended.
        (b"data\n\ndata\ndata\n\ndata:", [Event(b""), Event(b"\n")]),
        (b": a comment\n\n:\n\n", []),
        (b"event: ping\n\ndata: a\n\n", [Event(b"a")]),
        (b"event: ping\ndata: a\n\ndata: b\n\n", [Event(b"a", "ping"), Event(b"b")]),
        (b"event: one\nevent: two\ndata: a\n\n", [Event(b"a", "two")]),
        (b"event\ndata: a\n\n", [Event(b"a")]),
        (
            b"id: 1\ndata: a\n\ndata: b\n\nid\ndata: c\n\n",
            [Event(b"a", id="1"), Event(b"b", id="1"), Event(b"c", id="")],
        ),
        (b"id: 1\0\ndata: a\n\n", [Event(b"a")]),
        (b"\xef\xbb\xbfdata: a\n\n", [Event(b"a")]),
        (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", []),
        (b"\n\xef\xbb\xbfdata: a\n\n", []),
        (b"DATA: a\n data: b\ndata : c\nnothing\n\n", []),
        (b"data: a\n", []),
        (b"data: a", []),
        (b"\n\n\r\r\n\n", []),
    ],
)
def test_streams(stream: bytes, expected: list[Event]) -> None:
    assert parse(stream) == expected
    assert parse(*in_bytes(stream)) == expected


@settings(max_examples=scaled(400))
@given(STREAMS, st.lists(st.integers(0, 200), max_size=8))
def test_events_are_those_of_the_rules_however_the_bytes_are_cut(stream: bytes, cuts: list[int]) -> None:
    whole = SSEParser(LARGE)
    expected = model(stream)
    assert (whole.feed(stream), whole.retry, whole.last_id) == expected
    edges = sorted({0, len(stream), *(min(cut, len(stream)) for cut in cuts)})
    for chunks in (in_bytes(stream), [stream[a:b] for a, b in itertools.pairwise(edges)], [b"", stream, b""]):
        parser = SSEParser(LARGE)
        events = [event for chunk in chunks for event in parser.feed(chunk)]
        assert (events, parser.retry, parser.last_id) == expected


@given(st.lists(st.binary(max_size=30), max_size=10))
def test_random_bytes_are_cut_the_same_anywhere(chunks: list[bytes]) -> None:
    stream = b"".join(chunks)
    assert parse(*chunks) == parse(stream) == parse(*in_bytes(stream))


def test_crlf_that_is_cut_between_two_chunks_is_one_line_end() -> None:
    assert parse(b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n") == [Event(b"a\nb")]


def test_a_line_end_after_a_cut_crlf_still_counts() -> None:
    assert parse(b"data: a\r", b"\n", b"\n") == [Event(b"a")]


def test_an_event_comes_with_its_last_line_end_and_does_not_wait_for_a_lf() -> None:
    parser = SSEParser(LARGE)
    assert parser.feed(b"data: a\r\r") == [Event(b"a")]
    assert parser.feed(b"\ndata: b\r\n\r") == [Event(b"b")]
    assert parser.feed(b"\n") == []


def test_unicode_line_ends_are_text() -> None:
    text = "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg"
    stream = b"data: " + json.dumps({"text": text}, ensure_ascii=False).encode() + b"\r\n\r\n"
    for chunks in ([stream], in_bytes(stream)):
        (event,) = parse(*chunks)
        assert json.loads(event.data) == {"text": text}


def test_a_priming_event_and_others_that_are_no_messages() -> None:
    parser = SSEParser(LARGE)
    stream = b": hi\n\nretry: 500\n\nid: 7\ndata:\n\nevent: ping\ndata: {}\n\nevent: message\ndata: " + b'{"id":1}\n\n'
    assert parser.feed(stream) == [
        Event(b"", "message", "7"),
        Event(b"{}", "ping", "7"),
        Event(b'{"id":1}', "message", "7"),
    ]
    assert (parser.retry, parser.last_id) == (500, "7")


@pytest.mark.parametrize("value", [b"", b" -1", b" 1.5", b" x", b" 5x", b" +5", "\u0665".encode(), "\u00b2".encode()])
def test_a_retry_that_is_not_all_digits_is_ignored(value: bytes) -> None:
    parser = SSEParser(LARGE)
    parser.feed(b"retry: 7\n")
    parser.feed(b"retry:" + value + b"\n\n")
    assert parser.retry == 7


def test_a_retry_of_any_length_does_no_harm() -> None:
    # More digits than Python turns into a number.
    assert parse(b"retry: " + b"9" * 10_000 + b"\ndata: a\n\n") == [Event(b"a")]


# -- limits


@pytest.mark.parametrize("size", [1, 7, LARGE])
@pytest.mark.parametrize("prefix", [b"data: ", b"data:", b": ", b"event: ", b"id: ", b"", b"unknown: "])
def test_a_line_without_an_end_is_not_held_for_ever(prefix: bytes, size: int) -> None:
    stream = prefix + b"x" * 1_000
    chunks = [stream[start : start + size] for start in range(0, len(stream), size)]
    with pytest.raises(EventTooLarge, match="an event is over 100 bytes"):
        parse(*chunks, limit=100)


@pytest.mark.parametrize("size", [1, 7, LARGE])
def test_an_event_of_many_lines_is_not_held_for_ever(size: int) -> None:
    stream = b"data: 12345678\n" * 100
    with pytest.raises(EventTooLarge):
        parse(*[stream[start : start + size] for start in range(0, len(stream), size)], limit=100)


def test_an_event_of_many_lines_that_comes_in_one_piece_has_the_same_limit() -> None:
    with pytest.raises(EventTooLarge):
        parse(b"data: 12345678\n" * 12 + b"\n", limit=100)
    assert len(parse(b"data: 12345678\n" * 11 + b"\n", limit=100)) == 1


def test_the_limit_is_for_one_event() -> None:
    stream = (b"data: " + b"x" * 60 + b"\n\n") * 100
    for chunks in ([stream], in_bytes(stream)):
        assert parse(*chunks, limit=100) == [Event(b"x" * 60)] * 100


@pytest.mark.parametrize("size", [95, 98, 99])
def test_an_event_that_fits_fits_however_it_is_cut(size: int) -> None:
    stream = b"data: " + b"x" * size + b"\n\n"
    assert parse(stream, limit=100) == [Event(b"x" * size)]
    assert parse(*in_bytes(stream), limit=100) == [Event(b"x" * size)]


# -- both ways

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.text(max_size=8), values, max_size=4), min_size=1, max_size=4), st.booleans())
def test_what_is_encoded_is_parsed(messages: list[Any], ascii: bool) -> None:
    texts = [json.dumps(message, ensure_ascii=ascii).encode() for message in messages]
    stream = COMMENT + b"".join(encode_event(text) + COMMENT for text in texts)
    for chunks in ([stream], in_bytes(stream)):
        events = parse(*chunks)
        assert events == [Event(text) for text in texts]
        assert [json.loads(event.data) for event in events] == messages


def test_the_bytes_of_an_event() -> None:
    assert encode_event(b'{"a":1}') == b'event: message\ndata: {"a":1}\n\n'
    assert COMMENT == b":\n\n"


@pytest.mark.parametrize("line", [b"data\n", b"data:\n", b"data: x\r\n"])
def test_an_event_of_many_short_lines_takes_the_memory_of_its_bytes(line: bytes) -> None:
    parser = SSEParser(4 << 20)
    chunk = line * 5_000
    tracemalloc.start()
    try:
        for _ in range(40):
            assert parser.feed(chunk) == []
        held, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # One byte or two for each line, in a buffer that grows by an eighth; and one chunk cut into lines.
    assert held < 700_000
    assert most < 3_000_000
    (event,) = parser.feed(b"\n")
    assert event.data.count(b"\n") == 199_999
