"""Schemas for hosts that do not follow references."""

from __future__ import annotations

from typing import Any, Final

from .codec import JSONSchema, Unsupported

__all__ = ["inlined"]

_MOST: Final = 10_000
"""Parts that a schema may come to. Definitions that use others twice each double with every level."""


def inlined(schema: JSONSchema) -> JSONSchema:
    """A schema with each definition in the place of the references to it.

    Raises:
        Unsupported: a definition refers to itself, or it would become too large.
    """
    definitions = schema.get("$defs", {})
    parts = 0

    def walk(part: Any, inside: tuple[str, ...]) -> Any:
        nonlocal parts
        parts += 1
        if parts > _MOST:
            raise Unsupported(f"without references the schema would have more than {_MOST:,} parts")
        if isinstance(part, list):
            return [walk(item, inside) for item in part]
        if not isinstance(part, dict):
            return part
        target = part.get("$ref")
        if not isinstance(target, str):
            return {key: walk(item, inside) for key, item in part.items() if key != "$defs"}
        name = target.removeprefix("#/$defs/")
        if name in inside:
            raise Unsupported(f"{name} refers to itself, and cannot be written without references")
        if not target.startswith("#/$defs/") or name not in definitions:
            raise Unsupported(f"the reference {target} cannot be replaced")
        # What stands beside a reference is said of this place: its description, its default.
        beside = {key: walk(item, inside) for key, item in part.items() if key != "$ref"}
        return {**walk(definitions[name], (*inside, name)), **beside}

    made: JSONSchema = walk(schema, ())
    return made
