"""Forms of elicitation: from Python types or a JSON Schema to the flat subset that the specification allows.

A form is a dict of types, a class with named fields, or a JSON Schema of type object. Its fields are text, numbers, booleans, one
or several of fixed choices; nothing nested (client/elicitation).
"""

from __future__ import annotations

import typing
from typing import Any, Final, TypedDict

from ..convert.codec import Codec, Mismatch, Unsupported
from ..convert.compiler import Compiler

__all__ = ["Form"]

_PRIMITIVE: Final = frozenset({"string", "integer", "number", "boolean"})
_KEPT: Final = frozenset(
    {
        "type",
        "title",
        "description",
        "default",
        "enum",
        "oneOf",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "format",
        "items",
        "minItems",
        "maxItems",
    }
)
_FORMATS: Final = frozenset({"email", "uri", "date", "date-time"})


class Form:
    """A form.

    Args:
        source: A dict of types by name, a class with fields, or a JSON Schema.

    Attributes:
        schema: What is sent as `requestedSchema`.

    Raises:
        ValueError: a field is not of the kinds that a form may have; the text names it.
    """

    __slots__ = ("_codec", "schema")

    def __init__(self, source: Any) -> None:
        if isinstance(source, dict) and source.get("type") == "object" and isinstance(source.get("properties"), dict):
            source = _types_of(source)
        if isinstance(source, dict):
            make: Any = TypedDict  # a class that is made at run time is none to a type checker
            source = make("Form", source)
        compiler = Compiler()
        try:
            self._codec: Codec = compiler.compile(source)
        except Unsupported as exc:
            raise ValueError(f"form: {' → '.join(exc.where) or source}: {exc.message}") from None
        schema = compiler.root_schema(self._codec)
        if schema.get("type") != "object":
            raise ValueError(f"form: expected a dict of types, a class with fields or a JSON Schema, got {source!r}")
        definitions = schema.get("$defs", {})
        fields = {name: _flat(name, item, definitions) for name, item in schema.get("properties", {}).items()}
        self.schema: dict[str, Any] = {"type": "object", "properties": fields}
        if schema.get("required"):
            self.schema["required"] = list(schema["required"])

    def load(self, content: Any) -> Any:
        """The value that a user's answer stands for.

        Raises:
            Mismatch: it does not fit the form.
        """
        return self._codec.load(content)

    def fits(self, content: Any) -> bool:
        """Whether an answer fits the form."""
        try:
            self.load(content)
        except Mismatch:
            return False
        return True


def _flat(name: str, schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """One field, without what a form cannot say."""
    notes = {key: schema[key] for key in ("title", "description", "default") if schema.get(key) is not None}
    reference = schema.get("$ref")
    if isinstance(reference, str):
        schema = definitions.get(reference.rpartition("/")[2], {})
    arms = schema.get("anyOf")
    if isinstance(arms, list):
        # Optional: the field may be left out, which is said elsewhere.
        rest = [arm for arm in arms if arm != {"type": "null"}]
        schema = rest[0] if len(rest) == 1 else {}
    kind = schema.get("type")
    if isinstance(kind, list):
        named = [item for item in kind if item != "null"]
        kind = named[0] if len(named) == 1 else None
    if "const" in schema:
        schema = {"type": "string", "enum": [schema["const"]]}
        kind = "string"
    out = {key: item for key, item in {**schema, **notes, "type": kind}.items() if key in _KEPT}
    if out.get("format") not in _FORMATS:
        out.pop("format", None)
    if kind == "array" and _is_choice(schema.get("items")):
        return out
    if kind in _PRIMITIVE and ("enum" not in out or _is_choice(out)):
        return out
    raise ValueError(
        f"form: field {name!r} must be text, a number, a boolean, or one or several of fixed texts; nothing nested"
    )


def _is_choice(schema: Any) -> bool:
    return (
        isinstance(schema, dict) and bool(schema.get("enum")) and all(isinstance(item, str) for item in schema["enum"])
    )


class _Bounds:
    """Bounds from a JSON Schema, in the words that the compiler reads."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.ge = schema.get("minimum")
        self.le = schema.get("maximum")
        self.min_length = schema.get("minLength", schema.get("minItems"))
        self.max_length = schema.get("maxLength", schema.get("maxItems"))
        self.title = schema.get("title")
        self.description = schema.get("description")
        self.extra_json_schema = {key: schema[key] for key in ("default", "format") if key in schema}


def _types_of(schema: dict[str, Any]) -> dict[str, Any]:
    """The types of a flat JSON Schema, so that one mechanism checks all forms."""
    required = schema.get("required", [])
    out: dict[str, Any] = {}
    for name, item in schema["properties"].items():
        annotation: Any = typing.Annotated[_type_of(name, item), _Bounds(item)]
        out[name] = annotation if name in required else typing.NotRequired[annotation]
    return out


def _type_of(name: str, schema: Any) -> Any:
    if isinstance(schema, dict):
        choices = schema.get("enum") or [item.get("const") for item in schema.get("oneOf", ())]
        if choices and all(isinstance(item, str) for item in choices):
            return typing.Literal[tuple(choices)]
        kinds: dict[Any, Any] = {"string": str, "integer": int, "number": float, "boolean": bool}
        if schema.get("type") in kinds:
            return kinds[schema["type"]]
        items = schema.get("items")
        if schema.get("type") == "array" and isinstance(items, dict):
            several = items.get("enum") or [item.get("const") for item in items.get("anyOf", ())]
            if several:
                return list[typing.Literal[tuple(several)]]  # type: ignore[misc]
    raise ValueError(f"form: field {name!r} must be text, a number, a boolean, or one or several of fixed texts")
