"""Values that are too large to be converted in one go, while other requests wait."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

__all__ = ["count_of", "is_large"]

_LARGE: Final = 4000
"""Values in a value from which it goes in pieces: up to there, one go takes a few milliseconds."""


_SINGLE: Final = frozenset({str, int, float, bool, bytes, type(None)})
_ARRAYS: Final = (list, tuple, set, frozenset)


def is_large(value: Any) -> bool:
    """Whether a value, JSON or Python, holds many others. Looks at no more than it takes to know."""
    count = 0
    pending = [value]
    while pending:
        item = pending.pop()
        kind = type(item)
        if kind is dict or isinstance(item, Mapping):
            parts: Iterable[Any] = item.values()
            count += len(item)
        elif kind is list or isinstance(item, _ARRAYS):
            parts = item
            count += len(item)
        else:
            parts = _attributes(item)
            count += 1
        if count > _LARGE:
            return True
        pending += [part for part in parts if type(part) not in _SINGLE]
    return False


def count_of(value: Any) -> int:
    """How many values a JSON value consists of."""
    count = 1
    pending = [value]
    while pending:
        item = pending.pop()
        if type(item) is dict or type(item) is list:
            count += len(item)
            pending += item.values() if type(item) is dict else item
    return count


def _attributes(value: Any) -> list[Any]:
    """What an instance of a class holds."""
    held = getattr(value, "__dict__", None)
    if type(held) is dict:
        return list(held.values())
    names = getattr(type(value), "__struct_fields__", None) or getattr(type(value), "__slots__", ())
    return [getattr(value, name, None) for name in names if isinstance(name, str)] if isinstance(names, tuple) else []
