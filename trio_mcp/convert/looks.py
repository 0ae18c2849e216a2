"""What is seen of an object or array without entering its parts: enough to choose between the arms of a union.

A union descends into one arm only, so the cost of a value is linear in it. The look is exact for single values (they are
loaded), and sees of objects and arrays inside only that they are some. Two arms that differ in no more than what lies
inside of a part are refused when they are registered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .codec import ALL_KINDS, FITS, Codec, Misfit, Mismatch, kind_of

__all__ = [
    "CONTAINERS",
    "Member",
    "alike_objects",
    "alike_parts",
    "is_one_of",
    "object_misfit",
    "seems",
    "sequence_misfit",
]

CONTAINERS: Final = frozenset({"list", "dict"})


class Member:
    """A member of an object, as it is seen from outside.

    Attributes:
        codec: Its type, or None where only a schema is known.
        kinds: The JSON kinds of its values.
        constants: The only values that it takes.
        required: Whether it must be there.
        schema: Its schema, where there is no codec.
    """

    __slots__ = ("codec", "constants", "kinds", "required", "schema")

    def __init__(
        self,
        codec: Codec | None,
        required: bool,
        *,
        kinds: frozenset[str] = ALL_KINDS,
        constants: frozenset[tuple[type, Any]] | None = None,
        schema: Any = None,
    ) -> None:
        self.codec: Codec | None = codec
        self.required: bool = required
        self.kinds: frozenset[str] = codec.kinds if codec is not None else kinds
        self.constants: frozenset[tuple[type, Any]] | None = codec.constants() if codec is not None else constants
        self.schema: Any = codec.schema() if codec is not None else schema


def seems(codec: Codec, value: Any, out: bool) -> bool:
    """Whether a value may be of a type: single values exactly, objects and arrays by their kind."""
    if out:
        if isinstance(value, str | int | float | bytes) or value is None:
            try:
                codec.dump(value)
            except Mismatch:
                return False
            return True
        return codec.owns(value)
    kind = kind_of(value)
    if kind in CONTAINERS:
        return kind in codec.kinds
    try:
        codec.load(value)
    except Mismatch:
        return False
    return True


def object_misfit(members: Mapping[str, Member], value: Any, out: bool, *, closed: bool) -> Misfit:
    """How badly an object, or a dict that is to become one, fits the members of a class."""
    tags = wrong = known = 0
    for name, member in members.items():
        if name not in value:
            if member.required:
                tags += member.constants is not None
                wrong += member.constants is None
            continue
        known += 1
        item = value[name]
        if member.constants is not None and not out:
            tags += not is_one_of(item, member.constants)
        elif member.codec is not None:
            wrong += not seems(member.codec, item, out)
        else:
            wrong += kind_of(item) not in member.kinds
    unknown = len(value) - known
    return (tags, wrong + unknown, 0) if closed else (tags, wrong, unknown)


def is_one_of(value: Any, constants: frozenset[tuple[type, Any]]) -> bool:
    """Whether a JSON value is one of some constants; 1 and 1.0 are one number to JSON Schema."""
    kind = type(value)
    if kind is list or kind is dict:
        return False
    if (kind, value) in constants:
        return True
    if kind is float and value.is_integer():
        return (int, int(value)) in constants
    return kind is int and (float, value) in constants


def alike_parts(one: Codec | Member, other: Codec | Member, out: bool) -> bool:
    """Whether two parts may both be an object, or both an array, and differ inside."""
    kinds = one.kinds & other.kinds & CONTAINERS
    if not kinds:
        return False
    if out and isinstance(one, Codec) and isinstance(other, Codec) and _apart(one, other):
        return False
    return bool(_schema(one) != _schema(other))


_NOTES: Final = frozenset({"title", "description", "default", "examples", "deprecated"})


def _schema(part: Codec | Member) -> Any:
    """The schema of a part, without what is said to people only."""
    schema = part.schema() if isinstance(part, Codec) else part.schema
    return {key: value for key, value in schema.items() if key not in _NOTES} if isinstance(schema, dict) else schema


def _apart(one: Codec, other: Codec) -> bool:
    """Whether the Python classes of two codecs tell their values apart."""
    if not one.types or not other.types:
        return False
    builtin = (dict, list, tuple, set, frozenset)
    if any(issubclass(cls, builtin) for cls in (*one.types, *other.types)):
        return not set(one.types) & set(other.types)
    return one.types != other.types


def alike_objects(one: Mapping[str, Member], other: Mapping[str, Member], out: bool) -> str | None:
    """Why the members of two classes do not tell them apart, or None when they do.

    Members that one of them does not know are not meant for it, also where it would ignore them.
    """
    common = one.keys() & other.keys()
    for members in (one, other):
        if any(member.required and name not in common for name, member in members.items()):
            return None
    equal = one.keys() == other.keys()
    for name in sorted(common):
        left, right = one[name], other[name]
        both = left.required or right.required
        if left.constants is not None and right.constants is not None and not left.constants & right.constants:
            if both:
                return None
            equal = False
            continue
        if not left.kinds & right.kinds and both:
            return None
        if _schema(left) != _schema(right):
            equal = False
            parts = (left.codec or left, right.codec or right)
            if alike_parts(*parts, out) or None in (left.codec, right.codec):
                return f"differ only inside of {name!r}"
    return "have the same members" if equal else None


def sequence_misfit(codecs: list[Codec], values: list[Any], out: bool) -> Misfit:
    """How badly the elements of an array of a fixed length fit."""
    wrong = abs(len(codecs) - len(values))
    wrong += sum(not seems(codec, item, out) for codec, item in zip(codecs, values, strict=False))
    return (0, wrong, 0) if wrong else FITS
