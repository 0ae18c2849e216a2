"""The type table as a server: one tool a type, which takes a `value` of it and gives it back.

`ROWS` says for each type what its schema is, a good value and what the function gets for it, a bad value and what the
caller is told, and what comes out. `tests/server/test_type_table.py` runs it with our client, `tests/interop` with that
of `mcp`; `tests/convert/test_codecs.py` takes it as the beginning of its tables.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import pathlib
import uuid
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Optional, TypedDict

import attrs
import msgspec
import pydantic

from trio_mcp import Server, ToolError


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Point:
    x: int
    y: int = 0


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


class Pair(NamedTuple):
    left: int
    right: str = "r"


class User(msgspec.Struct):
    """Somebody."""

    name: str
    age: int = 18


@attrs.define
class Box:
    width: int
    height: int = 1


class Order(pydantic.BaseModel):
    item: str
    count: int = pydantic.Field(default=1, ge=1)


@dataclass
class Tree:
    name: str
    children: list[Tree] = dataclasses.field(default_factory=list)


@dataclass
class Drawing:
    origin: Point
    color: Color
    notes: dict[str, list[str] | None]


AS_IT_CAME: Any = object()
ID = uuid.UUID("0d7a7f4c-4b5e-4e7a-9b8d-2f6c3d1e0a5b")


@dataclass
class Row:
    """One type.

    Attributes:
        name: The tool.
        annotation: The type of `value` and of the result.
        schema: The schema of `value`.
        good: A value that comes in.
        bad: A value that is refused.
        message: What the caller is told about it.
        python: What the function gets; without it, the good value.
        out: What comes out; without it, the good value.
        definitions: The `$defs` of the input schema.
        text: The result is text or nothing, and has no structured content.
        schema_tells: Whether the schema can tell that the bad value is bad.
    """

    name: str
    annotation: Any
    schema: dict[str, Any]
    good: Any
    bad: Any
    message: str
    python: Any = AS_IT_CAME
    out: Any = AS_IT_CAME
    definitions: dict[str, Any] = dataclasses.field(default_factory=dict)
    text: bool = False
    schema_tells: bool = True

    def __post_init__(self) -> None:
        self.python = self.good if self.python is AS_IT_CAME else self.python
        self.out = self.good if self.out is AS_IT_CAME else self.out

    @property
    def input_schema(self) -> dict[str, Any]:
        """The whole input schema of the tool."""
        schema = {
            "type": "object",
            "properties": {"value": self.schema},
            "required": ["value"],
            "additionalProperties": False,
        }
        return {**schema, "$defs": self.definitions} if self.definitions else schema

    @property
    def refusal(self) -> str:
        """The text of the result for the bad value."""
        return f"Invalid arguments for tool {self.name!r}:\n{self.message}"

    @property
    def content(self) -> list[dict[str, Any]]:
        """The content of the result for the good value, when that is no structured value."""
        return [] if self.out is None else [{"type": "text", "text": self.out}]


INTEGER = {"type": "integer"}
STRING = {"type": "string"}
NUMBER = {"type": "number"}
MAYBE = {"anyOf": [INTEGER, {"type": "null"}]}


def members(*required: str, **properties: Any) -> dict[str, Any]:
    """The schema of an object with these members, and any others."""
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    return {**schema, "required": [*required]} if required else schema


def closed(*required: str, **properties: Any) -> dict[str, Any]:
    """The schema of an object with these members and no others."""
    return {**members(*required, **properties), "additionalProperties": False}


def array(items: Any, **more: Any) -> dict[str, Any]:
    """The schema of a list."""
    return {"type": "array", "items": items, **more}


def reference(name: str) -> dict[str, Any]:
    """The schema that names a definition."""
    return {"$ref": f"#/$defs/{name}"}


POINT = closed("x", x=INTEGER, y={**INTEGER, "default": 0})
BOX = closed("width", width=INTEGER, height={**INTEGER, "default": 1})
NUMBER_IN_TEXT = {"type": "string", "pattern": r"^[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?$"}

ROWS = [
    Row("int", int, INTEGER, 3, "three", 'value: expected integer, got string "three"'),
    Row("int_whole", int, INTEGER, 3.0, 3.5, "value: expected integer, got number 3.5", python=3, out=3),
    Row("int_large", int, INTEGER, 2**80, True, "value: expected integer, got boolean true"),
    Row("float", float, NUMBER, 2.5, True, "value: expected number, got boolean true"),
    Row("float_whole", float, NUMBER, 2, "2", 'value: expected number, got string "2"', python=2.0, out=2.0),
    Row("str", str, STRING, "naïve ☃", 3, "value: expected string, got integer 3", text=True),
    Row("bool", bool, {"type": "boolean"}, True, 1, "value: expected boolean, got integer 1"),
    Row("none", None, {"type": "null"}, None, 0, "value: expected null, got integer 0", text=True),
    # The spelling is a row of the table.
    Row("optional", Optional[int], MAYBE, 7, "7", 'value: expected integer or null, got string "7"'),  # noqa: UP045
    Row("optional_null", int | None, MAYBE, None, False, "value: expected integer or null, got boolean false"),
    Row(
        "union",
        int | list[str],
        {"anyOf": [INTEGER, array(STRING)]},
        ["a", "b"],
        "a",
        'value: expected integer or array of string, got string "a"',
    ),
    Row(
        "union_of_classes",
        Point | Box,
        {"anyOf": [reference("Point"), reference("Box")]},
        {"width": 2},
        3,
        "value: expected object Point or object Box, got integer 3",
        python=Box(2),
        out={"width": 2, "height": 1},
        definitions={"Box": BOX, "Point": POINT},
    ),
    Row(
        "literal",
        Literal["red", "green", 3],
        {"enum": ["red", "green", 3]},
        "green",
        "blue",
        'value: expected one of "red", "green", 3, got string "blue"',
    ),
    Row(
        "enum",
        Color,
        {"enum": ["red", "green"], "type": "string"},
        "green",
        "GREEN",
        'value: expected one of "red", "green", got string "GREEN"',
        python=Color.GREEN,
    ),
    Row(
        "int_enum",
        Level,
        {"enum": [1, 2], "type": "integer"},
        2,
        3,
        "value: expected one of 1, 2, got integer 3",
        python=Level.HIGH,
    ),
    Row(
        "list",
        list[int],
        array(INTEGER),
        [1, 2],
        [1, "two", None],
        'value[1]: expected integer, got string "two"\nvalue[2]: expected integer, got null',
    ),
    Row(
        "dict",
        dict[str, int],
        {"type": "object", "properties": {}, "additionalProperties": INTEGER},
        {"a": 1},
        {"a": 1, "b c": 1.5},
        'value["b c"]: expected integer, got number 1.5',
    ),
    Row(
        "dict_of_int",
        dict[int, str],
        {
            "type": "object",
            "properties": {},
            "additionalProperties": STRING,
            "propertyNames": {"pattern": "^-?(0|[1-9][0-9]*)$"},
        },
        {"7": "a"},
        {"x": "a"},
        'value: key "x": expected integer, got string "x"',
        python={7: "a"},
    ),
    Row(
        "tuple",
        tuple[int, str],
        {
            "type": "array",
            "minItems": 2,
            "maxItems": 2,
            "prefixItems": [INTEGER, STRING],
            "items": {"anyOf": [INTEGER, STRING]},
        },
        [1, "a"],
        [1, "a", 2],
        "value: expected array of 2 (integer, string), got 3 elements",
        python=(1, "a"),
    ),
    Row(
        "tuple_any_length",
        tuple[int, ...],
        array(INTEGER),
        [1, 2, 3],
        {"0": 1},
        'value: expected array of integer, got object {"0":1}',
        python=(1, 2, 3),
    ),
    Row(
        "set",
        set[int],
        array(INTEGER, uniqueItems=True),
        [1, 2],
        [1, 1],
        "value: expected different elements, got array [1,1]",
        python={1, 2},
    ),
    Row(
        "datetime",
        dt.datetime,
        {"type": "string", "format": "date-time"},
        "2026-07-28T12:30:00Z",
        "yesterday",
        'value: expected date and time (2026-07-28T12:00:00Z), got string "yesterday"',
        python=dt.datetime(2026, 7, 28, 12, 30, tzinfo=dt.UTC),
        out="2026-07-28T12:30:00+00:00",
    ),
    Row(
        "date",
        dt.date,
        {"type": "string", "format": "date"},
        "2026-07-28",
        "2026-02-30",
        'value: expected date (2026-07-28), got string "2026-02-30"',
        python=dt.date(2026, 7, 28),
    ),
    Row(
        "time",
        dt.time,
        {"type": "string", "format": "time"},
        "12:30:00Z",
        "noon",
        'value: expected time (12:00:00), got string "noon"',
        python=dt.time(12, 30, tzinfo=dt.UTC),
        out="12:30:00+00:00",
    ),
    Row(
        "timedelta",
        dt.timedelta,
        {"type": "string", "format": "duration"},
        "P1DT2H",
        "2 hours",
        'value: expected duration (P1DT2H30M), got string "2 hours"',
        python=dt.timedelta(days=1, hours=2),
        out="P1DT7200S",
    ),
    Row(
        "uuid",
        uuid.UUID,
        {"type": "string", "format": "uuid"},
        str(ID).upper(),
        "0d7a7f4c",
        'value: expected UUID, got string "0d7a7f4c"',
        python=ID,
        out=str(ID),
    ),
    Row(
        "decimal",
        decimal.Decimal,
        {"anyOf": [NUMBER, NUMBER_IN_TEXT]},
        "10.50",
        "ten",
        'value: expected decimal number, got string "ten"',
        python=decimal.Decimal("10.50"),
    ),
    Row(
        "bytes",
        bytes,
        {"type": "string", "contentEncoding": "base64"},
        "aGVsbG8=",
        "hello!",
        'value: expected base64 text, got string "hello!"',
        python=b"hello",
        schema_tells=False,
    ),
    Row(
        "path",
        pathlib.Path,
        {"type": "string", "format": "path"},
        "/srv/a b.txt",
        3,
        "value: expected path, got integer 3",
        python=pathlib.Path("/srv/a b.txt"),
    ),
    Row(
        "dataclass",
        Point,
        reference("Point"),
        {"x": 1},
        {"y": "no", "z": 1},
        "value.x: missing, expected integer\n"
        'value.y: expected integer, got string "no"\n'
        "value.z: unexpected; Point has x, y",
        python=Point(1, 0),
        out={"x": 1, "y": 0},
        definitions={"Point": POINT},
    ),
    Row(
        "typed_dict",
        Movie,
        reference("Movie"),
        {"title": "Brazil"},
        {"year": "old"},
        'value.title: missing, expected string\nvalue.year: expected integer, got string "old"',
        definitions={"Movie": closed("title", title=STRING, year=INTEGER)},
    ),
    Row(
        "named_tuple",
        Pair,
        reference("Pair"),
        {"left": 1, "right": "a"},
        [1, "a"],
        'value: expected object Pair, got array [1,"a"]',
        python=Pair(1, "a"),
        definitions={"Pair": closed("left", left=INTEGER, right={**STRING, "default": "r"})},
    ),
    Row(
        "struct",
        User,
        reference("User"),
        {"name": "Ada", "ignored": True},
        {"name": 1},
        "value.name: expected string, got integer 1",
        python=User("Ada"),
        out={"name": "Ada", "age": 18},
        definitions={
            "User": {**members("name", name=STRING, age={**INTEGER, "default": 18}), "description": "Somebody."}
        },
    ),
    Row(
        "attrs",
        Box,
        reference("Box"),
        {"width": 2},
        {},
        "value.width: missing, expected integer",
        python=Box(2),
        out={"width": 2, "height": 1},
        definitions={"Box": BOX},
    ),
    Row(
        "pydantic_model",
        Order,
        reference("Order"),
        {"item": "tea"},
        {"count": 0},
        "value.item: missing\nvalue.count: input should be greater than or equal to 1, got integer 0",
        python=Order(item="tea"),
        out={"item": "tea", "count": 1},
        definitions={
            "Order": {
                **members(
                    "item",
                    item={"title": "Item", "type": "string"},
                    count={"title": "Count", "type": "integer", "minimum": 1, "default": 1},
                ),
                "title": "Order",
            }
        },
    ),
    Row(
        "pydantic_field",
        Annotated[int, pydantic.Field(ge=1, le=10, description="How many.")],
        {"type": "integer", "minimum": 1, "maximum": 10, "description": "How many."},
        10,
        11,
        "value: expected integer at most 10, got integer 11",
    ),
    Row(
        "pydantic_field_text",
        Annotated[list[Annotated[str, pydantic.Field(max_length=3)]], pydantic.Field(min_length=1)],
        array({"type": "string", "maxLength": 3}, minItems=1),
        ["abc"],
        ["abc", "abcd"],
        'value[1]: expected at most 3 characters, got string "abcd"',
    ),
    Row(
        "nested",
        Drawing,
        reference("Drawing"),
        {"origin": {"x": 1, "y": 2}, "color": "red", "notes": {"a": ["b"], "c": None}},
        {"origin": {"x": None}, "color": "red", "notes": {"a": ["b", 3]}},
        "value.origin.x: expected integer, got null\nvalue.notes.a[1]: expected string, got integer 3",
        python=Drawing(Point(1, 2), Color.RED, {"a": ["b"], "c": None}),
        definitions={
            "Drawing": closed(
                "origin",
                "color",
                "notes",
                origin=reference("Point"),
                color={"enum": ["red", "green"], "type": "string"},
                notes={
                    "type": "object",
                    "properties": {},
                    "additionalProperties": {"anyOf": [array(STRING), {"type": "null"}]},
                },
            ),
            "Point": POINT,
        },
    ),
    Row(
        "recursive",
        Tree,
        reference("Tree"),
        {"name": "a", "children": [{"name": "b"}]},
        {"name": "a", "children": [{"name": "b", "children": [{}]}]},
        "value.children[0].children[0].name: missing, expected string",
        python=Tree("a", [Tree("b")]),
        out={"name": "a", "children": [{"name": "b", "children": []}]},
        definitions={"Tree": closed("name", name=STRING, children=array(reference("Tree")))},
    ),
]

server = Server("types", version="1.0")


def register(row: Row) -> None:
    """Add the tool of one row. It sees to it that it was called with the Python value of the row."""

    async def tool(value: Any) -> Any:
        if value != row.python or type(value) is not type(row.python):
            raise ToolError(f"{row.name} was called with {value!r}")
        return value

    tool.__annotations__ = {"value": row.annotation, "return": row.annotation}
    server.tool(tool, name=row.name)


for _row in ROWS:
    register(_row)


if __name__ == "__main__":
    server.run()
