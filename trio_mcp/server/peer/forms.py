"""Forms of elicitation: from Python types or a JSON Schema to the flat subset that the specification allows.

A form is a dict of types, a class with named fields, or a JSON Schema of type object. Its fields are text, numbers, booleans, one
or several of fixed choices; nothing nested (client/elicitation).
"""

from __future__ import annotations

import copy
from typing import Any, Final, TypedDict

from ...convert.codec import Codec, Found, Mismatch, Unsupported
from ...convert.compiler import Compiler
from ...convert.json_schema import BadSchema, GivenSchema

__all__ = ["Form"]

_FORMATS: Final = frozenset({"email", "uri", "date", "date-time"})
_NOTES: Final = ("type", "title", "description", "default")
_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "text": (*_NOTES, "minLength", "maxLength", "format"),
    "integer": (*_NOTES, "minimum", "maximum"),
    "number": (*_NOTES, "minimum", "maximum"),
    "boolean": _NOTES,
    "a choice": (*_NOTES, "enum", "enumNames"),
    "a titled choice": (*_NOTES, "oneOf"),
    "several choices": (*_NOTES, "items", "minItems", "maxItems"),
}
"""What a field may say, by its kind."""
_FIELDS: Final = "must be text, a number, a boolean, or one or several of fixed texts; nothing nested"
_JSON_TYPES: Final = ("object", "array", "string", "integer", "number", "boolean", "null")
# They say nothing about the fields. Others may, and to leave one out would change what fits.
_IGNORED: Final = frozenset({"$schema", "title", "description", "additionalProperties"})


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
        if isinstance(source, dict) and source.get("type") in _JSON_TYPES:
            if source["type"] != "object" or not isinstance(source.get("properties"), dict):
                raise _no_form(source)
            self.schema: dict[str, Any] = _given(source)
            self._given = GivenSchema(self.schema)
            return
        form = source
        if isinstance(source, dict):
            make: Any = TypedDict  # a class that is made at run time is none to a type checker
            try:
                form = make("Form", source)
            except TypeError:
                raise _no_form(source) from None
        compiler = Compiler()
        try:
            self._codec: Codec = compiler.compile(form)
        except Unsupported as exc:
            raise ValueError(f"form: {' → '.join(exc.where) or source}: {exc.message}") from None
        schema = compiler.root_schema(self._codec)
        if getattr(self._codec, "members", None) is None:  # no class
            raise _no_form(source)
        definitions = schema.get("$defs", {})
        fields = {name: _flat(name, item, definitions) for name, item in schema["properties"].items()}
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


def _no_form(source: Any) -> ValueError:
    return ValueError(
        "form: expected a dict of types, a class with fields, or a JSON Schema of type object with properties, "
        f"got {source!r}"
    )


def _kind(field: dict[str, Any]) -> str | None:
    """Which of the kinds of fields one is."""
    kind = field.get("type")
    if kind == "string":
        return "a titled choice" if "oneOf" in field else "a choice" if field.keys() & {"enum", "enumNames"} else "text"
    if kind == "array":
        return "several choices"
    return kind if kind in ("integer", "number", "boolean") else None


# -- from types


def _flat(name: str, schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """One field, without what a form cannot say."""
    notes = {key: schema[key] for key in ("title", "description", "default") if schema.get(key) is not None}
    field = {**_plain(schema, definitions), **notes}
    kind = _kind(field)
    items = field.get("items")
    if isinstance(items, dict) and not _is_titled(items, "anyOf"):
        items = _plain(items, definitions)
        field["items"] = {key: items[key] for key in ("type", "enum") if key in items}
    keys = _KEYS.get(kind or "", ())
    out = {key: item for key, item in field.items() if key in keys and item is not None}
    if out.get("format") not in _FORMATS:
        out.pop("format", None)
    choices = out.get("items", out)
    if kind in ("text", "integer", "number", "boolean") and "enum" not in field:
        return out
    if _is_choice(choices) or _is_titled(choices, "anyOf") or _is_titled(choices, "oneOf"):
        return out
    raise ValueError(f"form: field {name!r} {_FIELDS}")


def _plain(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """A schema with a single type: references followed, null left out. That a field may be left out is said elsewhere."""
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return _plain(definitions.get(reference.rpartition("/")[2], {}), definitions)
    arms = schema.get("anyOf")
    if isinstance(arms, list):
        rest = [arm for arm in arms if arm != {"type": "null"}]
        return _plain(rest[0], definitions) if len(rest) == 1 else {}
    out = dict(schema)
    if "const" in out:
        out["enum"] = [out.pop("const")]
    if isinstance(out.get("enum"), list):
        out["enum"] = [choice for choice in out["enum"] if choice is not None]
        if all(isinstance(choice, str) for choice in out["enum"]):
            out["type"] = "string"
    if isinstance(out.get("type"), list):
        named = [kind for kind in out["type"] if kind != "null"]
        out["type"] = named[0] if len(named) == 1 else None
    return out


# -- from JSON Schemas


def _given(schema: dict[str, Any]) -> dict[str, Any]:
    """A form that was written as a JSON Schema, as it is sent.

    Raises:
        ValueError: a field is, or has, something that forms cannot have.
    """
    for key in schema:
        if key not in ("type", "properties", "required") and key not in _IGNORED:
            raise ValueError(f"form: forms have no {key!r}; there is: type, properties, required")
    fields = {name: _given_field(name, item) for name, item in schema["properties"].items()}
    required = schema.get("required", [])
    if not isinstance(required, list | tuple) or not all(isinstance(name, str) for name in required):
        raise ValueError(f"form: 'required' is a list of names, got {required!r}")
    unknown = [name for name in required if name not in fields]
    if unknown:
        raise ValueError(f"form: {unknown[0]!r} is required and is no field")
    out: dict[str, Any] = {"type": "object", "properties": fields}
    if required:
        out["required"] = list(required)
    return out


def _given_field(name: str, field: Any) -> dict[str, Any]:
    kind = _kind(field) if isinstance(field, dict) else None
    if kind is None:
        raise ValueError(f"form: field {name!r} {_FIELDS}")
    for key in field:
        if key not in _KEYS[kind]:
            raise ValueError(
                f"form: field {name!r}: forms have no {key!r} for {kind}; there is: {', '.join(_KEYS[kind])}"
            )
    if "format" in field and field["format"] not in sorted(_FORMATS):
        raise ValueError(
            f"form: field {name!r}: format is one of {', '.join(sorted(_FORMATS))}, got {field['format']!r}"
        )
    if "choice" in kind:
        _check_choices(name, kind, field)
    try:
        checked = GivenSchema(field)
    except BadSchema as exc:
        raise ValueError(f"form: field {name!r}: {exc}") from None
    if "default" in field:
        try:
            checked.check(field["default"])
        except Mismatch as exc:
            found = Found()
            found.under("default", exc)
            raise ValueError(f"form: field {name!r}: {found.problems[0]}") from None
    return copy.deepcopy(field)


def _check_choices(name: str, kind: str, field: dict[str, Any]) -> None:
    several = kind == "several choices"
    items = field.get("items") if several else field
    titled = "anyOf" if several else "oneOf"
    fits = False
    if isinstance(items, dict):
        keys = {titled} if titled in items else {"type", "enum"}
        fits = (_is_titled(items, titled) or _is_choice(items)) and (not several or set(items) == keys)
    if not fits:
        enum = '"type": "string" and an \'enum\' of them' if several else "an 'enum' of them"
        raise ValueError(
            f"form: field {name!r}: choices are texts: {enum}, or {titled!r} of objects with 'const' and 'title'"
        )
    names: Any = field.get("enumNames", field.get("enum"))
    if kind == "a choice" and not (_is_choice({**field, "enum": names}) and len(names) == len(field["enum"])):
        raise ValueError(f"form: field {name!r}: 'enumNames' has a text for each choice, got {names!r}")


def _is_choice(schema: dict[str, Any]) -> bool:
    choices = schema.get("enum")
    return (
        schema.get("type") == "string"
        and isinstance(choices, list | tuple)
        and bool(choices)
        and all(isinstance(item, str) for item in choices)
    )


def _is_titled(schema: dict[str, Any], key: str) -> bool:
    arms = schema.get(key)
    return (
        isinstance(arms, list | tuple)
        and bool(arms)
        and all(
            isinstance(arm, dict)
            and set(arm) == {"const", "title"}
            and all(isinstance(text, str) for text in arm.values())
            for arm in arms
        )
    )
