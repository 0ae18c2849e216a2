"""What went out comes in as the same, and fits the schema with its formats; and types that are keys, texts and counts."""

import collections
import datetime as dt
import decimal
import enum
import ipaddress
import uuid
from pathlib import Path
from typing import Annotated, Any, Literal

import annotated_types
import jsonschema_rs
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trio_mcp.convert.codec import Codec, Mismatch, Unsupported
from trio_mcp.convert.compiler import Compiler
from trio_mcp.protocol.jsontext import dumps, loads

from ..scaled import scaled
from ..types_server import ROWS, Box, Color, Drawing, Level, Movie, Pair, Point, Row, Tree, User


def read(annotation: Any, value: Any) -> Any:
    return Compiler().compile(annotation).load(value)


def writer_of(annotation: Any) -> tuple[Codec, Any]:
    compiler = Compiler(output=True)
    codec = compiler.compile(annotation)
    schema = compiler.root_schema(codec)
    return codec, jsonschema_rs.validator_for(schema, offline=True, validate_formats=True)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
NUMBERS = st.integers(-(2**70), 2**70)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
POINTS = st.builds(Point, NUMBERS, NUMBERS)
OFFSETS = st.none() | st.just(dt.UTC) | st.just(dt.timezone(dt.timedelta(hours=-5, minutes=-30)))
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    int: NUMBERS,
    float: FLOATS,
    str: TEXT,
    bool: st.booleans(),
    None: st.none(),
    dt.datetime: st.datetimes(timezones=OFFSETS),
    dt.date: st.dates(),
    dt.time: st.times(timezones=OFFSETS),
    dt.timedelta: st.timedeltas(),
    uuid.UUID: st.uuids(),
    decimal.Decimal: st.decimals(allow_nan=False, allow_infinity=False),
    bytes: st.binary(max_size=20),
    Path: TEXT.filter(lambda text: "\0" not in text).map(Path),
    ipaddress.IPv4Address: st.ip_addresses(v=4),
    ipaddress.IPv6Address: st.ip_addresses(v=6) | st.just(ipaddress.IPv6Address("fe80::1%eth0")),
    Color: st.sampled_from(Color),
    Level: st.sampled_from(Level),
    Literal["red", "green", 3]: st.sampled_from(["red", "green", 3]),
    int | None: NUMBERS | st.none(),
    int | list[str]: NUMBERS | st.lists(TEXT),
    Point | Box: POINTS | st.builds(Box, NUMBERS, NUMBERS),
    list[int]: st.lists(NUMBERS),
    tuple[int, str]: st.tuples(NUMBERS, TEXT),
    tuple[int, ...]: st.lists(NUMBERS).map(tuple),
    set[int]: st.sets(NUMBERS),
    dict[str, int]: st.dictionaries(TEXT, NUMBERS),
    dict[int, str]: st.dictionaries(NUMBERS, TEXT),
    dict[Level, str]: st.dictionaries(st.sampled_from(Level), TEXT),
    collections.Counter[str]: st.dictionaries(TEXT, NUMBERS).map(collections.Counter),
    Point: POINTS,
    Movie: st.fixed_dictionaries({"title": TEXT}, optional={"year": NUMBERS}),
    Pair: st.builds(Pair, NUMBERS, TEXT),
    User: st.builds(User, TEXT, NUMBERS),
    Box: st.builds(Box, NUMBERS, NUMBERS),
    Drawing: st.builds(
        Drawing,
        POINTS,
        st.sampled_from(Color),
        st.dictionaries(TEXT, st.none() | st.lists(TEXT, max_size=3), max_size=3),
    ),
    Tree: st.recursive(st.builds(Tree, TEXT), lambda inner: st.builds(Tree, TEXT, st.lists(inner, max_size=3))),
}


@pytest.mark.parametrize("annotation", VALUES, ids=lambda item: str(item)[:40])
def test_what_went_out_comes_in_as_the_same(annotation: Any) -> None:
    codec, validator = writer_of(annotation)
    reader = Compiler().compile(annotation)

    @settings(max_examples=scaled(60), deadline=None, database=None)
    @given(VALUES[annotation])
    def check(value: Any) -> None:
        wire = loads(dumps(codec.dump(value)))
        assert validator.is_valid(wire), wire
        again = reader.load(wire)
        assert again == value
        assert type(again) is type(value)

    check()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_each_row_of_the_table_fits_its_output_schema_with_formats(row: Row) -> None:
    codec, validator = writer_of(row.annotation)
    wire = loads(dumps(codec.dump(row.python)))
    assert validator.is_valid(wire)
    assert read(row.annotation, wire) == row.python


class Zero(enum.IntEnum):
    NONE = 0
    ONE = 1


@pytest.mark.parametrize(
    ("annotation", "wire", "message"),
    [
        (dict[Zero, str], {"-0": ""}, 'key "-0": expected one of 0, 1, got string "-0"'),
        (dict[Zero, str], {"01": ""}, 'key "01": expected one of 0, 1, got string "01"'),
        (dict[Zero, str], {"2": ""}, 'key "2": expected one of 0, 1, got integer 2'),
        (collections.Counter[str], {"a": "1"}, 'a: expected integer, got string "1"'),
        (collections.Counter, {"a": "1"}, 'a: expected integer, got string "1"'),
        (ipaddress.IPv4Address, "01.2.3.4", 'expected IPv4 address, got string "01.2.3.4"'),
        (ipaddress.IPv4Address, 1, "expected IPv4 address, got integer 1"),
        (ipaddress.IPv6Address, "1.2.3.4", 'expected IPv6 address, got string "1.2.3.4"'),
    ],
)
def test_what_is_no_such_key_count_or_address(annotation: Any, wire: Any, message: str) -> None:
    with pytest.raises(Mismatch) as caught:
        read(annotation, wire)
    assert str(caught.value) == message
    compiler = Compiler()
    schema = compiler.root_schema(compiler.compile(annotation))
    assert not jsonschema_rs.validator_for(schema, validate_formats=True).is_valid(wire)


class Permission(enum.Flag):
    READ = 1


def test_sums_of_flags_are_no_keys() -> None:
    with pytest.raises(Unsupported, match="keys of Permission"):
        Compiler().compile(dict[Permission, int])


def lookup(value: int) -> bool:
    return {1: True}[value]


def test_a_predicate_that_fails_in_its_own_way_is_a_problem_of_that_argument() -> None:
    with pytest.raises(Mismatch) as caught:
        read(list[Annotated[int, annotated_types.Predicate(lookup)]], [1, 2])
    assert str(caught.value) == "[1]: expected integer that fits lookup (KeyError: 2), got integer 2"


@pytest.mark.parametrize("pattern", ["^(a+)+$", r"^(a|a)*\1b$"])
def test_no_text_makes_an_expression_slow(pattern: str) -> None:
    # Python's own expressions would take years for it.
    codec = Compiler().compile(Annotated[str, msgspec.Meta(pattern=pattern)])
    with pytest.raises(Mismatch, match="expected text matching"):
        codec.load("a" * 60 + "!")


def test_an_expression_means_what_the_schema_says() -> None:
    arabic = "\N{ARABIC-INDIC DIGIT THREE}"
    codec = Compiler().compile(Annotated[str, msgspec.Meta(pattern=r"^\d$")])
    assert codec.load("3") == "3"
    with pytest.raises(Mismatch):
        codec.load(arabic)
    # What JSON Schema cannot say is Python's.
    assert Compiler().compile(Annotated[str, msgspec.Meta(pattern=r"\A\d\Z")]).load(arabic) == arabic


def test_a_struct_in_a_function_may_refer_to_its_neighbours() -> None:
    class Wheel(msgspec.Struct):
        size: int

    class Car(msgspec.Struct, rename={"wheels": "w"}):
        wheels: "list[Wheel]"
        name: str = "car"
        notes: "list[str]" = msgspec.field(default_factory=list)

    codec = Compiler(localns={"Wheel": Wheel}).compile(Car)
    assert codec.load({"w": [{"size": 3}]}) == Car([Wheel(3)])
