"""JSON text: what is accepted is exact, what is left open by JSON is decided, what is refused says why."""

from __future__ import annotations

import dataclasses
import datetime
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_mcp.errors import InvalidRequest, ParseError
from trio_mcp.limits import DEFAULT, Limits
from trio_mcp.protocol.jsontext import dumps, find_unwritable, loads, shorten

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
INTEGERS = st.one_of(
    st.integers(),
    st.integers(-(2**63) - 2, -(2**63) + 2),
    st.integers(2**63 - 2, 2**64 + 2),
    st.integers(-(10**300), 10**300),
)
SCALARS = st.one_of(st.none(), st.booleans(), INTEGERS, st.floats(allow_nan=False, allow_infinity=False), TEXT)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=30)


def same(left: Any, right: Any) -> bool:
    """Equal in value and in type, all the way down: 1, 1.0 and True are three values of JSON; 0.0 and -0.0 are two."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(repr(left) == repr(right))


@given(VALUES, st.sampled_from([None, 0, 1, 4]))
def test_every_json_value_comes_back_the_same(value: Any, indent: int | None) -> None:
    raw = dumps(value)
    assert same(loads(raw), value)
    assert b"\n" not in raw and b"\r" not in raw
    assert find_unwritable(value) is None
    # The standard library is the second opinion on what is written, on its compactness, and on what is read.
    assert same(json.loads(raw.decode("utf-8")), value)
    if not isinstance(value, float | list | dict):
        assert raw == json.dumps(value, ensure_ascii=False).encode()
    assert same(loads(json.dumps(value, indent=indent).encode()), value)


@pytest.mark.parametrize(
    "number",
    [
        0,
        2**53 + 1,
        9007199254740993,
        2**63 - 1,
        2**63,
        2**64 - 1,
        2**64,
        2**64 + 1,
        10**40,
        int("9" * 308),
        # Above the largest double, where a parser that goes through a float gives up.
        10**400,
        int("9" * DEFAULT.integer_digits),
    ],
    ids=lambda number: f"{len(str(number))}-digits-{str(number)[:6]}",
)
@pytest.mark.parametrize("sign", [1, -1])
def test_integers_are_exact_at_any_size(number: int, sign: int) -> None:
    number *= sign
    raw = str(number).encode()
    assert dumps(number) == raw
    assert same(loads(raw), number)
    assert same(loads(b'{"a":[' + raw + b"]}"), {"a": [number]})


def test_integers_have_a_bound_on_their_digits() -> None:
    limits = Limits(integer_digits=25)
    assert loads(b"9" * 25, limits) == int("9" * 25)
    # A sign is not a digit.
    assert loads(b"-" + b"9" * 25, limits) == -int("9" * 25)
    for raw in (b"9" * 26, b"-" + b"9" * 26):
        with pytest.raises(ParseError) as caught:
            loads(raw, limits)
        assert caught.value.message == "Parse error: integer of 26 digits, the limit is 25"


@pytest.mark.parametrize("digits", [DEFAULT.integer_digits + 1, 100_000])
def test_a_hostile_integer_is_refused_at_once(digits: int) -> None:
    with pytest.raises(ParseError):
        loads(b"[" + b"7" * digits + b"]")


def test_digits_inside_text_are_text() -> None:
    raw = b'{"id":"12345678901234567890","n":1.5,"k":[1,null]}'
    assert same(loads(raw), {"id": "12345678901234567890", "n": 1.5, "k": [1, None]})


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
@pytest.mark.parametrize("limit", [1, 3, DEFAULT.json_depth])
def test_depth_has_an_exact_limit(opening: bytes, closing: bytes, limit: int) -> None:
    limits = Limits(json_depth=limit)
    inner = b"{}" if opening == b"[" else b"[]"
    deepest = opening * (limit - 1) + inner + closing * (limit - 1)
    assert dumps(loads(deepest, limits)) == deepest
    with pytest.raises(ParseError) as caught:
        loads(opening + deepest + closing, limits)
    assert caught.value.message == f"Parse error: nested deeper than {limit} levels"


def test_wide_is_not_deep() -> None:
    raw = b"[" + b",".join([b'[{"a":[]}]'] * 500) + b"]"
    assert loads(raw) == [[{"a": []}]] * 500
    # Nor is it where one part is just as deep as it may be.
    assert loads(b"[[[]],[[]]]", Limits(json_depth=3)) == [[[]], [[]]]


def test_brackets_in_text_do_not_nest() -> None:
    text = "[{" * 400
    assert loads(dumps([text])) == [text]


@pytest.mark.parametrize("depth", [DEFAULT.json_depth + 1, 1_000, 5_000, 500_000])
def test_any_depth_beyond_is_a_parse_error(depth: int) -> None:
    # Also with a long integer inside, which is read by another parser.
    for middle in (b"", b"12345678901234567890"):
        with pytest.raises(ParseError):
            loads(b"[" * depth + middle + b"]" * depth)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b" \t",
        b"{",
        b"[1,]",
        b'{"a":1,}',
        *(b"{'a':1}", b"1 2", b"{}{}", b"nul", b"01", b"+1", b".5", b"1.", b"0x10", b"NaN", b"Infinity", b"-Infinity"),
        *(b"[NaN]", b"1e400", b"-1e400", b"[12345678901234567890,1e400]", b"[12345678901234567890,NaN]"),
        b'"\\ud800"',
        b'"\\udc00\\ud800"',
        b'["12345678901234567890","\\ud800"]',
        b'"\xed\xa0\x80"',
        b"\xef\xbb\xbf{}",
        b"\xff\xfe{\x00}\x00",
        b"\xfe\xff\x00{\x00}",
        b"{\x00}\x00",
        b'"\xff"',
        b'"\xc0\xaf"',
        b'"\xe2\x82"',
        b'"a\nb"',
        b'"\x00"',
        b'"\\x41"',
        b'"open',
        b"// c\n1",
    ],
)
def test_what_is_not_json_is_a_parse_error(raw: bytes) -> None:
    with pytest.raises(ParseError) as caught:
        loads(raw)
    assert caught.value.message.startswith("Parse error: ")
    assert len(caught.value.message.splitlines()) == 1
    assert (caught.value.code, caught.value.data) == (-32700, None)


def test_parse_errors_say_what_and_where() -> None:
    for raw, message in [
        (b"", "Parse error: empty message, a JSON object was expected"),
        (b" ", "Parse error: empty message, a JSON object was expected"),
        (b"[1,]", "Parse error: trailing comma is not allowed at character 2"),
    ]:
        with pytest.raises(ParseError) as caught:
            loads(raw)
        assert caught.value.message == message


@given(st.binary(max_size=60))
def test_any_bytes_give_a_value_or_a_parse_error(raw: bytes) -> None:
    try:
        value = loads(raw)
    except ParseError:
        return
    # Whatever was read can be written: no NaN, no lone surrogate came in.
    assert find_unwritable(value) is None
    assert same(loads(dumps(value)), value)


def test_of_equal_keys_the_last_one_counts() -> None:
    assert loads(b'{"a":1,"b":2,"a":3}') == {"a": 3, "b": 2}
    # The other parser, for long integers, must not decide otherwise.
    assert loads(b'{"a":12345678901234567890123,"a":3}') == {"a": 3}


def test_a_message_has_a_size() -> None:
    limits = Limits(message_bytes=10)
    assert loads(b'"' + b"a" * 8 + b'"', limits) == "a" * 8
    with pytest.raises(InvalidRequest) as caught:
        loads(b'"' + b"a" * 9 + b'"', limits)
    assert caught.value.message == "Message too long: 11 bytes, the limit is 10"


@dataclasses.dataclass
class Point:
    x: int


class Text(str):
    pass


CYCLE: list[Any] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (float("nan"), "$: nan is not a JSON number"),
        ({"a": [1, float("inf")]}, "$.a[1]: inf is not a JSON number"),
        (["\ud800"], "$[0]: text with a lone surrogate cannot be sent as UTF-8"),
        ({"\udfff": 1}, "$: text with a lone surrogate cannot be sent as UTF-8"),
        ({1: 2}, "$: key 1 is not a string"),
        ({"a": {None: 2}}, "$.a: key null is not a string"),
        ({"a": b"b"}, "$.a: bytes is not a JSON value"),
        ({"a": {1}}, "$.a: set is not a JSON value"),
        (Point(1), "$: Point is not a JSON value"),
        (datetime.date(2026, 7, 28), "$: date is not a JSON value"),
        (Text("a"), "$: Text is not a JSON value"),
    ],
)
def test_what_is_not_a_json_value_is_found(value: Any, why: str) -> None:
    assert find_unwritable(value) == why


@pytest.mark.parametrize(
    "value", [["\ud800"], {1: 2}, {"a": b"b"}, {"a": {1}}, Point(1), datetime.date(2026, 7, 28), Text("a"), CYCLE]
)
def test_what_is_not_a_json_value_is_not_written(value: Any) -> None:
    with pytest.raises(ValueError) as caught:
        dumps(value)
    assert str(caught.value) == find_unwritable(value)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_nan_beside_a_long_integer_is_not_written(bad: float) -> None:
    with pytest.raises(ValueError):
        dumps([2**70, bad])


def test_a_value_that_holds_itself_is_found() -> None:
    why = find_unwritable(CYCLE)
    assert why is not None and why.endswith(": nested too deep (or refers to itself)")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (1.5, "1.5"),
        ("é\n", '"é\\n"'),
        ({"a": [1]}, '{"a":[1]}'),
        ("a" * 78, '"' + "a" * 78 + '"'),
        ("a" * 79, '"' + "a" * 78 + "…"),
        (2**70, str(2**70)),
        ("\ud800", "'\\ud800'"),
        # Not "null": a NaN is not one.
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
    ],
)
def test_shorten(value: Any, text: str) -> None:
    assert shorten(value) == text


class Rude:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def test_shorten_survives_any_object() -> None:
    assert shorten(Rude()) == "<Rude>"
    assert shorten([Rude()]) == "<list>"


@given(st.text() | VALUES, st.integers(2, 100))
def test_shorten_is_short_and_can_be_sent(value: Any, most: int) -> None:
    text = shorten(value, most)
    assert len(text) <= most
    assert text.encode().decode() == text
