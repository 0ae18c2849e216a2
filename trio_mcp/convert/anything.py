"""Values of any type."""

from __future__ import annotations

import collections
import enum
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final

from ..protocol.jsontext import find_unwritable, shorten
from .codec import ALL_KINDS, Codec, Found, JSONSchema, Mismatch, Pace, Problem
from .texts import simple_codec

__all__ = ["AnyCodec"]

_DEEPEST: Final = 128
"""Levels of lists and dicts, as many as a message may have (`limits.json_depth`)."""


class AnyCodec(Codec):
    """Any JSON value comes in as it is; any value with a codec of its own goes out.

    Args:
        for_instance: Finds the codec of a class that no annotation names, or None.
    """

    kinds: frozenset[str] = ALL_KINDS
    expects: str = "any value"
    rank: int = 2

    def __init__(self, for_instance: Callable[[type], Codec | None]) -> None:
        self._for_instance = for_instance

    def schema(self) -> JSONSchema:
        return {}

    def load(self, value: Any) -> Any:
        return value

    def dump(self, value: Any) -> Any:
        return self._dump(value, 0)

    def _dump(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if value is None or kind is bool or kind is int:
            return value
        if kind is str or kind is float:
            bad = find_unwritable(value) if kind is float or not value.isascii() else None
            if bad:
                raise Mismatch(Problem(bad.removeprefix("$: ")))
            return value
        if depth > _DEEPEST:
            raise Mismatch(Problem("nested too deep (or refers to itself)"))
        found = Found()
        if isinstance(value, Mapping):
            out: dict[str, Any] = {}
            for key, item in value.items():
                name = _key_text(key)
                if name in out:
                    raise Mismatch(Problem(f"key {shorten(name)} comes twice"))
                try:
                    out[name] = self._dump(item, depth + 1)
                except Mismatch as exc:
                    found.under(name, exc)
            if found:
                raise found.mismatch()
            return out
        if _is_array(value):
            items: list[Any] = []
            for index, item in enumerate(value):
                try:
                    items.append(self._dump(item, depth + 1))
                except Mismatch as exc:
                    found.under(index, exc)
            if found:
                raise found.mismatch()
            return items
        return self._codec_of(kind).dump(value)

    def _codec_of(self, cls: type) -> Codec:
        codec = self._for_instance(cls) or next(
            (codec for base in cls.__mro__[1:-1] if (codec := simple_codec(base, True)) is not None), None
        )
        if codec is None:
            raise Mismatch(Problem(f"a value of type {cls.__name__} cannot be sent as JSON"))
        return codec

    def pieces(self, value: Any, out: bool, pace: Pace) -> Generator[None, None, Any]:
        return (yield from self._pieces(value, 0, pace)) if out else value

    def _pieces(self, value: Any, depth: int, pace: Pace) -> Generator[None, None, Any]:
        if depth > _DEEPEST:
            raise Mismatch(Problem("nested too deep (or refers to itself)"))
        if not isinstance(value, Mapping) and not _is_array(value):
            if value is None or isinstance(value, str | int | float):
                return self._dump(value, depth)
            return (yield from self._codec_of(type(value)).pieces(value, True, pace))
        found = Found()
        made: dict[Any, Any] = {}
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            name = _key_text(key) if isinstance(value, Mapping) else key
            if name in made:
                raise Mismatch(Problem(f"key {shorten(name)} comes twice"))
            try:
                made[name] = yield from self._pieces(item, depth + 1, pace)
            except Mismatch as exc:
                found.under(name, exc)
            if pace.due():
                yield
        if found:
            raise found.mismatch()
        return made if isinstance(value, Mapping) else list(made.values())

    def owns(self, value: Any) -> bool:
        return True

    def distance(self, cls: type) -> int | None:
        return 1000  # further than any base


def _is_array(value: Any) -> bool:
    return isinstance(value, list | tuple | set | frozenset | collections.deque) and not hasattr(value, "_fields")


def _key_text(key: Any) -> str:
    if type(key) is str:
        return key
    if isinstance(key, enum.Enum):
        return _key_text(key.value)
    if isinstance(key, int) and type(key) is not bool:
        return str(key)
    codec = simple_codec(type(key), True)
    if codec is None or not codec.kinds <= {"str"}:
        raise Mismatch(Problem(f"key {key!r} is not text"))
    return str(codec.dump(key))
