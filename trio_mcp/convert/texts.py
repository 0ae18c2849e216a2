"""Codecs of types that travel as text of a form: dates, ids, bytes, paths."""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import decimal
import os
import pathlib
import re
import uuid
from collections.abc import Callable
from typing import Any, Final

from .codec import Codec, JSONSchema, Mismatch, Problem
from .scalars import BoolCodec, DecimalCodec, FloatCodec, IntCodec, StrCodec, plain_text

__all__ = ["BytesCodec", "PathCodec", "TextCodec", "simple_codec", "text_codec"]


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
        self.types: tuple[type, ...] = (cls,)
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

    def ordered(self) -> tuple[type, ...]:
        return self.types

    def owns(self, value: Any) -> bool:
        return isinstance(value, self._cls)


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


def text_codec(cls: type, out: bool = False) -> Codec | None:
    """The codec of a type that has a standard text form, or None.

    A format is promised only where each value that goes out has it: RFC 3339 asks for an offset, which a datetime or a time
    may lack, durations of JSON Schema have whole seconds and no sign, and its expressions are those of ECMAScript.
    """

    def format_of(name: str) -> JSONSchema:
        return {} if out else {"format": name}

    if cls is dt.datetime:
        expects = "date and time (2026-07-28T12:00:00Z)"
        return TextCodec(cls, expects, format_of("date-time"), _date_time, dt.datetime.isoformat)
    if cls is dt.date:
        return _DateCodec()
    if cls is dt.time:
        return TextCodec(cls, "time (12:00:00)", format_of("time"), _time, dt.time.isoformat)
    if cls is dt.timedelta:
        return TextCodec(cls, "duration (P1DT2H30M)", format_of("duration"), _duration, _write_duration)
    if cls is uuid.UUID:
        return TextCodec(cls, "UUID", {"format": "uuid"}, _uuid, str)
    if cls is re.Pattern:
        return TextCodec(cls, "regular expression", format_of("regex"), _pattern, lambda value: str(value.pattern))
    # Whoever has such a type has imported its module; most servers have not.
    if cls.__module__ == "ipaddress" and cls.__name__ == "IPv4Address":
        return TextCodec(cls, "IPv4 address", {"format": "ipv4"}, cls, str)
    if cls.__module__ == "ipaddress" and cls.__name__ == "IPv6Address":
        # The zone that an address may have (`fe80::1%eth0`) is not in the format.
        return TextCodec(cls, "IPv6 address", format_of("ipv6"), cls, str)
    return None


class _DateCodec(TextCodec):
    """date: a datetime is a date in Python and not in JSON."""

    def __init__(self) -> None:
        super().__init__(dt.date, "date (2026-07-28)", {"format": "date"}, _date, dt.date.isoformat)

    def dump(self, value: Any) -> Any:
        if isinstance(value, dt.datetime):
            raise Mismatch.of(value, self.expects)
        return super().dump(value)

    def owns(self, value: Any) -> bool:
        return isinstance(value, dt.date) and not isinstance(value, dt.datetime)


_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE | re.ASCII)


def _uuid(text: str) -> uuid.UUID:
    if not _UUID.fullmatch(text):
        raise ValueError
    return uuid.UUID(text)


_LONGEST_PATTERN: Final = 10_000
"""Characters of an expression that is compiled: a few tens of milliseconds. Of two millions it takes six seconds."""


def _pattern(text: str) -> re.Pattern[str]:
    if len(text) > _LONGEST_PATTERN:
        raise ValueError
    try:
        return re.compile(text)
    except (re.error, RecursionError, Warning):  # deep groups; what Python warns of, where warnings are errors
        raise ValueError from None


class BytesCodec(Codec):
    """bytes or bytearray, as base64 text."""

    kinds: frozenset[str] = frozenset({"str"})
    expects: str = "base64 text"

    def __init__(self, cls: type) -> None:
        self._cls = cls
        self.types: tuple[type, ...] = (bytes, bytearray)

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

    def __init__(self, cls: type, out: bool) -> None:
        self._cls = pathlib.Path if cls is os.PathLike else cls
        self._out = out
        self.types: tuple[type, ...] = (os.PathLike,)

    def schema(self) -> JSONSchema:
        # A format that JSON Schema does not define: some clients refuse a result for one that they do not know.
        return {"type": "string"} if self._out else {"type": "string", "format": "path"}

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


def simple_codec(cls: Any, out: bool) -> Codec | None:
    """The codec of a type without parts, or None.

    Args:
        cls: The type.
        out: Whether its values go out.
    """
    if cls is str:
        return StrCodec()
    if cls is bool:
        return BoolCodec()
    if cls is int:
        return IntCodec()
    if cls is float:
        return FloatCodec()
    if cls is decimal.Decimal:
        return DecimalCodec()
    if cls is bytes or cls is bytearray:
        return BytesCodec(cls)
    if cls is os.PathLike or (isinstance(cls, type) and issubclass(cls, pathlib.PurePath)):
        return PathCodec(cls, out)
    return text_codec(cls, out) if isinstance(cls, type) else None
