"""Forms: what is sent, which answers fit, and what forms cannot have."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import jsonschema_rs
import pydantic
import pytest
from annotated_types import Ge, Len, Lt, MultipleOf
from hypothesis import given
from hypothesis import strategies as st

from trio_mcp import Context, Server, open_client
from trio_mcp.convert.codec import Mismatch
from trio_mcp.server.peer.forms import Form

FORMATS = {"email", "uri", "date", "date-time"}
NOTES = {"type", "title", "description", "default"}


class Color(enum.Enum):
    RED = "#f00"
    GREEN = "#0f0"


def form(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": fields}


def check_sent(schema: dict[str, Any]) -> None:
    """An independent reading of client/elicitation, stricter than its schema: no key that it does not name."""
    assert set(schema) <= {"type", "properties", "required"}
    assert schema["type"] == "object"
    assert set(schema.get("required", ())) <= set(schema["properties"])
    for item in schema["properties"].values():
        check_field(item)


def check_field(item: dict[str, Any]) -> None:
    for key in ("title", "description"):
        assert isinstance(item.get(key, ""), str)
    kind, default = item["type"], item.get("default")
    if kind == "array":
        assert set(item) <= NOTES | {"items", "minItems", "maxItems"}
        assert all(type(item.get(key, 0)) is int for key in ("minItems", "maxItems"))
        if "anyOf" in item["items"]:
            assert set(item["items"]) == {"anyOf"}
            check_titled(item["items"]["anyOf"])
        else:
            assert set(item["items"]) == {"type", "enum"}
            assert item["items"]["type"] == "string"
            assert all(isinstance(choice, str) for choice in item["items"]["enum"])
        assert default is None or all(isinstance(choice, str) for choice in default)
        return
    if kind == "string" and "oneOf" in item:
        assert set(item) <= NOTES | {"oneOf"}
        check_titled(item["oneOf"])
    elif kind == "string" and "enum" in item:
        assert set(item) <= NOTES | {"enum", "enumNames"}
        assert all(isinstance(choice, str) for choice in [*item["enum"], *item.get("enumNames", ())])
    elif kind == "string":
        assert set(item) <= NOTES | {"minLength", "maxLength", "format"}
        assert all(type(item.get(key, 0)) is int for key in ("minLength", "maxLength"))
        assert item.get("format", "uri") in FORMATS
    elif kind in ("integer", "number"):
        assert set(item) <= NOTES | {"minimum", "maximum"}
        assert all(type(item.get(key, 0)) in (int, float) for key in ("minimum", "maximum", "default"))
    else:
        assert kind == "boolean"
        assert set(item) <= NOTES
        assert "default" not in item or type(default) is bool
    if kind == "string":
        assert "default" not in item or isinstance(default, str)


def check_titled(arms: list[Any]) -> None:
    assert arms
    for arm in arms:
        assert set(arm) == {"const", "title"}
        assert all(isinstance(text, str) for text in arm.values())


# -- JSON Schemas

WHOLE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Name", "description": "Yours", "minLength": 1, "maxLength": 9},
        "mail": {"type": "string", "format": "email", "default": "a@example.com"},
        "page": {"type": "string", "format": "uri"},
        "day": {"type": "string", "format": "date"},
        "moment": {"type": "string", "format": "date-time"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150, "default": 30},
        "height": {"type": "number", "minimum": 0.5, "maximum": 2.5},
        "sure": {"type": "boolean", "default": False},
        "size": {"type": "string", "enum": ["s", "m"], "enumNames": ["Small", "Medium"], "default": "m"},
        "color": {"type": "string", "oneOf": [{"const": "#f00", "title": "Red"}, {"const": "#0f0", "title": "Green"}]},
        "days": {
            "type": "array",
            "items": {"type": "string", "enum": ["mo", "tu"]},
            "minItems": 1,
            "maxItems": 2,
            "default": ["mo"],
        },
        "colors": {"type": "array", "items": {"anyOf": [{"const": "#f00", "title": "Red"}]}, "default": []},
    },
    "required": ["name", "color"],
}


def test_a_schema_is_sent_as_it_is() -> None:
    check_sent(WHOLE)
    assert Form(WHOLE).schema == WHOLE


def test_what_is_no_part_of_a_form_and_says_nothing_of_answers_is_left_out() -> None:
    more = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "T", "description": "D"}
    assert Form({**WHOLE, **more, "additionalProperties": False, "required": []}).schema == {
        "type": "object",
        "properties": WHOLE["properties"],
    }
    assert Form(form()).schema == form()


def test_the_schema_is_not_the_callers_own() -> None:
    mine = form(a={"type": "string"})
    made = Form(mine)
    mine["properties"]["a"]["type"] = "integer"
    mine["properties"]["b"] = {"type": "string"}
    assert made.schema == form(a={"type": "string"})


async def test_titled_choices_arrive_at_the_client_and_the_answer_at_the_tool() -> None:
    server = Server("s")
    asked: list[Any] = []

    @server.tool
    async def paint(ctx: Context) -> Any:
        return (await ctx.elicit("Which?", WHOLE)).value

    def fill_in(params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params["requestedSchema"])
        # The first answer does not fit and is asked for again.
        return {"name": "Ada", "color": "red" if len(asked) == 1 else "#f00", "days": ["tu"], "more": 1}

    async with open_client(server, on_elicit=fill_in) as client:
        result = await client.call_tool("paint")
    assert asked == [WHOLE, WHOLE]
    # Nothing is filled in, and what the form does not have is not there.
    assert result.structured_content == {"name": "Ada", "color": "#f00", "days": ["tu"]}


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({"type": "string", "pattern": "^a"}, "forms have no 'pattern' for text; there is: type, title"),
        ({"type": "integer", "multipleOf": 15}, "forms have no 'multipleOf' for integer"),
        ({"type": "integer", "exclusiveMinimum": 1}, "forms have no 'exclusiveMinimum' for integer"),
        ({"type": "number", "enum": [1, 2]}, "forms have no 'enum' for number"),
        ({"type": "boolean", "const": True}, "forms have no 'const' for boolean"),
        ({"type": "string", "minimum": 1}, "forms have no 'minimum' for text"),
        ({"type": "string", "enum": ["a"], "minLength": 1}, "forms have no 'minLength' for a choice"),
        ({"type": "string", "oneOf": [{"const": "a", "title": "A"}], "enum": ["a"]}, "forms have no 'enum' for"),
        (
            {"type": "array", "items": {"type": "string", "enum": ["a"]}, "uniqueItems": True},
            "forms have no 'uniqueItems' for several choices",
        ),
        ({"type": "object", "properties": {}}, "must be text, a number, a boolean, or one or several"),
        ({"type": ["string", "null"]}, "must be text, a number, a boolean"),
        ({"type": "null"}, "must be text, a number, a boolean"),
        ({"$ref": "#/$defs/a"}, "must be text, a number, a boolean"),
        ({}, "must be text, a number, a boolean"),
        (True, "must be text, a number, a boolean"),
        ("string", "must be text, a number, a boolean"),
        ({"type": "string", "format": "uuid"}, "format is one of date, date-time, email, uri, got 'uuid'"),
        ({"type": "string", "format": ["date"]}, "format is one of"),
        ({"type": "string", "enum": []}, "choices are texts"),
        ({"type": "string", "enum": [1]}, "choices are texts"),
        ({"type": "string", "enum": "a"}, "choices are texts"),
        ({"type": "string", "enumNames": ["A"]}, "choices are texts"),
        ({"type": "string", "enum": ["a"], "enumNames": ["A", "B"]}, "'enumNames' has a text for each choice"),
        ({"type": "string", "enum": ["a"], "enumNames": [1]}, "'enumNames' has a text for each choice"),
        ({"type": "string", "oneOf": []}, "choices are texts"),
        ({"type": "string", "oneOf": [{"const": "a"}]}, "choices are texts"),
        ({"type": "string", "oneOf": [{"const": 1, "title": "A"}]}, "choices are texts"),
        ({"type": "string", "oneOf": [{"const": "a", "title": "A", "x": 1}]}, "choices are texts"),
        ({"type": "array"}, "choices are texts"),
        ({"type": "array", "items": True}, "choices are texts"),
        ({"type": "array", "items": {"type": "string"}}, "choices are texts"),
        ({"type": "array", "items": {"type": "object", "properties": {}}}, "choices are texts"),
        ({"type": "array", "items": {"enum": ["a"]}}, "choices are texts"),
        ({"type": "array", "items": {"type": "string", "enum": ["a"], "pattern": "a"}}, "choices are texts"),
        ({"type": "array", "items": {"oneOf": [{"const": "a", "title": "A"}]}}, "choices are texts"),
        ({"type": "array", "items": {"anyOf": [{"const": "a"}]}}, "choices are texts"),
        ({"type": "string", "minLength": -1}, "not a JSON Schema that can be checked: -1"),
        ({"type": "integer", "minimum": "1"}, "not a JSON Schema that can be checked"),
        ({"type": "string", "title": 1}, "not a JSON Schema that can be checked"),
        ({"type": "string", "default": 3}, "default: expected string, got integer 3"),
        ({"type": "string", "default": None}, "default: expected string, got null"),
        ({"type": "string", "maxLength": 2, "default": "abc"}, "default: expected at most 2 characters"),
        ({"type": "integer", "maximum": 2, "default": 3}, "default: expected at most 2, got integer 3"),
        ({"type": "boolean", "default": 0}, "default: expected boolean, got integer 0"),
        ({"type": "string", "enum": ["a"], "default": "b"}, 'default: expected one of "a", got string "b"'),
        ({"type": "string", "oneOf": [{"const": "a", "title": "A"}], "default": "b"}, "default: fits none"),
        ({"type": "array", "items": {"type": "string", "enum": ["a"]}, "default": ["b"]}, "default[0]: expected one"),
        ({"type": "array", "items": {"type": "string", "enum": ["a"]}, "default": "a"}, "default: expected array"),
    ],
)
def test_what_a_form_cannot_have_is_named_with_its_field(item: Any, said: str) -> None:
    with pytest.raises(ValueError) as caught:
        Form(form(fine={"type": "string"}, odd=item))
    assert str(caught.value).startswith("form: field 'odd'")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({**form(a={"type": "string"}), "required": ["a", "b"]}, "'b' is required and is no field"),
        ({**form(a={"type": "string"}), "required": "a"}, "'required' is a list of names"),
        ({**form(a={"type": "string"}), "required": [["a"]]}, "'required' is a list of names"),
        ({**form(a={"type": "string"}), "required": None}, "'required' is a list of names"),
        ({**form(a={"type": "string"}), "allOf": []}, "forms have no 'allOf'"),
        ({**form(a={"type": "string"}), "minProperties": 1}, "forms have no 'minProperties'"),
        ({**form(a={"type": "string"}), "$defs": {}}, "forms have no '$defs'"),
        ({"properties": {"a": {"type": "string"}}}, "is not a type"),
        ({"type": "object"}, "expected a dict of types"),
        ({"type": "array", "items": {}}, "expected a dict of types"),
        ([], "is not a type"),
        ({"a": [str]}, "Form.a: "),
        ({"a b": str, "c": ()}, "expected a dict of types"),
        (str, "expected a dict of types"),
        ("a form", ""),
    ],
)
def test_what_is_no_form_is_refused(source: Any, said: str) -> None:
    with pytest.raises(ValueError, match=r"^form: ") as caught:
        Form(source)
    assert said in str(caught.value)


# -- answers to JSON Schemas


@pytest.mark.parametrize(
    ("answer", "fits"),
    [
        ({"name": "Ada", "color": "#f00"}, True),
        ({"name": "Ada", "color": "#f00", "other": {"deep": [1]}}, True),
        ({"name": "Ada", "color": "#f00", "age": 30.0, "days": ["mo", "tu"], "colors": []}, True),
        ({"name": "Ada"}, False),
        ({}, False),
        ({"name": "Ada", "color": "Red"}, False),
        ({"name": "", "color": "#f00"}, False),
        ({"name": "Ada", "color": "#f00", "age": 1.5}, False),
        ({"name": "Ada", "color": "#f00", "age": True}, False),
        ({"name": "Ada", "color": "#f00", "mail": None}, False),
        ({"name": "Ada", "color": "#f00", "days": []}, False),
        ({"name": "Ada", "color": "#f00", "days": ["we"]}, False),
        ({"name": "Ada", "color": "#f00", "days": "mo"}, False),
        (None, False),
        ([], False),
        ("name", False),
    ],
)
def test_an_answer_fits_or_not(answer: Any, fits: bool) -> None:
    made = Form(WHOLE)
    assert made.fits(answer) is fits
    if fits:
        assert made.load(answer) == {name: value for name, value in answer.items() if name in WHOLE["properties"]}
    else:
        with pytest.raises(Mismatch):
            made.load(answer)


# -- types


@dataclass
class Order:
    """A doc that no form has."""

    item: Annotated[str, Len(1, 9), "What"]
    mail: str | None = None
    count: Annotated[int, Ge(1)] = 1
    weight: float | None = 1.5
    gift: bool = False
    color: Color = Color.RED
    other: Color | None = None
    size: Literal["s", "m"] | None = None
    only: Literal["x"] = "x"
    maybe: Literal["a", None] = None
    extras: list[Literal["a"]] = field(default_factory=list)
    colors: Annotated[list[Color], Len(0, 2)] = field(default_factory=list)
    distinct: set[Literal["a", "b"]] = field(default_factory=lambda: {"a"})
    day: date | None = None
    moment: datetime = field(default_factory=lambda: datetime(2026, 7, 28))


def test_a_class_is_sent_as_the_fields_that_forms_have() -> None:
    sent = Form(Order).schema
    check_sent(sent)
    assert sent == {
        "type": "object",
        "properties": {
            "item": {"type": "string", "minLength": 1, "maxLength": 9, "description": "What"},
            "mail": {"type": "string"},
            "count": {"type": "integer", "minimum": 1, "default": 1},
            "weight": {"type": "number", "default": 1.5},
            "gift": {"type": "boolean", "default": False},
            "color": {"type": "string", "enum": ["#f00", "#0f0"], "default": "#f00"},
            "other": {"type": "string", "enum": ["#f00", "#0f0"]},
            "size": {"type": "string", "enum": ["s", "m"]},
            "only": {"type": "string", "enum": ["x"], "default": "x"},
            "maybe": {"type": "string", "enum": ["a"]},
            "extras": {"type": "array", "items": {"type": "string", "enum": ["a"]}},
            "colors": {
                "type": "array",
                "items": {"type": "string", "enum": ["#f00", "#0f0"]},
                "maxItems": 2,
            },
            "distinct": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
            "day": {"type": "string", "format": "date"},
            "moment": {"type": "string", "format": "date-time"},
        },
        "required": ["item"],
    }


def test_the_value_is_of_the_class_with_its_defaults() -> None:
    made = Form(Order)
    assert made.load({"item": "tea", "unknown": 1}) == Order("tea")
    answer = {"item": "tea", "other": "#0f0", "extras": ["a"], "day": "2026-07-28", "weight": 2}
    assert made.load(answer) == Order("tea", other=Color.GREEN, extras=["a"], day=date(2026, 7, 28), weight=2)
    # Nothing was typed in: some clients say so with a null.
    assert made.load({"item": "tea", "mail": None}) == Order("tea")
    for bad in ({}, {"item": ""}, {"item": "tea", "count": 0}, {"item": "tea", "extras": ["b"]}, {"item": None}, None):
        assert not made.fits(bad)


class Stay(pydantic.BaseModel):
    """A stay."""

    arrival: date
    color: Color
    other: Color | None = None
    days: list[Color] = pydantic.Field(default_factory=list, max_length=2)
    extras: list[Literal["a"]] = []
    mail: str | None = pydantic.Field(None, description="Where to", title="Mail", max_length=30)
    nights: Annotated[int, pydantic.Field(ge=1, le=30)] = 1


def test_a_model_of_pydantic_is_sent_as_the_fields_that_forms_have() -> None:
    made = Form(Stay)
    check_sent(made.schema)
    colors = {"type": "string", "enum": ["#f00", "#0f0"]}
    sent = made.schema["properties"]
    assert sent["arrival"] == {"type": "string", "format": "date", "title": "Arrival"}
    assert sent["color"] == {**colors, "title": "Color"}
    assert sent["other"] == {**colors, "title": "Color"}
    assert sent["days"] == {"type": "array", "items": colors, "maxItems": 2, "title": "Days"}
    assert sent["extras"]["items"] == {"type": "string", "enum": ["a"]}
    assert sent["mail"] == {"type": "string", "description": "Where to", "title": "Mail", "maxLength": 30}
    assert sent["nights"] == {"type": "integer", "minimum": 1, "maximum": 30, "default": 1, "title": "Nights"}
    assert made.schema["required"] == ["arrival", "color"]
    stay = made.load({"arrival": "2026-07-28", "color": "#f00", "days": ["#0f0"], "unknown": 1})
    assert stay == Stay(arrival=date(2026, 7, 28), color=Color.RED, days=[Color.GREEN])


def test_titles_of_choices_may_come_from_notes() -> None:
    arms = [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}]
    one = Annotated[Literal["a", "b"], pydantic.Field(json_schema_extra={"oneOf": arms})]
    several = Annotated[list[Literal["a", "b"]], pydantic.Field(json_schema_extra={"items": {"anyOf": arms}})]
    made = Form({"one": one, "several": several})
    check_sent(made.schema)
    assert made.schema["properties"] == {
        "one": {"type": "string", "oneOf": arms},
        "several": {"type": "array", "items": {"anyOf": arms}},
    }
    assert made.fits({"one": "a", "several": ["b"]})
    assert not made.fits({"one": "c", "several": []})


def test_a_dict_of_types_is_a_form_and_its_value_a_dict() -> None:
    made = Form({"name": str, "type": NotRequired[Literal["object"]], "properties": NotRequired[bool]})
    check_sent(made.schema)
    assert made.schema["required"] == ["name"]
    assert made.load({"name": "Ada", "type": "object", "more": 1}) == {"name": "Ada", "type": "object"}


def test_what_cannot_be_said_is_checked_all_the_same() -> None:
    made = Form({"a": Annotated[int, MultipleOf(5), Lt(20)], "b": Annotated[str, pydantic.Field(pattern="^x")]})
    check_sent(made.schema)
    assert made.schema["properties"] == {"a": {"type": "integer"}, "b": {"type": "string"}}
    assert made.fits({"a": 15, "b": "xy"})
    for bad in ({"a": 16, "b": "xy"}, {"a": 20, "b": "xy"}, {"a": 15, "b": "y"}):
        assert not made.fits(bad)


class Nested(TypedDict):
    inner: dict[str, str]


@pytest.mark.parametrize(
    "annotation",
    [
        Order,
        Nested,
        dict[str, str],
        list[str],
        list[Order],
        list[int],
        list[Literal[1, 2]],
        list[list[Literal["a"]]],
        tuple[str, str],
        int | str,
        str | Color,
        Literal[1, 2],
        Literal[1],
        Literal["a", 1],
        None,
        Any,
        complex,
    ],
)
def test_a_type_that_forms_cannot_have_is_named_with_its_field(annotation: Any) -> None:
    with pytest.raises(ValueError, match=r"^form: .*\bodd\b"):
        Form({"fine": str, "odd": annotation})


# -- all answers

NAMES = st.sampled_from("abcde")
TEXTS = st.text(max_size=4)
NUMBERS = st.one_of(
    st.integers(-5, 5), st.integers(-(2**70), 2**70), st.floats(-5, 5), st.floats(allow_nan=False, allow_infinity=False)
)
ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    NUMBERS,
    TEXTS,
    st.sampled_from("xyz"),
    st.lists(st.one_of(st.sampled_from("xyz"), st.integers()), max_size=3),
    st.dictionaries(TEXTS, st.integers(), max_size=2),
)
CHOICES = st.lists(st.sampled_from("xyz"), min_size=1, max_size=3, unique=True)


def optional(kind: str, **keys: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"type": st.just(kind)}, optional={"title": TEXTS, "description": TEXTS, **keys})


def titled(choices: list[str]) -> list[dict[str, str]]:
    return [{"const": choice, "title": choice.upper()} for choice in choices]


SCHEMAS = st.one_of(
    optional(
        "string", minLength=st.integers(0, 3), maxLength=st.integers(0, 3), format=st.sampled_from(sorted(FORMATS))
    ),
    optional("integer", minimum=NUMBERS, maximum=NUMBERS),
    optional("number", minimum=NUMBERS, maximum=NUMBERS),
    optional("boolean"),
    CHOICES.map(lambda choices: {"type": "string", "enum": choices}),
    CHOICES.map(lambda choices: {"type": "string", "oneOf": titled(choices)}),
    st.builds(
        lambda item, choices: {**item, "items": {"type": "string", "enum": choices}},
        optional("array", minItems=st.integers(0, 3), maxItems=st.integers(0, 3)),
        CHOICES,
    ),
    st.builds(
        lambda item, choices: {**item, "items": {"anyOf": titled(choices)}},
        optional("array", minItems=st.integers(0, 3), maxItems=st.integers(0, 3)),
        CHOICES,
    ),
)


@st.composite
def flat_forms(draw: st.DrawFn) -> dict[str, Any]:
    fields = draw(st.dictionaries(NAMES, SCHEMAS, max_size=4))
    out = {"type": "object", "properties": fields}
    required = draw(st.lists(st.sampled_from(sorted(fields)), unique=True)) if fields else []
    return {**out, "required": required} if required else out


@given(flat_forms(), st.one_of(st.dictionaries(NAMES, ANYTHING, max_size=5), ANYTHING))
def test_an_answer_fits_a_schema_when_json_schema_says_so(schema: dict[str, Any], answer: Any) -> None:
    made = Form(schema)
    check_sent(made.schema)
    assert made.schema == schema
    assert made.fits(answer) is jsonschema_rs.Draft202012Validator(made.schema).is_valid(answer)


TYPES = st.one_of(
    st.sampled_from([str, int, float, bool, Color, list[Color], Literal["x"], list[Literal["x", "y"]]]),
    st.builds(lambda low: Annotated[int, Ge(low)], st.integers(-5, 5)),
    st.builds(lambda low: Annotated[float, Ge(low)], st.floats(-5, 5)),
    st.builds(lambda low, high: Annotated[str, Len(low, high)], st.integers(0, 2), st.integers(2, 4)),
    st.builds(
        lambda low, high: Annotated[list[Literal["x", "y"]], Len(low, high)], st.integers(0, 2), st.integers(2, 4)
    ),
)
# A null says that nothing was typed in, which JSON Schema has no word for.
ANSWERS = st.dictionaries(
    NAMES, ANYTHING.filter(lambda value: value is not None) | st.sampled_from(["#f00", ["#0f0"]]), max_size=5
)


@given(st.dictionaries(NAMES, st.tuples(TYPES, st.booleans()), max_size=4), ANSWERS)
def test_an_answer_fits_types_when_json_schema_says_so(types: dict[str, Any], answer: dict[str, Any]) -> None:
    made = Form({name: kind if needed else NotRequired[kind] for name, (kind, needed) in types.items()})
    check_sent(made.schema)
    assert made.fits(answer) is jsonschema_rs.Draft202012Validator(made.schema).is_valid(answer)
