"""The look that chooses between the arms of a union: which of two that could take a value does."""

# No postponed annotations here: classes in functions are types of the tests.

import dataclasses
import decimal
from typing import Any, Literal

import pytest

from trio_mcp.convert.codec import Mismatch, Unsupported
from trio_mcp.convert.compiler import Compiler
from trio_mcp.convert.looks import is_one_of


def load(annotation: Any, value: Any) -> Any:
    return Compiler().compile(annotation).load(value)


@dataclasses.dataclass
class Point:
    x: int


@pytest.mark.parametrize(
    ("annotation", "value", "cls"),
    [
        (float | int, 1, int),
        (float | int, 1.0, float),
        (int | float, 1.0, float),
        (int | str, 1.0, int),
        # Text and numbers in one type: it is not the wider one of two numbers.
        (decimal.Decimal | int, 1, decimal.Decimal),
        (float | decimal.Decimal, 1, decimal.Decimal),
        (dict[str, int] | Point, {"x": 1}, Point),
        (dict[str, int] | Point, {"y": 1}, dict),
        (Any | Point, {"x": 1}, Point),
    ],
)
def test_the_order_of_arms_that_take_the_kind(annotation: Any, value: Any, cls: type) -> None:
    loaded = load(annotation, value)
    assert type(loaded) is cls
    assert loaded == (Point(1) if cls is Point else value)


@pytest.mark.parametrize(
    ("value", "constant", "same"),
    [
        (1, 1, True),
        (1.0, 1, True),
        (1, 1.0, True),
        (1.5, 1, False),
        (2, 1.0, False),
        (True, 1, False),
        (1, True, False),
        (True, 1.0, False),
        ("1", 1, False),
        ([1], 1, False),
        ({}, 1, False),
    ],
)
def test_a_constant_that_is_a_number_is_the_number_and_no_boolean(value: Any, constant: Any, same: bool) -> None:
    assert is_one_of(value, frozenset({(type(constant), constant)})) is same


def test_a_member_of_another_kind_tells_two_classes_apart_when_one_of_them_needs_it() -> None:
    @dataclasses.dataclass
    class Numbered:
        v: int
        z: list[int]

    @dataclasses.dataclass
    class Lettered:
        z: list[str]
        v: str = ""

    for annotation in (Numbered | Lettered, Lettered | Numbered):
        assert load(annotation, {"v": 1, "z": []}) == Numbered(1, [])
        assert load(annotation, {"v": "a", "z": []}) == Lettered([], "a")
        assert load(annotation, {"z": ["a"]}) == Lettered(["a"])


def test_a_constant_tells_two_classes_apart_when_one_of_them_needs_it() -> None:
    @dataclasses.dataclass
    class First:
        kind: Literal["a"]
        z: list[int]

    @dataclasses.dataclass
    class Second:
        z: list[str]
        kind: Literal["b"] = "b"

    @dataclasses.dataclass
    class Other:
        text: str

    annotation = First | Second | Other
    assert load(annotation, {"kind": "a", "z": [1]}) == First("a", [1])
    assert load(annotation, {"z": ["a"]}) == Second(["a"])


def test_a_member_that_neither_class_needs_does_not_tell_them_apart() -> None:
    @dataclasses.dataclass
    class Numbered:
        z: list[int]
        v: int = 0

    @dataclasses.dataclass
    class Lettered:
        z: list[str]
        v: str = ""

    with pytest.raises(Unsupported, match="differ only inside of 'z'"):
        load(Numbered | Lettered, {"z": []})


def test_a_class_whose_constant_is_missing_is_not_meant() -> None:
    @dataclasses.dataclass
    class Tagged:
        kind: Literal["a"]
        x: int

    @dataclasses.dataclass
    class Plain:
        x: str
        y: int

    for annotation in (Tagged | Plain, Plain | Tagged):
        with pytest.raises(Mismatch) as caught:
            load(annotation, {"x": 1})
        assert str(caught.value) == "x: expected string, got integer 1\ny: missing, expected integer"
