"""What a codec takes is what its schema says, with another program's validator as the judge."""

# No postponed annotations here: the table below holds types.
# Both spellings of a union are types to be tested.
# ruff: noqa: UP045

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import uuid
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, Optional, TypedDict, TypeVar

import annotated_types
import attrs
import jsonschema_rs
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trio_mcp.convert.codec import Mismatch
from trio_mcp.convert.compiler import Compiler
from trio_mcp.protocol.jsontext import dumps, loads

from ..scaled import scaled
from ..types_server import Color, Level

T = TypeVar("T")


class Speed(enum.Enum):
    SLOW = 1.0
    FAST = 2.5


class Mixed(enum.Enum):
    NONE = None
    ONE = 1
    TEXT = "a"


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.0


@dataclasses.dataclass
class Named:
    name: str
    x: int | None = None


@dataclasses.dataclass
class Node:
    x: int
    next: Optional["Node"] = None


@dataclasses.dataclass
class Box(Generic[T]):
    x: T


class Movie(TypedDict):
    x: int
    name: NotRequired[str]


class Partial(TypedDict, total=False):
    x: int
    y: list[int]


class Pair(NamedTuple):
    x: int
    y: str = ""


class Plain(msgspec.Struct):
    x: int
    name: str = ""


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    x: int


class Cat(msgspec.Struct, tag="a", tag_field="name"):
    x: int


class Dog(msgspec.Struct, tag="b", tag_field="name"):
    x: int


class First(msgspec.Struct, tag=1, tag_field="name"):
    x: int


@attrs.define
class Attr:
    x: int
    _name: str = ""


UNBOUND: list[Any] = [
    int,
    float,
    str,
    bool,
    None,
    Any,
    Optional[int],
    int | str,
    int | float | None,
    float | int,
    bool | int,
    float | str,
    Literal["a"],
    Literal["a", 1, None],
    Literal[1, 2],
    Literal[True, 0],
    Literal[0, 1, True],
    Color,
    Level,
    Speed,
    Mixed,
    Color | int,
    Level | str,
    Speed | None,
    Literal["a"] | int,
    list,
    list[int],
    list[float],
    list[str | None],
    list[list[int]],
    list[int] | list[str],
    list[Any],
    set[str],
    frozenset[int],
    tuple,
    tuple[()],
    tuple[int, str],
    tuple[int, ...],
    tuple[int, tuple[str, bool]],
    collections.deque[int],
    dict,
    dict[str, int],
    dict[int, str],
    dict[Color, int],
    dict[Literal["x", "y"], float],
    dict[str, list[int] | None],
    Point,
    Named,
    Node,
    Point | Named,
    Optional[Point],
    list[Point],
    dict[str, Node],
    Box[int],
    Box[list[str]],
    Movie,
    Partial,
    Pair,
    Plain,
    Strict,
    Cat,
    First,
    Cat | Dog,
    Cat | Dog | None,
    Plain | Point,
    Attr,
    Movie | list[int] | str,
    decimal.Decimal,
    decimal.Decimal | None,
]
BOUND: list[Any] = [
    Annotated[int, annotated_types.Ge(1)],
    Annotated[int, annotated_types.Gt(1), annotated_types.Lt(3)],
    Annotated[float, annotated_types.Interval(ge=0, le=1)],
    Annotated[int, annotated_types.MultipleOf(2)],
    Annotated[float, annotated_types.MultipleOf(0.5)],
    Annotated[str, annotated_types.Len(1, 2)],
    Annotated[str, msgspec.Meta(pattern="^a")],
    Annotated[str, msgspec.Meta(pattern="^[a-z]+$")],
    Annotated[list[int], annotated_types.Len(1, 2)],
    Annotated[dict[str, int], annotated_types.MinLen(1)],
    Annotated[set[int], annotated_types.MaxLen(1)],
    Annotated[int | None, annotated_types.Ge(1)],
    Annotated[int | str, annotated_types.Ge(1), annotated_types.MinLen(2)],
    Annotated[str | list[int], annotated_types.MinLen(2)],
    list[Annotated[int, annotated_types.Ge(1)]],
    dict[str, Annotated[str, annotated_types.MinLen(1)]],
    Annotated[int, annotated_types.Ge(1)] | str,
]
# Nothing too large for a float, nothing that differs only beyond its digits: there Python and JSON part with reason.
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-4, 4),
    st.integers(-(2**62), 2**62),
    st.sampled_from([0.0, -0.0, 1.0, 2.0, 2.5, 0.5, 0.3, -1.5, 1e-10, 1e20]),
    st.sampled_from(
        ["", "a", "b", "red", "green", "x", "y", "1", "-1", "0", "1.5", "ab", "a\n", "é", "x\ny", "1e5", "abc"]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
)
KEYS = st.sampled_from(["x", "y", "name", "next", "red", "green", "1", "-1", "01", "0", "a", "", "1\n", "_name"])
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


def nearly(schema: Any, root: dict[str, Any], depth: int = 0) -> st.SearchStrategy[Any]:
    """Values that fit a schema in most places, so that a random one is right, or wrong in one place only."""
    if depth > 4:
        return JSON
    if "$ref" in schema:
        return nearly(root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root, depth + 1)
    options: list[st.SearchStrategy[Any]] = []
    if "const" in schema:
        options.append(st.just(schema["const"]))
    elif "enum" in schema:
        options.append(st.sampled_from(schema["enum"]))
    elif "anyOf" in schema:
        options += [nearly(arm, root, depth) for arm in schema["anyOf"]]
    kinds = schema.get("type", []) if not options else []
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        if kind == "array":
            prefix = [nearly(item, root, depth + 1) for item in schema.get("prefixItems", [])]
            if prefix:
                options.append(st.tuples(*prefix).map(list))
            options.append(st.lists(nearly(schema.get("items", {}), root, depth + 1), max_size=3))
        elif kind == "object":
            free = schema.get("additionalProperties")
            free = nearly(free, root, depth + 1) if isinstance(free, dict) else JSON
            options.append(st.dictionaries(KEYS, free, max_size=2))
            named = {key: nearly(part, root, depth + 1) for key, part in schema.get("properties", {}).items()}
            required = {key: named.pop(key) for key in schema.get("required", [])}
            if named or required:
                options.append(st.fixed_dictionaries(required, optional=named))
                options.append(st.fixed_dictionaries({}, optional={**required, **named, "a": JSON}))
        else:
            options.append(SCALARS)
    return st.one_of(*options, JSON)


@pytest.mark.parametrize("annotation", UNBOUND + BOUND, ids=lambda item: str(item).replace("typing.", "")[:70])
def test_a_codec_takes_what_its_schema_allows(annotation: Any) -> None:
    compiler = Compiler()
    codec = compiler.compile(annotation)
    schema = compiler.root_schema(codec)
    validator = jsonschema_rs.validator_for(schema, offline=True)

    @settings(max_examples=scaled(120), database=None)
    @given(nearly(schema, schema))
    def check(value: Any) -> None:
        value = loads(dumps(value))
        before = repr(value)
        allowed = validator.is_valid(value)
        try:
            loaded = codec.load(value)
        except Mismatch as exc:
            assert not allowed, f"{value!r} fits {schema} and was refused: {exc}"
            assert exc.problems != []
            return
        finally:
            assert repr(value) == before
        assert allowed, f"{value!r} does not fit {schema} and was taken as {loaded!r}"
        # And what came in can go out, in a form that the schema allows too, and come in again as the same.
        again = codec.dump(loaded)
        assert validator.is_valid(again), f"{value!r} came in, {again!r} went out"
        assert codec.load(loads(dumps(again))) == loaded

    check()


FORMATS: list[tuple[Any, st.SearchStrategy[str]]] = [
    (dt.datetime, st.datetimes(timezones=st.just(dt.UTC)).map(lambda value: value.isoformat())),
    (dt.date, st.dates().map(lambda value: value.isoformat())),
    (dt.time, st.times(timezones=st.just(dt.UTC)).map(lambda value: value.isoformat())),
    (dt.timedelta, st.builds("P{}DT{}H{}M{}S".format, *[st.integers(0, 90)] * 4)),
    (uuid.UUID, st.uuids().map(str)),
]


@pytest.mark.parametrize(("annotation", "texts"), FORMATS, ids=lambda item: getattr(item, "__name__", ""))
def test_text_of_a_format_comes_in_and_goes_out(annotation: Any, texts: st.SearchStrategy[str]) -> None:
    compiler = Compiler()
    codec = compiler.compile(annotation)
    validator = jsonschema_rs.validator_for(compiler.root_schema(codec), offline=True, validate_formats=True)

    @settings(max_examples=scaled(100), database=None)
    @given(texts | JSON)
    def check(value: Any) -> None:
        # Formats are more often open than closed (an offset may be left out), so only one direction holds.
        if validator.is_valid(value):
            loaded = codec.load(value)
            assert type(loaded) is annotation
            assert validator.is_valid(codec.dump(loaded))
            assert codec.load(codec.dump(loaded)) == loaded

    check()


@given(st.timedeltas())
def test_any_duration_comes_back(value: dt.timedelta) -> None:
    codec = Compiler().compile(dt.timedelta)
    assert codec.load(codec.dump(value)) == value


@given(st.decimals(allow_nan=False, allow_infinity=False))
def test_any_decimal_comes_back_digit_for_digit(value: decimal.Decimal) -> None:
    compiler = Compiler()
    codec = compiler.compile(decimal.Decimal)
    wire = codec.dump(value)
    assert jsonschema_rs.validator_for(compiler.root_schema(codec), offline=True).is_valid(wire)
    assert codec.load(wire).as_tuple() == value.as_tuple()


@given(st.binary())
def test_any_bytes_come_back(value: bytes) -> None:
    codec = Compiler().compile(bytes)
    assert codec.load(codec.dump(value)) == value
