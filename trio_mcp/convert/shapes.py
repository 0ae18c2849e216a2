"""How a class with named fields is built and read: dataclass, TypedDict, NamedTuple, msgspec.Struct, attrs.

msgspec and attrs are never imported here: whoever has such a class has imported its library.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
import types
import typing
from collections.abc import Callable
from typing import Any

from ..protocol.jsontext import shorten
from .codec import Unsupported

__all__ = [
    "MISSING",
    "ClassShape",
    "FieldShape",
    "is_field",
    "own_doc",
    "resolved",
    "shape_of",
    "stripped",
    "told_error",
]

MISSING: Any = dataclasses.MISSING
Hints = Callable[[type], dict[str, Any]]


class FieldShape:
    """One field as its class declares it, before its type is compiled.

    Attributes:
        name: The member of the object.
        attribute: The attribute of the instance, and the argument of the constructor.
        annotation: Its type.
        required: Whether an object without it is refused.
        default: What it is without; `MISSING` where there is none, or a factory makes it for each instance.
        loaded: Whether it comes in. A field that the class computes does not.
        dumped: Whether it goes out. What only the constructor takes does not.
        absent: A value that stands for a member that is not there.
    """

    __slots__ = ("absent", "annotation", "attribute", "default", "dumped", "loaded", "name", "required")

    def __init__(
        self,
        name: str,
        attribute: str,
        annotation: Any,
        required: bool,
        default: Any = MISSING,
        *,
        loaded: bool = True,
        dumped: bool = True,
        absent: Any = MISSING,
    ) -> None:
        self.name: str = name
        self.attribute: str = attribute
        self.annotation: Any = annotation
        self.required: bool = required
        self.default: Any = default
        self.loaded: bool = loaded
        self.dumped: bool = dumped
        self.absent: Any = absent


class ClassShape:
    """A class as JSON sees it.

    Attributes:
        fields: Its fields, in order.
        make: Builds an instance from keyword arguments by attribute name.
        get: Reads an attribute of an instance; `MISSING` when it is absent.
        check: Whether a value is an instance.
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


def shape_of(cls: type, hints: Hints, out: bool = False) -> ClassShape | None:
    """How a class is built, or None when it is of no kind that we know.

    Args:
        cls: The class.
        hints: Resolves the annotations of a class, extras included.
        out: Whether its values go out only, so that it is never built.

    Raises:
        Unsupported: it could not be built from its fields.
    """
    if dataclasses.is_dataclass(cls):
        return _dataclass(cls, hints(cls), out)
    if typing.is_typeddict(cls) or (issubclass(cls, dict) and hasattr(cls, "__required_keys__")):
        # The second is that of typing_extensions, which pydantic asks for on older Pythons.
        return _typed_dict(cls, hints(cls))
    if issubclass(cls, tuple) and hasattr(cls, "_fields") and hasattr(cls, "_field_defaults"):
        found = hints(cls)
        defaults: dict[str, Any] = getattr(cls, "_field_defaults", {})
        names: tuple[str, ...] = getattr(cls, "_fields", ())
        if any(is_field(default) for default in defaults.values()):
            raise Unsupported(
                f"{cls.__name__}: Field(…) is no default of a NamedTuple; write the value, and bounds in Annotated"
            )
        fields = [
            FieldShape(name, name, found.get(name, Any), name not in defaults, defaults.get(name, MISSING))
            for name in names
        ]
        return ClassShape(fields, cls, check=lambda value: isinstance(value, cls))
    if hasattr(cls, "__struct_fields__") and "msgspec" in sys.modules:
        return _struct(cls, hints(cls))
    if hasattr(cls, "__attrs_attrs__"):
        return _attrs(cls, hints(cls))
    return None


def _dataclass(cls: Any, found: dict[str, Any], out: bool) -> ClassShape:
    known = {item.name: item for item in dataclasses.fields(cls)}
    fields = []
    for name, annotation in found.items():
        item = known.get(name)
        if item is not None:
            required = item.default is MISSING and item.default_factory is MISSING
            if is_field(item.default):
                raise Unsupported(
                    f"{cls.__name__}.{name} = Field(…) is understood by pydantic's dataclass only; here the default stands "
                    "behind the =, and bounds in Annotated"
                )
            fields.append(FieldShape(name, name, annotation, required, item.default, loaded=item.init))
        elif isinstance(annotation, dataclasses.InitVar) or annotation is dataclasses.InitVar:
            default = getattr(cls, name, MISSING)
            inner = getattr(annotation, "type", Any)
            fields.append(FieldShape(name, name, inner, default is MISSING, default, dumped=False))
    # Annotations come base class last; the fields are in the order of the constructor.
    parameters = inspect.signature(cls).parameters
    order = {name: index for index, name in enumerate(parameters)}
    fields.sort(key=lambda field: order.get(field.name, len(order)))
    if not out and all(item.kind is not item.VAR_KEYWORD for item in parameters.values()):
        for field in fields:
            if field.loaded and field.name not in parameters:
                raise Unsupported(f"{cls.__name__} has a constructor of its own that does not take {field.name!r}")
    return ClassShape(fields, cls, check=lambda value: isinstance(value, cls))


def stripped(annotation: Any) -> tuple[Any, bool | None]:
    """A type without Required, NotRequired and ReadOnly around it, wherever they stand; and whether it is required."""
    required: bool | None = None
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        inner, *notes = typing.get_args(annotation)
        inner, required = stripped(inner)
        return typing.Annotated[(inner, *notes)], required
    if origin in (typing.Required, typing.NotRequired):
        inner, _ = stripped(typing.get_args(annotation)[0])
        return inner, origin is typing.Required
    if getattr(origin, "__name__", getattr(origin, "_name", "")) == "ReadOnly":
        return stripped(typing.get_args(annotation)[0])
    return annotation, None


def is_field(note: Any) -> bool:
    """Whether a note or a default is what `pydantic.Field(…)` returns."""
    return type(note).__name__ == "FieldInfo" and type(note).__module__ == "pydantic.fields"


def _typed_dict(cls: Any, found: dict[str, Any]) -> ClassShape:
    fields = []
    for name, annotation in found.items():
        # Under postponed annotations the class cannot see Required and NotRequired; the resolved hint can.
        inner, required = stripped(annotation)
        fields.append(FieldShape(name, name, inner, name in cls.__required_keys__ if required is None else required))
    return ClassShape(
        fields,
        dict,
        get=lambda value, name: value.get(name, MISSING),
        check=lambda value: isinstance(value, dict),
    )


def _struct(cls: Any, found: dict[str, Any]) -> ClassShape:
    msgspec: Any = sys.modules["msgspec"]
    fields = []
    # Not from `msgspec.structs.fields`: it resolves the annotations again, without the names of an enclosing function.
    defaults = cls.__struct_defaults__
    defaults = (msgspec.NODEFAULT,) * (len(cls.__struct_fields__) - len(defaults)) + defaults
    for attribute, name, default in zip(cls.__struct_fields__, cls.__struct_encode_fields__, defaults, strict=True):
        required = default is msgspec.NODEFAULT
        if required or type(default).__name__ == "Factory":
            default = MISSING
        annotation, absent = found[attribute], MISSING
        if msgspec.UnsetType in typing.get_args(annotation):
            absent = msgspec.UNSET
            arms = tuple(arm for arm in typing.get_args(annotation) if arm is not msgspec.UnsetType)
            annotation = typing.Union[arms]  # noqa: UP007 - of a tuple
        if default is absent:
            default = MISSING
        fields.append(FieldShape(name, attribute, annotation, required, default, absent=absent))
    config = cls.__struct_config__
    tag = (config.tag_field, config.tag) if config.tag is not None else None
    return ClassShape(
        fields,
        cls,
        check=lambda value: isinstance(value, cls),
        closed=bool(config.forbid_unknown_fields),
        tag=tag,
    )


def _attrs(cls: Any, found: dict[str, Any]) -> ClassShape:
    names: dict[str, str] = {}
    fields = []
    for item in cls.__attrs_attrs__:
        required = repr(item.default) == "NOTHING"
        plain = not required and not hasattr(item.default, "factory")
        names[item.name] = item.alias
        annotation = found.get(item.name, item.type if item.type is not None else Any)
        default = item.default if plain else MISSING
        name = item.alias if item.init else item.name
        fields.append(FieldShape(name, item.name, annotation, required, default, loaded=item.init))

    def make(**values: Any) -> Any:
        return cls(**{names[name]: value for name, value in values.items()})

    return ClassShape(fields, make, check=lambda value: isinstance(value, cls))


def own_doc(cls: type) -> str | None:
    """The docstring that somebody wrote for this class, or None."""
    doc = cls.__dict__.get("__doc__")
    if not isinstance(doc, str) or doc.startswith((f"{cls.__name__}(", "Method generated by attrs")):
        return None
    return inspect.cleandoc(doc) or None


def resolved(annotation: Any, module: str | None, names: dict[str, Any]) -> Any:
    """An annotation whose names in strings are looked up, also those inside of it.

    Raises:
        Unsupported: a name means nothing.
    """
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    globalns = vars(sys.modules[module]) if module in sys.modules else {}
    try:
        return typing.get_type_hints(holder, globalns, names, include_extras=True)["it"]
    except NameError as exc:
        raise Unsupported(f"the name {exc.name!r} cannot be resolved") from None
    except Exception as exc:  # what is written in a string is run, so anything may happen
        raise Unsupported(f"{shorten(annotation)} is not a type: {told_error(exc)}") from None


def told_error(exc: Exception) -> str:
    """An error of somebody else's code, in one line."""
    text = next(iter(str(exc).splitlines()), "")
    return text if isinstance(exc, TypeError | SyntaxError) and text else f"{type(exc).__name__}: {text}".rstrip(": ")
