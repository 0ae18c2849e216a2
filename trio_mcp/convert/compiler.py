"""From an annotation to its codec."""

from __future__ import annotations

import collections
import collections.abc as abc
import decimal
import enum
import os
import pathlib
import re
import sys
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from ..protocol.jsontext import find_unwritable, shorten
from .classes import ClassCodec, PydanticCodec, shape_of
from .codec import Codec, JSONSchema, Mismatch, Problem, Unsupported
from .containers import ArrayCodec, ConstrainedCodec, DictCodec, TupleCodec, UnionCodec
from .scalars import (
    BoolCodec,
    BytesCodec,
    ChoiceCodec,
    DecimalCodec,
    FloatCodec,
    IntCodec,
    NoneCodec,
    PathCodec,
    StrCodec,
    enum_codec,
    text_codec,
)

__all__ = ["Compiler", "description_of"]

_ARRAYS: Final[dict[Any, tuple[Any, tuple[type, ...], bool]]] = {
    list: (list, (list, tuple), False),
    abc.Sequence: (list, (abc.Sequence,), False),
    abc.MutableSequence: (list, (abc.MutableSequence,), False),
    abc.Collection: (list, (abc.Collection,), False),
    abc.Iterable: (list, (abc.Collection,), False),
    collections.deque: (collections.deque, (collections.deque,), False),
    set: (set, (set, frozenset), True),
    frozenset: (frozenset, (set, frozenset), True),
    abc.Set: (set, (abc.Set,), True),
    abc.MutableSet: (set, (abc.MutableSet,), True),
}
_OBJECTS: Final = frozenset({dict, abc.Mapping, abc.MutableMapping, collections.OrderedDict, collections.defaultdict})
_WRAPPERS: Final = frozenset({typing.Required, typing.NotRequired, typing.Final, typing.ClassVar})
_EXTRAS: Final = ("extra_json_schema", "json_schema_extra")
_BOUNDS: Final = ("ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length", "pattern")


class Compiler:
    """Compiles the annotations of one schema: its classes share one `$defs`.

    Args:
        output: Whether values leave (matters to pydantic, whose models may differ by direction).
        localns: Names for annotations in strings, besides those of a class's own module.
    """

    def __init__(self, *, output: bool = False, localns: Mapping[str, Any] | None = None) -> None:
        self._output = output
        self._localns = dict(localns or {})
        self._classes: dict[Any, ClassCodec | PydanticCodec] = {}
        self._names: set[str] = set()
        self._aliases: list[Any] = []

    # -- schemas

    def root_schema(self, codec: Codec) -> JSONSchema:
        """The whole schema of a codec: a class stands at the root itself, what it refers to in `$defs`."""
        schema = codec.schema()
        if isinstance(codec, ClassCodec):
            schema = codec.definition()
        elif isinstance(codec, PydanticCodec):
            schema = dict(codec.body)
        return self.with_definitions(schema, [codec])

    def with_definitions(self, schema: JSONSchema, codecs: list[Codec]) -> JSONSchema:
        """Add `$defs` for each class that the schema refers to, directly or through others."""
        reached: dict[str, JSONSchema] = {}
        pending = list(codecs)
        seen: set[int] = set()
        while pending:
            codec = pending.pop()
            if id(codec) in seen:
                continue
            seen.add(id(codec))
            pending.extend(codec.children())
            if isinstance(codec, ClassCodec):
                reached[codec.name] = codec.definition()
            elif isinstance(codec, PydanticCodec):
                reached[codec.name] = codec.body
                reached.update(codec.parts)
        used: set[str] = set()
        queue: list[Any] = [schema]
        while queue:
            for name in _references(queue.pop()):
                if name in reached and name not in used:
                    used.add(name)
                    queue.append(reached[name])
        if used:
            schema["$defs"] = {name: reached[name] for name in sorted(used)}
        return schema

    # -- types

    def compile(self, annotation: Any) -> Codec:
        """The codec of an annotation.

        Raises:
            Unsupported: the type, or one inside it, cannot be expressed as JSON.
        """
        if annotation is None or annotation is type(None):
            return NoneCodec()
        if annotation is Any or annotation is object:
            return AnyCodec(self)
        if isinstance(annotation, str | typing.ForwardRef):
            name = annotation if isinstance(annotation, str) else annotation.__forward_arg__
            raise Unsupported(f"the name {name!r} cannot be resolved")
        origin = get_origin(annotation)
        if origin is Annotated:
            inner, *notes = get_args(annotation)
            return self._annotated(inner, notes)
        if origin in _WRAPPERS or getattr(origin, "__name__", "") == "ReadOnly":
            return self.compile(get_args(annotation)[0])
        if isinstance(annotation, typing.NewType):
            return self.compile(annotation.__supertype__)
        if isinstance(annotation, typing.TypeVar):
            return self.compile(annotation.__bound__ if annotation.__bound__ is not None else Any)
        if type(annotation).__name__ == "TypeAliasType":
            return self._alias(annotation)
        if origin is Literal:
            return ChoiceCodec([(_literal(value), value) for value in get_args(annotation)])
        if origin is Union or origin is types.UnionType:
            return self._union(get_args(annotation))
        return self._class(annotation, origin or annotation, get_args(annotation))

    def _annotated(self, inner: Any, notes: list[Any]) -> Codec:
        codec = self.compile(inner)
        bounds: list[tuple[str, Any]] = []
        extra: JSONSchema = {}
        for note in _flatten(notes):
            for name in _BOUNDS:
                bound = getattr(note, name, None)
                if bound is not None and not callable(bound):
                    bounds.append((name, bound.pattern if hasattr(bound, "pattern") else bound))
            for name in ("title", "description", "examples"):
                value = getattr(note, name, None)
                if value and not callable(value) and not isinstance(note, str):
                    extra[name] = list(value) if name == "examples" else value
            for name in _EXTRAS if self._output else (*_EXTRAS, "input_json_schema"):
                value = getattr(note, name, None)
                if isinstance(value, dict):
                    extra.update(value)
        text = description_of(notes)
        if text:
            extra["description"] = text
        return ConstrainedCodec(codec, bounds, extra) if bounds or extra else codec

    def _alias(self, alias: Any) -> Codec:
        if alias in self._aliases:
            raise Unsupported(f"the alias {alias.__name__} refers to itself; use a class")
        self._aliases.append(alias)
        try:
            return self.compile(alias.__value__)
        finally:
            self._aliases.pop()

    def _union(self, args: tuple[Any, ...]) -> Codec:
        arms = [self.compile(arg) for arg in args]
        return arms[0] if len(arms) == 1 else UnionCodec(arms)

    def _class(self, annotation: Any, cls: Any, args: tuple[Any, ...]) -> Codec:
        if not isinstance(cls, abc.Hashable):
            raise Unsupported(f"{shorten(annotation)} is not a type")
        simple = _simple(cls)
        if simple is not None:
            return simple
        if cls in _ARRAYS:
            make, accepts, unique = _ARRAYS[cls]
            return ArrayCodec(self.compile(args[0] if args else Any), make, accepts, unique)
        if cls is tuple:
            if len(args) == 2 and args[1] is Ellipsis:
                return ArrayCodec(self.compile(args[0]), tuple, (tuple, list), False)
            if not args and annotation in (tuple, typing.Tuple):  # noqa: UP006 - both spellings mean any tuple
                return ArrayCodec(AnyCodec(self), tuple, (tuple, list), False)
            return TupleCodec([self.compile(arg) for arg in args])
        if cls in _OBJECTS:
            key, item = args if len(args) == 2 else (str, Any)
            return self._object(cls, key, item)
        if not isinstance(cls, type):
            raise Unsupported(f"{_name(annotation)} cannot be expressed as JSON")
        if issubclass(cls, enum.Enum):
            return enum_codec(cls)
        return self._named(annotation, cls, args)

    def _object(self, cls: Any, key: Any, item: Any) -> Codec:
        codec = self.compile(key)
        if codec.kinds == {"int"} and not isinstance(codec, IntCodec):
            raise Unsupported(f"a mapping with keys of {_name(key)} cannot be expressed as JSON")
        if not (codec.kinds and codec.kinds <= {"str"}) and not isinstance(codec, IntCodec):
            if key is Any or key is object:
                codec = StrCodec()
            else:
                raise Unsupported(f"a mapping with keys of {_name(key)} cannot be expressed as JSON")
        return DictCodec(codec, self.compile(item), collections.OrderedDict if cls is collections.OrderedDict else dict)

    def _named(self, annotation: Any, cls: type, args: tuple[Any, ...]) -> Codec:
        known = self._classes.get(annotation)
        if known is not None:
            return known
        if "pydantic" in sys.modules and (
            hasattr(cls, "__pydantic_core_schema__") or hasattr(cls, "__get_pydantic_core_schema__")
        ):
            model = PydanticCodec(annotation, self._name(cls), "serialization" if self._output else "validation")
            self._classes[annotation] = model
            return model
        shape = shape_of(cls, self._hints)
        if shape is None:
            raise Unsupported(f"{_name(annotation)} cannot be expressed as JSON")
        variables = _variables(cls, args)
        codec = self._classes[annotation] = ClassCodec(cls, shape, self._name(cls))
        try:
            codec.fill(lambda inner: self.compile(_substitute(inner, variables)))
        except Unsupported:
            del self._classes[annotation]  # half filled
            raise
        return codec

    def _name(self, cls: type) -> str:
        # Names must differ in lower case too: one of the validators folds them.
        # A name stands in a `$ref`, which is a URI: `Page[int]` and accents have no place there.
        base = re.sub(r"\W", "_", cls.__name__, flags=re.ASCII)
        name, count = base, 1
        while name.lower() in self._names:
            count += 1
            name = f"{base}{count}"
        self._names.add(name.lower())
        return name

    def _hints(self, cls: type) -> dict[str, Any]:
        try:
            return typing.get_type_hints(cls, localns=self._localns or None, include_extras=True)
        except NameError as exc:
            raise Unsupported(f"{cls.__name__}: the name {exc.name!r} cannot be resolved") from None

    def for_instance(self, cls: type) -> Codec | None:
        """The codec for instances of a class whose annotation nobody wrote, or None."""
        try:
            return self._class(cls, cls, ())
        except Unsupported:
            return None


class AnyCodec(Codec):
    """Any JSON value comes in as it is; any value with a codec of its own goes out."""

    kinds: frozenset[str] = frozenset({"null", "bool", "int", "float", "str", "list", "dict"})
    expects: str = "any value"

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler

    def schema(self) -> JSONSchema:
        return {}

    def load(self, value: Any) -> Any:
        return value

    def dump(self, value: Any) -> Any:
        return self._dump(value, 0)

    def _dump(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if value is None or kind is bool or kind is int:
            return value
        if kind is str or kind is float:
            bad = find_unwritable(value) if kind is float or not value.isascii() else None
            if bad:
                raise Mismatch(Problem(bad.removeprefix("$: ")))
            return value
        if depth > 128:
            raise Mismatch(Problem("nested too deep (or refers to itself)"))
        found: list[Problem] = []
        if isinstance(value, Mapping):
            out: dict[str, Any] = {}
            for key, item in value.items():
                name = _key_text(key)
                if name in out:
                    raise Mismatch(Problem(f"key {shorten(name)} comes twice"))
                try:
                    out[name] = self._dump(item, depth + 1)
                except Mismatch as exc:
                    exc.under(name, found)
            if found:
                raise Mismatch(*found)
            return out
        if isinstance(value, list | tuple | set | frozenset | collections.deque) and not hasattr(kind, "_fields"):
            items: list[Any] = []
            for index, item in enumerate(value):
                try:
                    items.append(self._dump(item, depth + 1))
                except Mismatch as exc:
                    exc.under(index, found)
            if found:
                raise Mismatch(*found)
            return items
        codec = self._compiler.for_instance(kind) or next(
            (codec for base in kind.__mro__[1:-1] if (codec := _simple(base)) is not None), None
        )
        if codec is None:
            raise Mismatch(Problem(f"a value of type {kind.__name__} cannot be sent as JSON"))
        return codec.dump(value)


def _key_text(key: Any) -> str:
    if type(key) is str:
        return key
    if isinstance(key, enum.Enum):
        return _key_text(key.value)
    if isinstance(key, int) and type(key) is not bool:
        return str(key)
    codec = _simple(type(key))
    if codec is None or not codec.kinds <= {"str"}:
        raise Mismatch(Problem(f"key {key!r} is not text"))
    return str(codec.dump(key))


def _simple(cls: Any) -> Codec | None:
    if cls is str:
        return StrCodec()
    if cls is bool:
        return BoolCodec()
    if cls is int:
        return IntCodec()
    if cls is float:
        return FloatCodec()
    if cls is decimal.Decimal:
        return DecimalCodec()
    if cls is bytes or cls is bytearray:
        return BytesCodec(cls)
    if cls is os.PathLike or (isinstance(cls, type) and issubclass(cls, pathlib.PurePath)):
        return PathCodec(cls)
    return text_codec(cls) if isinstance(cls, type) else None


def _literal(value: Any) -> Any:
    if value is None or type(value) in (bool, int, str):
        return value
    if isinstance(value, enum.Enum):
        return enum_codec(type(value)).dump(value)
    raise Unsupported(f"Literal[{value!r}] cannot be expressed as JSON")


def _flatten(notes: list[Any]) -> list[Any]:
    """Notes with those inside them: a pydantic Field keeps its bounds in `metadata`."""
    out: list[Any] = []
    for note in notes:
        out.append(note)
        inner = getattr(note, "metadata", None)
        if isinstance(inner, list | tuple):
            out.extend(inner)
    return out


def description_of(notes: list[Any]) -> str | None:
    """The description in `Annotated` notes: a string, a `Doc`, or a Field or Meta with one."""
    for note in notes:
        if isinstance(note, str):
            return note
        for name in ("documentation", "description"):
            value = getattr(note, name, None)
            if isinstance(value, str) and value:
                return value
    return None


def _variables(cls: Any, args: tuple[Any, ...]) -> dict[Any, Any]:
    """What the type variables of a class and of its generic bases stand for."""
    own = dict(zip(getattr(cls, "__parameters__", ()), args, strict=False))
    out: dict[Any, Any] = {}
    for base in getattr(cls, "__orig_bases__", ()):
        origin = get_origin(base)
        if isinstance(origin, type):
            out.update(_variables(origin, tuple(_substitute(arg, own) for arg in get_args(base))))
    return {**out, **own}


def _substitute(annotation: Any, variables: dict[Any, Any]) -> Any:
    if not variables:
        return annotation
    if isinstance(annotation, typing.TypeVar):
        return variables.get(annotation, annotation)
    parameters = getattr(annotation, "__parameters__", ())
    if parameters and get_origin(annotation) is not None:
        return annotation[tuple(variables.get(parameter, parameter) for parameter in parameters)]
    return annotation


def _references(schema: Any) -> list[str]:
    out: list[str] = []
    queue = [schema]
    while queue:
        item = queue.pop()
        if isinstance(item, dict):
            target = item.get("$ref")
            if isinstance(target, str) and target.startswith("#/$defs/"):
                out.append(target.removeprefix("#/$defs/"))
            queue.extend(value for key, value in item.items() if key != "$defs")
        elif isinstance(item, list):
            queue.extend(item)
    return out


def _name(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")
