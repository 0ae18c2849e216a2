"""Values that are too large to be converted in one go, while other requests wait."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

__all__ = ["is_large"]

_LARGE: Final = 4000
"""Values in a value from which it goes in pieces: up to there, one go takes a few milliseconds."""


def is_large(value: Any) -> bool:
    """Whether a value, JSON or Python, holds many others. Looks at no more than it takes to know."""
    count = 0
    pending = [value]
    while pending:
        item = pending.pop()
        parts: Iterable[Any]
        if isinstance(item, dict | Mapping):
            parts = item.values()
            count += len(item)
        elif isinstance(item, list | tuple | set | frozenset):
            parts = item
            count += len(item)
        else:
            parts = _attributes(item)
            count += 1
        if count > _LARGE:
            return True
        pending.extend(part for part in parts if part is not None and type(part) not in (str, int, float, bool, bytes))
    return False


def _attributes(value: Any) -> list[Any]:
    """What an instance of a class holds."""
    held = getattr(value, "__dict__", None)
    if type(held) is dict:
        return list(held.values())
    names = getattr(type(value), "__struct_fields__", None) or getattr(type(value), "__slots__", ())
    return [getattr(value, name, None) for name in names if isinstance(name, str)] if isinstance(names, tuple) else []
