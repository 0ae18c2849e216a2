"""Why a JSON value does not fit a schema that refers to itself.

A library explains every alternative of every level, which doubles the work a level. Here one alternative is chosen by its
constants, its names and its kinds, and only that one is entered: the work is linear in the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from .codec import Found, Mismatch, Problem, described, kind_name

__all__ = ["Explainer"]

Check = Callable[[dict[str, Any], Any], Iterable[Problem]]
"""Checks a schema without what enters parts of the value."""

_ENTERS: Final = frozenset(
    {
        *(
            "properties",
            "patternProperties",
            "additionalProperties",
            "propertyNames",
            "items",
            "prefixItems",
            "contains",
        ),
        *("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "$ref", "$dynamicRef", "dependentSchemas"),
        *("unevaluatedProperties", "unevaluatedItems", "minContains", "maxContains", "$defs", "definitions", "$schema"),
        *("$id", "$anchor", "$dynamicAnchor", "$vocabulary"),
    }
)
_OTHER: Final = 1_000_000
"""The look of an alternative for values of another kind."""

_HOPS: Final = 50
"""References in a row: more of them refer to each other and to nothing else."""


class Explainer:
    """Explains what does not fit one schema.

    Args:
        schema: The whole schema.
        leaf: Checks what a schema says of a value itself.
    """

    __slots__ = ("_leaf", "_leaves", "_merged", "_root")

    def __init__(self, schema: dict[str, Any], leaf: Check) -> None:
        self._root = schema
        self._leaf = leaf
        # By identity: a schema is the same object at each place from which it is referred to.
        self._leaves: dict[int, dict[str, Any]] = {}
        self._merged: dict[int, dict[str, Any]] = {}

    def explain(self, value: Any) -> Mismatch:
        """What is wrong with a JSON value that is known not to fit.

        Returns:
            Its problems; one without a place, when it is in a rule that is not entered.
        """
        found = Found()
        self.enter(self._root, value, found)
        if not found:
            found.note("does not fit the schema")
        return found.mismatch()

    def enter(self, schema: Any, value: Any, found: Found) -> None:
        """Add what is wrong with a value and its parts."""
        schema = self._resolved(schema)
        if schema is False:
            found.note("unexpected")
        if not isinstance(schema, dict):
            return
        own = self._leaves.get(id(schema))
        if own is None:
            own = self._leaves[id(schema)] = {key: item for key, item in schema.items() if key not in _ENTERS}
        if own:
            for problem in self._leaf(own, _shallow(own, value)):
                found.add(problem)
        for part in _list(schema.get("allOf")):
            self.enter(part, value, found)
        for word in ("anyOf", "oneOf"):
            arms = _list(schema.get(word))
            if arms:
                self._arms(arms, value, found)
        if isinstance(value, dict):
            self._object(schema, value, found)
        elif isinstance(value, list):
            self._array(schema, value, found)

    def _resolved(self, schema: Any) -> Any:
        for _ in range(_HOPS):
            target = schema.get("$ref") if isinstance(schema, dict) else None
            if not isinstance(target, str) or not target.startswith("#"):
                break
            pointed = _pointed(self._root, target)
            if len(schema) == 1 or not isinstance(pointed, dict):
                schema = pointed
                continue
            merged = self._merged.get(id(schema))
            if merged is None:
                others = {key: item for key, item in schema.items() if key != "$ref"}
                merged = self._merged[id(schema)] = {**others, "allOf": [*_list(others.get("allOf")), pointed]}
            return merged
        return schema

    def _object(self, schema: Mapping[str, Any], value: dict[str, Any], found: Found) -> None:
        properties = schema.get("properties")
        patterns = schema.get("patternProperties")
        properties = properties if isinstance(properties, dict) else {}
        patterns = patterns if isinstance(patterns, dict) else {}
        others = schema.get("additionalProperties")
        for name, item in value.items():
            rules = [properties[name]] if name in properties else []
            rules += [rule for pattern, rule in patterns.items() if _matches(pattern, name)]
            if not rules and others is not None:
                rules = [others]
            self._part(name, rules, item, found)

    def _array(self, schema: Mapping[str, Any], value: list[Any], found: Found) -> None:
        first = _list(schema.get("prefixItems"))
        rest = schema.get("items")
        for index, item in enumerate(value):
            rule = first[index] if index < len(first) else rest
            if rule is not None:
                self._part(index, [rule], item, found)

    def _part(self, key: str | int, rules: list[Any], item: Any, found: Found) -> None:
        for rule in rules:
            inside = Found()
            self.enter(rule, item, inside)
            if inside:
                found.under(key, inside.mismatch())

    def _arms(self, arms: list[Any], value: Any, found: Found) -> None:
        (tags, _), index = min((self._look(arm, value), index) for index, arm in enumerate(arms))
        if tags >= _OTHER:
            told = " or ".join(dict.fromkeys(kind for arm in arms if (kind := self._kind(arm))))
            found.note(f"fits none of the alternatives{told and f' ({told})'}, got {described(value)}")
        else:
            self.enter(arms[index], value, found)

    def _kind(self, arm: Any) -> str:
        arm = self._resolved(arm)
        kind = arm.get("type") if isinstance(arm, dict) else None
        return kind if isinstance(kind, str) else ""

    def _look(self, arm: Any, value: Any) -> tuple[int, int]:
        """How badly a value seems to fit an alternative: constants and kinds that differ, then names."""
        arm = self._resolved(arm)
        if not isinstance(arm, dict):
            return (0, 0) if arm is not False else (_OTHER, 0)
        kind = arm.get("type")
        if kind is not None and not _is_kind(value, kind):
            return (_OTHER, 0)
        if not _is_constant(arm, value):
            return (_OTHER, 0)
        if not isinstance(value, dict):
            return (0, 0)
        properties = arm.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        tags = wrong = 0
        for name, rule in properties.items():
            rule = self._resolved(rule)
            if isinstance(rule, dict) and name in value:
                tags += not _is_constant(rule, value[name])
                wrong += "type" in rule and not _is_kind(value[name], rule["type"])
        for name in _list(arm.get("required")):
            wrong += name not in value
        if arm.get("additionalProperties") is False:
            wrong += sum(name not in properties for name in value)
        return tags, wrong


def _is_constant(schema: Mapping[str, Any], value: Any) -> bool:
    if isinstance(value, list | dict):
        return "const" not in schema and "enum" not in schema
    options = _list(schema.get("enum", [schema["const"]] if "const" in schema else None))
    return not options or any(type(option) is type(value) and option == value for option in options)


def _is_kind(value: Any, kinds: Any) -> bool:
    names = kinds if isinstance(kinds, list) else [kinds]
    name = kind_name(value)
    if name in names or (name == "integer" and "number" in names):
        return True
    return name == "number" and "integer" in names and float(value).is_integer()


def _shallow(schema: Mapping[str, Any], value: Any) -> Any:
    """A value without what lies deeper, where no rule looks there: it would be copied at each level."""
    if not schema.keys() & {"const", "enum", "uniqueItems"}:
        if isinstance(value, dict):
            return {name: item if not isinstance(item, list | dict) else None for name, item in value.items()}
        if isinstance(value, list):
            return [None] * len(value)
    return value


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error:
        return False


def _pointed(root: Any, target: str) -> Any:
    """What a reference inside of a schema refers to: a pointer, or an anchor in `$defs`."""
    if target == "#":
        return root
    if not target.startswith("#/"):
        for item in (root.get("$defs") or {}).values():
            if isinstance(item, dict) and target[1:] in (item.get("$anchor"), item.get("$dynamicAnchor")):
                return item
        return None
    for part in target[2:].split("/"):
        key = part.replace("~1", "/").replace("~0", "~").replace("%25", "%")
        if isinstance(root, list) and key.isdecimal() and int(key) < len(root):
            root = root[int(key)]
        else:
            root = root.get(key) if isinstance(root, dict) else None
    return root
