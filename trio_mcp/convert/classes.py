"""Codecs of classes with named fields: dataclass, TypedDict, NamedTuple, msgspec.Struct, attrs, pydantic.

msgspec, attrs and pydantic are never imported here: whoever has such a class has imported its library.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
import typing
from collections.abc import Callable, Iterator
from typing import Any

from ..protocol.jsontext import dumps, find_unwritable, shorten
from .codec import Codec, JSONSchema, Mismatch, Problem, Unsupported

__all__ = ["ClassCodec", "ClassShape", "FieldShape", "PydanticCodec", "field_names", "shape_of"]

MISSING: Any = dataclasses.MISSING


class FieldShape:
    """One field as its class declares it, before its type is compiled."""

    __slots__ = ("annotation", "attribute", "default", "name", "required")

    def __init__(self, name: str, attribute: str, annotation: Any, required: bool, default: Any = MISSING) -> None:
        self.name: str = name
        self.attribute: str = attribute
        self.annotation: Any = annotation
        self.required: bool = required
        self.default: Any = default


class ClassShape:
    """A class as JSON sees it.

    Attributes:
        fields: Its fields, in order.
        make: Builds an instance from keyword arguments by attribute name.
        get: Reads an attribute of an instance; `MISSING` when it is absent.
        closed: Whether other members are an error.
        tag: A member with a fixed value, or None.
    """

    __slots__ = ("check", "closed", "fields", "get", "make", "tag")

    def __init__(
        self,
        fields: list[FieldShape],
        make: Callable[..., Any],
        *,
        get: Callable[[Any, str], Any] = getattr,
        check: Callable[[Any], bool],
        closed: bool = True,
        tag: tuple[str, Any] | None = None,
    ) -> None:
        self.fields: list[FieldShape] = fields
        self.make: Callable[..., Any] = make
        self.get: Callable[[Any, str], Any] = get
        self.check: Callable[[Any], bool] = check
        self.closed: bool = closed
        self.tag: tuple[str, Any] | None = tag


def shape_of(cls: type, hints: Callable[[type], dict[str, Any]]) -> ClassShape | None:
    """How a class is built, or None when it is of no kind that we know.

    Args:
        cls: The class.
        hints: Resolves the annotations of a class, extras included.
    """
    if dataclasses.is_dataclass(cls):
        types = hints(cls)
        fields = [
            FieldShape(
                item.name,
                item.name,
                types[item.name],
                item.default is MISSING and item.default_factory is MISSING,
                _default_of(item),
            )
            for item in dataclasses.fields(cls)
            if item.init
        ]
        return ClassShape(fields, cls, check=lambda value: isinstance(value, cls))
    if typing.is_typeddict(cls):
        return _typed_dict(cls, hints(cls))
    if issubclass(cls, tuple) and hasattr(cls, "_fields") and hasattr(cls, "_field_defaults"):
        types = hints(cls)
        defaults: dict[str, Any] = getattr(cls, "_field_defaults", {})
        names: tuple[str, ...] = getattr(cls, "_fields", ())
        fields = [
            FieldShape(name, name, types.get(name, Any), name not in defaults, defaults.get(name, MISSING))
            for name in names
        ]
        return ClassShape(fields, cls, check=lambda value: isinstance(value, cls))
    if hasattr(cls, "__struct_fields__") and "msgspec" in sys.modules:
        return _struct(cls, hints(cls))
    if hasattr(cls, "__attrs_attrs__"):
        return _attrs(cls, hints(cls))
    return None


def _default_of(item: dataclasses.Field[Any]) -> Any:
    factory: Any = item.default_factory
    return item.default if factory is MISSING else factory()


def _typed_dict(cls: Any, types: dict[str, Any]) -> ClassShape:
    fields = []
    for name, annotation in types.items():
        required = name in cls.__required_keys__
        # Under postponed annotations the class cannot see Required and NotRequired; the resolved hint can.
        origin = typing.get_origin(annotation)
        if origin in (typing.Required, typing.NotRequired):
            required = origin is typing.Required
        fields.append(FieldShape(name, name, annotation, required))
    return ClassShape(
        fields,
        dict,
        get=lambda value, name: value.get(name, MISSING),
        check=lambda value: isinstance(value, dict),
    )


def _struct(cls: Any, types: dict[str, Any]) -> ClassShape:
    msgspec: Any = sys.modules["msgspec"]
    fields = []
    for item in msgspec.structs.fields(cls):
        default = MISSING
        if item.default is not msgspec.NODEFAULT:
            default = item.default
        elif item.default_factory is not msgspec.NODEFAULT:
            default = item.default_factory()
        fields.append(FieldShape(item.encode_name, item.name, types.get(item.name, item.type), item.required, default))
    config = cls.__struct_config__
    tag = (config.tag_field, config.tag) if config.tag is not None else None
    return ClassShape(
        fields,
        cls,
        check=lambda value: isinstance(value, cls),
        closed=bool(config.forbid_unknown_fields),
        tag=tag,
    )


def _attrs(cls: Any, types: dict[str, Any]) -> ClassShape:
    names: dict[str, str] = {}
    fields = []
    for item in cls.__attrs_attrs__:
        if not item.init:
            continue
        default = item.default
        factory = getattr(default, "factory", None)
        required = repr(default) == "NOTHING"
        if factory is not None:
            default = MISSING if default.takes_self else factory()
        names[item.name] = item.alias
        annotation = types.get(item.name, item.type if item.type is not None else Any)
        fields.append(FieldShape(item.alias, item.name, annotation, required, MISSING if required else default))

    def make(**values: Any) -> Any:
        return cls(**{names[name]: value for name, value in values.items()})

    return ClassShape(fields, make, check=lambda value: isinstance(value, cls))


class _Field:
    __slots__ = ("attribute", "codec", "default", "name", "required")

    def __init__(self, name: str, attribute: str, codec: Codec, required: bool, default: Any) -> None:
        self.name: str = name
        self.attribute: str = attribute
        self.codec: Codec = codec
        self.required: bool = required
        self.default: Any = default


class ClassCodec(Codec):
    """A class with named fields, as an object. Made empty and filled later, so that a class may refer to itself.

    Args:
        cls: The class.
        shape: How it is built.
        name: Its key in `$defs`.
    """

    kinds: frozenset[str] = frozenset({"dict"})

    def __init__(self, cls: type, shape: ClassShape, name: str) -> None:
        self.name: str = name
        self._cls = cls
        self._shape = shape
        self._fields: list[_Field] = []
        self._known: frozenset[str] = frozenset()
        self.expects: str = f"object {cls.__name__}"

    def fill(self, compile: Callable[[Any], Codec]) -> None:
        """Compile the types of the fields.

        Raises:
            Unsupported: a field cannot be expressed; `where` names it.
        """
        for field in self._shape.fields:
            try:
                codec = compile(field.annotation)
            except Unsupported as exc:
                raise exc.within(f"{self._cls.__name__}.{field.attribute}") from None
            self._fields.append(_Field(field.name, field.attribute, codec, field.required, field.default))
        self._known = frozenset(field.name for field in self._fields)
        if self._shape.tag is not None:
            self._known |= {self._shape.tag[0]}

    def children(self) -> Iterator[Codec]:
        return (field.codec for field in self._fields)

    def schema(self) -> JSONSchema:
        return {"$ref": f"#/$defs/{self.name}"}

    def definition(self) -> JSONSchema:
        """The schema itself, for `$defs` or for the root."""
        schema: JSONSchema = {"type": "object", "properties": {}}
        required: list[str] = []
        if self._shape.tag is not None:
            schema["properties"][self._shape.tag[0]] = {"const": self._shape.tag[1]}
            required.append(self._shape.tag[0])
        for field in self._fields:
            property = field.codec.schema()
            if field.default is not MISSING:
                property = with_default(property, field.codec, field.default)
            schema["properties"][field.name] = property
            if field.required:
                required.append(field.name)
        if required:
            schema["required"] = required
        if self._shape.closed:
            schema["additionalProperties"] = False
        doc = own_doc(self._cls)
        if doc:
            schema["description"] = doc
        return schema

    def load(self, value: Any) -> Any:
        if type(value) is not dict:
            raise Mismatch.of(value, self.expects)
        found: list[Problem] = []
        values: dict[str, Any] = {}
        for field in self._fields:
            if field.name in value:
                try:
                    values[field.attribute] = field.codec.load(value[field.name])
                except Mismatch as exc:
                    exc.under(field.name, found)
            elif field.required:
                Mismatch(Problem(f"missing, expected {field.codec.expects}")).under(field.name, found)
        tag = self._shape.tag
        if tag is not None:
            came = value.get(tag[0], MISSING)
            if came is MISSING:
                Mismatch(Problem(f"missing, expected {shorten(tag[1])}")).under(tag[0], found)
            elif type(came) is bool or came != tag[1]:
                Mismatch.of(came, shorten(tag[1])).under(tag[0], found)
        if self._shape.closed and not self._known.issuperset(value):
            names = ", ".join(self._known_in_order())
            for name in value:
                if name not in self._known:
                    Mismatch(Problem(f"unexpected; {self._cls.__name__} has {names or 'no fields'}")).under(name, found)
        if found:
            raise Mismatch(*found)
        try:
            return self._shape.make(**values)
        except (ValueError, TypeError) as exc:  # the class checks its own values
            # attrs puts the attribute, the rule and the value behind its sentence.
            why = exc.args[0] if exc.args and isinstance(exc.args[0], str) else exc
            raise Mismatch(Problem(f"{self._cls.__name__}: {' '.join(str(why).split())}")) from exc

    def _known_in_order(self) -> list[str]:
        return [field.name for field in self._fields]

    def dump(self, value: Any) -> Any:
        if not self._shape.check(value):
            raise Mismatch.of(value, self.expects)
        out: dict[str, Any] = {}
        found: list[Problem] = []
        if self._shape.tag is not None:
            out[self._shape.tag[0]] = self._shape.tag[1]
        for field in self._fields:
            item = self._shape.get(value, field.attribute)
            if item is MISSING:
                if field.required:
                    Mismatch(Problem(f"missing, expected {field.codec.expects}")).under(field.name, found)
                continue
            try:
                out[field.name] = field.codec.dump(item)
            except RecursionError:
                raise Mismatch(Problem("nested too deep (or refers to itself)")) from None
            except Mismatch as exc:
                exc.under(field.name, found)
        if isinstance(value, dict) and not self._known.issuperset(value):
            for name in value:
                if name not in self._known:
                    names = ", ".join(self._known_in_order())
                    Mismatch(Problem(f"unexpected; {self._cls.__name__} has {names}")).under(str(name), found)
        if found:
            raise Mismatch(*found)
        return out

    def owns(self, value: Any) -> bool:
        return self._shape.check(value) and (
            not isinstance(value, dict)
            or (self._known.issuperset(value) and all(field.name in value for field in self._fields if field.required))
        )

    def unknown_keys(self, value: Any) -> int:
        return sum(name not in self._known for name in value)


def with_default(schema: JSONSchema, codec: Codec, default: Any) -> JSONSchema:
    """A schema with the default of a field or parameter, if that can be written as JSON."""
    try:
        return {**schema, "default": codec.dump(default)}
    except Mismatch:
        return schema


def own_doc(cls: type) -> str | None:
    """The docstring that somebody wrote for this class, or None."""
    doc = cls.__dict__.get("__doc__")
    if not isinstance(doc, str) or doc.startswith((f"{cls.__name__}(", "Method generated by attrs")):
        return None
    return inspect.cleandoc(doc) or None


def field_names(codec: Codec) -> list[str]:
    """The members of a class codec, in order; of any other codec, none."""
    return codec._known_in_order() if isinstance(codec, ClassCodec) else []


class PydanticCodec(Codec):
    """A pydantic model, or any type that tells pydantic how to read it: pydantic's own rules apply.

    Args:
        cls: The type.
        name: Its key in `$defs`.
        mode: "validation" for input, "serialization" for output.
    """

    kinds: frozenset[str] = frozenset()

    def __init__(self, cls: Any, name: str, mode: str) -> None:
        pydantic: Any = sys.modules["pydantic"]
        self.name: str = name
        self._cls = cls
        try:
            self._adapter = pydantic.TypeAdapter(cls)
            schema = self._adapter.json_schema(mode=mode, by_alias=True, ref_template=f"#/$defs/{name}.{{model}}")
        except pydantic.errors.PydanticUserError as exc:
            raise Unsupported(f"{cls!r}: {str(exc).splitlines()[0]}") from None
        self._error = pydantic.ValidationError
        self.parts: dict[str, JSONSchema] = {f"{name}.{key}": part for key, part in schema.pop("$defs", {}).items()}
        self.body: JSONSchema = schema
        self._class = cls if isinstance(cls, type) else object
        label = getattr(cls, "__name__", str(cls))
        kind = schema.get("type")
        if kind == "object":
            self.kinds: frozenset[str] = frozenset({"dict"})
        self.expects: str = f"object {label}" if kind in ("object", None) else f"{kind} ({label})"

    def schema(self) -> JSONSchema:
        return {"$ref": f"#/$defs/{self.name}"}

    def load(self, value: Any) -> Any:
        try:
            return self._adapter.validate_json(dumps(value))
        except self._error as exc:
            problems = []
            for item in exc.errors(include_url=False, include_context=False):
                wrong = Mismatch.of(item["input"], "…").problems[0].text.split(", got ", 1)[1]
                missing = item["type"] == "missing"
                problem = Problem("missing" if missing else f"{_lower(item['msg'])}, got {wrong}")
                problem.path = list(reversed(item["loc"]))
                problems.append(problem)
            raise Mismatch(*problems) from None

    def dump(self, value: Any) -> Any:
        if not isinstance(value, self._class):
            raise Mismatch.of(value, self.expects)
        wire = self._adapter.dump_python(value, mode="json", by_alias=True)
        bad = find_unwritable(wire)
        if bad:
            raise Mismatch(Problem(bad.removeprefix("$: ").removeprefix("$.")))
        return wire

    def owns(self, value: Any) -> bool:
        return self._class is not object and isinstance(value, self._class)

    def unknown_keys(self, value: Any) -> int:
        known = self.body.get("properties", {})
        return sum(name not in known for name in value)


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
