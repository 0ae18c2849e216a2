"""Codecs, type by type: schema, a value in, a wrong value in with its exact message, a value out, a wrong one out."""

# No postponed annotations here: classes in functions are types of the tests.
# Both spellings of a union are types to be tested.
# ruff: noqa: UP007, UP045

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import pathlib
import re
import types
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NewType,
    NotRequired,
    Optional,
    TypedDict,
    TypeVar,
    Union,
)

import annotated_types
import attrs
import jsonschema_rs
import msgspec
import pydantic
import pytest

from trio_mcp.convert.codec import Mismatch, Problem, Unsupported, render
from trio_mcp.convert.compiler import Compiler
from trio_mcp.limits import Limits
from trio_mcp.protocol.jsontext import dumps, loads

from ..types_server import INTEGER, POINT, ROWS, STRING, Color, Level, Pair, Point, array, closed, members, reference

T = TypeVar("T")


def schema_of(annotation: Any) -> dict[str, Any]:
    """The whole schema, which must be JSON and valid as a schema."""
    compiler = Compiler()
    schema = compiler.root_schema(compiler.compile(annotation))
    assert loads(dumps(schema)) == schema
    jsonschema_rs.meta.validate(schema)
    jsonschema_rs.validator_for(schema, offline=True)
    return schema


def load(annotation: Any, value: Any) -> Any:
    return Compiler().compile(annotation).load(value)


def dump(annotation: Any, value: Any) -> Any:
    wire = Compiler(output=True).compile(annotation).dump(value)
    assert loads(dumps(wire)) == wire
    return wire


def refused(annotation: Any, value: Any) -> str:
    """What is said about a wrong JSON value."""
    with pytest.raises(Mismatch) as caught:
        load(annotation, value)
    return str(caught.value)


def refused_out(annotation: Any, value: Any) -> str:
    """What is said about a wrong Python value."""
    with pytest.raises(Mismatch) as caught:
        Compiler(output=True).compile(annotation).dump(value)
    return str(caught.value)


def same(left: Any, right: Any) -> bool:
    """Equal in value and in type, all the way down."""
    if type(left) is not type(right) or left != right:
        return False
    if isinstance(left, dict):
        pairs = zip(sorted(left.items(), key=repr), sorted(right.items(), key=repr), strict=True)
        return all(same(a, b) for a, b in pairs)
    if isinstance(left, list | tuple | collections.deque):
        return all(map(same, left, right))
    if isinstance(left, set | frozenset):
        return all(map(same, sorted(left, key=repr), sorted(right, key=repr)))
    if hasattr(left, "__dict__") and not isinstance(left, enum.Enum):
        return same(vars(left), vars(right))
    return True


# -- the types


class Speed(enum.Enum):
    SLOW = 1.0
    FAST = 2.5


class Shape(enum.Enum):
    DOT = (0, 0)
    LINE = (0, 1)


class Word(enum.StrEnum):
    YES = "yes"


class Mixed(enum.Enum):
    NONE = None
    ONE = 1
    TRUE = "true"


@dataclasses.dataclass
class Named:
    """A name."""

    name: str
    x: int = 1


@dataclasses.dataclass
class Node:
    value: int
    next: Optional["Node"] = None


@dataclasses.dataclass
class Tree:
    children: list["Tree"] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Line:
    start: Point
    end: Point
    tags: list[str] = dataclasses.field(default_factory=list)


class Movie(TypedDict):
    title: str
    year: int


class Partial(TypedDict, total=False):
    a: int


class Extended(Movie):
    stars: NotRequired[float]


class Plain(msgspec.Struct):
    a: int
    b: str = "b"


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    a: int


class Renamed(msgspec.Struct, rename="camel"):
    first_name: str
    last_name: str = ""


class Cat(msgspec.Struct, tag=True):
    meow: int


class Dog(msgspec.Struct, tag="hound", tag_field="kind"):
    bark: int


class Wolf(msgspec.Struct, tag="wolf", tag_field="kind"):
    bark: int


class Numbered(msgspec.Struct, tag=1):
    a: int


@attrs.define
class Attr:
    a: int
    _hidden: str = "h"
    many: list[int] = attrs.field(factory=list)


class Model(pydantic.BaseModel):
    a: int
    b: str = "b"


class Outer(pydantic.BaseModel):
    inner: Model
    others: list[Model] = []


class Twig(pydantic.BaseModel):
    name: str
    twigs: list["Twig"] = []


@dataclasses.dataclass
class Box(Generic[T]):
    item: T
    more: list[T] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class IntBox(Box[int]):
    note: str = ""


@dataclasses.dataclass
class Chain(Generic[T]):
    item: T
    next: Optional["Chain[T]"] = None


UserId = NewType("UserId", int)
ID = uuid.UUID("12345678-1234-5678-1234-567812345678")
UTC = dt.UTC

# -- schemas

MODEL = {
    "properties": {"a": {"title": "A", "type": "integer"}, "b": {"default": "b", "title": "B", "type": "string"}},
    "required": ["a"],
    "title": "Model",
    "type": "object",
}


# What stands in the type table is not repeated here. Its classes are defined there, and here each is the whole schema.
SCHEMAS: list[tuple[Any, dict[str, Any]]] = [
    *((row.annotation, row.schema) for row in ROWS if not row.definitions),
    (type(None), {"type": "null"}),
    (Any, {}),
    (object, {}),
    (Union[int, str], {"anyOf": [INTEGER, STRING]}),
    (int | float | None, {"anyOf": [INTEGER, {"type": "number"}, {"type": "null"}]}),
    (Literal["a"], {"const": "a"}),
    (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
    (Literal[1, 2], {"type": "integer", "enum": [1, 2]}),
    (Literal[1, "a", True, None], {"enum": [1, "a", True, None]}),
    (Literal[Color.RED], {"const": "red"}),
    # As the whole Enum: by its names when a value is no scalar of JSON.
    (Literal[Shape.DOT], {"const": "DOT"}),
    (Speed, {"enum": [1.0, 2.5]}),
    (Shape, {"type": "string", "enum": ["DOT", "LINE"]}),
    (Word, {"type": "string", "enum": ["yes"]}),
    (Mixed, {"enum": [None, 1, "true"]}),
    (list, array({})),
    (Sequence[int], array(INTEGER)),
    (Iterable[int], array(INTEGER)),
    (collections.deque[int], array(INTEGER)),
    (frozenset[str], array(STRING, uniqueItems=True)),
    (dict, {"type": "object", "properties": {}}),
    (Mapping[str, Any], {"type": "object", "properties": {}}),
    (
        dict[Color, int],
        {
            "type": "object",
            "properties": {},
            "additionalProperties": INTEGER,
            "propertyNames": {"type": "string", "enum": ["red", "green"]},
        },
    ),
    (tuple, array({})),
    (tuple[()], {"type": "array", "minItems": 0, "maxItems": 0, "items": {}}),
    (dt.datetime | str, {"anyOf": [{"type": "string", "format": "date-time"}, STRING]}),
    (UserId, INTEGER),
    (Annotated[int, "How many."], {"type": "integer", "description": "How many."}),
    (
        Annotated[str, pydantic.Field(min_length=1, max_length=3, pattern="^a", title="T", examples=["a"])],
        {"type": "string", "minLength": 1, "maxLength": 3, "pattern": "^a", "title": "T", "examples": ["a"]},
    ),
    (
        Annotated[int, annotated_types.Interval(ge=1, lt=9), annotated_types.MultipleOf(2)],
        {"type": "integer", "minimum": 1, "exclusiveMaximum": 9, "multipleOf": 2},
    ),
    (
        Annotated[float, msgspec.Meta(gt=0, le=1, description="D")],
        {"type": "number", "exclusiveMinimum": 0, "maximum": 1, "description": "D"},
    ),
    (Annotated[list[int], annotated_types.Len(1, 3)], array(INTEGER, minItems=1, maxItems=3)),
    (
        Annotated[dict[str, int], annotated_types.MinLen(1)],
        {"type": "object", "properties": {}, "additionalProperties": INTEGER, "minProperties": 1},
    ),
    (list[Annotated[int, msgspec.Meta(ge=0)]], array({"type": "integer", "minimum": 0})),
    (Point, POINT),
    (Named, {**closed("name", name=STRING, x={**INTEGER, "default": 1}), "description": "A name."}),
    (list[Point], {**array(reference("Point")), "$defs": {"Point": POINT}}),
    (
        Line,
        {
            **closed("start", "end", start=reference("Point"), end=reference("Point"), tags=array(STRING)),
            "$defs": {"Point": POINT},
        },
    ),
    (Movie, closed("title", "year", title=STRING, year=INTEGER)),
    (Partial, closed(a=INTEGER)),
    (Extended, closed("title", "year", title=STRING, year=INTEGER, stars={"type": "number"})),
    (Pair, closed("left", left=INTEGER, right={**STRING, "default": "r"})),
    # A struct takes unknown members unless it forbids them: that is msgspec's rule.
    (Plain, members("a", a=INTEGER, b={**STRING, "default": "b"})),
    (Strict, closed("a", a=INTEGER)),
    (Renamed, members("firstName", firstName=STRING, lastName={**STRING, "default": ""})),
    (Cat, members("type", "meow", type={"const": "Cat"}, meow=INTEGER)),
    (Attr, closed("a", a=INTEGER, hidden={**STRING, "default": "h"}, many=array(INTEGER))),
    (Model, MODEL),
    (Box[int], closed("item", item=INTEGER, more=array(INTEGER))),
    # A class that fixes the variable of its base has fixed it in the fields too.
    (IntBox, closed("item", item=INTEGER, more=array(INTEGER), note={**STRING, "default": ""})),
]


@pytest.mark.parametrize(("annotation", "schema"), SCHEMAS, ids=str)
def test_schema(annotation: Any, schema: dict[str, Any]) -> None:
    assert schema_of(annotation) == schema


def test_schema_of_a_recursive_class() -> None:
    node = closed("value", value=INTEGER, next={"anyOf": [reference("Node"), {"type": "null"}], "default": None})
    assert schema_of(Node) == {**node, "$defs": {"Node": node}}


def test_schema_of_a_recursive_generic() -> None:
    validator = jsonschema_rs.validator_for(schema_of(Chain[int]), offline=True)
    assert validator.is_valid({"item": 1, "next": {"item": 2, "next": None}})
    assert not validator.is_valid({"item": 1, "next": {"item": "2", "next": None}})


@pytest.mark.parametrize(
    ("annotation", "good", "bad"),
    [
        (Outer, {"inner": {"a": 1}, "others": [{"a": 2, "b": "c"}]}, {"inner": {"a": "x"}}),
        (Twig, {"name": "a", "twigs": [{"name": "b", "twigs": []}]}, {"name": "a", "twigs": [{"twigs": []}]}),
        (list[Twig], [{"name": "a"}], [{}]),
        (dict[str, Outer], {"k": {"inner": {"a": 1}}}, {"k": {"inner": {}}}),
    ],
)
def test_schema_of_nested_pydantic_models(annotation: Any, good: Any, bad: Any) -> None:
    validator = jsonschema_rs.validator_for(schema_of(annotation), offline=True)
    assert validator.is_valid(good)
    assert not validator.is_valid(bad)


def test_two_classes_of_one_name_have_two_definitions() -> None:
    def make(kind: type) -> type:
        return dataclasses.make_dataclass("Thing", [("a", kind)])

    first, second = make(int), make(str)
    schema = schema_of(tuple[first, second])  # type: ignore[valid-type]
    assert schema["prefixItems"] == [{"$ref": "#/$defs/Thing"}, {"$ref": "#/$defs/Thing2"}]
    assert [part["properties"]["a"] for part in schema["$defs"].values()] == [{"type": "integer"}, {"type": "string"}]


class Page(pydantic.BaseModel, Generic[T]):
    items: list[T]


@dataclasses.dataclass
class Café:
    a: int


@pytest.mark.parametrize(
    ("annotation", "good", "bad"),
    [(list[Page[int]], [{"items": [1]}], [{"items": ["a"]}]), (list[Café], [{"a": 1}], [{"a": "x"}])],
    ids=["brackets", "accents"],
)
def test_the_name_of_a_definition_can_stand_in_a_reference(annotation: Any, good: Any, bad: Any) -> None:
    # A reference is a URI: brackets and letters beyond ASCII have no place in one.
    validator = jsonschema_rs.validator_for(schema_of(annotation), offline=True)
    assert validator.is_valid(good)
    assert not validator.is_valid(bad)


MAYBE_INT = NewType("MAYBE_INT", int | None)  # type: ignore[valid-newtype]


@pytest.mark.parametrize(
    "annotation",
    [
        Union[MAYBE_INT, str],
        Optional[Annotated[int | None, "Maybe."]],
        Optional[Annotated[int | str, "Either."]],
    ],
    ids=["newtype", "null twice", "annotated"],
)
def test_schema_of_a_union_in_a_union_is_valid(annotation: Any) -> None:
    # `schema_of` checks it against the meta-schema: "type" takes a flat list of different names.
    assert jsonschema_rs.validator_for(schema_of(annotation), offline=True).is_valid(None)
    assert same(load(annotation, 5), 5)


@pytest.mark.parametrize(
    "annotation",
    [
        Annotated[decimal.Decimal, annotated_types.Ge(decimal.Decimal("0.5"))],
        Annotated[dt.date, annotated_types.Ge(dt.date(2026, 1, 1))],
        Annotated[dt.timedelta, annotated_types.Gt(dt.timedelta(0))],
    ],
    ids=["decimal", "date", "timedelta"],
)
def test_a_bound_that_is_no_json_leaves_a_schema_that_is(annotation: Any) -> None:
    # `schema_of` checks that it is JSON.
    assert schema_of(annotation).keys() & {"type", "anyOf"} != set()


def test_a_length_applies_to_each_arm_that_has_one() -> None:
    validator = jsonschema_rs.validator_for(
        schema_of(Annotated[str | list[int], annotated_types.MinLen(1)]), offline=True
    )
    assert [validator.is_valid(value) for value in ("a", [1], "", [])] == [True, True, False, False]


# -- in and out: pairs of the JSON value and the Python value

BOTH_WAYS: list[tuple[Any, Any, Any]] = [
    (int, -(2**70), -(2**70)),
    (str, "a\u2028\x00", "a\u2028\x00"),
    (str, "5", "5"),
    (Any, {"a": [1, None, 1.5, "x", True]}, {"a": [1, None, 1.5, "x", True]}),
    (Literal["a", 1, True, None], 1, 1),
    (Literal["a", 1, True, None], True, True),
    (Literal["a", 1, True, None], None, None),
    (Literal[1, True], True, True),
    (Literal[0, False], False, False),
    (Literal[Color.RED], "red", Color.RED),
    (Literal[Shape.DOT, Shape.LINE], "LINE", Shape.LINE),
    (Speed, 2.5, Speed.FAST),
    (Shape, "LINE", Shape.LINE),
    (Word, "yes", Word.YES),
    (Mixed, None, Mixed.NONE),
    (Mixed, "true", Mixed.TRUE),
    (list[int], [], []),
    (list, [1, "a"], [1, "a"]),
    (Sequence[int], [1], [1]),
    (Iterable[str], ["a"], ["a"]),
    (collections.deque[int], [1], collections.deque([1])),
    (frozenset[str], ["a"], frozenset({"a"})),
    (dict[int, str], {"-5": "a", "0": "b", str(2**70): "c"}, {-5: "a", 0: "b", 2**70: "c"}),
    (dict[Color, int], {"red": 1}, {Color.RED: 1}),
    (dict[uuid.UUID, int], {str(ID): 1}, {ID: 1}),
    (dict[Literal["a", "b"], int], {"a": 1}, {"a": 1}),
    (Mapping[str, list[int]], {"a": [1]}, {"a": [1]}),
    (collections.OrderedDict[str, int], {"b": 1, "a": 2}, collections.OrderedDict(b=1, a=2)),
    (tuple[()], [], ()),
    (tuple, [1, "a"], (1, "a")),
    (dt.datetime, "2026-07-28T12:00:00+00:00", dt.datetime(2026, 7, 28, 12, tzinfo=UTC)),
    (dt.datetime, "2026-07-28T12:00:00.000001", dt.datetime(2026, 7, 28, 12, 0, 0, 1)),
    (
        dt.datetime,
        "2026-07-28T12:00:00-05:30",
        dt.datetime(2026, 7, 28, 12, tzinfo=dt.timezone(-dt.timedelta(hours=5, minutes=30))),
    ),
    (dt.time, "12:30:00.500000", dt.time(12, 30, 0, 500_000)),
    (dt.time, "12:30:00+02:00", dt.time(12, 30, tzinfo=dt.timezone(dt.timedelta(hours=2)))),
    (dt.timedelta, "P1DT9000S", dt.timedelta(days=1, hours=2, minutes=30)),
    (dt.timedelta, "PT0S", dt.timedelta(0)),
    (dt.timedelta, "P2D", dt.timedelta(days=2)),
    (dt.timedelta, "PT0.000001S", dt.timedelta(microseconds=1)),
    (dt.timedelta, "-PT90S", -dt.timedelta(seconds=90)),
    (uuid.UUID, str(ID), ID),
    (decimal.Decimal, "1E+5", decimal.Decimal("1E+5")),
    (bytes, "AP8=", b"\x00\xff"),
    (bytearray, "AP8=", bytearray(b"\x00\xff")),
    (pathlib.Path, "a/b", pathlib.Path("a/b")),
    (pathlib.PurePosixPath, "/a", pathlib.PurePosixPath("/a")),
    (UserId, 7, 7),
    (Annotated[int, "How many."], 7, 7),
    (Point, {"x": 1, "y": 2}, Point(1, 2)),
    (Line, {"start": {"x": 1, "y": 0}, "end": {"x": 2, "y": 3}, "tags": ["t"]}, Line(Point(1), Point(2, 3), ["t"])),
    (Node, {"value": 1, "next": {"value": 2, "next": None}}, Node(1, Node(2))),
    (Tree, {"children": [{"children": []}]}, Tree([Tree()])),
    (Movie, {"title": "t", "year": 1}, {"title": "t", "year": 1}),
    (Partial, {}, {}),
    (Extended, {"title": "t", "year": 1}, {"title": "t", "year": 1}),
    (Extended, {"title": "t", "year": 1, "stars": 1.5}, {"title": "t", "year": 1, "stars": 1.5}),
    (Plain, {"a": 1, "b": "x"}, Plain(1, "x")),
    (Renamed, {"firstName": "a", "lastName": "b"}, Renamed("a", "b")),
    (Cat, {"type": "Cat", "meow": 1}, Cat(1)),
    (Dog, {"kind": "hound", "bark": 1}, Dog(1)),
    (Attr, {"a": 1, "hidden": "x", "many": [1]}, Attr(1, "x", [1])),
    (Model, {"a": 1, "b": "x"}, Model(a=1, b="x")),
    (
        Outer,
        {"inner": {"a": 1, "b": "b"}, "others": [{"a": 2, "b": "b"}]},
        Outer(inner=Model(a=1), others=[Model(a=2)]),
    ),
    (Twig, {"name": "a", "twigs": [{"name": "b", "twigs": []}]}, Twig(name="a", twigs=[Twig(name="b")])),
    (list[Model], [{"a": 1, "b": "b"}], [Model(a=1)]),
    (Box[int], {"item": 1, "more": [2]}, Box(1, [2])),
    (Box[Color], {"item": "red", "more": []}, Box(Color.RED)),
    (Box[Box[str]], {"item": {"item": "a", "more": []}, "more": []}, Box(Box("a"))),
    (Chain[Level], {"item": 1, "next": {"item": 2, "next": None}}, Chain(Level.LOW, Chain(Level.HIGH))),
    # Unions
    (int | float | None, 1, 1),
    (int | float | None, 1.5, 1.5),
    (int | float | None, None, None),
    (float | int, 1, 1),
    (float | int, 1.0, 1.0),
    (bool | int, True, True),
    (bool | int, 1, 1),
    (int | bool, True, True),
    (int | str, "1", "1"),
    (str | int, 1, 1),
    (list[int] | list[str], [1], [1]),
    (list[int] | list[str], ["a"], ["a"]),
    (list[int] | list[str], [], []),
    (list[int] | dict[str, int] | int, {"a": 1}, {"a": 1}),
    (dt.datetime | str, "2026-07-28T12:00:00", dt.datetime(2026, 7, 28, 12)),
    (dt.datetime | str, "tomorrow", "tomorrow"),
    (str | dt.datetime, "2026-07-28T12:00:00", "2026-07-28T12:00:00"),
    (dt.date | dt.datetime, "2026-07-28", dt.date(2026, 7, 28)),
    (dt.date | dt.datetime, "2026-07-28T12:00:00", dt.datetime(2026, 7, 28, 12)),
    (uuid.UUID | str, str(ID), ID),
    (uuid.UUID | str, "x", "x"),
    (pathlib.Path | str, "a", pathlib.Path("a")),
    (str | pathlib.Path, "a", "a"),
    (Literal["a"] | str, "b", "b"),
    (Literal["a"] | int, "a", "a"),
    (Color | str, "red", Color.RED),
    (Color | str, "blue", "blue"),
    (str | Color, "red", "red"),
    (Level | str, 2, Level.HIGH),
    (Speed | str, 2.5, Speed.FAST),
    (Point | Named, {"x": 1, "y": 0}, Point(1)),
    (Point | Named, {"name": "a", "x": 2}, Named("a", 2)),
    (Cat | Dog, {"kind": "hound", "bark": 1}, Dog(1)),
    (Dog | Wolf, {"kind": "wolf", "bark": 1}, Wolf(1)),
    (Plain | Point, {"x": 1, "y": 0}, Point(1)),
    (Model | Point, {"x": 1, "y": 0}, Point(1)),
    (Optional[Point], {"x": 1, "y": 0}, Point(1)),
    (list[Point | int], [{"x": 1, "y": 0}, 5], [Point(1), 5]),
    (dict[str, int | list[int]], {"a": 1, "b": [1]}, {"a": 1, "b": [1]}),
]


# Other forms that are taken in.
IN: list[tuple[Any, Any, Any]] = [
    *((row.annotation, row.good, row.python) for row in ROWS),
    *BOTH_WAYS,
    # JSON Schema counts 1.0 as an integer and 1 as a number.
    (int, -0.0, 0),
    (int, 1e20, 10**20),
    (Level, 2.0, Level.HIGH),
    (Speed, 1, Speed.SLOW),
    (Speed | str, 1, Speed.SLOW),
    (Literal[1], 1.0, 1),
    (int | str, 1.0, 1),
    (int | None, 2.0, 2),
    (float | None, 2, 2.0),
    (decimal.Decimal, 5, decimal.Decimal(5)),
    (decimal.Decimal, 0.1, decimal.Decimal("0.1")),
    (decimal.Decimal, "-.5e3", decimal.Decimal("-.5e3")),
    (dt.datetime, "2026-07-28t12:00:00z", dt.datetime(2026, 7, 28, 12, tzinfo=UTC)),
    (dt.datetime, "2026-07-28T12:00:00.5Z", dt.datetime(2026, 7, 28, 12, 0, 0, 500_000, tzinfo=UTC)),
    (dt.timedelta, "P1DT2H30M", dt.timedelta(days=1, hours=2, minutes=30)),
    (dt.timedelta, "P1W", dt.timedelta(weeks=1)),
    (Pair, {"left": 1}, Pair(1)),
    (Plain, {"a": 1, "new": [1]}, Plain(1)),
    (Renamed, {"firstName": "a"}, Renamed("a")),
    (Attr, {"a": 1}, Attr(1)),
    (Model, {"a": 1}, Model(a=1)),
    (Node, {"value": 1}, Node(1)),
    (Box[float], {"item": 1}, Box(1.0)),
    # Between classes, the one that ignores the fewest members.
    (Plain | Renamed, {"firstName": "a"}, Renamed("a")),
    (Point | Named, {"name": "a"}, Named("a")),
]


@pytest.mark.parametrize(("annotation", "wire", "value"), IN, ids=lambda item: repr(item)[:40])
def test_a_value_in(annotation: Any, wire: Any, value: Any) -> None:
    assert jsonschema_rs.validator_for(schema_of(annotation), offline=True).is_valid(wire)
    got = load(annotation, loads(dumps(wire)))
    assert same(got, value), (got, value)


def test_defaults_are_fresh_each_time() -> None:
    codec = Compiler().compile(Tree)
    first, second = codec.load({}), codec.load({})
    first.children.append(first)
    assert second.children == [] == codec.load({}).children


# Other Python values that go out.
OUT: list[tuple[Any, Any, Any]] = [
    *((row.annotation, row.python, row.out) for row in ROWS),
    *((annotation, value, wire) for annotation, wire, value in BOTH_WAYS),
    (float, 1, 1),
    (int, Level.LOW, 1),
    (str, Word.YES, "yes"),
    (list[int], (1, 2), [1, 2]),
    (tuple[int, ...], [1], [1]),
    (set[int], frozenset({1}), [1]),
    (Mapping[str, int], types.MappingProxyType({"a": 1}), {"a": 1}),
    (Any, Point(1), {"x": 1, "y": 0}),
    (Any, [Color.RED, ID, b"a", pathlib.Path("p")], ["red", str(ID), "YQ==", "p"]),
    (Any, {1: "a", Color.RED: (1,)}, {"1": "a", "red": [1]}),
    (Any, Pair(1), {"left": 1, "right": "r"}),
    (Any, Model(a=1), {"a": 1, "b": "b"}),
    (object, Attr(1), {"a": 1, "hidden": "h", "many": []}),
    (Any, decimal.Decimal("1.50"), "1.50"),
]


@pytest.mark.parametrize(("annotation", "value", "wire"), OUT, ids=lambda item: repr(item)[:40])
def test_a_value_out(annotation: Any, value: Any, wire: Any) -> None:
    got = dump(annotation, value)
    assert same(got, wire), (got, wire)


# -- wrong values in

WRONG_IN: list[tuple[Any, Any, str]] = [
    # The table tells where in the arguments of a tool it stands.
    *((row.annotation, row.bad, re.sub(r"^value(: |\.)?", "", row.message, flags=re.MULTILINE)) for row in ROWS),
    (int, None, "expected integer, got null"),
    (int, [1], "expected integer, got array [1]"),
    (int, {"a": 1}, 'expected integer, got object {"a":1}'),
    (int, "x" * 200, 'expected integer, got string "' + "x" * 78 + "…"),
    (float, False, "expected number, got boolean false"),
    (float, 10**400, f"the number {'1' + '0' * 78}… is too large for a float"),
    (str, None, "expected string, got null"),
    (bool, "true", 'expected boolean, got string "true"'),
    (Union[int, str], None, "expected integer or string, got null"),
    (Union[int, str], 1.5, "expected integer or string, got number 1.5"),
    (Literal["a"], "b", 'expected "a", got string "b"'),
    (Literal["a", "b"], "c", 'expected one of "a", "b", got string "c"'),
    (Literal[1], True, "expected 1, got boolean true"),
    (Literal[True], 1, "expected true, got integer 1"),
    (Literal[1, "a"], [1], 'expected one of 1, "a", got array [1]'),
    (Level, "1", 'expected one of 1, 2, got string "1"'),
    (Level, True, "expected one of 1, 2, got boolean true"),
    (Shape, [0, 1], 'expected one of "DOT", "LINE", got array [0,1]'),
    (Mixed, True, 'expected one of null, 1, "true", got boolean true'),
    (list[int], "a", 'expected array of integer, got string "a"'),
    (list[int], "[1]", 'expected array of integer, got string "[1]" (JSON text in a string: pass the value itself)'),
    (list[int], {"a": 1}, 'expected array of integer, got object {"a":1}'),
    (list[list[int]], [[1], [2, "a"]], '[1][1]: expected integer, got string "a"'),
    (set[float], [1, 1.0], "expected different elements, got array [1,1.0]"),
    (dict[str, int], [], "expected object of integer, got array []"),
    (dict[str, int], {"a": 1, "b": "x"}, 'b: expected integer, got string "x"'),
    (
        dict[str, int],
        {"a b": "x", "1": None},
        '["a b"]: expected integer, got string "x"\n["1"]: expected integer, got null',
    ),
    (dict[int, str], {"01": "a"}, 'key "01": expected integer, got string "01"'),
    (dict[int, str], {"1.0": "a"}, 'key "1.0": expected integer, got string "1.0"'),
    (dict[int, str], {"١": "a"}, 'key "١": expected integer, got string "١"'),
    (dict[Color, int], {"blue": 1}, 'key "blue": expected one of "red", "green", got string "blue"'),
    (tuple[int, str], [1], "expected array of 2 (integer, string), got 1 element"),
    (tuple[int, str], ["a", 1], '[0]: expected integer, got string "a"\n[1]: expected string, got integer 1'),
    (tuple[()], [1], "expected empty array, got 1 element"),
    (tuple[int, ...], [None], "[0]: expected integer, got null"),
    (uuid.UUID, "x", 'expected UUID, got string "x"'),
    (uuid.UUID, ID.hex, f'expected UUID, got string "{ID.hex}"'),
    (uuid.UUID, 5, "expected UUID, got integer 5"),
    (decimal.Decimal, "NaN", 'expected decimal number, got string "NaN"'),
    (decimal.Decimal, "1\n", 'expected decimal number, got string "1\\n"'),
    (decimal.Decimal, "1_0", 'expected decimal number, got string "1_0"'),
    (decimal.Decimal, True, "expected decimal number, got boolean true"),
    (bytes, "a", 'expected base64 text, got string "a"'),
    (bytes, "YQ==\n", 'expected base64 text, got string "YQ==\\n"'),
    (bytes, "é", 'expected base64 text, got string "é"'),
    (bytes, [97], "expected base64 text, got array [97]"),
    (pathlib.Path, "a\0b", "a path cannot hold a NUL"),
    (UserId, "7", 'expected integer, got string "7"'),
    (Point, 1, "expected object Point, got integer 1"),
    (
        Point,
        '{"x":1}',
        'expected object Point, got string "{\\"x\\":1}" (JSON text in a string: pass the value itself)',
    ),
    (Point, {}, "x: missing, expected integer"),
    (Point, {"x": 1, "z": 1}, "z: unexpected; Point has x, y"),
    (
        Point,
        {"y": "a", "z": 1, "w x": 2},
        'x: missing, expected integer\ny: expected integer, got string "a"\n'
        'z: unexpected; Point has x, y\n["w x"]: unexpected; Point has x, y',
    ),
    (
        Line,
        {"start": {"x": "a"}, "end": {}, "tags": [1]},
        'start.x: expected integer, got string "a"\nend.x: missing, expected integer\n'
        "tags[0]: expected string, got integer 1",
    ),
    (Node, {"value": 1, "next": {"value": 2, "next": {"value": None}}}, "next.next.value: expected integer, got null"),
    (Movie, {"title": 1}, "title: expected string, got integer 1\nyear: missing, expected integer"),
    (Movie, {"title": "t", "year": 1, "x": 1}, "x: unexpected; Movie has title, year"),
    (Partial, {"a": None}, "a: expected integer, got null"),
    (Pair, {"right": 1}, "left: missing, expected integer\nright: expected string, got integer 1"),
    (Plain, {"b": 1}, "a: missing, expected integer\nb: expected string, got integer 1"),
    (Strict, {"a": 1, "b": 1}, "b: unexpected; Strict has a"),
    (Renamed, {"first_name": "a"}, "firstName: missing, expected string"),
    (Cat, {"type": "Dog", "meow": 1}, 'type: expected "Cat", got string "Dog"'),
    (Cat, {"meow": 1}, 'type: missing, expected "Cat"'),
    (Numbered, {"type": True, "a": 1}, "type: expected 1, got boolean true"),
    (
        Attr,
        {"_hidden": "x"},
        "a: missing, expected integer\n_hidden: unexpected; Attr has a, hidden, many",
    ),
    (Model, 5, "input should be an object, got integer 5"),
    (Model, {"a": "x"}, 'a: input should be a valid integer, unable to parse string as an integer, got string "x"'),
    (
        Outer,
        {"inner": {}, "others": [{"a": 1}, 5]},
        "inner.a: missing\nothers[1]: input should be an object, got integer 5",
    ),
    (list[Model], [{"a": 1}, {}], "[1].a: missing"),
    (Box[int], {"item": "a"}, 'item: expected integer, got string "a"'),
    (Chain[int], {"item": 1, "next": {"item": "a"}}, 'next.item: expected integer, got string "a"'),
    # Unions: the arm that came closest speaks; when none did, all are named.
    (list[int] | list[str], [1, "a", "b"], "[0]: expected string, got integer 1"),
    (list[int] | list[str], "x", 'expected array of integer or array of string, got string "x"'),
    (Point | Named, {"name": 1}, "name: expected string, got integer 1"),
    (Point | Named, {"x": "a"}, 'x: expected integer, got string "a"'),
    (Point | None, {"x": "a"}, 'x: expected integer, got string "a"'),
    (Point | Named, 5, "expected object Point or object Named, got integer 5"),
    (dt.datetime | uuid.UUID, "x", 'expected date and time (2026-07-28T12:00:00Z) or UUID, got string "x"'),
    (Literal["a"] | int, "b", 'expected "a", got string "b"'),
    # Bounds
    (Annotated[int, annotated_types.Ge(1)], 0, "expected integer at least 1, got integer 0"),
    (Annotated[int, annotated_types.Gt(1)], 1, "expected integer more than 1, got integer 1"),
    (Annotated[int, annotated_types.Le(1)], 2, "expected integer at most 1, got integer 2"),
    (Annotated[float, annotated_types.Lt(1)], 1.0, "expected number less than 1, got number 1.0"),
    (Annotated[int, annotated_types.MultipleOf(3)], 4, "expected a multiple of 3, got integer 4"),
    (Annotated[float, annotated_types.MultipleOf(1)], 1e-10, "expected a multiple of 1, got number 1e-10"),
    (Annotated[str, annotated_types.MinLen(2)], "a", 'expected at least 2 characters, got string "a"'),
    (Annotated[str, annotated_types.MaxLen(2)], "éé!", 'expected at most 2 characters, got string "éé!"'),
    (Annotated[list[int], annotated_types.MinLen(1)], [], "expected at least 1 element, got array []"),
    (Annotated[set[int], annotated_types.MaxLen(1)], [1, 2], "expected at most 1 element, got array [1,2]"),
    (Annotated[tuple[int, ...], annotated_types.MinLen(1)], [], "expected at least 1 element, got array []"),
    (Annotated[dict[str, int], annotated_types.MinLen(1)], {}, "expected at least 1 element, got object {}"),
    (Annotated[str, pydantic.Field(pattern="^[a-z]+$")], "A", 'expected text matching ^[a-z]+$, got string "A"'),
    # The dollar of JSON Schema is the end of the text; that of Python would let a line end pass.
    (Annotated[str, pydantic.Field(pattern="^[a-z]+$")], "a\n", 'expected text matching ^[a-z]+$, got string "a\\n"'),
    (Annotated[str, msgspec.Meta(min_length=1)], "", 'expected at least 1 character, got string ""'),
    (Annotated[int, "n", annotated_types.Ge(1)], "x", 'expected integer, got string "x"'),
    (Annotated[int | None, annotated_types.Ge(1)], 0, "expected integer or null at least 1, got integer 0"),
    (
        list[Annotated[int, annotated_types.Ge(1)]],
        [1, 0, -1],
        "[1]: expected integer at least 1, got integer 0\n[2]: expected integer at least 1, got integer -1",
    ),
    # Two bounds of one kind both hold, whichever stands first.
    (Annotated[int, annotated_types.Ge(5), annotated_types.Ge(0)], 3, "expected integer at least 5, got integer 3"),
    (Annotated[int, annotated_types.Ge(0), annotated_types.Ge(5)], 3, "expected integer at least 5, got integer 3"),
]


@pytest.mark.parametrize(("annotation", "wire", "why"), WRONG_IN, ids=lambda item: repr(item)[:40])
def test_a_wrong_value_in(annotation: Any, wire: Any, why: str) -> None:
    assert refused(annotation, wire) == why


DATE_TIMES = [
    "",
    "2026-07-28",
    "12:00:00",
    "2026-07-28T12:00",
    "2026-13-01T00:00:00Z",
    "2026-W31-2T00:00:00Z",
    "20260728T120000Z",
    "2026-07-28T12:00:00+2",
]
DATES = ["", "2026-02-30", "20260728", "2026-W31-2", "2026-7-28", "26-07-28", "2026-07-28T00:00:00", "٢٠٢٦-07-28"]
TIMES = ["", "12", "12:00", "25:00:00", "120000", "T12:00:00", "12:00:00+2"]
DURATIONS = ["", "P", "PT", "P1", "1D", "P1DT", "P1.5D", "P1Y", "P1M", "PT1S2M", "p1d", "P99999999999D", "P1D\n"]


@pytest.mark.parametrize(
    ("annotation", "wire", "expected"),
    [(dt.datetime, text, "date and time (2026-07-28T12:00:00Z)") for text in DATE_TIMES]
    + [(dt.date, text, "date (2026-07-28)") for text in DATES]
    + [(dt.time, text, "time (12:00:00)") for text in TIMES]
    + [(dt.timedelta, text, "duration (P1DT2H30M)") for text in DURATIONS],
)
def test_a_wrong_time_in(annotation: Any, wire: str, expected: str) -> None:
    assert refused(annotation, wire) == f"expected {expected}, got string {dumps(wire).decode()}"


@pytest.mark.parametrize("annotation", [dt.datetime, dt.date, dt.time, dt.timedelta])
@pytest.mark.parametrize("wire", [0, 1.5, None, True, []])
def test_a_time_is_text(annotation: Any, wire: Any) -> None:
    assert refused(annotation, wire).startswith("expected ")


@pytest.mark.parametrize("value", [1e308, -1e308, 1.0, 0.3, 0.25])
def test_a_multiple_of_a_fraction(value: float) -> None:
    annotation = Annotated[float, annotated_types.MultipleOf(0.05)]
    assert same(load(annotation, value), value)


# -- wrong values out


class Odd:
    def __repr__(self) -> str:
        return "<odd>"


WRONG_OUT: list[tuple[Any, Any, str]] = [
    (int, "5", 'expected integer, got string "5"'),
    (int, True, "expected integer, got boolean true"),
    (int, 1.0, "expected integer, got number 1.0"),
    (int, float("nan"), "expected integer, got number nan"),
    (int, Odd(), "expected integer, got Odd <odd>"),
    (int, b"1", "expected integer, got bytes b'1'"),
    (float, float("nan"), "nan is not a JSON number"),
    (float, float("-inf"), "-inf is not a JSON number"),
    (float, True, "expected number, got boolean true"),
    (str, 1, "expected string, got integer 1"),
    (str, "\ud800", "text with a lone surrogate cannot be sent as UTF-8"),
    (bool, 1, "expected boolean, got integer 1"),
    (None, 0, "expected null, got integer 0"),
    (Literal["a"], "b", 'expected "a", got string "b"'),
    (Literal[1], True, "expected 1, got boolean true"),
    (Color, "red", 'expected one of "red", "green", got string "red"'),
    (Color, Word.YES, 'expected one of "red", "green", got string "YES"'),
    (list[int], [1, "a"], '[1]: expected integer, got string "a"'),
    (list[str], "abc", 'expected array of string, got string "abc"'),
    (list[int], {1: 2}, "expected array of integer, got object {1: 2}"),
    (Sequence[int], b"ab", "expected array of integer, got bytes b'ab'"),
    (set[int], [1], "expected array of integer, got array [1]"),
    (tuple[int, str], (1,), "expected array of 2 (integer, string), got 1 element"),
    (tuple[int, str], ("a", 1), '[0]: expected integer, got string "a"\n[1]: expected string, got integer 1'),
    (dict[str, int], {"a": "b"}, 'a: expected integer, got string "b"'),
    (dict[str, int], {1: 2}, "key 1: expected string, got integer 1"),
    (dict[int, int], {"1": 2}, 'key "1": expected integer, got string "1"'),
    (dict[int, int], {True: 2}, "key true: expected integer, got boolean true"),
    (dict[str, int], [], "expected object of integer, got array []"),
    (
        dt.datetime,
        "2026-07-28T12:00:00",
        'expected date and time (2026-07-28T12:00:00Z), got string "2026-07-28T12:00:00"',
    ),
    (uuid.UUID, str(ID), f'expected UUID, got string "{ID}"'),
    (decimal.Decimal, 1.5, "expected decimal number, got number 1.5"),
    (decimal.Decimal, decimal.Decimal("NaN"), "NaN is not a JSON number"),
    (decimal.Decimal, decimal.Decimal("-Infinity"), "-Infinity is not a JSON number"),
    (bytes, "a", 'expected base64 text, got string "a"'),
    (pathlib.Path, "a", 'expected path, got string "a"'),
    (Point, Named("a"), 'expected object Point, got Named {"name":"a","x":1}'),
    (Point, {"x": 1}, 'expected object Point, got object {"x":1}'),
    (Point, Point("a"), 'x: expected integer, got string "a"'),  # type: ignore[arg-type]
    (
        Line,
        Line(Point(1), Point("a"), [1]),
        'end.x: expected integer, got string "a"\ntags[0]: expected string, got integer 1',
    ),  # type: ignore[arg-type, list-item]
    (Movie, {"title": "t"}, "year: missing, expected integer"),
    (Movie, {"title": "t", "year": 1, "z": 1}, "z: unexpected; Movie has title, year"),
    (Movie, [], "expected object Movie, got array []"),
    (Pair, (1, "a"), 'expected object Pair, got tuple [1,"a"]'),
    (Plain, Point(1), 'expected object Plain, got Point {"x":1,"y":0}'),
    (Attr, {"a": 1}, 'expected object Attr, got object {"a":1}'),
    (Model, {"a": 1}, 'expected object Model, got object {"a":1}'),
    (Optional[int], "x", 'expected integer or null, got string "x"'),
    (Point | Named, 5, "expected object Point or object Named, got integer 5"),
    (Annotated[int, annotated_types.Ge(1)], 0, "expected integer at least 1, got integer 0"),
    (Annotated[list[int], annotated_types.Len(1)], [], "expected at least 1 element, got array []"),
    (Any, Odd(), "a value of type Odd cannot be sent as JSON"),
    (
        Any,
        {"a": [Odd(), float("nan")]},
        "a[0]: a value of type Odd cannot be sent as JSON\na[1]: nan is not a JSON number",
    ),
    (Any, {None: 1}, "key None is not text"),
    (Any, "\ud800", "text with a lone surrogate cannot be sent as UTF-8"),
]


@pytest.mark.parametrize(("annotation", "value", "why"), WRONG_OUT, ids=lambda item: repr(item)[:40])
def test_a_wrong_value_out(annotation: Any, value: Any, why: str) -> None:
    assert refused_out(annotation, value) == why


def test_a_datetime_is_no_date() -> None:
    assert refused_out(dt.date, dt.datetime(2026, 7, 28)).startswith("expected date (2026-07-28), got datetime ")


def test_a_value_that_holds_itself_does_not_go_out() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    assert refused_out(Any, cycle).endswith("nested too deep (or refers to itself)")
    node = Node(1)
    node.next = node
    # In a class too: one clear refusal, and no overflow of the stack.
    with pytest.raises(Mismatch):
        dump(Node, node)


def test_two_keys_that_would_be_one_do_not_go_out() -> None:
    # A member that silently disappears is the worst answer.
    for annotation in (Any, dict[Any, str]):
        with pytest.raises(Mismatch):
            dump(annotation, {1: "a", "1": "b"})


# -- classes with rules of their own


@dataclasses.dataclass
class Even:
    n: int

    def __post_init__(self) -> None:
        if self.n % 2:
            raise ValueError("n must be even")


@attrs.define
class Small:
    n: int = attrs.field(validator=attrs.validators.lt(10))


@attrs.define
class OneOf:
    n: str = attrs.field(validator=attrs.validators.in_(["a", "b"]))


@attrs.define
class Matching:
    n: str = attrs.field(validator=attrs.validators.matches_re("a+"))


class Checked(pydantic.BaseModel):
    n: int

    @pydantic.field_validator("n")
    @classmethod
    def even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("must be even")
        return value


def test_a_class_that_refuses_its_values() -> None:
    assert refused(Even, {"n": 1}) == "Even: n must be even"
    assert refused(list[Even], [{"n": 2}, {"n": 1}]) == "[1]: Even: n must be even"
    assert refused(Small, {"n": 10}) == "Small: 'n' must be < 10: 10"
    assert refused(Checked, {"n": 1}) == "n: value error, must be even, got integer 1"


@pytest.mark.parametrize("annotation", [OneOf, Matching])
def test_what_a_validator_says_is_one_line_and_no_repr(annotation: Any) -> None:
    # attrs puts the attribute, the rule and the value into the exception; only its first argument is for people.
    why = refused(annotation, {"n": "z"})
    assert why.startswith(f"{annotation.__name__}: 'n' must ")
    assert "Attribute(" not in why and len(why.splitlines()) == 1


# -- what cannot be expressed


@pytest.mark.parametrize(
    "annotation",
    [
        complex,
        type,
        Odd,
        list[Odd],
        dict[str, Odd],
        tuple[int, Odd],
        int | Odd,
        "Nowhere",
        list["Nowhere"],  # noqa: F821
        Literal[b"a"],
        dict[float, int],
        dict[bool, int],
        dict[tuple[int, int], int],
        dict[Point, int],
    ],
    ids=str,
)
def test_what_cannot_be_expressed_is_said_when_compiled(annotation: Any) -> None:
    compiler = Compiler()
    with pytest.raises(Unsupported):
        compiler.compile(annotation)
    # And said again: the first attempt leaves nothing half done.
    with pytest.raises(Unsupported):
        compiler.compile(annotation)


@dataclasses.dataclass
class Holder:
    a: int
    odd: Odd
    b: int = 0


def test_a_class_with_a_field_that_cannot_be_expressed() -> None:
    compiler = Compiler()
    for _ in range(2):
        with pytest.raises(Unsupported) as caught:
            compiler.compile(Holder)
        assert (caught.value.message, caught.value.where) == ("Odd cannot be expressed as JSON", ["Holder.odd"])


def test_a_value_that_cannot_be_expressed_never_goes_out_in_part() -> None:
    codec = Compiler(output=True).compile(Any)
    for _ in range(2):
        with pytest.raises(Mismatch) as caught:
            codec.dump(Holder(1, Odd()))
        assert str(caught.value) == "a value of type Holder cannot be sent as JSON"


# -- the report


def test_all_problems_at_once_to_a_limit() -> None:
    with pytest.raises(Mismatch) as caught:
        load(list[int], ["a"] * 60)
    lines = str(caught.value).splitlines()
    assert lines[0] == '[0]: expected integer, got string "a"'
    assert lines[49] == '[49]: expected integer, got string "a"'
    assert lines[50:] == ["… and 10 more"]
    assert render(caught.value, Limits(shown_errors=1)).splitlines() == [lines[0], "… and 59 more"]


def test_paths() -> None:
    problem = Problem("no")
    assert str(problem) == "no"
    problem.path = ["c", 2, "b c", "a"]
    assert str(problem) == 'a["b c"][2].c: no'
    problem.path = [0]
    assert str(problem) == "[0]: no"
    problem.path = ["a", "1"]
    assert str(problem) == '["1"].a: no'


def test_a_long_value_is_shortened_on_its_line() -> None:
    why = refused(int, ["line\n" * 100])
    assert why == 'expected integer, got array ["' + "line\\n" * 12 + "line\\" + "…"
    assert len(why.splitlines()) == 1
