"""What a large value costs: no more than in proportion to its bytes, and in pieces between which others run."""

# No postponed annotations here: classes in functions are types of the tests.

import dataclasses
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, Literal, TypedDict, Union

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trio_mcp.convert.codec import Mismatch, Pace
from trio_mcp.convert.compiler import Compiler
from trio_mcp.convert.json_schema import CheckedCodec, GivenSchema

from ..scaled import scaled
from .test_shapes import outcome, whole
from .test_unions import counting

Fields = dict[str, Any]


def a_dataclass(name: str, fields: Fields) -> Any:
    return dataclasses.make_dataclass(name, fields.items())


def a_typed_dict(name: str, fields: Fields) -> Any:
    return TypedDict(name, fields)  # type: ignore[operator]


def a_struct(name: str, fields: Fields) -> Any:
    return msgspec.defstruct(name, list(fields.items()))


def a_model(name: str, fields: Fields) -> Any:
    return pydantic.create_model(name, **{key: (item, ...) for key, item in fields.items()})


KINDS: list[Callable[[str, Fields], Any]] = [a_dataclass, a_typed_dict, a_struct, a_model]


@st.composite
def types(draw: st.DrawFn) -> tuple[Any, int, bool]:
    """A union of classes that refers to itself, the number of its classes, and whether a member names each."""
    count, tagged = draw(st.integers(1, 5)), draw(st.booleans())
    kinds = [draw(st.sampled_from(KINDS)) for _ in range(count)]
    if a_model in kinds:
        # pydantic reads what is inside of its models itself, and each arm in full where no discriminator is named.
        kinds, tagged = [a_model] * count, True
    names: dict[str, Any] = {}
    for number, make in enumerate(kinds):
        tag: Fields = {"op": Literal[f"op{number}"]} if tagged else {f"only{number}": int}
        names[f"C{number}"] = make(f"C{number}", {**tag, "args": "list[U]"})
    classes: Any = Union[tuple(names.values())]  # noqa: UP007 - of a tuple
    if kinds[0] is a_model and count > 1:
        classes = Annotated[classes, pydantic.Field(discriminator="op")]
    names["U"] = classes | int
    if kinds[0] is a_model:
        for cls in [names[f"C{number}"] for number in range(count)]:
            cls.model_rebuild(_types_namespace=names)
    return Compiler(localns=names).compile(names["U"]), count, tagged


def trees(count: int, tagged: bool) -> st.SearchStrategy[Any]:
    """Values of such a union, in most of which something is wrong."""

    def node(number: int, args: list[Any], extra: bool) -> Any:
        own: Fields = {"op": f"op{number}"} if tagged else {f"only{number}": 1}
        return {**own, "args": args, **({"extra": 1} if extra else {})}

    return st.recursive(
        st.integers(0, 9) | st.sampled_from(["x", None]),
        lambda inner: st.builds(node, st.integers(0, count), st.lists(inner, max_size=6), st.booleans()),
        max_leaves=40,
    )


def calls(step: Callable[[], Any]) -> int:
    with counting() as count, suppress(Mismatch):
        step()
    return count[0]


PER_BYTE = 30
"""Calls of functions for a byte of JSON: each of five classes looks at an object of some thirty bytes."""


@settings(max_examples=scaled(40), deadline=None, database=None)
@given(st.data())
def test_work_is_at_most_in_proportion_to_the_bytes(data: st.DataObject) -> None:
    codec, count, tagged = data.draw(types())
    value = data.draw(trees(count, tagged))
    room = 600 + PER_BYTE * len(json.dumps(value))
    assert calls(lambda: codec.load(value)) <= room
    assert calls(lambda: whole(codec.pieces(value, False, Pace()))) <= room


GIVEN = {
    "$ref": "#/$defs/E",
    "$defs": {
        "E": {
            "anyOf": [
                {"type": "integer"},
                {"type": "array", "items": {"$ref": "#/$defs/E"}},
                {"type": "object", "additionalProperties": {"$ref": "#/$defs/E"}},
            ]
        }
    },
}
ANY_JSON = st.recursive(
    st.integers(0, 9) | st.sampled_from(["x", None]),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=40,
)


@settings(max_examples=scaled(40), deadline=None, database=None)
@given(ANY_JSON)
def test_work_for_a_given_schema_is_at_most_in_proportion_to_the_bytes(value: Any) -> None:
    schema = GivenSchema(GIVEN)
    assert calls(lambda: schema.check(value)) <= 600 + 80 * len(json.dumps(value))


class Model(pydantic.BaseModel):
    tags: list[int]


@dataclasses.dataclass
class Item:
    number: int


def test_models_share_a_piece_by_what_is_in_them() -> None:
    reader, writer = Compiler().compile(list[Model]), Compiler(output=True).compile(list[Model])
    value = [{"tags": list(range(1000))} for _ in range(40)]
    assert len(list(reader.pieces(value, False, Pace()))) >= 18
    assert len(list(writer.pieces(reader.load(value), True, Pace()))) >= 18


def test_what_does_not_fit_a_given_schema_is_explained_in_pieces() -> None:
    codec = CheckedCodec(Compiler().compile(Any), GivenSchema(GIVEN))
    value = [[number] for number in range(5000)] + [["x"]]
    steps = codec.pieces(value, False, Pace())
    count = 0
    with pytest.raises(Mismatch, match=r"\[5000\]\[0\]: fits none of the alternatives"):
        while True:
            next(steps)
            count += 1
    assert count >= 40


def test_two_values_that_are_explained_at_once_do_not_mix() -> None:
    schema = GivenSchema(GIVEN)
    steps = [
        schema.check_in_pieces([[None] for _ in range(600)] + [["x"] for _ in range(size)], Pace()) for size in (1, 2)
    ]
    told: dict[int, str] = {}
    while len(told) < 2:
        for number, step in enumerate(steps):
            if number not in told:
                try:
                    next(step)
                except Mismatch as exc:
                    told[number] = f"{len(exc.problems)} {exc.problems[-1]}"
    assert told == {
        number: f"{601 + number} [{600 + number}][0]: fits none of the alternatives (integer or array or object), "
        'got string "x"'
        for number in range(2)
    }


@pytest.mark.parametrize("wrong", [False, True])
def test_of_two_dicts_one_is_chosen_in_pieces(wrong: bool) -> None:
    annotation = dict[str, int] | dict[str, str]
    reader, writer = Compiler().compile(annotation), Compiler(output=True).compile(annotation)
    value: dict[str, Any] = {str(number): "a" for number in range(20_000)}
    if wrong:
        value["0"] = 0
    assert outcome(lambda: whole(reader.pieces(value, False, Pace()))) == outcome(lambda: reader.load(value))
    assert outcome(lambda: whole(writer.pieces(value, True, Pace()))) == outcome(lambda: writer.dump(value))
    if not wrong:
        # Two looks, and the conversion.
        assert len(list(reader.pieces(value, False, Pace()))) >= 28
        assert len(list(writer.pieces(value, True, Pace()))) >= 28


def test_of_a_class_and_a_dict_one_is_chosen_in_pieces() -> None:
    writer = Compiler(output=True).compile(list[dict[str, Item] | dict[str, int]])
    value = [{str(number): Item(number) for number in range(6000)}]
    steps = writer.pieces(value, True, Pace())
    assert len(list(steps)) >= 6
    assert writer.dump(value) == whole(writer.pieces(value, True, Pace()))
