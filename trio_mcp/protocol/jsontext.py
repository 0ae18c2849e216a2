"""JSON text with limits: bytes in, values out, and back.

orjson does the work. What JSON leaves open is decided here:

- Text is UTF-8 without a byte order mark; a transport strips one before. Bad UTF-8 and lone surrogates (`"\\ud800"`)
  are errors, never replaced.
- `NaN` and `Infinity` are errors, in both directions, and so is a number too large for a double (`1e400`).
- Integers are exact at any size up to `Limits.integer_digits`. (orjson alone rounds what lies outside 64 bits.)
- Duplicate keys: the last one counts, as in most parsers. Nothing in front of us may decide by the first.
- Nesting beyond `Limits.json_depth` is an error.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import Any

import orjson

from ..errors import InvalidRequest, ParseError
from ..limits import DEFAULT, Limits

__all__ = [
    "check_written",
    "dumps",
    "dumps_pretty",
    "dumps_sorted",
    "find_unwritable",
    "loads",
    "loads_own",
    "readable",
    "readable_text",
    "shorten",
]

# Nineteen digits in a row may be an integer outside 64 bits. Ten times as fast as a regular expression.
_DIGITS_TO_ZERO = bytes.maketrans(b"123456789", b"000000000")
_LONG = b"0" * 19
_TOO_LONG = 10**DEFAULT.integer_digits
# An integer, by what stands around it, too long for a double.
_OVERLONG_INTEGER = re.compile(rb"(?<![0-9A-Za-z.+])[1-9][0-9]{300,}(?![0-9.eE])")
# Dataclasses, dates and subclasses have a form of orjson's own choice; how those travel the codecs decide.
_OPTIONS = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
_OWN = replace(DEFAULT, message_bytes=2**40, json_depth=4 * DEFAULT.json_depth)
_ORJSON_WHERE = re.compile(r": line \d+ column \d+ \(char (\d+)\)$")


def loads(raw: bytes, limits: Limits = DEFAULT) -> Any:
    """Parse one JSON text.

    Args:
        raw: The text, without surrounding line ends.

    Raises:
        InvalidRequest: longer than `limits.message_bytes`.
        ParseError: not JSON, not UTF-8, too deep, or an integer with too many digits.
    """
    if len(raw) > limits.message_bytes:
        raise InvalidRequest(f"Message too long: {len(raw)} bytes, the limit is {limits.message_bytes}")
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as exc:
        # orjson reads a long integer through a double; one beyond the largest double is for the other parser. Each run
        # of digits is put down to one: it was JSON if it is JSON then, and nothing else of the text changes.
        if _LONG not in raw.translate(_DIGITS_TO_ZERO):
            raise ParseError(_explain(raw, exc)) from None
        try:
            value = orjson.loads(_OVERLONG_INTEGER.sub(b"1", raw))
        except orjson.JSONDecodeError:
            raise ParseError(_explain(raw, exc)) from None
    # A message with fewer brackets than the limit cannot be too deep: two counts in C instead of a walk.
    if raw.count(b"{") + raw.count(b"[") > limits.json_depth:
        _check_depth(value, limits.json_depth)
    if _LONG in raw.translate(_DIGITS_TO_ZERO):
        return json.loads(raw, parse_int=_bounded_int(limits.integer_digits))
    return value


def _explain(raw: bytes, exc: orjson.JSONDecodeError) -> str:
    if not raw.strip():
        return "Parse error: empty message, a JSON object was expected"
    text = str(exc)
    where = _ORJSON_WHERE.search(text)
    if where is None:
        return f"Parse error: {text}"
    return f"Parse error: {text[: where.start()]} at character {where[1]}"


def _bounded_int(digits: int) -> Any:
    def parse(text: str) -> int:
        length = len(text) - text.startswith("-")
        if length > digits:
            raise ParseError(f"Parse error: integer of {length} digits, the limit is {digits}")
        return int(text)

    return parse


def _check_depth(value: Any, limit: int) -> None:
    level = [value]
    depth = 0
    while level:
        depth += 1
        below: list[Any] = []
        for item in level:
            if type(item) is dict:
                below.extend(child for child in item.values() if type(child) is dict or type(child) is list)
            elif type(item) is list:
                below.extend(child for child in item if type(child) is dict or type(child) is list)
        if depth > limit:
            raise ParseError(f"Parse error: nested deeper than {limit} levels")
        level = below


def check_written(raw: bytes, value: Any, depth: int, most: int) -> str | None:
    """Whether text that was written keeps to the bounds that a reader of it will set; otherwise why not.

    Args:
        raw: The text.
        value: What it was written from.
        depth: Deepest nesting.
        most: Longest text, in bytes.
    """
    if len(raw) > most:
        return f"{len(raw)} bytes, the limit is {most}"
    if raw.count(b"{") + raw.count(b"[") > depth:
        try:
            _check_depth(value, depth)
        except ParseError as exc:
            return exc.message.removeprefix("Parse error: ")
    return None


def dumps(value: Any) -> bytes:
    """Write a JSON value as compact UTF-8 text without line ends.

    Args:
        value: dict, list, str, int, float, bool or None, nested. Floats must be finite: this is not checked here, since
            whoever takes a value from user code has walked it already (`find_unwritable`).

    Raises:
        ValueError: the value cannot be written; the text says which part and where.
    """
    try:
        return orjson.dumps(value, option=_OPTIONS)
    except TypeError:
        bad = find_unwritable(value)
        if bad is not None:
            raise ValueError(bad) from None
    # All that is left is an integer outside 64 bits, which orjson does not write.
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def dumps_sorted(value: Any) -> bytes:
    """The same with the members of each object in order, so that equal values have equal texts."""
    try:
        return orjson.dumps(value, option=_OPTIONS | orjson.OPT_SORT_KEYS)
    except TypeError:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True).encode()


def dumps_pretty(value: Any) -> str:
    """A JSON value for a person, indented."""
    try:
        return orjson.dumps(value, option=_OPTIONS | orjson.OPT_INDENT_2).decode()
    except TypeError:
        return json.dumps(value, ensure_ascii=False, indent=2)


def loads_own(raw: bytes) -> Any:
    """Read back what `dumps` wrote."""
    return loads(raw, _OWN)


def find_unwritable(value: Any) -> str | None:
    """What keeps a value from being JSON, as `path: reason`, or None."""
    return _unwritable(value, "$", 0)


def _unwritable(value: Any, path: str, depth: int) -> str | None:
    kind = type(value)
    if value is None or kind is bool:
        return None
    if kind is int:
        if -(2**63) <= value < 2**64 or abs(value) < _TOO_LONG:
            return None
        return f"{path}: an integer of more than {DEFAULT.integer_digits} digits"
    if kind is str:
        try:
            value.encode()
        except UnicodeEncodeError:
            return f"{path}: text with a lone surrogate cannot be sent as UTF-8"
        return None
    if kind is float:
        return None if math.isfinite(value) else f"{path}: {value!r} is not a JSON number"
    if depth > 256:
        return f"{path}: nested too deep (or refers to itself)"
    if kind is dict:
        for key, child in value.items():
            if type(key) is not str:
                return f"{path}: key {shorten(key)} is not a string"
            bad = _unwritable(key, path, depth) or _unwritable(child, f"{path}.{key}", depth + 1)
            if bad:
                return bad
        return None
    if kind is list or kind is tuple:
        for index, child in enumerate(value):
            bad = _unwritable(child, f"{path}[{index}]", depth + 1)
            if bad:
                return bad
        return None
    return f"{path}: {kind.__name__} is not a JSON value"


def readable_text(text: str) -> str:
    """A text that can be sent as UTF-8: `?` for each lone surrogate, as a file name holds them that is not UTF-8."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def readable(value: Any, depth: int = 0) -> Any:
    """The same for all text in a value; what is no JSON stays as it is."""
    if type(value) is str:
        return readable_text(value)
    if depth > 256:
        return value
    if type(value) is dict:
        return {readable(key, depth + 1): readable(child, depth + 1) for key, child in value.items()}
    if type(value) is list or type(value) is tuple:
        return [readable(child, depth + 1) for child in value]
    return value


def shorten(value: Any, most: int = DEFAULT.shown_value) -> str:
    """A value as an error message shows it: JSON where that works, cut to `most` characters."""
    if type(value) is float and not math.isfinite(value):
        return repr(value)  # orjson writes null
    try:
        text = orjson.dumps(value).decode()
    except (TypeError, ValueError):
        try:
            text = repr(value)
        except Exception:  # a user's own __repr__ may do anything
            text = f"<{type(value).__name__}>"
        text = text.encode(errors="backslashreplace").decode()
    return text if len(text) <= most else text[: most - 1] + "…"
