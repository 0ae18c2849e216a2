"""Arguments from a command line: `key=value`, read as the schema of the argument wants it."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote

import click

from .session import no_such, properties_of, signature_of

__all__ = ["parse_json_object", "parse_pairs", "typed_arguments"]


def parse_pairs(words: list[str]) -> dict[str, str]:
    """`["a=1", "b=x=y"]` as `{"a": "1", "b": "x=y"}`.

    Raises:
        click.UsageError: a word without `=`, or a name twice.
    """
    out: dict[str, str] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{word!r} is not an argument; expected name=value")
        if name in out:
            raise click.UsageError(f"argument {name!r} is given twice")
        out[name] = text
    return out


def parse_json_object(text: str) -> dict[str, Any]:
    """The object in `--json '{…}'`.

    Raises:
        click.UsageError: it is not one.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise click.UsageError(f"--json: not JSON: {exc}") from None
    if not isinstance(value, dict):
        raise click.UsageError("--json: expected an object, as in '{\"a\": 1}'")
    return value


def typed_arguments(tool: str, schema: dict[str, Any], pairs: dict[str, str], given: dict[str, Any]) -> dict[str, Any]:
    """Arguments for a tool: the pairs, each read by the type of its property, over the ones given as JSON.

    Raises:
        click.UsageError: a name that the tool does not take.
    """
    properties = properties_of(schema)
    closed = not schema.get("additionalProperties")
    out = dict(given)
    for name, text in pairs.items():
        # Text that is one of the constants is that one, even if it can be read as another.
        constant = text in _constants(properties.get(name), schema)
        out[name] = text if constant else _value(text, _kinds(properties.get(name), schema))
    for name in out:
        if name not in properties and closed:
            if not properties:
                raise click.UsageError(f"tool {tool!r} takes no arguments, got {name!r}")
            raise no_such(f"argument of {tool}({signature_of(schema)})", name, properties)
    return out


def _value(text: str, kinds: set[str] | None) -> Any:
    """Text stays text where text is wanted; otherwise it is JSON, if it is."""
    if kinds == {"string"}:
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if kinds is None or "string" not in kinds:
        return value
    return value if _kind(value) in kinds and not isinstance(value, str) else text


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    return {float: "number", str: "string", list: "array", dict: "object"}[type(value)]


def _kinds(schema: Any, root: dict[str, Any], depth: int = 0) -> set[str] | None:
    """The JSON types that a schema accepts; None when it does not say."""
    if not isinstance(schema, dict) or depth > 8:
        return None
    kind = schema.get("type")
    if isinstance(kind, str):
        return {kind, "integer"} if kind == "number" else {kind}
    if isinstance(kind, list):
        kinds = {each for each in kind if isinstance(each, str)}
        return kinds | ({"integer"} if "number" in kinds else set())
    if isinstance(schema.get("enum"), list):
        return {_kind(value) for value in schema["enum"]}
    if "const" in schema:
        return {_kind(schema["const"])}
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            out: set[str] = set()
            for arm in schema[key]:
                found = _kinds(arm, root, depth + 1)
                if found is None:
                    return None
                out |= found
            return out
    for arm in schema["allOf"] if isinstance(schema.get("allOf"), list) else ():
        found = _kinds(arm, root, depth + 1)
        if found is not None:
            return found
    return _kinds(_referred(schema, root), root, depth + 1)


def _constants(schema: Any, root: dict[str, Any]) -> list[Any]:
    """The constants that a schema names, as far as they can be told."""
    out: list[Any] = []
    seen: set[int] = set()
    left = [schema]
    while left:
        item = left.pop()
        if not isinstance(item, dict) or id(item) in seen:
            continue
        # A schema may refer to itself in many places.
        seen.add(id(item))
        out += item["enum"] if isinstance(item.get("enum"), list) else []
        out += [item["const"]] if "const" in item else []
        for key in ("anyOf", "oneOf", "allOf"):
            left += item[key] if isinstance(item.get(key), list) else []
        left.append(_referred(item, root))
    return out


def _referred(schema: dict[str, Any], root: dict[str, Any]) -> Any:
    """What a `$ref` inside the same schema points to (a JSON Pointer), or None."""
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    found: Any = root
    for part in unquote(reference[2:]).split("/"):
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found
