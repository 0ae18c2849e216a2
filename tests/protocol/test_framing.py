"""Lines: the same from any cut of the bytes, never more in memory than one line."""

from __future__ import annotations

import itertools
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_mcp.protocol.framing import TOO_LONG, LineFramer

LIMIT = 12
BOM = b"\xef\xbb\xbf"
# Pieces that matter to lines, so that random streams are rich in edges.
PIECES = st.sampled_from(
    [b"\n", b"\r\n", b"\r", BOM, b"\xef", b"\xbb", b"{}", b"a", b" ", b"\t", b"\xe2\x80\xa8", b"\x85", b"\x0b", b"\x00"]
    + [b"x" * size for size in (LIMIT - 1, LIMIT, LIMIT + 1, 3 * LIMIT)]
)
STREAMS = st.lists(PIECES | st.binary(max_size=6), max_size=25).map(b"".join)


def lines_of(stream: bytes, limit: int = LIMIT) -> list[object]:
    """The rules of the module, written as a function of the whole stream."""
    out: list[object] = []
    for line in stream.split(b"\n"):
        line = line.removeprefix(BOM).removesuffix(b"\r")
        if len(line) > limit:
            out.append(TOO_LONG)
        elif line.strip():
            out.append(line)
    return out


def feed(chunks: list[bytes], limit: int = LIMIT) -> list[object]:
    framer = LineFramer(limit)
    out: list[object] = []
    for chunk in chunks:
        out += framer.feed(chunk)
    return out + framer.end()


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    marks = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[start:end] for start, end in itertools.pairwise(marks)]


@given(STREAMS, st.lists(st.integers(0, 10_000), max_size=12))
def test_cuts_do_not_matter(stream: bytes, places: list[int]) -> None:
    for chunks in (cut(stream, places), [stream[at : at + 1] for at in range(len(stream))]):
        assert feed(chunks) == lines_of(stream)


@given(STREAMS, STREAMS)
def test_a_line_is_given_when_its_end_arrives_and_not_later(first: bytes, second: bytes) -> None:
    framer = LineFramer(LIMIT)
    assert framer.feed(first + b"\n") == lines_of(first)
    # One that is certainly too long is told without its end.
    whole, rest = second[: second.rfind(b"\n") + 1], second[second.rfind(b"\n") + 1 :]
    told: list[object] = [TOO_LONG] if len(rest) > LIMIT + len(BOM + b"\r") else []
    assert framer.feed(second) == lines_of(whole) + told
    # And once.
    assert framer.feed(b"\n") == ([] if told else lines_of(rest))


@pytest.mark.parametrize(
    ("stream", "lines"),
    [
        (b"", []),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"a\nb", [b"a", b"b"]),
        (b"a\r\nb\r\n", [b"a", b"b"]),
        (b"a\r\r\n", [b"a\r"]),
        (b"a\rb\n", [b"a\rb"]),
        (b"\n\r\n \t\n\na\n\n", [b"a"]),
        (BOM + b"a\n" + BOM + b"b\n", [b"a", b"b"]),
        (BOM + b"\n" + BOM + b"\r\n", []),
        (b"a" + BOM + b"\n", [b"a" + BOM]),
        # Line ends of other alphabets are text.
        ("a\u2028b\u2029c\x85d".encode() + b"\n", ["a\u2028b\u2029c\x85d".encode()]),
        (b"a\x0bb\x0cc\n", [b"a\x0bb\x0cc"]),
    ],
)
def test_lines(stream: bytes, lines: list[bytes]) -> None:
    assert feed([stream], 100) == lines


def test_the_limit_is_exact_and_counts_the_line_alone() -> None:
    exact, over = b"x" * LIMIT, b"x" * (LIMIT + 1)
    for before, after in [(b"", b"\n"), (b"", b"\r\n"), (BOM, b"\n"), (BOM, b"\r\n"), (b"", b"")]:
        for stream, line in [(before + exact + after, exact), (before + over + after, TOO_LONG)]:
            assert feed([stream]) == [line]
            assert feed([stream[:5], stream[5:]]) == [line]


def test_a_long_line_does_not_hurt_the_next_one() -> None:
    stream = b"a\n" + b"x" * 1000 + b"\nb\n" + b"y" * 1000 + b"\n\nc"
    expected = [b"a", TOO_LONG, b"b", TOO_LONG, b"c"]
    assert feed([stream]) == expected
    assert feed([stream[at : at + 7] for at in range(0, len(stream), 7)]) == expected


def test_a_long_line_without_an_end_is_reported() -> None:
    assert feed([b"x" * 100]) == [TOO_LONG]
    assert feed([b"x" * 10] * 10) == [TOO_LONG]
    assert repr(TOO_LONG) == "TOO_LONG"


def test_the_end_clears_the_framer() -> None:
    framer = LineFramer(LIMIT)
    assert framer.feed(b"half") == []
    assert framer.end() == [b"half"]
    assert framer.end() == []
    assert framer.feed(b"x" * 50) == [TOO_LONG]
    assert framer.feed(b"x" * 50) == []
    assert framer.end() == []
    assert framer.feed(b"a\n") == [b"a"]


@pytest.mark.parametrize(("size", "total"), [(65_536, 60_000_000), (1_000, 4_000_000), (2, 190_000)])
def test_an_unfinished_line_takes_no_more_memory_than_the_limit(size: int, total: int) -> None:
    limit = 200_000
    framer = LineFramer(limit)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        told = 0
        for number in range(total // size):
            # A new object each time, as from a socket: a shared one would hide what is held.
            told += len(framer.feed(bytes([65 + number % 26]) * size))
        grown = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    # Twice for a buffer that grows, and the chunk that is being fed.
    assert grown < 2 * limit + 4 * size + 10_000
    assert told + len(framer.end()) == 1
