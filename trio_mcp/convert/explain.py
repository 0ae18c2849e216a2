"""Why a JSON value does not fit a schema that refers to itself.

A library explains every alternative of every level, which doubles the work a level. Here one alternative is chosen by its
constants, its names and its kinds, and only that one is entered: the work is linear in the value.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, Final

from .codec import KEPT, Found, Mismatch, Pace, Problem, described, kind_name

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
        *(
            "$id",
            "id",
            "$anchor",
            "$dynamicAnchor",
            "$vocabulary",
            "$recursiveRef",
            "$recursiveAnchor",
            "additionalItems",
        ),
    }
)
_OTHER: Final = 1_000_000
"""The look of an alternative for values of another kind."""

_STEP: Final = 20
"""Values to which one step comes, of those that are converted in one piece: it calls the library several times."""

_HOPS: Final = 50
"""References in a row: more of them refer to each other and to nothing else."""


class Explainer:
    """Explains what does not fit one schema.

    Args:
        schema: The whole schema.
        leaf: Checks what a schema says of a value itself.
        fits: Whether a value fits a schema without references to anything but its own definitions.
        bounded: Whether the schema does not refer to itself, so that its depth is that of the value.
    """

    __slots__ = (
        "_bounded",
        "_entered",
        "_fits",
        "_leaf",
        "_leaves",
        "_merged",
        "_patterns",
        "_root",
        "_tags",
        "_told",
        "_wholes",
    )

    def __init__(
        self, schema: dict[str, Any], leaf: Check, fits: Callable[[dict[str, Any], Any], bool], *, bounded: bool
    ) -> None:
        self._root = schema
        self._leaf = leaf
        self._fits = fits
        self._bounded = bounded
        self._wholes: dict[int, dict[str, Any] | None] = {}
        self._patterns: dict[str, dict[str, Any]] = {}
        self._entered: set[tuple[int, int]] = set()
        self._tags: dict[int, tuple[str, dict[tuple[type, Any], Any]]] = {}
        self._told = 0
        # By identity: a schema is the same object at each place from which it is referred to.
        self._leaves: dict[int, dict[str, Any]] = {}
        self._merged: dict[int, dict[str, Any]] = {}

    def explain(self, value: Any, pace: Pace) -> Generator[None, None, Mismatch | None]:
        """What is wrong with a JSON value that is known not to fit. It ends with the problems that can be shown.

        As a generator that yields where others may run.

        Returns:
            Its problems; None, when it is in a rule that is not entered.
        """
        # While this one waits, another value may be explained.
        run = copy.copy(self)
        run._told, run._entered = 0, set()
        found = Found()
        try:
            yield from run.enter(self._root, value, found, pace)
        except RecursionError:
            return None
        if not found:
            return None
        mismatch = found.mismatch()
        mismatch.counted = run._told < KEPT
        return mismatch

    def enter(self, schema: Any, value: Any, found: Found, pace: Pace) -> Generator[None, None, None]:
        """Add what is wrong with a value and its parts."""
        schema = self._resolved(schema)
        if schema is False:
            self._note(Problem("unexpected"), found)
        if not isinstance(schema, dict):
            return
        if isinstance(value, dict | list):
            # Two rules may lead to one schema, at each level again.
            if (id(schema), id(value)) in self._entered:
                return
            self._entered.add((id(schema), id(value)))
        own = self._leaves.get(id(schema))
        if own is None:
            own = self._leaves[id(schema)] = {
                key: item for key, item in schema.items() if key not in _ENTERS and not _has_reference(item)
            }
        if own:
            for problem in self._leaf(own, _shallow(own, value)):
                self._note(problem, found)
        for part in _list(schema.get("allOf")):
            yield from self.enter(part, value, found, pace)
        for word in ("anyOf", "oneOf"):
            arms = _list(schema.get(word))
            if arms:
                yield from self._arms(arms, value, found, pace)
        if isinstance(value, dict):
            yield from self._object(schema, value, found, pace)
        elif isinstance(value, list):
            yield from self._array(schema, value, found, pace)

    def _note(self, problem: Problem, found: Found) -> None:
        self._told += 1
        found.add(problem)

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

    def _object(
        self, schema: Mapping[str, Any], value: dict[str, Any], found: Found, pace: Pace
    ) -> Generator[None, None, None]:
        properties = schema.get("properties")
        patterns = schema.get("patternProperties")
        properties = properties if isinstance(properties, dict) else {}
        patterns = patterns if isinstance(patterns, dict) else {}
        others = schema.get("additionalProperties")
        for name, item in value.items():
            if self._told >= KEPT:
                break
            rules = [properties[name]] if name in properties else []
            rules += [rule for pattern, rule in patterns.items() if self._matches(pattern, name)]
            if not rules and others is not None:
                rules = [others]
            yield from self._part(name, rules, item, found, pace)

    def _matches(self, pattern: str, name: str) -> bool:
        # By the library: what is slow for Python's expressions is not for its own.
        rule = self._patterns.get(pattern)
        if rule is None:
            rule = self._patterns[pattern] = {"pattern": pattern}
        return self._fits(rule, name)

    def _array(
        self, schema: Mapping[str, Any], value: list[Any], found: Found, pace: Pace
    ) -> Generator[None, None, None]:
        first = _list(schema.get("prefixItems"))
        rest = schema.get("items")
        for index, item in enumerate(value):
            if self._told >= KEPT:
                break
            rule = first[index] if index < len(first) else rest
            if rule is not None:
                yield from self._part(index, [rule], item, found, pace)

    def _part(
        self, key: str | int, rules: list[Any], item: Any, found: Found, pace: Pace
    ) -> Generator[None, None, None]:
        for rule in rules:
            if pace.due(_STEP):
                yield
            if self._fits_whole(rule, item):
                continue
            inside = Found()
            yield from self.enter(rule, item, inside, pace)
            if inside:
                found.under(key, inside.mismatch())

    def _fits_whole(self, rule: Any, item: Any) -> bool:
        """Whether a part is known to fit. Not asked where that would be asked again at each level of the value."""
        if not isinstance(rule, dict):
            return False
        whole = self._wholes.get(id(rule), False)
        if whole is False:
            whole = None
            if not _has_reference(rule):
                whole = rule
            elif self._bounded:
                whole = {**{key: self._root[key] for key in ("$defs", "definitions") if key in self._root}, **rule}
            self._wholes[id(rule)] = whole
        return isinstance(whole, dict) and self._fits(whole, item)

    def _arms(self, arms: list[Any], value: Any, found: Found, pace: Pace) -> Generator[None, None, None]:
        name, by_constant = self._tagged(arms)
        if isinstance(value, dict) and isinstance(constant := value.get(name), str | int):
            arm = by_constant.get((type(constant), constant))
            if arm is not None:
                yield from self.enter(arm, value, found, pace)
                return
        (tags, _), index = min((self._look(arm, value), index) for index, arm in enumerate(arms))
        if tags >= _OTHER:
            told = " or ".join(dict.fromkeys(kind for arm in arms if (kind := self._kind(arm))))
            text = f"fits none of the alternatives{told and f' ({told})'}, got {described(value)}"
            self._note(Problem(text), found)
        else:
            yield from self.enter(arms[index], value, found, pace)

    def _tagged(self, arms: list[Any]) -> tuple[str, dict[tuple[type, Any], Any]]:
        """The member that has other constants in each alternative, with the alternatives by its constants."""
        known = self._tags.get(id(arms))
        if known is not None:
            return known
        shapes = [(arm, self._resolved(arm)) for arm in arms]
        objects = [
            (arm, shape)
            for arm, shape in shapes
            if not isinstance(shape, dict) or shape.get("type", "object") == "object"
        ]
        best: tuple[str, dict[tuple[type, Any], Any]] = ("", {})
        self._tags[id(arms)] = best
        first = objects[0][1].get("properties") if objects and isinstance(objects[0][1], dict) else None
        for name in first if isinstance(first, dict) else ():
            found: dict[tuple[type, Any], Any] = {}
            total = 0
            for arm, shape in objects:
                properties = shape.get("properties") if isinstance(shape, dict) else None
                rule = self._resolved(properties.get(name)) if isinstance(properties, dict) else None
                options = _options(rule) if isinstance(rule, dict) else []
                total += len(options) or len(arms)  # one without constants makes it more than was found
                found.update(((type(option), option), arm) for option in options if isinstance(option, str | int))
            if len(found) == total:
                self._tags[id(arms)] = best = (name, found)
                break
        return best

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
            wrong += len(value) - sum(name in value for name in properties)
        return tags, wrong


def _is_constant(schema: Mapping[str, Any], value: Any) -> bool:
    if isinstance(value, list | dict):
        return "const" not in schema and "enum" not in schema
    options = _options(schema)
    return not options or any(type(option) is type(value) and option == value for option in options)


def _options(schema: Mapping[str, Any]) -> list[Any]:
    return _list(schema.get("enum", [schema["const"]] if "const" in schema else None))


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


def _has_reference(value: Any) -> bool:
    """Whether a rule refers to another place, which is not there when it is checked alone."""
    if isinstance(value, dict):
        return any(
            key in ("$ref", "$dynamicRef", "$recursiveRef") or _has_reference(item) for key, item in value.items()
        )
    return isinstance(value, list) and any(_has_reference(item) for item in value)


def _pointed(root: Any, target: str) -> Any:
    """What a reference inside of a schema refers to: a pointer, or an anchor in `$defs`."""
    if target == "#":
        return root
    if not target.startswith("#/"):
        if target[1:] in (root.get("$anchor"), root.get("$dynamicAnchor")):
            return root
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
