"""Classes: what comes in and what goes out may be different members; factories stay factories; types that people have."""

import dataclasses
import datetime as dt
import enum
from typing import Annotated, Any, Generic, NamedTuple, NotRequired, TypeVar

import attrs
import jsonschema_rs
import msgspec
import pydantic
import pytest
import typing_extensions
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import TypeAliasType

from trio_mcp.convert.codec import Mismatch, Pace, Unsupported
from trio_mcp.convert.compiler import Compiler

from ..scaled import scaled
from .test_unions import Circle, DAnd, DEq, Expr, Fork, Leaf, MExpr, Ring, nested


def load(annotation: Any, value: Any) -> Any:
    return Compiler().compile(annotation).load(value)


def dump(annotation: Any, value: Any) -> Any:
    return Compiler(output=True).compile(annotation).dump(value)


def schema_of(annotation: Any, output: bool = False) -> Any:
    compiler = Compiler(output=output)
    return compiler.root_schema(compiler.compile(annotation))


def never() -> Any:
    raise AssertionError("a factory was called")


@dataclasses.dataclass
class Order:
    price: int
    qty: int = 1
    rebate: dataclasses.InitVar[int] = 0
    total: int = dataclasses.field(init=False)

    def __post_init__(self, rebate: int) -> None:
        self.total = self.price * self.qty - rebate


@attrs.define
class Parcel:
    weight: int
    cost: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.cost = self.weight * 2


@pytest.mark.parametrize(
    ("cls", "taken", "given", "gone"),
    [
        (Order, {"price", "qty", "rebate"}, {"price": 5, "qty": 2, "rebate": 3}, {"price": 5, "qty": 2, "total": 7}),
        (Parcel, {"weight"}, {"weight": 2}, {"weight": 2, "cost": 4}),
    ],
)
def test_what_a_class_computes_goes_out_and_does_not_come_in(cls: Any, taken: Any, given: Any, gone: Any) -> None:
    assert schema_of(cls)["properties"].keys() == taken
    out = schema_of(cls, output=True)
    assert out["properties"].keys() == gone.keys()
    assert dump(cls, load(cls, given)) == gone
    assert jsonschema_rs.validator_for(out).is_valid(gone)
    with pytest.raises(Mismatch, match="unexpected"):
        load(cls, gone)


def test_a_default_of_such_a_class_is_told_as_it_comes_in() -> None:
    class Cart(NamedTuple):
        order: Order = Order(1, 2, 0)

    assert schema_of(Cart)["properties"]["order"]["default"] == {"price": 1, "qty": 2}


@dataclasses.dataclass
class Stamped:
    number: int = dataclasses.field(default_factory=never)


@attrs.define
class Stamped2:
    number: int = attrs.field(factory=never)


class Stamped3(msgspec.Struct):
    number: int = msgspec.field(default_factory=never)


@pytest.mark.parametrize("cls", [Stamped, Stamped2, Stamped3])
def test_a_factory_is_neither_called_nor_told(cls: Any) -> None:
    schema = schema_of(cls)
    assert schema["properties"] == {"number": {"type": "integer"}}
    assert "required" not in schema


class Right(enum.Flag):
    R = 1
    W = 2
    X = 4


class Old(typing_extensions.TypedDict):
    a: int
    b: NotRequired[int]


class Marked(typing_extensions.TypedDict):
    a: Annotated[NotRequired[int], "An a."]
    b: typing_extensions.ReadOnly[NotRequired[int]]


class Open(msgspec.Struct):
    a: int
    b: int | msgspec.UnsetType = msgspec.UNSET


J = TypeAliasType("J", "dict[str, J] | list[J] | str | int | None")
S = typing_extensions.TypeVar("S")
Two = TypeAliasType("Two", tuple[S, S], type_params=(S,))


@pytest.mark.parametrize(
    ("annotation", "wire", "value"),
    [
        (Right, 3, Right.R | Right.W),
        (Right, 0, Right(0)),
        (Old, {"a": 1}, {"a": 1}),
        (Marked, {}, {}),
        (Marked, {"a": 1, "b": 2}, {"a": 1, "b": 2}),
        (Open, {"a": 1}, Open(1)),
        (Open, {"a": 1, "b": 2}, Open(1, 2)),
        (J, {"a": [1, "b", {"c": None}]}, {"a": [1, "b", {"c": None}]}),
        (list[J], [[], {}], [[], {}]),
        (Two[int], [1, 2], (1, 2)),
        (pydantic.JsonValue, {"a": [1, None]}, {"a": [1, None]}),
        (list[pydantic.JsonValue], [1.5], [1.5]),
    ],
)
def test_types_that_people_have(annotation: Any, wire: Any, value: Any) -> None:
    assert load(annotation, wire) == value
    assert dump(annotation, value) == wire
    for output in (False, True):
        assert jsonschema_rs.validator_for(schema_of(annotation, output)).is_valid(wire)


@pytest.mark.parametrize("wrong", [8, -1, 1.5, "R", True])
def test_a_number_that_is_no_sum_of_flags(wrong: Any) -> None:
    with pytest.raises(Mismatch, match="expected sum of 1 R, 2 W, 4 X, got"):
        load(Right, wrong)


Loop = TypeAliasType("Loop", "Loop")
Arm = TypeAliasType("Arm", "int | Arm")
T = TypeVar("T")


@dataclasses.dataclass
class Endless(Generic[T]):
    item: T
    next: "Endless[list[T]] | None" = None


@pytest.mark.parametrize(
    ("annotation", "why"),
    [
        (Loop, "the alias Loop stands for itself"),
        (Arm, "the alias Arm is an arm of itself"),
        (Endless[int], "more than 60 types inside of each other: Endless.next → Endless.next → Endless.next → …"),
    ],
    ids=["loop", "arm", "endless"],
)
def test_a_type_without_an_end(annotation: Any, why: str) -> None:
    with pytest.raises(Unsupported) as caught:
        Compiler().compile(annotation)
    assert why in caught.value.message


def test_an_assertion_of_a_class_is_a_wrong_value() -> None:
    @dataclasses.dataclass
    class Sure:
        n: int

        def __post_init__(self) -> None:
            assert self.n > 0, "n must be positive"

    with pytest.raises(Mismatch, match="Sure: n must be positive"):
        load(Sure, {"n": 0})


@pytest.mark.parametrize(
    "annotation", [dt.datetime, dt.time, dt.timedelta, list[dt.datetime], dict[str, dt.time], "model"], ids=str
)
def test_no_format_is_promised_that_a_value_may_miss(annotation: Any) -> None:
    class Model(pydantic.BaseModel):
        at: dt.datetime
        when: list[dt.time]

    assert "format" in str(schema_of(Model if annotation == "model" else annotation))
    assert "format" not in str(schema_of(Model if annotation == "model" else annotation, output=True))
    assert schema_of(dt.date, output=True) == {"type": "string", "format": "date"}


# -- in pieces


class Spot(NamedTuple):
    x: int
    tags: list[str]


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("axrop"), inner, max_size=4),
    max_leaves=20,
)
EXPRESSIONS = st.recursive(
    st.integers() | st.just("x"),
    lambda inner: st.builds(
        lambda op, args: {"op": op, "args": args}, st.sampled_from(["and", "eq", "no"]), st.lists(inner, max_size=3)
    ),
    max_leaves=20,
)
TYPES = [
    (Expr, EXPRESSIONS),
    (MExpr, EXPRESSIONS),
    (DAnd | DEq | int, EXPRESSIONS),
    (J, PLAIN),
    (Any, PLAIN),
    (list[int] | list[str], st.lists(st.integers()) | st.lists(st.text()) | PLAIN),
    (dict[str, Spot], st.dictionaries(st.text(), st.fixed_dictionaries({"x": st.integers(), "tags": PLAIN}))),
    (tuple[int, list[str]] | Circle | Ring, PLAIN),
    (Annotated[list[set[int]], "Numbers."], st.lists(st.lists(st.integers()))),
]


def outcome(step: Any) -> Any:
    try:
        return repr(step())
    except Mismatch as exc:
        return str(exc)


def whole(steps: Any) -> Any:
    while True:
        try:
            next(steps)
        except StopIteration as exc:
            return exc.value


@pytest.mark.parametrize(("annotation", "values"), TYPES, ids=lambda item: str(item)[:30])
def test_a_conversion_in_pieces_is_the_same(annotation: Any, values: Any) -> None:
    codec, writer = Compiler().compile(annotation), Compiler(output=True).compile(annotation)

    @settings(max_examples=scaled(100), deadline=None)
    @given(values)
    def check(value: Any) -> None:
        assert outcome(lambda: whole(codec.pieces(value, False, Pace()))) == outcome(lambda: codec.load(value))
        try:
            made = codec.load(value)
        except Mismatch:
            made = value
        assert outcome(lambda: whole(writer.pieces(made, True, Pace()))) == outcome(lambda: writer.dump(made))

    check()


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (list[int], list(range(50_000))),
        (list[int] | list[str], list(range(50_000))),
        (dict[str, int], {str(number): number for number in range(20_000)}),
        (list[Leaf], [{"value": number} for number in range(20_000)]),
        (list[Leaf | Fork], [{"value": number} for number in range(20_000)]),
        (list[Any], [[number] for number in range(20_000)]),
    ],
    ids=["numbers", "a union of arrays", "dict", "classes", "a union of classes", "anything"],
)
def test_others_run_between_pieces(annotation: Any, value: Any) -> None:
    reader, writer = Compiler().compile(annotation), Compiler(output=True).compile(annotation)
    if annotation != list[Any]:
        assert len(list(reader.pieces(value, False, Pace()))) >= 8
    assert len(list(writer.pieces(reader.load(value), True, Pace()))) >= 8


def test_all_problems_are_counted_and_few_are_kept() -> None:
    with pytest.raises(Mismatch) as caught:
        load(list[list[int]], [["a"] * 100] * 100)
    assert len(caught.value.problems) == 1000
    assert str(caught.value).splitlines()[50:] == ["… and 9950 more"]
    assert nested(1, 1) == {"op": "eq", "args": [1]}
