"""JSON Schemas that a user wrote (2020-12), checked with jsonschema-rs.

Nothing is fetched. What does not fit is told in our own words, one line a problem.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, Final

from ..limits import DEFAULT
from ..protocol.jsontext import shorten
from .codec import Codec, JSONSchema, Mismatch, Pace, Problem, counted, described, finished
from .explain import Explainer

__all__ = ["BadSchema", "CheckedCodec", "GivenSchema", "matcher"]

_BOUNDS: Final = {
    "minimum": "at least",
    "maximum": "at most",
    "exclusiveMinimum": "more than",
    "exclusiveMaximum": "less than",
}
_COUNTS: Final = {
    "minLength": ("at least", "character"),
    "maxLength": ("at most", "character"),
    "minItems": ("at least", "element"),
    "maxItems": ("at most", "element"),
    "additionalItems": ("at most", "element"),
    "minProperties": ("at least", "member"),
    "maxProperties": ("at most", "member"),
}
_ARMS: Final = 3
"""Alternatives of `anyOf` and `oneOf` that a message goes into."""
_DESCRIBED: Final = 10_000
"""Values times rules that the library describes: some tenths of a second. Beyond, we say it with less work."""


def matcher(pattern: str) -> Callable[[str], bool] | None:
    """Whether text matches an expression as JSON Schema means it; None where the library cannot read the expression.

    Python's own expressions may take time that doubles with each character, and nothing else runs meanwhile. These do not.
    """
    library = importlib.import_module("jsonschema_rs")
    try:
        fits: Callable[[str], bool] = library.Draft202012Validator({"pattern": pattern}).is_valid
    except ValueError:
        return None
    return fits


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

    __slots__ = ("_alternatives", "_class", "_explainer", "_leaves", "_most", "_validator", "schema")

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
        self._class: Any = cls
        recursive = _refers(self.schema)
        self._explainer = Explainer(self.schema, self._check_leaf, self._fits, bounded=not recursive)
        # The library describes every alternative of every value: for a schema that refers to itself that takes seconds and
        # gigabytes, and for another one the time of its parts times the values.
        self._most = -1 if recursive else _DESCRIBED // _parts(self.schema)
        self._alternatives = _has_alternatives(self.schema)
        self._leaves: dict[int, Any] = {}

    def check(self, value: Any) -> None:
        """Check a JSON value.

        Raises:
            Mismatch: with what is wrong, where.
        """
        finished(self.check_in_pieces(value, Pace()))

    def check_in_pieces(self, value: Any, pace: Pace) -> Generator[None, None, None]:
        """`check`, as a generator that yields where others may run.

        Raises:
            Mismatch: with what is wrong, where.
        """
        # In one go: some milliseconds for a value of two megabytes.
        if self._validator.is_valid(value):
            return
        if _holds_more(value, self._most):
            mismatch = yield from self._explainer.explain(value, pace)
            if mismatch is not None:
                raise mismatch
            if self._most < 0 or self._alternatives:
                raise Mismatch(Problem("does not fit the schema"))
        raise Mismatch(*self._listed(self._validator, value))

    def _listed(self, validator: Any, value: Any) -> list[Problem]:
        problems: dict[str, Problem] = {}
        for error in itertools.islice(validator.iter_errors(value), DEFAULT.shown_errors + 1):
            # One that two keywords ask for is told once.
            problems.update((str(problem), problem) for problem in _problems(error, self.schema))
        return list(problems.values())

    def _check_leaf(self, schema: JSONSchema, value: Any) -> list[Problem]:
        validator = self._part(schema)
        return [] if validator.is_valid(value) else self._listed(validator, value)

    def _fits(self, schema: JSONSchema, value: Any) -> bool:
        return bool(self._part(schema).is_valid(value))

    def _part(self, schema: JSONSchema) -> Any:
        """The validator of a part, which is kept: the part has to live as long as this."""
        validator = self._leaves.get(id(schema))
        if validator is None:
            whole = schema
            if "$schema" in self.schema:
                whole = {"$schema": self.schema["$schema"], **schema}
            validator = self._leaves[id(schema)] = self._class(whole, offline=True)
        return validator


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

    def pieces(self, value: Any, out: bool, pace: Pace) -> Generator[None, None, Any]:
        data = (yield from self._inner.pieces(value, out, pace)) if out else value
        yield from self._given.check_in_pieces(data, pace)
        return data

    def children(self) -> Iterator[Codec]:
        return iter((self._inner,))


def _refers(schema: Any) -> bool:
    """Whether a schema has references from inside of what is referred to, and so may be recursive."""
    if not isinstance(schema, dict):
        return any(_refers(item) for item in schema) if isinstance(schema, list) else False
    for key, value in schema.items():
        if key in ("$dynamicRef", "$recursiveRef") or (key == "$ref" and not _is_to_definition(value)):
            return True
        if key in ("$defs", "definitions"):
            if '"$ref"' in _flat(value):
                return True
        elif _refers(value):
            return True
    return False


def _parts(schema: Any) -> int:
    """How many rules a value may be held against; each reference may stand for all that is defined."""
    objects = references = defined = 0
    pending = [(schema, False)]
    while pending:
        item, inside = pending.pop()
        if isinstance(item, dict):
            objects += 1
            defined += inside
            references += "$ref" in item
            pending += [(part, inside or key in ("$defs", "definitions")) for key, part in item.items()]
        elif isinstance(item, list):
            pending += [(part, inside) for part in item]
    return objects + references * defined


def _has_alternatives(schema: Any) -> bool:
    if isinstance(schema, dict):
        return any(key in ("anyOf", "oneOf") or _has_alternatives(part) for key, part in schema.items())
    return isinstance(schema, list) and any(_has_alternatives(part) for part in schema)


def _holds_more(value: Any, most: int) -> bool:
    """Whether a value consists of more values than so many. Looks at no more than it takes to know."""
    count = 1
    pending = [value]
    while pending and count <= most:
        item = pending.pop()
        if isinstance(item, dict | list):
            count += len(item)
            pending += [
                part for part in (item.values() if isinstance(item, dict) else item) if isinstance(part, dict | list)
            ]
    return count > most


def _is_to_definition(target: Any) -> bool:
    """Whether a reference leads into definitions: any other may lead to where it stands."""
    return isinstance(target, str) and target.startswith(("#/$defs/", "#/definitions/"))


def _flat(value: Any) -> str:
    """The keys in a value, as text that can be searched."""
    if isinstance(value, dict):
        return "".join(f'"{key}"{_flat(item)}' for key, item in value.items())
    return "".join(_flat(item) for item in value) if isinstance(value, list) else ""


def _problems(error: Any, schema: JSONSchema, *, deep: bool = True) -> list[Problem]:
    kind = error.kind
    path = list(error.instance_path)
    if kind.name == "required":
        with_ = _triggers(error, schema)
        return [_at([*path, kind.property], f"missing, needed with {', '.join(with_)}" if with_ else "missing")]
    if kind.name in ("additionalProperties", "unevaluatedProperties"):
        return [_at([*path, key], "unexpected") for key in kind.unexpected]
    if kind.name == "unevaluatedItems":
        return [_at(path, f"unexpected elements: {', '.join(kind.unexpected)}")]
    if kind.name == "propertyNames":
        inner = kind.error
        text = _text(inner, schema, deep).removesuffix(f", got {described(inner.instance)}")
        return [_at(path, f"key {shorten(inner.instance)}: {text}")]
    return [_at(path, _text(error, schema, deep))]


def _text(error: Any, schema: JSONSchema, deep: bool) -> str:
    kind, name, value = error.kind, error.kind.name, error.instance
    if name in ("anyOf", "oneOf") and getattr(kind, "context", None):
        return _alternatives(kind.context, value, schema, deep)
    expected = _expected(error, schema)
    if expected is None:
        return "unexpected"
    return f"{expected}, got {described(value)}"


def _expected(error: Any, schema: JSONSchema) -> str | None:
    """What a keyword asks for, or None when it allows nothing."""
    kind, name = error.kind, error.kind.name
    if name == "type":
        types = kind.types if isinstance(kind.types, list) else [kind.types]
        return f"expected {' or '.join(str(item) for item in types)}"
    if name in _BOUNDS:
        return f"expected {_BOUNDS[name]} {kind.limit}"
    if name in _COUNTS:
        words, unit = _COUNTS[name]
        return f"expected {words} {counted(kind.limit, unit)}"
    if name == "contains":
        return f"expected {_contained(error, schema)}"
    if name == "falseSchema":
        return "expected no members" if list(error.schema_path)[-1:] == ["propertyNames"] else None
    tell = _TEXTS.get(name)
    return tell(kind) if tell else f"does not fit {'/'.join(str(part) for part in error.schema_path)}"


_TEXTS: Final[dict[str, Callable[[Any], str]]] = {
    "enum": lambda kind: f"expected one of {', '.join(shorten(option) for option in kind.options)}",
    "const": lambda kind: f"expected {shorten(kind.expected_value)}",
    "pattern": lambda kind: f"expected text that matches {shorten(kind.pattern)}",
    "multipleOf": lambda kind: f"expected a multiple of {kind.multiple_of}",
    "not": lambda kind: f"expected nothing that fits {shorten(kind.schema)}",
    "uniqueItems": lambda kind: "expected different elements",
    "format": lambda kind: f"expected text of the format {kind.format}",
    "contentEncoding": lambda kind: f"expected text encoded as {kind.content_encoding}",
    "contentMediaType": lambda kind: f"expected text of type {kind.content_media_type}",
}


def _alternatives(arms: list[Any], value: Any, schema: JSONSchema, deep: bool) -> str:
    fitting = sum(not arm for arm in arms)
    if fitting:
        return f"fits {fitting} of the alternatives, expected exactly one, got {described(value)}"
    if not deep:
        # Alternatives within alternatives grow with a power of the depth.
        return "fits none of the alternatives"
    told = [str(_problems(arm[0], schema, deep=False)[0]) for arm in arms[:_ARMS]]
    more = f" or {len(arms) - _ARMS} more" if len(arms) > _ARMS else ""
    return f"fits none of the alternatives ({' | '.join(told)}{more})"


def _contained(error: Any, schema: JSONSchema) -> str:
    *parent, last = error.schema_path
    inside = _look(schema, parent)
    fits = f"fits {shorten(inside.get('contains'))}"
    if last not in ("minContains", "maxContains"):
        return f"an element that {fits}"
    number = inside.get(last)
    words = "at least" if last == "minContains" else "at most"
    return (
        f"{words} {number} element that {fits}"
        if number == 1
        else f"{words} {number} elements that {fits.replace('fits', 'fit', 1)}"
    )


def _triggers(error: Any, schema: JSONSchema) -> list[str]:
    """The members whose presence makes another one required."""
    path = list(error.schema_path)
    if path[-1:] in (["dependentRequired"], ["dependencies"]):
        needed = _look(schema, path)
        return [name for name in needed if name in error.instance and error.kind.property in needed[name]]
    inside = path[-1:] == ["required"] and path[-3:-2] in (["dependentSchemas"], ["dependencies"])
    return [str(path[-2])] if inside and path[-2] in error.instance else []


def _look(schema: Any, path: list[Any]) -> dict[str, Any]:
    """The part of a schema at a path; empty when that is none."""
    for part in path:
        if isinstance(schema, list) and isinstance(part, int) and part < len(schema):
            schema = schema[part]
        else:
            schema = schema.get(part) if isinstance(schema, dict) else None
    return schema if isinstance(schema, dict) else {}


def _at(path: list[Any], text: str) -> Problem:
    problem = Problem(text)
    problem.path = list(reversed(path))
    return problem
