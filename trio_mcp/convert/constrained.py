"""A codec with bounds and notes of its own."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Final

from ..protocol.jsontext import find_unwritable
from .codec import Codec, JSONSchema, Misfit, Mismatch, Pace, Problem, Unsupported, counted, described
from .json_schema import matcher

__all__ = ["Bound", "ConstrainedCodec"]

# Escapes and character classes, where a dollar is a dollar, and the dollar that is the end.
_DOLLAR: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\$", re.DOTALL)
# What Python's expressions have and those of ECMAScript, which JSON Schema means, do not.
_PYTHON_ONLY: Final = re.compile(r"\\[AZ]|\(\?(?:P|#|[aiLmsux-]+[:)]|>|\()|[*+?}]\+")

_WORDS: Final = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
_KEYWORDS: Final = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
_SIDES: Final = {"str": "Length", "list": "Items", "dict": "Properties"}
_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "ge": lambda value, bound: value >= bound,
    "gt": lambda value, bound: value > bound,
    "le": lambda value, bound: value <= bound,
    "lt": lambda value, bound: value < bound,
}

Bound = tuple[str, Any]
"""A rule by its Python name (ge, gt, le, lt, multiple_of, min_length, max_length, pattern, tz, predicate) and its value."""


def _matches(pattern: str | re.Pattern[str]) -> Callable[[str], Any]:
    """By the library of JSON Schema where the schema shows the pattern, otherwise by Python, which may be slow."""
    fits = matcher(shown) if (shown := _shown(pattern)) is not None else None
    return fits or _compiled(pattern).search


def _shown(pattern: str | re.Pattern[str]) -> str | None:
    """A pattern as JSON Schema says it, or None where it cannot."""
    text = pattern.pattern if isinstance(pattern, re.Pattern) else pattern
    plain = not isinstance(pattern, re.Pattern) or not pattern.flags & ~re.UNICODE
    return text if plain and not _PYTHON_ONLY.search(text) else None


def _compiled(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    """As JSON Schema reads it: `$` is the end of the text, not also the place before a last line end."""
    flags = pattern.flags if isinstance(pattern, re.Pattern) else 0
    text = pattern.pattern if isinstance(pattern, re.Pattern) else pattern
    if flags & re.MULTILINE:
        return re.compile(text, flags)
    return re.compile(_DOLLAR.sub(lambda found: r"\Z" if found[0] == "$" else found[0], text), flags)


class ConstrainedCodec(Codec):
    """A codec with bounds (`Field(ge=1)`, `Meta(max_length=80)`, `annotated_types.Len(1)`) and schema notes.

    Args:
        inner: The codec of the type.
        bounds: What holds besides.
        notes: Members for the schema: title, description, examples, and extras.

    Raises:
        Unsupported: a bound can never apply to the type.
    """

    def __init__(self, inner: Codec, bounds: Sequence[Bound], notes: JSONSchema) -> None:
        self._inner = inner
        self._bounds = list(bounds)
        self._notes = notes
        self.kinds: frozenset[str] = inner.kinds
        self.expects: str = inner.expects
        self.types: tuple[type, ...] = inner.types
        self.rank: int = inner.rank
        self._patterns: dict[int, Callable[[str], Any]] = {}
        for index, (name, bound) in enumerate(self._bounds):
            self._applies(name, bound)
            if name == "pattern":
                try:
                    self._patterns[index] = _matches(bound)
                except re.error as exc:
                    raise Unsupported(f"pattern {bound!r}: {exc}") from None

    def _applies(self, name: str, bound: Any) -> None:
        """Refuse what would fail, or be ignored, at each call."""
        types = self._inner.ordered()
        if name == "predicate":
            fits = callable(bound)
        elif name == "pattern":
            fits = "str" in self.kinds
        elif name in ("min_length", "max_length"):
            fits = bool(self.kinds & _SIDES.keys()) and type(bound) is int and bound >= 0
        elif name == "tz":
            fits = bool({dt.datetime, dt.time} & set(types))
        elif name == "multiple_of":
            fits = bool({int, float} & set(types)) and isinstance(
                bound, (int, float, decimal.Decimal) if decimal.Decimal in types else (int, float)
            )
            fits = fits and _is_finite(bound) and bound > 0
        else:
            fits = isinstance(bound, types) and _is_finite(bound)
        if not fits:
            raise Unsupported(f"the bound {name}={bound!r} does not apply to {self.expects}")

    def children(self) -> Iterator[Codec]:
        yield self._inner

    def schema(self) -> JSONSchema:
        schema = self._inner.schema()
        more: list[JSONSchema] = []
        for name, bound in self._bounds:
            for keyword, value in self._keywords(name, bound):
                if keyword in schema and schema[keyword] != value:
                    more.append({keyword: value})
                else:
                    schema[keyword] = value
        if more:
            schema["allOf"] = more
        schema.update(self._notes)
        return schema

    def _keywords(self, name: str, bound: Any) -> list[tuple[str, Any]]:
        """How JSON Schema says a bound; not at all where it cannot, and then it is only checked."""
        if name in ("min_length", "max_length"):
            return [(name[:3] + side, self._length(kind, bound)) for kind, side in _SIDES.items() if kind in self.kinds]
        if name == "pattern":
            return [("pattern", shown)] if (shown := _shown(bound)) is not None else []
        if name in ("tz", "predicate") or isinstance(bound, str) or find_unwritable(bound) is not None:
            return []
        return [(_KEYWORDS.get(name, "multipleOf"), bound)]

    def _length(self, kind: str, bound: int) -> int:
        # Four characters of base64 for three bytes.
        return math.ceil(bound / 3) * 4 if kind == "str" and bytes in self.types else bound

    def load(self, value: Any) -> Any:
        loaded = self._inner.load(value)
        self._check(loaded, value)
        return loaded

    def dump(self, value: Any) -> Any:
        dumped = self._inner.dump(value)
        self._check(value, dumped)
        return dumped

    def pieces(self, value: Any, out: bool, pace: Pace) -> Generator[None, None, Any]:
        made = yield from self._inner.pieces(value, out, pace)
        self._check(value if out else made, made if out else value)
        return made

    def _check(self, value: Any, wire: Any) -> None:
        if value is None:
            return
        for index, (name, bound) in enumerate(self._bounds):
            why = self._broken(index, name, bound, value, wire)
            if why:
                raise Mismatch(Problem(f"expected {why}, got {described(wire)}"))

    def _broken(self, index: int, name: str, bound: Any, value: Any, wire: Any) -> str | None:
        if name == "pattern":
            fits = not isinstance(wire, str) or bool(self._patterns[index](wire))
            return None if fits else f"text matching {bound.pattern if isinstance(bound, re.Pattern) else bound}"
        if name in ("min_length", "max_length"):
            measured = value if isinstance(value, bytes | bytearray) else wire
            if not isinstance(measured, str | list | dict | bytes | bytearray):
                return None
            fits = len(measured) >= bound if name == "min_length" else len(measured) <= bound
            unit = {str: "character", bytes: "byte", bytearray: "byte"}.get(type(measured), "element")
            return None if fits else f"{_WORDS['ge' if name == 'min_length' else 'le']} {counted(bound, unit)}"
        if name == "tz":
            fits = (getattr(value, "tzinfo", None) is not None) == bound if hasattr(value, "tzinfo") else True
            return None if fits else f"{self.expects} {'with' if bound else 'without'} an offset"
        if name == "predicate":
            try:
                return None if bound(value) else f"{self.expects} that fits {getattr(bound, '__name__', bound)}"
            except Exception as exc:  # a function of the user's, which is given what a peer sent
                said = " ".join(str(exc).split())
                if not isinstance(exc, ValueError | TypeError | AssertionError):
                    said = f"{type(exc).__name__}: {said}".rstrip(": ")
                return f"{self.expects} that fits {getattr(bound, '__name__', bound)} ({said})"
        if not _comparable(value, bound):
            return None  # of another arm of a union
        if name == "multiple_of":
            return None if _is_multiple(value, bound) else f"a multiple of {bound}"
        try:
            fits = _COMPARE[name](value, bound)
        except TypeError as exc:
            # A date and time without an offset, and a bound with one.
            return f"{self.expects} {_WORDS[name]} {bound} ({exc})"
        return None if fits else f"{self.expects} {_WORDS[name]} {bound}"

    def owns(self, value: Any) -> bool:
        return self._inner.owns(value)

    def distance(self, cls: type) -> int | None:
        return self._inner.distance(cls)

    def constants(self) -> frozenset[tuple[type, Any]] | None:
        return self._inner.constants()

    def ordered(self) -> tuple[type, ...]:
        return self._inner.ordered()

    def misfit(self, value: Any, out: bool) -> Misfit:
        return self._inner.misfit(value, out)

    def alike(self, other: Codec, out: bool) -> str | None:
        return self._inner.alike(other._inner if isinstance(other, ConstrainedCodec) else other, out)

    @property
    def members(self) -> Any:
        """Those of the type, when it is a class."""
        return getattr(self._inner, "members", None)


def _comparable(value: Any, bound: Any) -> bool:
    numbers = (int, float, decimal.Decimal)
    if isinstance(value, numbers) or isinstance(bound, numbers):
        return isinstance(value, numbers) and isinstance(bound, numbers)
    return isinstance(value, type(bound)) or isinstance(bound, type(value))


def _is_finite(bound: Any) -> bool:
    if isinstance(bound, decimal.Decimal):
        return bound.is_finite()
    return not isinstance(bound, float) or math.isfinite(bound)


_EXACT: Final = decimal.Context(prec=decimal.MAX_PREC, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)


def _is_multiple(value: Any, of: Any) -> bool:
    if isinstance(value, int) and isinstance(of, int):
        return value % of == 0
    # By the digits that were written, exactly: 0.3 is a multiple of 0.1, 1e-10 is none of 1.
    return not _EXACT.remainder(_decimal(value), _decimal(of))


def _decimal(value: Any) -> decimal.Decimal:
    return decimal.Decimal(float.__repr__(value) if isinstance(value, float) else value)
