"""Codecs of arrays and of objects with free keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

from ..protocol.jsontext import shorten
from .codec import FITS, Codec, Found, JSONSchema, Misfit, Mismatch, Pace, Problem, counted, described, finished
from .looks import CONTAINERS, alike_parts, seems, sequence_misfit
from .scalars import StrCodec

__all__ = ["ArrayCodec", "DictCodec", "TupleCodec"]

_SLICE = 1000
"""Elements without parts that are converted in one go."""


class ArrayCodec(Codec):
    """list, set, frozenset, tuple[X, ...], deque and the abstract kinds, as an array.

    Args:
        item: The codec of the elements.
        make: Builds the Python value from a list.
        accepts: The classes that may be dumped.
        unique: Whether elements must differ.
    """

    kinds: frozenset[str] = frozenset({"list"})
    rank: int = 1

    def __init__(self, item: Codec, make: Callable[[list[Any]], Any], accepts: tuple[type, ...], unique: bool) -> None:
        self._item = item
        self._make = make
        self.types: tuple[type, ...] = accepts
        self._unique = unique
        self.expects: str = f"array of {item.expects}"

    def children(self) -> Iterator[Codec]:
        yield self._item

    def schema(self) -> JSONSchema:
        schema: JSONSchema = {"type": "array", "items": self._item.schema()}
        if self._unique:
            schema["uniqueItems"] = True
        return schema

    def load(self, value: Any) -> Any:
        if type(value) is not list:
            raise Mismatch.of(value, self.expects)
        return self._made(_each(self._item.load, value), value)

    def _made(self, loaded: list[Any], value: list[Any]) -> Any:
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
        if not self.owns(value):
            raise Mismatch.of(value, self.expects)
        return _each(self._item.dump, value)

    def pieces(self, value: Any, out: bool, pace: Pace) -> Generator[None, None, Any]:
        if not (self.owns(value) if out else type(value) is list):
            raise Mismatch.of(value, self.expects)
        found = Found()
        made: list[Any] = []
        if self._item.kinds.isdisjoint(CONTAINERS):
            values = value if isinstance(value, list) else list(value)
            step = self._item.dump if out else self._item.load
            for start in range(0, len(values), _SLICE):
                _each_into(step, values[start : start + _SLICE], made, found, start)
                if pace.due(_SLICE):
                    yield
        else:
            for index, item in enumerate(value):
                try:
                    made.append((yield from self._item.pieces(item, out, pace)))
                except Mismatch as exc:
                    found.under(index, exc)
                if pace.due():
                    yield
        if found:
            raise found.mismatch()
        return made if out else self._made(made, value)

    def owns(self, value: Any) -> bool:
        return isinstance(value, self.types) and not isinstance(value, str | bytes | bytearray)

    def misfit(self, value: Any, out: bool) -> Misfit:
        wrong = sum(not seems(self._item, item, out) for item in value)
        return (0, wrong, 0) if wrong else FITS

    def alike(self, other: Codec, out: bool) -> str | None:
        if not isinstance(other, ArrayCodec) or (out and not set(self.types) & set(other.types)):
            return None
        if alike_parts(self._item, other._item, out):
            return "differ only inside of their elements"
        return "have the same elements" if not out and self._item.schema() == other._item.schema() else None


def _each(step: Callable[[Any], Any], values: Any) -> list[Any]:
    out: list[Any] = []
    found = Found()
    _each_into(step, values, out, found, 0)
    if found:
        raise found.mismatch()
    return out


def _each_into(step: Callable[[Any], Any], values: Any, out: list[Any], found: Found, start: int) -> None:
    for index, item in enumerate(values, start):
        try:
            out.append(step(item))
        except Mismatch as exc:
            found.under(index, exc)


class TupleCodec(Codec):
    """tuple[A, B, C], as an array of exactly so many elements."""

    kinds: frozenset[str] = frozenset({"list"})
    types: tuple[type, ...] = (tuple,)

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
        # There is no element after these. Hosts that do not know `prefixItems` learn here what may be in it.
        kinds = [
            item
            for index, item in enumerate(schema.get("prefixItems", []))
            if item not in schema["prefixItems"][:index]
        ]
        schema["items"] = kinds[0] if len(kinds) == 1 else {"anyOf": kinds} if kinds else {}
        return schema

    def load(self, value: Any) -> Any:
        return finished(self.pieces(value, False, Pace()))

    def dump(self, value: Any) -> Any:
        return finished(self.pieces(value, True, Pace()))

    def pieces(self, value: Any, out: bool, pace: Pace) -> Generator[None, None, Any]:
        if not (isinstance(value, tuple | list) if out else type(value) is list):
            raise Mismatch.of(value, self.expects)
        if len(value) != len(self._items):
            raise Mismatch(Problem(f"expected {self.expects}, got {counted(len(value), 'element')}"))
        made: list[Any] = []
        found = Found()
        for index, (codec, item) in enumerate(zip(self._items, value, strict=True)):
            try:
                made.append((yield from codec.pieces(item, out, pace)))
            except Mismatch as exc:
                found.under(index, exc)
        if found:
            raise found.mismatch()
        return made if out else tuple(made)

    def owns(self, value: Any) -> bool:
        return isinstance(value, tuple) and len(value) == len(self._items)

    def misfit(self, value: Any, out: bool) -> Misfit:
        return sequence_misfit(self._items, value, out)

    def alike(self, other: Codec, out: bool) -> str | None:
        if not isinstance(other, TupleCodec) or len(self._items) != len(other._items):
            return None
        pairs = list(zip(self._items, other._items, strict=True))
        if any(not one.kinds & item.kinds for one, item in pairs):
            return None
        if any(alike_parts(one, item, out) for one, item in pairs):
            return "differ only inside of their elements"
        same = all(one.schema() == item.schema() for one, item in pairs)
        return "have the same elements" if same else None


class DictCodec(Codec):
    """dict and Mapping, as an object with free keys.

    Args:
        key: The codec of the keys, whose JSON form is text or an integer.
        item: The codec of the values.
    """

    kinds: frozenset[str] = frozenset({"dict"})
    # A dict may be a TypedDict as well: neither is nearer, so the look decides.
    types: tuple[type, ...] = (dict, Mapping)
    rank: int = 1

    def __init__(self, key: Codec, item: Codec, make: Callable[[], dict[Any, Any]] = dict) -> None:
        self._make = make
        self._key = key
        self._item = item
        self._text_keys = "int" not in key.kinds
        constants = None if self._text_keys else key.constants()
        self._numbers = None if constants is None else sorted(value for _, value in constants)
        self.expects: str = f"object of {item.expects}"

    def children(self) -> Iterator[Codec]:
        yield self._key
        yield self._item

    def schema(self) -> JSONSchema:
        schema: JSONSchema = {"type": "object", "properties": {}}
        items = self._item.schema()
        if items:
            schema["additionalProperties"] = items
        if self._numbers is not None:
            schema["propertyNames"] = {"enum": [str(number) for number in self._numbers]}
        elif not self._text_keys:
            schema["propertyNames"] = {"pattern": r"^-?(0|[1-9][0-9]*)$"}
        elif (names := self._key.schema()) != {"type": "string"}:
            schema["propertyNames"] = names
        return schema

    def load(self, value: Any) -> Any:
        if type(value) is not dict:
            raise Mismatch.of(value, self.expects)
        out = self._make()
        found = Found()
        for name, item in value.items():
            key = self._key_in(name, out, found)
            if key is not found:
                try:
                    out[key] = self._item.load(item)
                except Mismatch as exc:
                    found.under(name, exc)
        if found:
            raise found.mismatch()
        return out

    def _key_in(self, name: str, out: Mapping[Any, Any], found: Found) -> Any:
        """The Python key of a name; `found`, with what is wrong, when it is none."""
        try:
            key = self._key.load(self._key_of(name, False))
            if key in out:  # two spellings of one key, as 0 and -0
                found.note(f"key {shorten(name)} comes twice")
                return found
            return key
        except Mismatch as exc:
            for problem in exc.problems:
                found.note(f"key {shorten(name)}: {problem.text}")
            return found

    def dump(self, value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise Mismatch.of(value, self.expects)
        out: dict[str, Any] = {}
        found = Found()
        for key, item in value.items():
            name = self._key_out(key, out, found)
            if name is not None:
                try:
                    out[name] = self._item.dump(item)
                except Mismatch as exc:
                    found.under(name, exc)
        if found:
            raise found.mismatch()
        return out

    def _key_out(self, key: Any, out: Mapping[str, Any], found: Found) -> str | None:
        try:
            name = str(self._key.dump(key))
        except Mismatch as exc:
            for problem in exc.problems:
                found.note(f"key {shorten(key)}: {problem.text}")
            return None
        if name in out:
            found.note(f"key {shorten(name)} comes twice")
            return None
        return name

    def pieces(self, value: Any, out: bool, pace: Pace) -> Generator[None, None, Any]:
        if not (isinstance(value, Mapping) if out else type(value) is dict):
            raise Mismatch.of(value, self.expects)
        made: dict[Any, Any] = {} if out else self._make()
        found = Found()
        for name, item in value.items():
            key = self._key_out(name, made, found) if out else self._key_in(name, made, found)
            if key is not None and key is not found:
                try:
                    made[key] = yield from self._item.pieces(item, out, pace)
                except Mismatch as exc:
                    found.under(str(key) if out else name, exc)
            if pace.due():
                yield
        if found:
            raise found.mismatch()
        return made

    def owns(self, value: Any) -> bool:
        return isinstance(value, Mapping)

    def misfit(self, value: Any, out: bool) -> Misfit:
        wrong = sum(not seems(self._item, item, out) for item in value.values())
        # Any text is a key of most, and they need no look.
        if type(self._key) is not StrCodec:
            wrong += sum(not seems(self._key, self._key_of(name, out), out) for name in value)
        return (0, wrong, 0) if wrong else FITS

    def _key_of(self, name: Any, out: bool) -> Any:
        if out or self._text_keys:
            return name
        number = _integer(name)
        # Of a set of numbers each has one spelling in the schema, so -0 is none of them.
        return number if self._numbers is None or str(number) == name else name

    def alike(self, other: Codec, out: bool) -> str | None:
        if not isinstance(other, DictCodec):
            return None
        if alike_parts(self._item, other._item, out):
            return "differ only inside of their members"
        return "have the same members" if not out and self.schema() == other.schema() else None


def _integer(name: str) -> Any:
    return int(name) if re.fullmatch(r"-?(0|[1-9][0-9]{0,999})", name, re.ASCII) else name
