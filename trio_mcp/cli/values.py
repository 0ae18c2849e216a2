"""Arguments from a command line: `key=value`, read as the schema of the argument wants it."""

from __future__ import annotations

import json
from typing import Any

import click

from .session import no_such, signature_of

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
    properties = schema.get("properties") or {}
    closed = not schema.get("additionalProperties")
    out = dict(given)
    for name, text in pairs.items():
        out[name] = _value(text, _kinds(properties.get(name), schema))
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
        return set(kind) | ({"integer"} if "number" in kind else set())
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
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        return _kinds((root.get("$defs") or {}).get(reference.removeprefix("#/$defs/")), root, depth + 1)
    return None
