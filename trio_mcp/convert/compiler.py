"""From an annotation to its codec."""

from __future__ import annotations

import collections
import collections.abc as abc
import enum
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from ..protocol.jsontext import shorten
from .anything import AnyCodec
from .classes import AliasCodec, ClassCodec
from .codec import Codec, JSONSchema, NamedCodec, Unsupported
from .constrained import ConstrainedCodec
from .containers import ArrayCodec, DictCodec, TupleCodec
from .models import PydanticCodec, is_pydantic
from .notes import MISSING as NOTHING
from .notes import Notes, read_notes
from .scalars import ChoiceCodec, IntCodec, NoneCodec, StrCodec, enum_codec, flag_codec
from .shapes import FieldShape, resolved, shape_of, stripped, told_error
from .texts import simple_codec
from .unions import UnionCodec

__all__ = ["Compiler"]

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
_OBJECTS: Final[dict[Any, Callable[[], dict[Any, Any]]]] = {
    **dict.fromkeys((dict, abc.Mapping, abc.MutableMapping, collections.defaultdict), dict),
    collections.OrderedDict: collections.OrderedDict,
    collections.Counter: collections.Counter,
}
_WRAPPERS: Final = frozenset({typing.Required, typing.NotRequired, typing.Final, typing.ClassVar})
_DEEPEST: Final = 60
"""Classes inside of each other. A generic class that refers to itself with another argument has no end."""
_INSTANCES: Final = 1024
"""Classes of values without a type of their own that are remembered."""


class Compiler:
    """Compiles the annotations of one schema: its classes share one `$defs`.

    Args:
        output: Whether values leave: then fields that a class computes are members, and unions are chosen by class.
        localns: Names for annotations in strings, besides those of a class's own module.
    """

    def __init__(self, *, output: bool = False, localns: Mapping[str, Any] | None = None) -> None:
        self._output = output
        self._localns = dict(localns or {})
        self._named_codecs: dict[Any, NamedCodec] = {}
        self._names: set[str] = set()
        self._aliases: dict[Any, AliasCodec] = {}
        self._module: str | None = None
        self._path: list[str] = []
        self._classes: list[Any] = []
        self._unions: list[tuple[UnionCodec, list[str]]] = []
        self._instances: dict[type, Codec | None] = {}

    # -- schemas

    def root_schema(self, codec: Codec) -> JSONSchema:
        """The whole schema of a codec: a class stands at the root itself, what it refers to in `$defs`."""
        schema = codec.definition() if isinstance(codec, ClassCodec | PydanticCodec) else codec.schema()
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
            if isinstance(codec, NamedCodec):
                reached[codec.name] = codec.definition()
                reached.update(codec.parts())
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
        return self.compile_noted(annotation)[0]

    def compile_noted(self, annotation: Any) -> tuple[Codec, Notes | None]:
        """The codec of an annotation, and the notes beside it, which may name a default.

        Raises:
            Unsupported: the type, or one inside it, cannot be expressed as JSON.
        """
        known = set(self._named_codecs)
        try:
            codec, notes = self._noted(annotation)
            for union, where in self._unions:
                try:
                    union.finish()
                except Unsupported as exc:
                    raise Unsupported(exc.message, where) from None
        except BaseException:
            # Nothing half done stays: what was compiled on the way may refer to what could not be.
            for key in self._named_codecs.keys() - known:
                del self._named_codecs[key]
            self._path.clear()
            self._classes.clear()
            self._aliases.clear()
            raise
        finally:
            self._unions.clear()
        return codec, notes

    def _noted(self, annotation: Any) -> tuple[Codec, Notes | None]:
        if get_origin(annotation) is Annotated:
            inner, *notes = get_args(stripped(annotation)[0])
            return self._annotated(inner, notes)
        return self._compile(annotation), None

    def _compile(self, annotation: Any) -> Codec:
        if annotation is None or annotation is type(None):
            return NoneCodec()
        if annotation is Any or annotation is object or _is_json_value(annotation):
            return AnyCodec(self.for_instance)
        if isinstance(annotation, str | typing.ForwardRef):
            return self._compile(self._looked_up(annotation))
        origin = get_origin(annotation)
        if origin is Annotated:
            codec, notes = self._noted(annotation)
            if notes is not None and not self._output and (notes.default is not NOTHING or notes.factory is not None):
                raise Unsupported(
                    "a default in a Field counts for a parameter only; of a field of a class, write it behind the ="
                )
            return codec
        if origin in _WRAPPERS or getattr(origin, "__name__", getattr(origin, "_name", "")) == "ReadOnly":
            return self._compile(get_args(annotation)[0])
        if isinstance(annotation, typing.NewType):
            return self._compile(annotation.__supertype__)
        if isinstance(annotation, typing.TypeVar) or type(annotation).__name__ == "TypeVar":
            return self._compile(_of_variable(annotation))
        if annotation is typing.Self:
            return self._own_class()
        if annotation is typing.LiteralString:
            return StrCodec()
        if type(annotation).__name__ == "TypeAliasType" or type(origin).__name__ == "TypeAliasType":
            return self._alias(annotation, origin if type(origin).__name__ == "TypeAliasType" else annotation)
        if origin is Literal:
            return ChoiceCodec([(_literal(value), value) for value in get_args(annotation)])
        if origin is Union or origin is types.UnionType:
            return self._union(get_args(annotation), None)
        return self._class(annotation, origin or annotation, get_args(annotation))

    def _own_class(self) -> Codec:
        """What Self means: the class whose field is compiled."""
        if not self._classes:
            raise Unsupported("Self has a meaning in a class only")
        return self._named_codecs[self._classes[-1]]

    def _looked_up(self, annotation: Any) -> Any:
        """What a name in a string stands for: only an alias has such, with names of its own module."""
        name = annotation if isinstance(annotation, str) else annotation.__forward_arg__
        if self._module is None:
            raise Unsupported(f"the name {name!r} cannot be resolved")
        return resolved(name, self._module, self._localns)

    def _annotated(self, inner: Any, given: list[Any]) -> tuple[Codec, Notes]:
        notes = read_notes(given, self._output)
        if notes.tag is not None:
            if get_origin(inner) not in (Union, types.UnionType):
                raise Unsupported("a discriminator needs a union of classes")
            codec = self._union(get_args(inner), notes.tag)
        else:
            codec = self._compile(inner)
        if notes.foreign:
            name = self._name(getattr(inner, "__name__", "Value"))
            foreign = PydanticCodec(Annotated[(inner, *given)], name, self._output, codec)
            members = {key: value for key, value in notes.members.items() if key not in foreign.body}
            return (ConstrainedCodec(foreign, [], members) if members else foreign), notes
        if notes.bounds or notes.members:
            return ConstrainedCodec(codec, notes.bounds, notes.members), notes
        return codec, notes

    def _alias(self, annotation: Any, alias: Any) -> Codec:
        """The type that an alias stands for; a definition of its own where it refers to itself."""
        key = _as_key(annotation)
        known = self._named_codecs.get(key) or self._aliases.get(key)
        if known is not None:
            if isinstance(known, AliasCodec):
                known.used = True
            return known
        self._deeper()
        stub = self._aliases[key] = AliasCodec(self._name(alias.__name__), alias.__name__)
        variables = _filled(getattr(alias, "__type_params__", ()), get_args(annotation))
        module, self._module = self._module, getattr(alias, "__module__", None)
        self._path.append(alias.__name__)
        try:
            inner = self._compile(_substitute(alias.__value__, variables))
        finally:
            self._module = module
            self._path.pop()
            self._aliases.pop(key, None)
        if not stub.used:
            self._names.discard(stub.name.lower())
            return inner
        if not inner.kinds:
            raise Unsupported(f"the alias {alias.__name__} stands for itself")
        stub.become(inner)
        self._named_codecs[key] = stub
        return stub

    def _union(self, args: tuple[Any, ...], tag: str | None) -> Codec:
        arms = [self._compile(arg) for arg in args]
        if len(arms) == 1 and tag is None:
            return arms[0]
        for arg, arm in zip(args, arms, strict=True):
            if isinstance(arm, AliasCodec) and not arm.kinds:
                raise Unsupported(f"the alias {_name(arg)} is an arm of itself; put a list or an object between")
        union = UnionCodec(arms, self._output, tag)
        self._unions.append((union, list(self._path)))
        return union

    def _class(self, annotation: Any, cls: Any, args: tuple[Any, ...]) -> Codec:
        if not isinstance(cls, abc.Hashable):
            raise Unsupported(f"{shorten(annotation)} is not a type")
        if any(_is_unpacked(arg) for arg in args):
            raise Unsupported(f"{_name(annotation)}: a tuple that is unpacked with * is not supported")
        simple = simple_codec(cls, self._output)
        if simple is not None:
            return simple
        if cls in _ARRAYS:
            make, accepts, unique = _ARRAYS[cls]
            return ArrayCodec(self._compile(args[0] if args else Any), make, accepts, unique)
        if cls is tuple:
            if len(args) == 2 and args[1] is Ellipsis:
                return ArrayCodec(self._compile(args[0]), tuple, (tuple, list), False)
            if not args and annotation in (tuple, typing.Tuple):  # noqa: UP006 - both spellings mean any tuple
                return ArrayCodec(self._compile(Any), tuple, (tuple, list), False)
            return TupleCodec([self._compile(arg) for arg in args])
        if cls in _OBJECTS:
            if cls is collections.Counter:
                return self._object(cls, args[0] if args else Any, int)
            key, item = args if len(args) == 2 else (str, Any)
            return self._object(cls, key, item)
        if not isinstance(cls, type):
            raise Unsupported(f"{_name(annotation)} cannot be expressed as JSON")
        if issubclass(cls, enum.Enum):
            if not cls.__members__:
                raise Unsupported(f"{cls.__name__} has no members")
            return flag_codec(cls) if issubclass(cls, enum.Flag) else enum_codec(cls)
        return self._named(annotation, cls, args)

    def _object(self, cls: Any, key: Any, item: Any) -> Codec:
        codec = self._compile(key)
        numbers = isinstance(codec, IntCodec) or (codec.kinds == {"int"} and isinstance(codec, ChoiceCodec))
        if not (codec.kinds and codec.kinds <= {"str"}) and not numbers:
            if key is Any or key is object:
                codec = StrCodec()
            else:
                raise Unsupported(f"a mapping with keys of {_name(key)} cannot be expressed as JSON")
        return DictCodec(codec, self._compile(item), _OBJECTS[cls])

    def _named(self, annotation: Any, cls: type, args: tuple[Any, ...]) -> Codec:
        known = self._named_codecs.get(_as_key(annotation))
        if known is not None:
            return known
        if is_pydantic(cls):
            model = PydanticCodec(annotation, self._name(cls.__name__), self._output)
            self._named_codecs[annotation] = model
            return model
        self._deeper()
        shape = shape_of(cls, self._hints, self._output)
        if shape is None:
            raise Unsupported(f"{_name(annotation)} cannot be expressed as JSON")
        variables = _variables(cls, args)
        codec = self._named_codecs[annotation] = ClassCodec(cls, shape, self._name(cls.__name__), self._output)

        def compile(field: FieldShape) -> Codec:
            self._path.append(f"{cls.__name__}.{field.attribute}")
            self._classes.append(annotation)
            try:
                return self._compile(_substitute(field.annotation, variables))
            except Unsupported as exc:
                raise exc if exc.where else Unsupported(exc.message, self._path) from None
            finally:
                self._path.pop()
                self._classes.pop()

        codec.fill(compile)
        return codec

    def _deeper(self) -> None:
        if len(self._path) > _DEEPEST:
            raise Unsupported(f"more than {_DEEPEST} types inside of each other: {' → '.join(self._path[:3])} → …")

    def _name(self, name: str) -> str:
        # Names must differ in lower case too: one of the validators folds them.
        # A name stands in a `$ref`, which is a URI: `Page[int]` and accents have no place there.
        base = re.sub(r"\W", "_", name, flags=re.ASCII)
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
        except Exception as exc:  # what is written in a string is run, so anything may happen
            raise Unsupported(f"{cls.__name__}: an annotation is not a type: {told_error(exc)}") from None

    def for_instance(self, cls: type) -> Codec | None:
        """The codec for instances of a class whose annotation nobody wrote, or None."""
        try:
            return self._instances[cls]
        except KeyError:
            pass
        if len(self._instances) >= _INSTANCES:
            self._instances.clear()
        # A compiler of its own: no schema shows these classes, so they need no names in this one.
        try:
            codec: Codec | None = Compiler(output=self._output, localns=self._localns)._whole(cls)
        except Unsupported:
            codec = None
        self._instances[cls] = codec
        return codec

    def _whole(self, cls: type) -> Codec:
        codec = self._class(cls, cls, ())
        for union, _ in self._unions:
            union.finish()
        return codec


def _is_json_value(annotation: Any) -> bool:
    """Whether it is pydantic's name for any JSON value."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and annotation is getattr(pydantic, "JsonValue", pydantic)


def _literal(value: Any) -> Any:
    if value is None or type(value) in (bool, int, str):
        return value
    if isinstance(value, enum.Enum):
        return enum_codec(type(value)).dump(value)
    raise Unsupported(f"Literal[{value!r}] cannot be expressed as JSON")


def _variables(cls: Any, args: tuple[Any, ...]) -> dict[Any, Any]:
    """What the type variables of a class and of its generic bases stand for."""
    own = _filled(getattr(cls, "__parameters__", ()), args)
    out: dict[Any, Any] = {}
    for base in getattr(cls, "__orig_bases__", ()):
        origin = get_origin(base)
        if isinstance(origin, type):
            out.update(_variables(origin, tuple(_substitute(arg, own) for arg in get_args(base))))
    return {**out, **own}


def _filled(variables: tuple[Any, ...], args: tuple[Any, ...]) -> dict[Any, Any]:
    """What type variables stand for: an argument, or the default of a variable without one, which may name others."""
    if any(type(variable).__name__ == "TypeVarTuple" for variable in variables):
        raise Unsupported("a variable number of type arguments is not supported")
    out: dict[Any, Any] = {}
    for variable, arg in zip(variables, args, strict=False):
        out[variable] = _substitute(arg, out)  # Python may have filled in a default that names another variable
    for variable in variables[len(args) :]:
        if _has_default(variable):
            out[variable] = _substitute(variable.__default__, out)
    return out


def _as_key(annotation: Any) -> Any:
    try:
        hash(annotation)
    except TypeError as exc:  # something in a note that has no hash
        raise Unsupported(f"{_name(annotation)} cannot be told from others: {exc}") from None
    return annotation


def _has_default(variable: Any) -> bool:
    # Python 3.13, and typing_extensions before.
    return bool(getattr(variable, "has_default", bool)())


def _of_variable(variable: Any) -> Any:
    """What a type variable stands for where nobody says it."""
    if _has_default(variable):
        return variable.__default__
    if variable.__constraints__:
        return Union[variable.__constraints__]  # noqa: UP007 - of a tuple
    return variable.__bound__ if variable.__bound__ is not None else Any


def _is_unpacked(arg: Any) -> bool:
    """Whether it is `*tuple[…]`, in one spelling or the other."""
    return bool(getattr(arg, "__unpacked__", False)) or getattr(get_origin(arg), "_name", "") == "Unpack"


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
