"""Forms of elicitation: from Python types or a JSON Schema to the flat subset that the specification allows.

A form is a dict of types, a class with named fields, or a JSON Schema of type object. Its fields are text, numbers, booleans, one
or several of fixed choices; nothing nested (client/elicitation).
"""

from __future__ import annotations

from typing import Any, Final, TypedDict

from ..convert.codec import Codec, Mismatch, Unsupported
from ..convert.compiler import Compiler
from ..convert.json_schema import GivenSchema

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
_NOTES: Final = ("type", "title", "description", "default")
_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "string": (*_NOTES, "minLength", "maxLength", "format", "enum", "enumNames", "oneOf"),
    "integer": (*_NOTES, "minimum", "maximum"),
    "number": (*_NOTES, "minimum", "maximum"),
    "boolean": _NOTES,
    "array": (*_NOTES, "items", "minItems", "maxItems"),
}
"""What a field may say, by its type."""


class Form:
    """A form.

    Args:
        source: A dict of types by name, a class with fields, or a JSON Schema.

    Attributes:
        schema: What is sent as `requestedSchema`.

    Raises:
        ValueError: a field is not of the kinds that a form may have; the text names it.
    """

    __slots__ = ("_codec", "_given", "schema")

    def __init__(self, source: Any) -> None:
        self._given: GivenSchema | None = None
        if isinstance(source, dict) and source.get("type") == "object" and isinstance(source.get("properties"), dict):
            self.schema: dict[str, Any] = _given(source)
            self._given = GivenSchema(self.schema)
            return
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
        self.schema = {"type": "object", "properties": fields}
        if schema.get("required"):
            self.schema["required"] = list(schema["required"])

    def load(self, content: Any) -> Any:
        """The value that a user's answer stands for. Fields that the form does not have are ignored.

        Raises:
            Mismatch: it does not fit the form.
        """
        if isinstance(content, dict):
            content = {name: value for name, value in content.items() if name in self.schema["properties"]}
        if self._given is None:
            return self._codec.load(content)
        self._given.check(content)
        return content

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
    out = {key: item for key, item in {**schema, **notes, "type": kind}.items() if key in _KEPT and item is not None}
    if out.get("format") not in _FORMATS:
        out.pop("format", None)
    items = schema.get("items")
    if kind == "array" and isinstance(items, dict) and isinstance(items.get("const"), str):
        items = out["items"] = {"type": "string", "enum": [items["const"]]}
    if kind == "array" and _is_choice(items):
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


def _given(schema: dict[str, Any]) -> dict[str, Any]:
    """A form that was written as a JSON Schema, as it is sent.

    Raises:
        ValueError: a field is, or has, something that forms cannot have.
    """
    fields = {name: _given_field(name, item) for name, item in schema["properties"].items()}
    unknown = [name for name in schema.get("required", ()) if name not in fields]
    if unknown:
        raise ValueError(f"form: {unknown[0]!r} is required and is no field")
    out: dict[str, Any] = {"type": "object", "properties": fields}
    if schema.get("required"):
        out["required"] = list(schema["required"])
    return out


def _given_field(name: str, field: Any) -> dict[str, Any]:
    kind = field.get("type") if isinstance(field, dict) else None
    allowed = _FIELDS.get(kind) if isinstance(kind, str) else None
    if allowed is None:
        raise ValueError(
            f"form: field {name!r} must be text, a number, a boolean, or one or several of fixed texts; nothing nested"
        )
    for key in field:
        if key not in allowed:
            raise ValueError(f"form: field {name!r}: forms have no {key!r} for {kind}; there is: {', '.join(allowed)}")
    if field.get("format", "email") not in _FORMATS:
        raise ValueError(
            f"form: field {name!r}: format is one of {', '.join(sorted(_FORMATS))}, got {field['format']!r}"
        )
    choices = field.get("items") if kind == "array" else field
    titled = "anyOf" if kind == "array" else "oneOf"
    given = isinstance(choices, dict) and (titled in choices or "enum" in choices)
    if (given or kind == "array") and not (
        isinstance(choices, dict) and (_is_choice(choices) or _is_titled(choices, titled))
    ):
        raise ValueError(
            f"form: field {name!r}: choices are texts: an 'enum' of them, or {titled!r} of objects with 'const' and 'title'"
        )
    return dict(field)


def _is_titled(schema: dict[str, Any], key: str) -> bool:
    arms = schema.get(key)
    return (
        isinstance(arms, list)
        and bool(arms)
        and all(isinstance(arm, dict) and isinstance(arm.get("const"), str) for arm in arms)
    )
