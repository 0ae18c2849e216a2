"""Codecs of single values: numbers, text, literals, enums, dates, ids, bytes, paths."""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import decimal
import enum
import math
import os
import pathlib
import re
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from ..protocol.jsontext import find_unwritable, shorten
from .codec import Codec, JSONSchema, Mismatch, Problem

__all__ = [
    "BoolCodec",
    "BytesCodec",
    "ChoiceCodec",
    "DecimalCodec",
    "FloatCodec",
    "IntCodec",
    "NoneCodec",
    "PathCodec",
    "StrCodec",
    "TextCodec",
    "enum_codec",
    "text_codec",
]


class NoneCodec(Codec):
    """None, as null."""

    kinds: frozenset[str] = frozenset({"null"})
    expects: str = "null"

    def schema(self) -> JSONSchema:
        return {"type": "null"}

    def load(self, value: Any) -> Any:
        if value is not None:
            raise Mismatch.of(value, self.expects)
        return None

    def dump(self, value: Any) -> Any:
        return self.load(value)

    def owns(self, value: Any) -> bool:
        return value is None


class BoolCodec(Codec):
    """bool; 0 and 1 are not booleans."""

    kinds: frozenset[str] = frozenset({"bool"})
    expects: str = "boolean"

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

    def owns(self, value: Any) -> bool:
        return isinstance(value, int) and type(value) is not bool


class FloatCodec(Codec):
    """float; an integer is taken as one. NaN and the infinities cannot leave."""

    kinds: frozenset[str] = frozenset({"int", "float"})
    expects: str = "number"

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

    def owns(self, value: Any) -> bool:
        return isinstance(value, float)


class StrCodec(Codec):
    """str, never decoded or stripped."""

    kinds: frozenset[str] = frozenset({"str"})
    expects: str = "string"

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

    def owns(self, value: Any) -> bool:
        try:
            return _key(value) in self._dump
        except TypeError:
            return False


def _key(value: Any) -> Any:
    return value if isinstance(value, enum.Enum) else (type(value), value)


def _kind(wire: Any) -> str:
    return "null" if wire is None else type(wire).__name__


def enum_codec(cls: type[enum.Enum]) -> ChoiceCodec:
    """An Enum by its values; by its names when a value is not a JSON scalar."""
    members = list(cls)
    values = [_scalar(member.value) for member in members]
    if all(ok for ok, _ in values):
        pairs = [(wire, member) for (_, wire), member in zip(values, members, strict=True)]
    else:
        pairs = [(member.name, member) for member in members]
    return ChoiceCodec(pairs, cls)


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


class TextCodec(Codec):
    """A type that travels as formatted text.

    Args:
        cls: The Python type.
        expects: Its name in messages.
        extra: Members of the schema besides `type`.
        parse: From text; raises ValueError.
        write: To text.
    """

    kinds: frozenset[str] = frozenset({"str"})

    def __init__(
        self,
        cls: type,
        expects: str,
        extra: JSONSchema,
        parse: Callable[[str], Any],
        write: Callable[[Any], str],
    ) -> None:
        self._cls = cls
        self._extra = extra
        self._parse = parse
        self._write = write
        self.expects: str = expects

    def schema(self) -> JSONSchema:
        return {"type": "string", **self._extra}

    def load(self, value: Any) -> Any:
        if type(value) is str:
            try:
                return self._parse(value)
            except (ValueError, ArithmeticError):
                pass
        raise Mismatch.of(value, self.expects)

    def dump(self, value: Any) -> Any:
        if not isinstance(value, self._cls):
            raise Mismatch.of(value, self.expects)
        return self._write(value)

    def owns(self, value: Any) -> bool:
        return type(value) is self._cls


def _date(text: str) -> dt.date:
    # fromisoformat also reads week dates and compact forms, which format "date" does not allow.
    if len(text) != 10 or "W" in text:
        raise ValueError
    return dt.date.fromisoformat(text)


_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)?", re.ASCII)
_TIME = re.compile(r"\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)?", re.ASCII)
_DURATION = re.compile(
    r"(?P<sign>[+-])?P(?!$)((?P<weeks>\d+)W)?((?P<days>\d+)D)?"
    r"(T(?=\d)((?P<hours>\d+)H)?((?P<minutes>\d+)M)?((?P<seconds>\d+(\.\d{1,9})?)S)?)?",
    re.ASCII,
)


def _date_time(text: str) -> dt.datetime:
    if not _DATE_TIME.fullmatch(text):
        raise ValueError
    return dt.datetime.fromisoformat(text.upper())


def _time(text: str) -> dt.time:
    if not _TIME.fullmatch(text):
        raise ValueError
    return dt.time.fromisoformat(text.upper())


def _duration(text: str) -> dt.timedelta:
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError
    sign = -1 if found["sign"] == "-" else 1
    units = ("weeks", "days", "hours", "minutes", "seconds")
    return sign * dt.timedelta(**{unit: float(found[unit] or 0) for unit in units})


def _write_duration(value: dt.timedelta) -> str:
    sign, value = ("-", -value) if value < dt.timedelta() else ("", value)
    text = f"{sign}P{value.days}D" if value.days else f"{sign}P"
    seconds = f"{value.seconds}.{value.microseconds:06}".rstrip("0") if value.microseconds else str(value.seconds)
    return text if value.days and seconds == "0" else f"{text}T{seconds}S"


def text_codec(cls: type) -> Codec | None:
    """The codec of a type that has a standard text form, or None."""
    if cls is dt.datetime:
        return TextCodec(
            cls, "date and time (2026-07-28T12:00:00Z)", {"format": "date-time"}, _date_time, dt.datetime.isoformat
        )
    if cls is dt.date:
        return _DateCodec()
    if cls is dt.time:
        return TextCodec(cls, "time (12:00:00)", {"format": "time"}, _time, dt.time.isoformat)
    if cls is dt.timedelta:
        return TextCodec(cls, "duration (P1DT2H30M)", {"format": "duration"}, _duration, _write_duration)
    if cls is uuid.UUID:
        return TextCodec(cls, "UUID", {"format": "uuid"}, _uuid, str)
    if cls is re.Pattern:
        return TextCodec(cls, "regular expression", {"format": "regex"}, _pattern, lambda value: str(value.pattern))
    return None


class _DateCodec(TextCodec):
    """date: a datetime is a date in Python and not in JSON."""

    def __init__(self) -> None:
        super().__init__(dt.date, "date (2026-07-28)", {"format": "date"}, _date, dt.date.isoformat)

    def dump(self, value: Any) -> Any:
        if isinstance(value, dt.datetime):
            raise Mismatch.of(value, self.expects)
        return super().dump(value)


_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE | re.ASCII)


def _uuid(text: str) -> uuid.UUID:
    if not _UUID.fullmatch(text):
        raise ValueError
    return uuid.UUID(text)


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error:
        raise ValueError from None


class DecimalCodec(Codec):
    """Decimal: a number or its text comes in, text goes out, so that no digit is lost."""

    kinds: frozenset[str] = frozenset({"int", "float", "str"})
    expects: str = "decimal number"
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

    def owns(self, value: Any) -> bool:
        return isinstance(value, decimal.Decimal)


class BytesCodec(Codec):
    """bytes or bytearray, as base64 text."""

    kinds: frozenset[str] = frozenset({"str"})
    expects: str = "base64 text"

    def __init__(self, cls: type) -> None:
        self._cls = cls

    def schema(self) -> JSONSchema:
        return {"type": "string", "contentEncoding": "base64"}

    def load(self, value: Any) -> Any:
        if type(value) is str:
            try:
                return self._cls(base64.b64decode(value, validate=True))
            except (binascii.Error, ValueError):
                pass
        raise Mismatch.of(value, self.expects)

    def dump(self, value: Any) -> Any:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise Mismatch.of(value, self.expects)
        return base64.b64encode(value).decode()

    def owns(self, value: Any) -> bool:
        return isinstance(value, bytes | bytearray)


class PathCodec(Codec):
    """A path, as text."""

    kinds: frozenset[str] = frozenset({"str"})
    expects: str = "path"

    def __init__(self, cls: type) -> None:
        self._cls = pathlib.Path if cls is os.PathLike else cls

    def schema(self) -> JSONSchema:
        return {"type": "string", "format": "path"}

    def load(self, value: Any) -> Any:
        if type(value) is not str:
            raise Mismatch.of(value, self.expects)
        if "\0" in value:
            raise Mismatch(Problem("a path cannot hold a NUL"))
        return self._cls(value)

    def dump(self, value: Any) -> Any:
        if not isinstance(value, os.PathLike):
            raise Mismatch.of(value, self.expects)
        return plain_text(os.fspath(value))

    def owns(self, value: Any) -> bool:
        return isinstance(value, os.PathLike)
