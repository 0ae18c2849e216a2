"""Codecs of single values: numbers, text, literals, enums."""

from __future__ import annotations

import decimal
import enum
import math
import re
from collections.abc import Sequence
from typing import Any

from ..protocol.jsontext import find_unwritable, shorten
from .codec import Codec, JSONSchema, Mismatch, Problem

__all__ = [
    "BoolCodec",
    "ChoiceCodec",
    "DecimalCodec",
    "FlagCodec",
    "FloatCodec",
    "IntCodec",
    "NoneCodec",
    "StrCodec",
    "enum_codec",
    "flag_codec",
    "plain_text",
]


class NoneCodec(Codec):
    """None, as null."""

    kinds: frozenset[str] = frozenset({"null"})
    expects: str = "null"
    types: tuple[type, ...] = (type(None),)

    def schema(self) -> JSONSchema:
        return {"type": "null"}

    def load(self, value: Any) -> Any:
        if value is not None:
            raise Mismatch.of(value, self.expects)
        return None

    def dump(self, value: Any) -> Any:
        return self.load(value)

    def constants(self) -> frozenset[tuple[type, Any]] | None:
        return frozenset({(type(None), None)})

    def owns(self, value: Any) -> bool:
        return value is None


class BoolCodec(Codec):
    """bool; 0 and 1 are not booleans."""

    kinds: frozenset[str] = frozenset({"bool"})
    expects: str = "boolean"
    types: tuple[type, ...] = (bool,)

    def schema(self) -> JSONSchema:
        return {"type": "boolean"}

    def load(self, value: Any) -> Any:
        if type(value) is not bool:
            raise Mismatch.of(value, self.expects)
        return value

    def dump(self, value: Any) -> Any:
        return self.load(value)

    def owns(self, value: Any) -> bool:
        return type(value) is bool


class IntCodec(Codec):
    """int. JSON Schema counts 1.0 as an integer, so it is one here; true is not."""

    kinds: frozenset[str] = frozenset({"int"})
    expects: str = "integer"
    types: tuple[type, ...] = (int,)

    def schema(self) -> JSONSchema:
        return {"type": "integer"}

    def load(self, value: Any) -> Any:
        if type(value) is int:
            return value
        if type(value) is float and value.is_integer():
            return int(value)
        raise Mismatch.of(value, self.expects)

    def dump(self, value: Any) -> Any:
        if type(value) is int:
            return value
        if isinstance(value, int) and type(value) is not bool:
            return int(value)
        raise Mismatch.of(value, self.expects)

    def ordered(self) -> tuple[type, ...]:
        return (int, float, decimal.Decimal)

    def owns(self, value: Any) -> bool:
        return isinstance(value, int) and type(value) is not bool


class FloatCodec(Codec):
    """float; an integer is taken as one. NaN and the infinities cannot leave."""

    kinds: frozenset[str] = frozenset({"int", "float"})
    expects: str = "number"
    types: tuple[type, ...] = (float,)

    def schema(self) -> JSONSchema:
        return {"type": "number"}

    def load(self, value: Any) -> Any:
        if type(value) is float:
            return value
        if type(value) is int:
            try:
                return float(value)
            except OverflowError:
                raise Mismatch(Problem(f"the number {shorten(value)} is too large for a float")) from None
        raise Mismatch.of(value, self.expects)

    def dump(self, value: Any) -> Any:
        if isinstance(value, float):
            if math.isfinite(value):
                return float(value)
            raise Mismatch(Problem(f"{float(value)!r} is not a JSON number"))
        if isinstance(value, int) and type(value) is not bool:
            return int(value)
        raise Mismatch.of(value, self.expects)

    def ordered(self) -> tuple[type, ...]:
        return (int, float, decimal.Decimal)

    def owns(self, value: Any) -> bool:
        return isinstance(value, float)


class StrCodec(Codec):
    """str, never decoded or stripped."""

    kinds: frozenset[str] = frozenset({"str"})
    expects: str = "string"
    types: tuple[type, ...] = (str,)

    def schema(self) -> JSONSchema:
        return {"type": "string"}

    def load(self, value: Any) -> Any:
        if type(value) is not str:
            raise Mismatch.of(value, self.expects)
        return value

    def dump(self, value: Any) -> Any:
        if not isinstance(value, str):
            raise Mismatch.of(value, self.expects)
        return plain_text(value)

    def ordered(self) -> tuple[type, ...]:
        return (str,)

    def owns(self, value: Any) -> bool:
        return isinstance(value, str)


def plain_text(value: str) -> str:
    """A str that can be sent.

    Raises:
        Mismatch: it holds a lone surrogate.
    """
    if not value.isascii():
        bad = find_unwritable(str(value))
        if bad:
            raise Mismatch(Problem(bad.removeprefix("$: ")))
    return value if type(value) is str else str.__str__(value)


class ChoiceCodec(Codec):
    """One of a fixed set: a Literal or an Enum.

    Args:
        choices: Pairs of the JSON value and the Python value.
        enum_type: The Enum class, when it is one.
    """

    def __init__(self, choices: Sequence[tuple[Any, Any]], enum_type: type[enum.Enum] | None = None) -> None:
        self._wire = [wire for wire, _ in choices]
        # The type is part of the key, since 1 == True == 1.0 in Python and not in JSON.
        self._load = {(type(wire), wire): value for wire, value in choices}
        self._dump = {_key(value): wire for wire, value in choices}
        self._enum = enum_type
        self.kinds: frozenset[str] = frozenset(_kind(wire) for wire in self._wire)
        if any(type(wire) is float and wire.is_integer() for wire in self._wire):
            self.kinds |= {"int"}
        shown = ", ".join(shorten(wire) for wire in self._wire)
        self.expects: str = f"one of {shown}" if len(self._wire) > 1 else shown

    def schema(self) -> JSONSchema:
        if len(self._wire) == 1 and self._enum is None:
            return {"const": self._wire[0]}
        schema: JSONSchema = {"enum": list(self._wire)}
        names = {"str": "string", "int": "integer", "bool": "boolean", "null": "null"}
        if len(self.kinds) == 1 and (kind := next(iter(self.kinds))) in names:
            schema["type"] = names[kind]
        return schema

    def load(self, value: Any) -> Any:
        try:
            return self._load[(type(value), value)]
        except (KeyError, TypeError):
            pass
        # 1 and 1.0 are one number to JSON Schema.
        if type(value) is float and value.is_integer() and (int, int(value)) in self._load:
            return self._load[(int, int(value))]
        if type(value) is int and (float, value) in self._load:
            return self._load[(float, value)]
        raise Mismatch.of(value, self.expects)

    def dump(self, value: Any) -> Any:
        try:
            return self._dump[_key(value)]
        except (KeyError, TypeError):
            raise Mismatch.of(value.name if isinstance(value, enum.Enum) else value, self.expects) from None

    def constants(self) -> frozenset[tuple[type, Any]] | None:
        return frozenset(self._load)

    def distance(self, cls: type) -> int | None:
        return 0 if any(isinstance(key, cls) or (type(key) is tuple and key[0] is cls) for key in self._dump) else None

    def owns(self, value: Any) -> bool:
        try:
            return _key(value) in self._dump
        except TypeError:
            return False


def _key(value: Any) -> Any:
    return value if isinstance(value, enum.Enum) else (type(value), value)


def _kind(wire: Any) -> str:
    return "null" if wire is None else type(wire).__name__


def flag_codec(cls: type[enum.Flag]) -> FlagCodec:
    """A Flag by its number."""
    return FlagCodec(cls)


def enum_codec(cls: type[enum.Enum]) -> ChoiceCodec:
    """An Enum by its values; by its names when a value is not a JSON scalar."""
    members = list(cls)
    values = [_scalar(member.value) for member in members]
    if all(ok for ok, _ in values):
        pairs = [(wire, member) for (_, wire), member in zip(values, members, strict=True)]
    else:
        pairs = [(member.name, member) for member in members]
    return ChoiceCodec(pairs, cls)


class FlagCodec(Codec):
    """A Flag by its number: members may be combined.

    Args:
        cls: The class.
    """

    kinds: frozenset[str] = frozenset({"int"})

    def __init__(self, cls: type[enum.Flag]) -> None:
        self._cls = cls
        self._mask = 0
        for member in cls:
            self._mask |= member.value
        self.types: tuple[type, ...] = (cls,)
        self._told = ", ".join(f"{member.value} {member.name}" for member in cls)
        self.expects: str = f"sum of {self._told}"

    def schema(self) -> JSONSchema:
        return {"type": "integer", "minimum": 0, "maximum": self._mask, "description": f"Sum of {self._told}"}

    def load(self, value: Any) -> Any:
        number = int(value) if type(value) is float and value.is_integer() else value
        if type(number) is not int or number < 0 or number & ~self._mask:
            raise Mismatch.of(value, self.expects)
        return self._cls(number)

    def dump(self, value: Any) -> Any:
        if not isinstance(value, self._cls) or value.value & ~self._mask:
            raise Mismatch.of(value, self.expects)
        return int(value.value)

    def owns(self, value: Any) -> bool:
        return isinstance(value, self._cls)


def _scalar(value: Any) -> tuple[bool, Any]:
    if value is None or type(value) in (bool, int, str):
        return True, value
    if type(value) is float:
        return math.isfinite(value), value
    if isinstance(value, str):
        return True, str.__str__(value)
    if isinstance(value, int):
        return True, int(value)
    return False, None


class DecimalCodec(Codec):
    """Decimal: a number or its text comes in, text goes out, so that no digit is lost."""

    kinds: frozenset[str] = frozenset({"int", "float", "str"})
    expects: str = "decimal number"
    types: tuple[type, ...] = (decimal.Decimal,)
    _PATTERN = r"^[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?$"

    def schema(self) -> JSONSchema:
        return {"anyOf": [{"type": "number"}, {"type": "string", "pattern": self._PATTERN}]}

    def load(self, value: Any) -> Any:
        if type(value) is int:
            return decimal.Decimal(value)
        if type(value) is float:
            return decimal.Decimal(repr(value))
        if type(value) is str and re.fullmatch(self._PATTERN, value, re.ASCII) and not value.endswith("\n"):
            return decimal.Decimal(value)
        raise Mismatch.of(value, self.expects)

    def dump(self, value: Any) -> Any:
        if not isinstance(value, decimal.Decimal):
            raise Mismatch.of(value, self.expects)
        if not value.is_finite():
            raise Mismatch(Problem(f"{value} is not a JSON number"))
        text = str(value)
        if not re.fullmatch(self._PATTERN, text, re.ASCII):
            raise Mismatch(Problem(f"the exponent of {shorten(text)} is out of range"))
        return text

    def ordered(self) -> tuple[type, ...]:
        return (int, float, decimal.Decimal)

    def owns(self, value: Any) -> bool:
        return isinstance(value, decimal.Decimal)
