"""Codecs of arrays, objects with free keys, unions and constrained values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from fractions import Fraction
from typing import Any

from ..protocol.jsontext import find_unwritable, shorten
from .codec import Codec, JSONSchema, Mismatch, Problem, counted, described, kind_of

__all__ = ["ArrayCodec", "ConstrainedCodec", "DictCodec", "TupleCodec", "UnionCodec"]

# Escapes and character classes, where a dollar is a dollar, and the dollar that is the end.
_DOLLAR = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\$", re.DOTALL)


def _compiled(pattern: str) -> re.Pattern[str]:
    """As JSON Schema reads it: `$` is the end of the text, not also the place before a last line end."""
    return re.compile(_DOLLAR.sub(lambda found: r"\Z" if found[0] == "$" else found[0], pattern))


class ArrayCodec(Codec):
    """list, set, frozenset, tuple[X, ...], deque and the abstract kinds, as an array.

    Args:
        item: The codec of the elements.
        make: Builds the Python value from a list.
        accepts: The classes that may be dumped.
        unique: Whether elements must differ.
    """

    kinds: frozenset[str] = frozenset({"list"})

    def __init__(self, item: Codec, make: Callable[[list[Any]], Any], accepts: tuple[type, ...], unique: bool) -> None:
        self._item = item
        self._make = make
        self._accepts = accepts
        self._unique = unique
        self.expects: str = f"array of {item.expects}"

    def children(self) -> Iterator[Codec]:
        yield self._item

    def schema(self) -> JSONSchema:
        schema: JSONSchema = {"type": "array"}
        items = self._item.schema()
        if items:
            schema["items"] = items
        if self._unique:
            schema["uniqueItems"] = True
        return schema

    def load(self, value: Any) -> Any:
        if type(value) is not list:
            raise Mismatch.of(value, self.expects)
        loaded = _each(self._item.load, value)
        if not self._unique:
            return self._make(loaded) if self._make is not list else loaded
        try:
            made = self._make(loaded)
        except TypeError:
            raise Mismatch(Problem("elements of a set cannot be arrays or objects")) from None
        if len(made) < len(loaded):
            raise Mismatch(Problem(f"expected different elements, got {described(value)}"))
        return made

    def dump(self, value: Any) -> Any:
        if not isinstance(value, self._accepts) or isinstance(value, str | bytes | bytearray):
            raise Mismatch.of(value, self.expects)
        return _each(self._item.dump, value)

    def owns(self, value: Any) -> bool:
        return isinstance(value, self._accepts) and not isinstance(value, str | bytes | bytearray)


def _each(step: Callable[[Any], Any], values: Any) -> list[Any]:
    out: list[Any] = []
    found: list[Problem] = []
    for index, item in enumerate(values):
        try:
            out.append(step(item))
        except Mismatch as exc:
            exc.under(index, found)
    if found:
        raise Mismatch(*found)
    return out


class TupleCodec(Codec):
    """tuple[A, B, C], as an array of exactly so many elements."""

    kinds: frozenset[str] = frozenset({"list"})

    def __init__(self, items: Sequence[Codec]) -> None:
        self._items = list(items)
        inside = ", ".join(item.expects for item in self._items)
        self.expects: str = f"array of {len(self._items)} ({inside})" if self._items else "empty array"

    def children(self) -> Iterator[Codec]:
        return iter(self._items)

    def schema(self) -> JSONSchema:
        count = len(self._items)
        schema: JSONSchema = {"type": "array", "minItems": count, "maxItems": count}
        if self._items:
            schema["prefixItems"] = [item.schema() for item in self._items]
        return schema

    def load(self, value: Any) -> Any:
        if type(value) is not list:
            raise Mismatch.of(value, self.expects)
        return tuple(self._walk(value, "load"))

    def dump(self, value: Any) -> Any:
        if not isinstance(value, tuple | list):
            raise Mismatch.of(value, self.expects)
        return self._walk(value, "dump")

    def _walk(self, value: Sequence[Any], step: str) -> list[Any]:
        if len(value) != len(self._items):
            raise Mismatch(Problem(f"expected {self.expects}, got {counted(len(value), 'element')}"))
        out: list[Any] = []
        found: list[Problem] = []
        for index, (codec, item) in enumerate(zip(self._items, value, strict=True)):
            try:
                out.append(codec.load(item) if step == "load" else codec.dump(item))
            except Mismatch as exc:
                exc.under(index, found)
        if found:
            raise Mismatch(*found)
        return out

    def owns(self, value: Any) -> bool:
        return isinstance(value, tuple) and len(value) == len(self._items)


class DictCodec(Codec):
    """dict and Mapping, as an object with free keys.

    Args:
        key: The codec of the keys, whose JSON form is text or an integer.
        item: The codec of the values.
    """

    kinds: frozenset[str] = frozenset({"dict"})

    def __init__(self, key: Codec, item: Codec, make: Callable[[], dict[Any, Any]] = dict) -> None:
        self._make = make
        self._key = key
        self._item = item
        self._text_keys = "int" not in key.kinds
        self.expects: str = f"object of {item.expects}"

    def children(self) -> Iterator[Codec]:
        yield self._key
        yield self._item

    def schema(self) -> JSONSchema:
        schema: JSONSchema = {"type": "object"}
        items = self._item.schema()
        if items:
            schema["additionalProperties"] = items
        if not self._text_keys:
            schema["propertyNames"] = {"pattern": r"^-?(0|[1-9][0-9]*)$"}
        elif (names := self._key.schema()) != {"type": "string"}:
            schema["propertyNames"] = names
        return schema

    def load(self, value: Any) -> Any:
        if type(value) is not dict:
            raise Mismatch.of(value, self.expects)
        out = self._make()
        found: list[Problem] = []
        for name, item in value.items():
            try:
                key = self._key.load(name if self._text_keys else _integer(name))
            except Mismatch as exc:
                found.extend(Problem(f"key {shorten(name)}: {problem.text}") for problem in exc.problems)
                continue
            try:
                out[key] = self._item.load(item)
            except Mismatch as exc:
                exc.under(name, found)
        if found:
            raise Mismatch(*found)
        return out

    def dump(self, value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise Mismatch.of(value, self.expects)
        out: dict[str, Any] = {}
        found: list[Problem] = []
        for key, item in value.items():
            try:
                name = self._key.dump(key)
            except Mismatch as exc:
                found.extend(Problem(f"key {shorten(key)}: {problem.text}") for problem in exc.problems)
                continue
            name = str(name)
            if name in out:
                found.append(Problem(f"key {shorten(name)} comes twice"))
                continue
            try:
                out[name] = self._item.dump(item)
            except Mismatch as exc:
                exc.under(name, found)
        if found:
            raise Mismatch(*found)
        return out

    def owns(self, value: Any) -> bool:
        return isinstance(value, Mapping)


def _integer(name: str) -> Any:
    return int(name) if re.fullmatch(r"-?(0|[1-9][0-9]{0,999})", name, re.ASCII) else name


class UnionCodec(Codec):
    """A union: arms in their order.

    In: among the arms that take the JSON kind of the value, an arm of exactly that kind is tried before one that would
    convert it (an integer goes to int before float), otherwise in the order written; between classes the one that
    ignores the fewest members wins. Out: the arm that owns the value, otherwise the first that can write it.
    """

    def __init__(self, arms: Sequence[Codec]) -> None:
        self._arms = list(arms)
        self.kinds: frozenset[str] = frozenset().union(*(arm.kinds for arm in self._arms))
        self.expects: str = " or ".join(dict.fromkeys(arm.expects for arm in self._arms))

    def children(self) -> Iterator[Codec]:
        return iter(self._arms)

    def schema(self) -> JSONSchema:
        arms: list[JSONSchema] = []
        for schema in (arm.schema() for arm in self._arms):
            if schema not in arms:
                arms.append(schema)
        if all(set(arm) == {"type"} for arm in arms):
            kinds = [arm["type"] if isinstance(arm["type"], list) else [arm["type"]] for arm in arms]
            return {"type": list(dict.fromkeys(name for names in kinds for name in names))}
        return {"anyOf": arms}

    def load(self, value: Any) -> Any:
        kind = kind_of(value)
        fitting = [arm for arm in self._arms if kind in arm.kinds or not arm.kinds]
        if kind == "int":
            fitting.sort(key=lambda arm: "float" in arm.kinds and "str" not in arm.kinds)
        elif kind == "float":
            # 1.0 is an integer to JSON Schema; an int arm takes it when no float arm is there.
            fitting += [arm for arm in self._arms if "int" in arm.kinds and arm not in fitting]
        elif kind == "dict" and len(fitting) > 1:
            fitting.sort(key=lambda arm: arm.unknown_keys(value))
        failed: list[Mismatch] = []
        for arm in fitting:
            try:
                return arm.load(value)
            except Mismatch as exc:
                failed.append(exc)
        if kind in ("dict", "list") and failed:
            raise min(failed, key=lambda exc: len(exc.problems))
        if len(failed) == 1 and kind in fitting[0].kinds:
            raise failed[0]
        raise Mismatch.of(value, self.expects)

    def dump(self, value: Any) -> Any:
        first: Mismatch | None = None
        owners = [arm for arm in self._arms if arm.owns(value)]
        for arm in owners or self._arms:
            try:
                return arm.dump(value)
            except Mismatch as exc:
                first = first or exc
        if owners and first is not None:
            raise first
        raise Mismatch.of(value, self.expects)

    def owns(self, value: Any) -> bool:
        return any(arm.owns(value) for arm in self._arms)

    def unknown_keys(self, value: Any) -> int:
        return min((arm.unknown_keys(value) for arm in self._arms), default=0)


class ConstrainedCodec(Codec):
    """A codec with bounds (`Field(ge=1)`, `Meta(max_length=80)`, `annotated_types.Len(1)`) and schema notes.

    Args:
        inner: The codec of the type.
        bounds: By their Python names: ge, gt, le, lt, multiple_of, min_length, max_length, pattern.
        notes: Members for the schema: title, description, examples, and extras.
    """

    def __init__(self, inner: Codec, bounds: Sequence[tuple[str, Any]], notes: JSONSchema) -> None:
        self._inner = inner
        self._bounds = list(bounds)
        self._notes = notes
        self._patterns = {bound: _compiled(bound) for name, bound in self._bounds if name == "pattern"}
        self.kinds: frozenset[str] = inner.kinds
        self.expects: str = inner.expects

    def children(self) -> Iterator[Codec]:
        yield self._inner

    def schema(self) -> JSONSchema:
        schema = self._inner.schema()
        more: list[JSONSchema] = []
        for name, bound in self._bounds:
            if find_unwritable(bound) is not None:
                continue  # a date or a Decimal: checked, but JSON Schema cannot say it
            for keyword in self._keywords(name):
                if keyword in schema and schema[keyword] != bound:
                    more.append({keyword: bound})
                else:
                    schema[keyword] = bound
        if more:
            schema["allOf"] = more
        schema.update(self._notes)
        return schema

    def _keywords(self, name: str) -> list[str]:
        if name in ("min_length", "max_length"):
            sides = {"str": "Length", "list": "Items", "dict": "Properties"}
            return [name[:3] + side for kind, side in sides.items() if kind in self.kinds] or [name[:3] + "Length"]
        words = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
        return [words.get(name, "multipleOf" if name == "multiple_of" else name)]

    def load(self, value: Any) -> Any:
        loaded = self._inner.load(value)
        self._check(loaded, value)
        return loaded

    def dump(self, value: Any) -> Any:
        dumped = self._inner.dump(value)
        self._check(value, dumped)
        return dumped

    def _check(self, value: Any, wire: Any) -> None:
        if value is None:
            return
        for name, bound in self._bounds:
            why = self._broken(name, bound, value, wire)
            if why:
                raise Mismatch(Problem(f"expected {why}, got {described(wire)}"))

    def _broken(self, name: str, bound: Any, value: Any, wire: Any) -> str | None:
        if name == "pattern":
            fits = not isinstance(wire, str) or self._patterns[bound].search(wire) is not None
            return None if fits else f"text matching {bound}"
        if name in ("min_length", "max_length"):
            if not isinstance(wire, str | list | dict):
                return None
            fits = len(wire) >= bound if name == "min_length" else len(wire) <= bound
            size = counted(bound, "character" if isinstance(wire, str) else "element")
            return None if fits else f"{'at least' if name == 'min_length' else 'at most'} {size}"
        if isinstance(value, str | list | dict | Set):
            return None
        if name == "multiple_of":
            return None if _is_multiple(value, bound) else f"a multiple of {bound}"
        fits = {
            "ge": lambda: value >= bound,
            "gt": lambda: value > bound,
            "le": lambda: value <= bound,
            "lt": lambda: value < bound,
        }[name]()
        words = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
        return None if fits else f"{self.expects} {words[name]} {bound}"

    def owns(self, value: Any) -> bool:
        return self._inner.owns(value)

    def unknown_keys(self, value: Any) -> int:
        return self._inner.unknown_keys(value)


def _is_multiple(value: Any, of: Any) -> bool:
    if isinstance(value, int) and isinstance(of, int):
        return value % of == 0
    # By the digits that were written, exactly: 0.3 is a multiple of 0.1, 1e-10 is none of 1.
    return Fraction(str(value)) % Fraction(str(of)) == 0
