"""Schemas that users wrote, with values that are made to cost much. Work is counted, not timed."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from trio_mcp.convert import explain
from trio_mcp.convert.codec import KEPT, Mismatch
from trio_mcp.convert.json_schema import GivenSchema

ARMS = ("a", "b", "c")


def told(schema: Any, value: Any) -> str:
    with pytest.raises(Mismatch) as caught:
        GivenSchema(schema).check(value)
    return str(caught.value)


def chain(depth: int, inside: Any, **beside: Any) -> Any:
    return functools.reduce(lambda value, _: {**beside, "kid": value}, range(depth), inside)


def alternatives(target: str) -> dict[str, Any]:
    arms: list[Any] = [
        {"type": "object", "properties": {"op": {"const": op}, "kid": {"$ref": target}}, "required": ["op"]}
        for op in ARMS
    ]
    return {"anyOf": [*arms, {"type": "integer"}]}


# A reference that leads to where it stands, in other words than `$defs`.
RECURSIVE = {
    "properties": {"type": "object", "properties": {"kid": alternatives("#/properties/kid")}},
    "absolute": {
        "$id": "http://x/y",
        "type": "object",
        "properties": {"kid": {"$ref": "http://x/y#/$defs/n"}},
        "$defs": {"n": alternatives("http://x/y#/$defs/n")},
    },
    "anchor": {"$anchor": "top", "type": "object", "properties": {"kid": alternatives("#top")}},
    "own id": {"$id": "http://x/y", "type": "object", "properties": {"kid": alternatives("y")}},
}


@pytest.mark.parametrize("name", RECURSIVE)
def test_a_reference_to_where_it_stands_is_seen_in_each_spelling(name: str) -> None:
    # The library would need gigabytes for this one: with the wrong way to explain it, this test does not end.
    assert told(RECURSIVE[name], {"kid": chain(40, "bad", op="b")})


def test_a_reference_into_properties_is_explained() -> None:
    text = told(RECURSIVE["properties"], {"kid": chain(2, "bad", op="b")})
    assert text == 'kid.kid.kid: fits none of the alternatives (object or integer), got string "bad"'


def test_two_rules_that_lead_to_one_schema_are_entered_once() -> None:
    schema = {
        "$defs": {
            "n": {"allOf": [{"$ref": "#/$defs/m"}, {"$ref": "#/$defs/m"}]},
            "m": {"properties": {"kid": {"$ref": "#/$defs/n"}, "a": {"type": "integer"}}},
        },
        "$ref": "#/$defs/n",
    }
    assert told(schema, chain(60, {"a": "x"})) == f'{"kid." * 60}a: expected integer, got string "x"'


@pytest.mark.parametrize(
    "schema",
    [
        {
            "type": "array",
            "items": {"anyOf": [{"properties": {"op": {"const": n}}, "required": ["op"]} for n in range(50)]},
        },
        {"type": "array", "items": {"oneOf": [{"type": "object", "required": [f"k{n}"]} for n in range(50)]}},
    ],
    ids=["constants", "names"],
)
def test_many_alternatives_and_many_values_are_not_all_described(schema: Any) -> None:
    given = GivenSchema(schema)
    with pytest.raises(Mismatch) as caught:
        given.check([{"op": "x"} for _ in range(60_000)])
    assert len(caught.value.problems) <= KEPT
    assert "more, or above" in str(caught.value)


def test_an_alternative_is_found_by_its_constant_and_not_by_a_look_at_each(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Any] = []
    look = explain.Explainer._look

    def counting(self: explain.Explainer, arm: Any, value: Any) -> tuple[int, int]:
        looked.append(arm)
        return look(self, arm, value)

    monkeypatch.setattr(explain.Explainer, "_look", counting)
    arms = [{"type": "object", "properties": {"op": {"const": n}, "kid": {"$ref": "#/$defs/e"}}} for n in range(50)]
    schema = {"$defs": {"e": {"anyOf": [*arms, {"type": "integer"}]}}, "type": "array", "items": {"$ref": "#/$defs/e"}}
    assert told(schema, [{"op": 49} for _ in range(500)] + [{"op": 7, "kid": "x"}]).startswith("[500].kid: fits none")
    assert len(looked) == len(arms) + 1  # for "x" alone


def test_what_a_small_value_lacks_is_told_with_the_alternatives() -> None:
    schema = {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 3}]}}
    assert told(schema, [1]) == (
        "[0]: fits none of the alternatives ([0]: expected string, got integer 1 | [0]: expected at least 3, got integer 1)"
    )


@pytest.mark.parametrize(
    ("rule", "value", "text"),
    [
        ({"contains": {"const": -1}}, list(range(20_000)), "expected an element that fits"),
        ({"unevaluatedItems": False}, list(range(20_000)), "unexpected elements: 0, 1"),
    ],
    ids=["contains", "unevaluated"],
)
def test_a_rule_that_is_not_entered_is_told_of_large_values_too(rule: Any, value: Any, text: str) -> None:
    assert text in told({"type": "array", **rule}, value)


def test_what_fits_is_not_entered(monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[Any] = []
    enter = explain.Explainer.enter

    def counting(self: explain.Explainer, schema: Any, value: Any, found: Any, pace: Any) -> Any:
        entered.append(value)
        return enter(self, schema, value, found, pace)

    monkeypatch.setattr(explain.Explainer, "enter", counting)
    point = {"type": "object", "properties": {"x": {"type": "integer"}}}
    schema = {"type": "array", "items": {"$ref": "#/$defs/P"}, "$defs": {"P": point}}
    assert (
        told(schema, [{"x": 1} for _ in range(20_000)] + [{"x": "a"}]) == '[20000].x: expected integer, got string "a"'
    )
    assert len(entered) == 3


DIALECTS = {
    "draft-04": {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "type": "object",
        "properties": {"n": {"minimum": 0, "exclusiveMinimum": True}, "kids": {"items": {"$ref": "#"}}},
    },
    "draft-07": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"kids": {"items": {"$ref": "#"}}, "n": {"exclusiveMinimum": 0}},
        "dependencies": {"a": {"$ref": "#/definitions/b"}},
        "definitions": {"b": {"required": ["bb"]}},
    },
    "2019-09": {
        "$schema": "https://json-schema.org/draft/2019-09/schema",
        "$recursiveAnchor": True,
        "type": "object",
        "properties": {"kids": {"items": {"$recursiveRef": "#"}}, "n": {"exclusiveMinimum": 0}},
    },
}


@pytest.mark.parametrize("name", DIALECTS)
def test_an_older_dialect_is_explained_by_its_own_rules(name: str) -> None:
    assert told(DIALECTS[name], {"n": 0}) == "n: expected more than 0, got integer 0"
    assert "does not fit" in told(DIALECTS["draft-07"], {"a": 1})


def test_names_are_matched_by_the_library() -> None:
    # For Python's expressions this name takes as many steps as there are ways to cut it.
    schema = {"type": "object", "patternProperties": {"^(a+)+$": {"$ref": "#"}}}
    assert told(schema, {"a" * 60 + "!": 1, "a": 1}) == "a: expected object, got integer 1"


def test_a_schema_of_many_layers_and_a_deep_value_is_no_recursion_error() -> None:
    layered: dict[str, Any] = {"type": "object", "properties": {"kid": {"$ref": "#/$defs/n"}, "a": {"type": "integer"}}}
    for _ in range(6):
        layered = {"allOf": [{"anyOf": [layered]}]}
    schema = {"$defs": {"n": layered}, "$ref": "#/$defs/n"}
    assert told(schema, chain(120, {"a": "x"})) == "does not fit the schema"
