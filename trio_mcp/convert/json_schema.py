"""JSON Schemas that a user wrote (2020-12), checked with jsonschema-rs.

Nothing is fetched. What does not fit is told in our own words, one line a problem.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..limits import DEFAULT
from ..protocol.jsontext import shorten
from .codec import Codec, JSONSchema, Mismatch, Problem, described

__all__ = ["BadSchema", "CheckedCodec", "GivenSchema"]

_BOUNDS: Final = {
    "minimum": "at least",
    "maximum": "at most",
    "exclusiveMinimum": "more than",
    "exclusiveMaximum": "less than",
}
_COUNTS: Final = {
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} elements",
    "maxItems": "at most {} elements",
    "minProperties": "at least {} members",
    "maxProperties": "at most {} members",
}
_ARMS: Final = 3
"""Alternatives of `anyOf` and `oneOf` that a message goes into."""


class BadSchema(ValueError):
    """It is not a JSON Schema that can be checked."""


class GivenSchema:
    """A schema, compiled.

    Args:
        schema: A JSON Schema; without `$schema` it is 2020-12.

    Attributes:
        schema: The same.

    Raises:
        BadSchema: it is not valid, of an unknown dialect, or refers to something outside of itself.
    """

    __slots__ = ("_recursive", "_validator", "schema")

    def __init__(self, schema: Any) -> None:
        if not isinstance(schema, Mapping):
            raise BadSchema(f"expected a JSON Schema as a dict, got {shorten(schema)}")
        self.schema: JSONSchema = dict(schema)
        # Few servers have one, and it takes a while to load.
        library = importlib.import_module("jsonschema_rs")
        cls = library.validator_for if "$schema" in self.schema else library.Draft202012Validator
        try:
            self._validator: Any = cls(self.schema, offline=True)
        except (ValueError, TypeError, OverflowError, library.ReferencingError) as exc:
            raise BadSchema(f"not a JSON Schema that can be checked: {str(exc).splitlines()[0]}") from None
        # To describe every error of a schema that refers to itself can take seconds and gigabytes.
        self._recursive = _refers(self.schema)

    def check(self, value: Any) -> None:
        """Check a JSON value.

        Raises:
            Mismatch: with what is wrong, where.
        """
        if self._validator.is_valid(value):
            return
        most = 1 if self._recursive else DEFAULT.shown_errors + 1
        problems: list[Problem] = []
        for error in itertools.islice(self._validator.iter_errors(value), most):
            problems += _problems(error)
        raise Mismatch(*problems)


class CheckedCodec(Codec):
    """A codec whose values also have to fit a schema."""

    expects: str = "a value that fits the output schema"

    def __init__(self, inner: Codec, given: GivenSchema) -> None:
        self._inner = inner
        self._given = given
        self.kinds: frozenset[str] = inner.kinds

    def schema(self) -> JSONSchema:
        return dict(self._given.schema)

    def load(self, value: Any) -> Any:
        self._given.check(value)
        return value

    def dump(self, value: Any) -> Any:
        data = self._inner.dump(value)
        self._given.check(data)
        return data

    def children(self) -> Iterator[Codec]:
        return iter((self._inner,))


def _refers(schema: Any) -> bool:
    """Whether a schema has references from inside of what is referred to, and so may be recursive."""
    if not isinstance(schema, dict):
        return any(_refers(item) for item in schema) if isinstance(schema, list) else False
    for key, value in schema.items():
        if key in ("$dynamicRef", "$recursiveRef") or (key == "$ref" and value == "#"):
            return True
        if key in ("$defs", "definitions"):
            if '"$ref"' in _flat(value):
                return True
        elif _refers(value):
            return True
    return False


def _flat(value: Any) -> str:
    """The keys in a value, as text that can be searched."""
    if isinstance(value, dict):
        return "".join(f'"{key}"{_flat(item)}' for key, item in value.items())
    return "".join(_flat(item) for item in value) if isinstance(value, list) else ""


def _problems(error: Any, *, deep: bool = True) -> list[Problem]:
    kind, value = error.kind, error.instance
    name: str = kind.name
    path = list(error.instance_path)
    if name == "required":
        return [_at([*path, kind.property], "missing")]
    if name in ("additionalProperties", "unevaluatedProperties"):
        return [_at([*path, key], "unexpected") for key in kind.unexpected]
    return [_at(path, _text(name, kind, value, error, deep))]


def _text(name: str, kind: Any, value: Any, error: Any, deep: bool) -> str:
    got = f"got {described(value)}"
    if name == "type":
        types = kind.types if isinstance(kind.types, list) else [kind.types]
        return f"expected {' or '.join(str(item) for item in types)}, {got}"
    if name == "enum":
        return f"expected one of {', '.join(shorten(option) for option in kind.options)}, {got}"
    if name == "const":
        return f"expected {shorten(kind.expected_value)}, {got}"
    if name in _BOUNDS:
        return f"expected {_BOUNDS[name]} {kind.limit}, {got}"
    if name in _COUNTS:
        return f"expected {_COUNTS[name].format(kind.limit)}, {got}"
    if name == "pattern":
        return f"expected text that matches {shorten(kind.pattern)}, {got}"
    if name in ("anyOf", "oneOf") and getattr(kind, "context", None):
        if not deep:
            # Alternatives within alternatives grow with a power of the depth.
            return "fits none of the alternatives"
        told = [str(_problems(arm[0], deep=False)[0]) for arm in kind.context[:_ARMS] if arm]
        more = f" or {len(kind.context) - _ARMS} more" if len(kind.context) > _ARMS else ""
        return f"fits none of the alternatives ({' | '.join(told)}{more})"
    return f"does not fit {'/'.join(str(part) for part in error.schema_path)}, {got}"


def _at(path: list[Any], text: str) -> Problem:
    problem = Problem(text)
    problem.path = list(reversed(path))
    return problem
