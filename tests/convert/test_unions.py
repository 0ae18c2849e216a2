"""Unions choose one arm by a look at the value: what each choice comes to, and that its cost is linear."""

# No postponed annotations here: classes in functions are types of the tests.

import dataclasses
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Generic, Literal, TypedDict, TypeVar

import msgspec
import pydantic
import pytest

from trio_mcp.convert.codec import Mismatch, Unsupported
from trio_mcp.convert.compiler import Compiler
from trio_mcp.convert.json_schema import GivenSchema

T = TypeVar("T")


def load(annotation: Any, value: Any) -> Any:
    return Compiler().compile(annotation).load(value)


def dump(annotation: Any, value: Any) -> Any:
    return Compiler(output=True).compile(annotation).dump(value)


def refused(annotation: Any, value: Any) -> str:
    with pytest.raises(Mismatch) as caught:
        load(annotation, value)
    return str(caught.value)


@dataclasses.dataclass
class And:
    op: Literal["and"]
    args: list["Expr"]


@dataclasses.dataclass
class Or:
    op: Literal["or"]
    args: list["Expr"]


@dataclasses.dataclass
class Not:
    op: Literal["not"]
    args: list["Expr"]


@dataclasses.dataclass
class Eq:
    op: Literal["eq"]
    args: list["Expr"]


Expr = And | Or | Not | Eq | int


class MAnd(msgspec.Struct, tag="and", tag_field="op"):
    args: list["MExpr"]


class MEq(msgspec.Struct, tag="eq", tag_field="op"):
    args: list["MExpr"]


MExpr = MAnd | MEq | int


class DAnd(TypedDict):
    op: Literal["and"]
    args: "list[DAnd | DEq | int]"


class DEq(TypedDict):
    op: Literal["eq"]
    args: "list[DAnd | DEq | int]"


@dataclasses.dataclass
class Leaf:
    value: int


@dataclasses.dataclass
class Fork:
    """Told from a leaf by its names only."""

    left: "Leaf | Fork"
    right: "Leaf | Fork | None" = None


@contextmanager
def counting() -> Iterator[list[int]]:
    """Counts calls of functions of the conversion: a measure of work that no clock disturbs."""
    count = [0]

    def profile(frame: Any, event: str, arg: Any) -> None:
        count[0] += event == "call" and "convert" in frame.f_code.co_filename

    sys.setprofile(profile)
    try:
        yield count
    finally:
        sys.setprofile(None)


def nested(depth: int, leaf: Any) -> Any:
    value = leaf
    for _ in range(depth):
        value = {"op": "eq", "args": [value]}
    return value


def chain(depth: int, leaf: Any) -> Any:
    value: Any = {"value": leaf}
    for _ in range(depth):
        value = {"left": value}
    return value


GIVEN = {
    "$ref": "#/$defs/E",
    "$defs": {
        "E": {
            "anyOf": [
                *(
                    {
                        "type": "object",
                        "properties": {
                            "args": {"type": "array", "items": {"$ref": "#/$defs/E"}},
                            "op": {"const": op},
                        },
                        "required": ["op"],
                    }
                    for op in ("and", "or", "not", "eq")
                ),
                {"type": "integer"},
            ]
        }
    },
}


@pytest.mark.parametrize(
    ("annotation", "make"),
    [(Expr, nested), (MExpr, nested), (DAnd | DEq | int, nested), (Leaf | Fork, chain)],
    ids=["dataclass", "msgspec", "TypedDict", "names"],
)
@pytest.mark.parametrize("leaf", [1, "x"], ids=["valid", "invalid"])
def test_work_grows_with_the_depth_and_no_faster(annotation: Any, make: Any, leaf: Any) -> None:
    codec = Compiler().compile(annotation)
    counts = []
    for depth in (20, 40, 60):
        with counting() as count:
            try:
                codec.load(make(depth, leaf))
                assert leaf == 1
            except Mismatch:
                assert leaf == "x"
        counts.append(count[0])
    assert counts[2] - counts[1] <= (counts[1] - counts[0]) * 1.2


@pytest.mark.parametrize("annotation", [DAnd | DEq | int, Expr])
def test_work_on_the_way_out_grows_with_the_depth_and_no_faster(annotation: Any) -> None:
    codec = Compiler(output=True).compile(annotation)
    value: Any = 1
    counts = []
    for depth in range(1, 61):
        value = Eq("eq", [value]) if annotation is Expr else {"op": "eq", "args": [value]}
        if depth % 20 == 0:
            with counting() as count:
                codec.dump(value)
            counts.append(count[0])
    assert counts[2] - counts[1] <= (counts[1] - counts[0]) * 1.2


def test_the_explanation_of_a_schema_that_refers_to_itself_grows_with_the_depth_and_no_faster() -> None:
    given = GivenSchema(GIVEN)
    given.check(nested(50, 1))
    counts = []
    for depth in (20, 40, 60):
        with counting() as count, pytest.raises(Mismatch) as caught:
            given.check(nested(depth, "x"))
        counts.append(count[0])
    assert counts[2] - counts[1] <= (counts[1] - counts[0]) * 1.2
    problem = caught.value.problems[0]
    assert [str(item) for item in caught.value.problems] == [str(problem)]
    assert (
        str(problem) == f'args[0]{".args[0]" * 59}: fits none of the alternatives (object or integer), got string "x"'
    )


# -- what is told


@dataclasses.dataclass
class Added:
    kind: Literal["added"]
    name: str
    size: int


@dataclasses.dataclass
class Removed:
    kind: Literal["removed"]
    name: str


def test_a_wrong_value_is_told_about_the_arm_that_was_meant() -> None:
    event = Added | Removed
    assert refused(event, {"kind": "removed", "name": 1}) == "name: expected string, got integer 1"
    assert refused(event, {"kind": "added"}) == "name: missing, expected string\nsize: missing, expected integer"
    assert refused(event, {"kind": "moved"}) == 'kind: expected one of "added", "removed", got string "moved"'
    assert refused(event, {"name": "a"}) == 'kind: missing, expected one of "added", "removed"'
    assert refused(event, {"kind": ["added"]}) == 'kind: expected one of "added", "removed", got array ["added"]'
    assert refused(event, 5) == "expected object Added or object Removed, got integer 5"


@dataclasses.dataclass
class Versioned:
    v: Literal[1]


@dataclasses.dataclass
class Newer:
    v: Literal[2]


def test_a_constant_that_is_a_number_decides_as_json_counts_them() -> None:
    assert load(Versioned | Newer, {"v": 2.0}) == Newer(2)
    assert refused(Versioned | Newer, {"v": True}) == "v: expected one of 1, 2, got boolean true"


@dataclasses.dataclass
class First:
    kind: Literal["first"] = "first"


@dataclasses.dataclass
class Second:
    kind: Literal["second"] = "second"
    n: int = 0


def test_a_constant_that_is_a_default_may_be_left_out() -> None:
    assert load(First | Second, {}) == First()
    assert load(First | Second, {"n": 1}) == Second(n=1)
    assert load(First | Second, {"kind": "second"}) == Second()


def test_a_value_that_only_one_arm_takes_is_that_arms() -> None:
    import datetime as dt

    @dataclasses.dataclass
    class Dated:
        when: dt.date

    @dataclasses.dataclass
    class Said:
        when: str

    # Their single values are loaded in the look, so these are told apart though both are text.
    assert load(Dated | Said, {"when": "2026-07-28"}) == Dated(dt.date(2026, 7, 28))
    assert load(Dated | Said, {"when": "soon"}) == Said("soon")


def test_any_value_and_free_keys_come_after_classes() -> None:
    for annotation in (Leaf | dict[str, Any], dict[str, Any] | Leaf, Leaf | Any, Any | Leaf):
        assert load(annotation, {"value": 1}) == Leaf(1)
        assert load(annotation, {"other": 1}) == {"other": 1}
    assert load(tuple[int, int] | list[int], [1, 2]) == (1, 2)
    assert load(list[int] | tuple[int, int], [1, 2]) == (1, 2)
    assert load(list[int] | tuple[int, int], [1]) == [1]
    assert load(list[int] | list[str] | None, ["a"] * 3) == ["a"] * 3
    assert load(dict[str, int] | dict[str, str], {"a": "b"}) == {"a": "b"}


# -- what is refused when it is registered


@dataclasses.dataclass
class Twin:
    value: int


@dataclasses.dataclass
class Ints:
    items: list[int]


@dataclasses.dataclass
class Texts:
    items: list[str]


class ModelA(pydantic.BaseModel):
    items: list[int]


class ModelB(pydantic.BaseModel):
    items: list[str]


@pytest.mark.parametrize(
    ("annotation", "why"),
    [
        (
            Leaf | Twin,
            "object Leaf and object Twin cannot be told apart: they have the same members; give each a member",
        ),
        (Ints | Texts, "object Ints and object Texts cannot be told apart: they differ only inside of 'items'"),
        (ModelA | ModelB, "object ModelA and object ModelB cannot be told apart: they differ only inside of 'items'"),
        (
            list[Leaf] | list[Fork],
            "cannot be told apart: they differ only inside of their elements; say array of one type",
        ),
        (list[int] | set[int], "cannot be told apart: they have the same elements"),
        (dict[str, list[int]] | dict[str, list[str]], "cannot be told apart: they differ only inside of their members"),
        (tuple[list[int], int] | tuple[list[str], int], "they differ only inside of their elements"),
        (Annotated[Leaf | Fork, pydantic.Field(discriminator="kind")], "the discriminator 'kind' is not a Literal"),
        (
            Annotated[int | str, pydantic.Field(discriminator="kind")],
            "the discriminator 'kind' needs two classes or more",
        ),
        (Annotated[int, pydantic.Field(discriminator="kind")], "a discriminator needs a union of classes"),
    ],
)
def test_arms_that_no_look_can_tell_apart(annotation: Any, why: str) -> None:
    with pytest.raises(Unsupported) as caught:
        Compiler().compile(annotation)
    assert why in caught.value.message


def test_the_place_of_arms_that_cannot_be_told_apart() -> None:
    @dataclasses.dataclass
    class Holder:
        inside: list[Ints | Texts]

    with pytest.raises(Unsupported) as caught:
        Compiler().compile(list[Holder])
    assert caught.value.where == ["Holder.inside"]


def test_a_discriminator_decides() -> None:
    event = Annotated[Added | Removed, pydantic.Field(discriminator="kind")]
    assert load(event, {"kind": "removed", "name": "a"}) == Removed("removed", "a")


# -- out


@dataclasses.dataclass
class Circle:
    r: float


@dataclasses.dataclass
class Ring(Circle):
    hole: float = 0.0


@dataclasses.dataclass
class Flat(Ring):
    flat: bool = True


class PB(pydantic.BaseModel):
    a: int


class PS(PB):
    b: int


class SB(msgspec.Struct):
    a: int


class SS(SB):
    b: int


@pytest.mark.parametrize(
    ("annotation", "value", "wire"),
    [
        (Circle | Ring, Ring(2.0, 1.0), {"r": 2.0, "hole": 1.0}),
        (Circle | Ring, Circle(2.0), {"r": 2.0}),
        # The nearest base.
        (Circle | Ring, Flat(2.0), {"r": 2.0, "hole": 0.0}),
        (list[Circle | Ring], [Ring(2.0, 1.0)], [{"r": 2.0, "hole": 1.0}]),
        (PB | PS, PS(a=1, b=2), {"a": 1, "b": 2}),
        (SB | SS, SS(1, 2), {"a": 1, "b": 2}),
        (dict[str, list[int]] | Circle, Circle(1.0), {"r": 1.0}),
        # Of one class, by what is inside of a list.
        (list[Leaf] | list[Circle], [Circle(1.0)], [{"r": 1.0}]),
        (list[int] | list[str], ["a"], ["a"]),
        (list[int] | set[int], {1}, [1]),
        (Leaf | Twin, Twin(1), {"value": 1}),
        (Literal["a"] | int | None, None, None),
        (float | str, 1, 1),
    ],
)
def test_nothing_is_lost_on_the_way_out(annotation: Any, value: Any, wire: Any) -> None:
    assert dump(annotation, value) == wire


@dataclasses.dataclass
class P(Generic[T]):
    x: T


def test_generic_classes_of_one_origin() -> None:
    assert dump(P[int] | P[str], P("a")) == {"x": "a"}
    assert load(P[int] | P[str], {"x": "a"}) == P("a")


class Al(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(populate_by_name=True)
    a: int = pydantic.Field(alias="A")


class Al2(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(populate_by_name=True)
    a: int = pydantic.Field(alias="A")
    b: int = 0


class Node(pydantic.BaseModel):
    v: int
    kids: list["Node"] = []


class End(pydantic.BaseModel):
    v: int


def test_models_by_the_members_that_they_would_ignore() -> None:
    assert load(Al | Al2, {"a": 1, "b": 2}) == Al2(A=1, b=2)
    assert load(Node | End, {"v": 1, "kids": [{"v": 2}]}) == Node(v=1, kids=[Node(v=2)])
    assert load(End | Node, {"v": 1, "kids": [{"v": 2}]}) == Node(v=1, kids=[Node(v=2)])
    assert load(End | Node, {"v": 1}) == End(v=1)
