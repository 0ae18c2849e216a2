"""Parameters of tools that travel in HTTP headers too: `x-mcp-header` (basic/transports/streamable-http, section Custom
Headers from Tool Parameters).

Both sides use the same rules: a server checks its tools with them when they are registered, a client leaves out tools that
break them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from ..errors import HeaderMismatch
from .http import decode_value, encode_value
from .jsontext import shorten

__all__ = ["HeaderParam", "InvalidHeader", "check_params", "header_params", "param_headers", "with_reachable_marks"]

_KEY: Final = "x-mcp-header"
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_KINDS: Final = ("string", "integer", "boolean")
# What these hold is data, not a schema.
_DATA: Final = frozenset({"default", "const", "enum", "examples", "required"})
# What these hold are schemas by name.
_SCHEMAS: Final = ("$defs", "definitions", "patternProperties", "dependentSchemas")
_DEFS: Final = "#/$defs/"
_SAFE_INTEGER: Final = 2**53 - 1
_MISSING: Final = object()


class InvalidHeader(ValueError):
    """An `x-mcp-header` breaks the rules."""


@dataclass(frozen=True, slots=True)
class HeaderParam:
    """A parameter that is mirrored.

    Attributes:
        header: The whole name of the header.
        path: Property names from the arguments to the value.
        kind: "string", "integer" or "boolean".
    """

    header: str
    path: tuple[str, ...]
    kind: str

    @property
    def key(self) -> bytes:
        """The header's name as servers look it up."""
        return self.header.lower().encode()


def header_params(schema: Mapping[str, Any]) -> tuple[HeaderParam, ...]:
    """The mirrored parameters of an input schema.

    Raises:
        InvalidHeader: a name is not a header token or comes twice, a parameter is not text, an integer or a boolean, or it is
            not reachable through `properties` alone.
    """
    found = tuple(_walk(schema, (), (), True))
    seen: set[str] = set()
    for item in found:
        if item.header.lower() in seen:
            raise InvalidHeader(f"{'.'.join(item.path)}: the header {item.header} is taken by another parameter")
        seen.add(item.header.lower())
    return found


def _walk(schema: Any, path: tuple[str, ...], place: tuple[str, ...], reachable: bool) -> Iterator[HeaderParam]:
    """Every mark. `path` are the names of properties on the way, `place` all keys."""
    if isinstance(schema, list):
        for index, item in enumerate(schema):
            yield from _walk(item, path, (*place, str(index)), False)
    if not isinstance(schema, dict):
        return
    if _KEY in schema:
        yield _param(schema, path, place, reachable)
    for key, value in schema.items():
        if key == "properties" and isinstance(value, dict):
            for name, inner in value.items():
                yield from _walk(inner, (*path, name), (*place, key, name), reachable)
        elif key in _SCHEMAS and isinstance(value, dict):
            for name, inner in value.items():
                yield from _walk(inner, (*path, name), (*place, key, name), False)
        elif key not in _DATA and key != _KEY:
            yield from _walk(value, path, (*place, key), False)


def _param(schema: Mapping[str, Any], path: tuple[str, ...], place: tuple[str, ...], reachable: bool) -> HeaderParam:
    name, where = schema[_KEY], ".".join(path) if reachable else "/".join(place)
    where = where or "the schema"
    if not isinstance(name, str) or not _TOKEN.fullmatch(name):
        raise InvalidHeader(f"{where}: {_KEY} must be the name of a header, got {shorten(name)}")
    if not reachable or not path:
        raise InvalidHeader(
            f"{where}: {_KEY} {name!r} is only for properties that are reached through properties alone, "
            "not through lists, unions, free keys or references"
        )
    kind = schema.get("type")
    kinds = [item for item in kind if item != "null"] if isinstance(kind, list) else [kind]
    if len(kinds) != 1 or kinds[0] not in _KINDS:
        raise InvalidHeader(
            f"{where}: {_KEY} {name!r} is only for text, integers and booleans, got type {shorten(kind)}"
        )
    return HeaderParam(f"Mcp-Param-{name}", path, kinds[0])


def with_reachable_marks(schema: dict[str, Any]) -> dict[str, Any]:
    """An input schema that says the same, with marks in `$defs` put where they are reached through properties alone.

    Marks where that cannot be, in elements of a list for instance, stay where they are. A marked argument that may be null is
    shown as one that may be left out: official clients drop a tool whose marked argument has two types.
    """
    schema = _with_one_type(schema)
    definitions = schema.get("$defs")
    if not isinstance(definitions, dict):
        return schema
    marked = {name for name, item in definitions.items() if _KEY in _keys(item)}
    while more := {name for name in definitions.keys() - marked if marked & _references(definitions[name])}:
        marked |= more
    if not marked:
        return schema
    out = {key: value for key, value in _opened(schema, definitions, marked, ()).items() if key != "$defs"}
    used, queue = set[str](), [_references(out)]
    while queue:
        new = (queue.pop() & definitions.keys()) - used
        used |= new
        queue += [_references(definitions[name]) for name in new]
    return {**out, "$defs": {name: definitions[name] for name in sorted(used)}} if used else out


def _with_one_type(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_with_one_type(item) for item in schema]
    if not isinstance(schema, dict) or "x-mcp-header" not in _keys(schema):
        return schema
    out: dict[str, Any] = {}
    for key, value in schema.items():
        if isinstance(value, dict) and (key == "properties" or key in _SCHEMAS):
            out[key] = {name: _with_one_type(item) for name, item in value.items()}
        else:
            out[key] = value if key in _DATA else _with_one_type(value)
    arms = out.get("anyOf")
    rest = [arm for arm in arms if arm != {"type": "null"}] if _KEY in out and isinstance(arms, list) else []
    if len(rest) == 1 and isinstance(arms, list) and len(arms) == 2:
        del out["anyOf"]
        if out.get("default", _MISSING) is None:
            del out["default"]
        out = {**rest[0], **out}
    return out


def _opened(
    schema: dict[str, Any], definitions: Mapping[str, Any], marked: set[str], inside: tuple[str, ...]
) -> dict[str, Any]:
    """A schema whose properties are themselves and no references, where marks are behind those."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return schema
    out: dict[str, Any] = {}
    for name, item in properties.items():
        target, own = _target(item)
        whole = definitions.get(target, {})
        if target in marked and target not in inside and (own.get("type") is None or whole.get("type") == "object"):
            out[name] = _opened({**whole, **own}, definitions, marked, (*inside, target))
        else:
            out[name] = _opened(item, definitions, marked, inside) if isinstance(item, dict) else item
    return {**schema, "properties": out}


def _target(item: Any) -> tuple[str, dict[str, Any]]:
    """What a property refers to, also when it may be null instead, and what it says itself."""
    if not isinstance(item, dict):
        return "", {}
    own = {key: value for key, value in item.items() if key not in ("$ref", "anyOf")}
    arms = item.get("anyOf")
    if isinstance(arms, list):
        rest = [arm for arm in arms if arm != {"type": "null"}]
        item = rest[0] if len(rest) == len(arms) - 1 == 1 and set(rest[0]) == {"$ref"} else {}
        own["type"] = ["object", "null"]
    return str(item.get("$ref", "")).removeprefix(_DEFS), own


def _keys(schema: Any) -> Iterator[str]:
    """The keys of schemas in a schema: not names of properties, nor what is in data."""
    if isinstance(schema, list):
        for item in schema:
            yield from _keys(item)
    elif isinstance(schema, dict):
        for key, value in schema.items():
            yield key
            if key == "properties" or key in _SCHEMAS:
                yield from _keys(list(value.values()))
            elif key not in _DATA:
                yield from _keys(value)


def _references(schema: Any) -> set[str]:
    """The names in `$defs` that a schema refers to."""
    if isinstance(schema, list):
        return set[str]().union(*map(_references, schema))
    if not isinstance(schema, dict):
        return set()
    found = set[str]().union(*(_references(value) for key, value in schema.items() if key not in _DATA))
    target = schema.get("$ref")
    return found | {target.removeprefix(_DEFS)} if isinstance(target, str) else found


def _value(arguments: Any, path: Sequence[str]) -> Any:
    for name in path:
        if not isinstance(arguments, dict):
            return _MISSING
        arguments = arguments.get(name, _MISSING)
    if type(arguments) is float and arguments.is_integer():
        # To a JSON Schema 42.0 is an integer, and the server takes it for one.
        return int(arguments)
    return _MISSING if arguments is None else arguments


def _text(value: Any) -> str | None:
    """The value in a header, not encoded; None when it is of no type that is mirrored."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return value if isinstance(value, str) else None


def param_headers(params: Sequence[HeaderParam], arguments: Any) -> dict[str, str]:
    """The headers that a client sends for these arguments.

    Raises:
        ValueError: an integer is outside what all parties can hold (2**53 - 1).
    """
    headers: dict[str, str] = {}
    for item in params:
        value = _value(arguments, item.path)
        if type(value) is int and abs(value) > _SAFE_INTEGER:
            raise ValueError(
                f"{'.'.join(item.path)}: {value} does not fit into a header ({item.header}): at most 2**53 - 1"
            )
        text = _text(value)
        if text is not None:
            headers[item.header] = encode_value(text)
    return headers


def check_params(params: Sequence[HeaderParam], headers: Mapping[bytes, bytes], arguments: Any) -> None:
    """Check the headers of a call against its arguments (section Server Behavior for Custom Headers).

    Raises:
        HeaderMismatch: one is missing, malformed, or says something else.
    """
    for item in params:
        value, raw = _value(arguments, item.path), headers.get(item.key)
        where = ".".join(item.path)
        if value is _MISSING:
            if raw is not None:
                raise HeaderMismatch(f"Header mismatch: {item.header} is there, but the body has no {where}")
            continue
        text = _text(value)
        if text is None:
            continue  # of a wrong type, and that is said with more words
        if raw is None:
            raise HeaderMismatch(f"Header mismatch: {item.header} is missing, the body has {shorten(value)}")
        sent = decode_value(raw)
        if sent is None:
            raise HeaderMismatch(
                f"Header mismatch: {item.header} holds characters that no header may hold, or bad Base64"
            )
        if sent != text and not (type(value) is int and _same_number(sent, value)):
            raise HeaderMismatch(f"Header mismatch: {item.header} is {shorten(sent)}, the body has {shorten(value)}")


def _same_number(text: str, value: int) -> bool:
    # Nobody writes an integer in more digits than this, and parsing more costs time.
    if len(text) > 64 or not re.fullmatch(r"-?\d+(\.\d+)?([eE][+-]?\d{1,3})?", text, re.ASCII):
        return False
    try:
        return Decimal(text) == value
    except InvalidOperation:
        return False
