"""What people write, and what nobody should: registration, bounds, arms of unions, and what user code raises."""

# No postponed annotations here: the tables below hold types.
# ruff: noqa: UP045, F821

import enum
import re
import warnings
from dataclasses import dataclass
from decimal import Decimal
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    LiteralString,
    NamedTuple,
    Optional,
    Self,
    TypedDict,
    TypeVar,
)

import annotated_types as at
import jsonschema_rs
import pydantic
import pytest
import typing_extensions as te
from pydantic import Field

from trio_mcp import RegistrationError, Server
from trio_mcp.convert.codec import Codec, Mismatch, Pace, Unsupported
from trio_mcp.convert.compiler import Compiler

T = TypeVar("T")
ALIAS: Any = te.TypeAliasType


def codec_of(annotation: Any, *, out: bool = False) -> Codec:
    return Compiler(output=out).compile(annotation)


def in_pieces(codec: Codec, value: Any, out: bool) -> Any:
    steps = codec.pieces(value, out, Pace())
    while True:
        try:
            next(steps)
        except StopIteration as exc:
            return exc.value


def refused(annotation: Any, *, out: bool = False) -> str:
    with pytest.raises(Unsupported) as caught:
        codec_of(annotation, out=out)
    return caught.value.message


@dataclass
class Link:
    value: int
    next: Optional[Self] = None


@dataclass
class Box(Generic[T]):
    value: T


class State(enum.StrEnum):
    ON = "on"


class Switch(TypedDict):
    a: State


# -- what has one clear meaning


@pytest.mark.parametrize(
    ("annotation", "right", "wrong"),
    [
        (pydantic.conint(ge=1), 1, 0),
        (pydantic.confloat(gt=0), 0.5, 0),
        (pydantic.conlist(int, min_length=1), [1], []),
        (Link, {"value": 1, "next": {"value": 2}}, {"value": 1, "next": {"value": "2"}}),
        (LiteralString, "a", 1),
        (list[TypeVar("Key", int, str)], [1, "a"], [1.5]),  # type: ignore[misc]
        (list[te.TypeVar("Item", default=int)], [1], ["a"]),  # type: ignore[misc]
    ],
    ids=lambda item: str(item)[:30],
)
def test_a_type_with_one_clear_meaning_is_taken(annotation: Any, right: Any, wrong: Any) -> None:
    codec = codec_of(annotation)
    codec.load(right)
    with pytest.raises(Mismatch):
        codec.load(wrong)


def test_self_is_the_class_that_it_stands_in() -> None:
    assert codec_of(Link).load({"value": 1, "next": {"value": 2}}) == Link(1, Link(2))
    assert "in a class only" in refused(list[Self])  # type: ignore[misc]


def test_a_default_of_a_type_variable_may_name_another_one() -> None:
    first = te.TypeVar("first")
    second = te.TypeVar("second", default=list[first])  # type: ignore[valid-type]

    @dataclass
    class Two(te.Generic[first, second]):
        a: first
        b: second

    codec = codec_of(Two[int])  # type: ignore[misc]
    codec.load({"a": 1, "b": [1]})
    with pytest.raises(Mismatch, match=r"b\[0\]"):
        codec.load({"a": 1, "b": ["x"]})


# -- what means nothing is refused when it is registered


@dataclass
class Divided:
    x: "1 / 0"  # type: ignore[valid-type]


@dataclass
class Looked:
    x: "{}['a']"  # type: ignore[valid-type,name-defined]


@dataclass
class FieldDefault:
    x: int = Field(3, ge=1)


@dataclass
class NotedDefault:
    x: Annotated[int, Field(default=3)]


class TupleDefault(NamedTuple):
    x: int = Field(3)


@dataclass(init=False)
class Own:
    a: int

    def __init__(self, path: str) -> None:
        self.a = len(path)


class Raising:
    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        raise KeyError("boom")


class Nobody(enum.Enum):
    pass


@pytest.mark.parametrize(
    ("annotation", "why"),
    [
        (Divided, "ZeroDivisionError: division by zero"),
        (Looked, "KeyError: 'a'"),
        (ALIAS("Cut", "list[ int"), "is not a type"),
        (ALIAS("Zero", "list[1 / 0]"), "ZeroDivisionError"),
        (FieldDefault, "understood by pydantic's dataclass only"),
        (NotedDefault, "counts for a parameter only"),
        (TupleDefault, "no default of a NamedTuple"),
        (list[Annotated[int, Field(default_factory=int)]], "counts for a parameter only"),
        (Own, "constructor of its own that does not take 'a'"),
        (Raising, "KeyError: 'boom'"),
        (Nobody, "has no members"),
        (enum.Flag, "has no members"),
        (Box[Annotated[int, {"a": 1}]], "unhashable"),
        (tuple[int, *tuple[str, ...]], "unpacked with *"),
        (Annotated[Decimal, at.MultipleOf(Decimal(0))], "does not apply"),
        (Annotated[Decimal, at.MultipleOf(Decimal("NaN"))], "does not apply"),
        (Annotated[float, at.MultipleOf(float("inf"))], "does not apply"),
        (Annotated[float, at.Ge(float("nan"))], "does not apply"),
        (Annotated[Decimal, at.Ge(Decimal("sNaN"))], "does not apply"),
        (Annotated[str, at.MinLen(-1)], "does not apply"),
    ],
    ids=lambda item: str(item)[:40],
)
def test_what_cannot_be_meant_is_refused_with_the_reason(annotation: Any, why: str) -> None:
    assert why in refused(annotation)


def test_a_class_with_a_constructor_of_its_own_can_be_returned() -> None:
    assert codec_of(Own, out=True).dump(Own("abc")) == {"a": 3}


def test_an_annotation_that_raises_is_an_error_of_the_registration() -> None:
    server = Server("s")

    async def find(x: "1 / 0") -> None:  # type: ignore[valid-type]
        pass

    with pytest.raises(RegistrationError, match=r"parameter 'x': .* is not a type: ZeroDivisionError"):
        server.tool(find)


# -- values


@pytest.mark.parametrize(
    "text",
    ["(" * 2000 + ")" * 2000, "a" * 10_001, "(a", "a{99999999999999999999}"],
    ids=["deep", "long", "open", "huge"],
)
def test_an_expression_that_cannot_be_compiled_is_a_mismatch(text: str) -> None:
    with pytest.raises(Mismatch, match="expected regular expression"):
        codec_of(re.Pattern).load(text)


def test_what_python_warns_of_in_an_expression_is_no_error_of_ours() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(Mismatch):
            codec_of(re.Pattern).load("[[a]")


@pytest.mark.parametrize(
    ("of", "value", "fits"),
    [
        (Decimal("0.1"), "1" * 5000, True),
        (Decimal("0.1"), "1" * 5000 + ".15", False),
        (Decimal("1e-9"), "1e9999", True),
        (Decimal("0.1"), 0.3, True),
    ],
    ids=str,
)
def test_a_multiple_of_many_digits_is_exact(of: Any, value: Any, fits: bool) -> None:
    codec = codec_of(Annotated[Decimal, at.MultipleOf(of)])
    if fits:
        assert codec.load(value) == Decimal(str(value))
    else:
        with pytest.raises(Mismatch, match="a multiple of"):
            codec.load(value)


def test_a_number_of_more_digits_than_python_writes_is_compared() -> None:
    codec = codec_of(Annotated[float, at.MultipleOf(0.5)], out=True)
    assert codec.dump(10**5000) == 10**5000


@pytest.mark.parametrize("value", [{"0": "a", "-0": "b"}, {"-0": "a", "0": "b"}])
def test_two_spellings_of_a_key_are_not_one_value_lost(value: dict[str, str]) -> None:
    codec = codec_of(dict[int, str])
    for load in (codec.load, lambda value: in_pieces(codec, value, False)):
        with pytest.raises(Mismatch, match="comes twice"):
            load(value)


@pytest.mark.parametrize(
    ("annotation", "values"),
    [
        (Annotated[str, at.MinLen(2)] | Literal["b"], ["b", "ab"]),
        (Annotated[Decimal, at.Ge(1)] | Annotated[Decimal, at.Lt(0)], [Decimal(-1), Decimal(2)]),
        (Annotated[int, at.Le(5)] | float, [7, 3, 1.5]),
        (dict[Literal["a", "b"], Literal["b"]] | Switch, [{"a": "b"}, {"a": State.ON}]),
        (dict[int, bool] | dict[Literal["a"], bool], [{1: True}, {"a": True}]),
    ],
    ids=str,
)
def test_an_arm_takes_what_bounds_and_keys_of_another_refuse(annotation: Any, values: list[Any]) -> None:
    compiler = Compiler(output=True)
    codec = compiler.compile(annotation)
    validator = jsonschema_rs.validator_for(compiler.root_schema(codec), offline=True)
    for value in values:
        wire = codec.dump(value)
        assert validator.is_valid(wire)
        assert in_pieces(codec, value, True) == wire
        assert codec_of(annotation).load(wire) == value


@dataclass
class Base:
    a: int


@dataclass
class Near(Base):
    b: int = 0


def test_a_wrong_value_of_the_nearest_class_does_not_go_out_as_another() -> None:
    codec = codec_of(Base | Near, out=True)
    assert codec.dump(Near(1, 2)) == {"a": 1, "b": 2}
    with pytest.raises(Mismatch, match="b: expected integer"):
        codec.dump(Near(1, "x"))  # type: ignore[arg-type]


def test_a_value_of_no_arm_is_told_of_all_arms_in_pieces_too() -> None:
    codec = codec_of(Literal[1, 2] | Annotated[str, at.MinLen(2)])
    with pytest.raises(Mismatch) as plain:
        codec.load(1.5)
    with pytest.raises(Mismatch) as pieces:
        in_pieces(codec, 1.5, False)
    assert str(plain.value) == str(pieces.value) == "expected one of 1, 2 or string, got number 1.5"


@dataclass
class Holder:
    held: Any = None


def ring(count: int) -> Holder:
    holder = Holder()
    holder.held = [holder] * count
    return holder


def test_a_value_that_holds_itself_is_a_mismatch_in_pieces_too() -> None:
    nest: list[Any] = []
    nest.append(nest)
    alias = ALIAS("Nest", list["Nest"])  # type: ignore[misc]
    for codec, value in (
        (codec_of(Holder, out=True), ring(1)),
        (Compiler(output=True, localns={"Nest": alias}).compile(alias), nest),
    ):
        for dump in (codec.dump, lambda value, codec=codec: in_pieces(codec, value, True)):
            with pytest.raises(Mismatch, match="nested too deep"):
                dump(value)


# -- pydantic


class Loose(pydantic.BaseModel):
    n: int = 0
    anything: Any = None


@pytest.mark.parametrize(
    "value", [Loose(anything=object()), Loose.model_construct(n="x")], ids=["unknown type", "not of its type"]
)
def test_a_model_that_cannot_be_written_is_a_mismatch(value: Loose) -> None:
    with pytest.raises(Mismatch, match="object Loose: "):
        codec_of(Loose, out=True).dump(value)


def test_a_model_that_holds_itself_is_a_mismatch() -> None:
    value = Loose()
    value.anything = value
    with pytest.raises(Mismatch, match="Circular reference"):
        codec_of(Loose, out=True).dump(value)


class Row(pydantic.BaseModel):
    cells: list[int]


def test_the_problems_of_a_model_are_bounded() -> None:
    codec = codec_of(Row)
    with pytest.raises(Mismatch) as caught:
        codec.load({"cells": ["a"] * 3000})
    assert len(caught.value.problems) == 1000
    assert caught.value.more == 2000
    with pytest.raises(Mismatch, match=r"20,000 values do not fit, too many to list"):
        codec.load({"cells": ["a"] * 20_000})


def test_the_look_at_a_long_array_adds_up() -> None:
    codec = codec_of(list[int] | list[str])
    value = ["a"] * 1000 + [1] * 500
    with pytest.raises(Mismatch) as plain:
        codec.load(value)
    with pytest.raises(Mismatch) as pieces:
        in_pieces(codec, value, False)
    assert str(plain.value) == str(pieces.value)
    assert str(plain.value).startswith("[1000]: expected string")


@dataclass
class Left:
    kind: Literal["p", "r"]
    side: Literal["left"]


@dataclass
class Right:
    kind: Literal["r", "q"]
    side: Literal["right"]


@pytest.mark.parametrize("kind", ["p", "r"])
def test_constants_that_two_classes_share_do_not_decide(kind: Any) -> None:
    assert codec_of(Left | Right).load({"kind": kind, "side": "left"}) == Left(kind, "left")
