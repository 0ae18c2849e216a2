"""The codec of a class with named fields, and of a type alias that refers to itself."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

from ..protocol.jsontext import shorten
from .codec import Codec, Found, JSONSchema, Misfit, Mismatch, NamedCodec, Pace, Problem
from .looks import Member, alike_objects, object_misfit
from .shapes import MISSING, ClassShape, FieldShape, own_doc

__all__ = ["AliasCodec", "ClassCodec", "field_names", "with_default"]


class _Field:
    __slots__ = ("absent", "attribute", "codec", "default", "name", "required")

    def __init__(self, shape: FieldShape, codec: Codec, required: bool) -> None:
        self.name: str = shape.name
        self.attribute: str = shape.attribute
        self.codec: Codec = codec
        self.required: bool = required
        self.default: Any = shape.default
        self.absent: Any = shape.absent


class ClassCodec(NamedCodec):
    """A class with named fields, as an object. Made empty and filled later, so that a class may refer to itself.

    Args:
        cls: The class.
        shape: How it is built.
        name: Its key in `$defs`.
        out: Whether its values go out: then fields that the class computes are members, and otherwise those that only its
            constructor takes.
    """

    kinds: frozenset[str] = frozenset({"dict"})

    def __init__(self, cls: type, shape: ClassShape, name: str, out: bool) -> None:
        self.name: str = name
        self.types: tuple[type, ...] = (dict,) if shape.make is dict else (cls,)
        self._cls = cls
        self._shape = shape
        self._out = out
        self._loaded: list[_Field] = []
        self._dumped: list[_Field] = []
        self._known: frozenset[str] = frozenset()
        self._members: dict[str, Member] | None = None
        self.expects: str = f"object {cls.__name__}"

    def fill(self, compile: Callable[[FieldShape], Codec]) -> None:
        """Compile the types of the fields.

        Raises:
            Unsupported: a field cannot be expressed.
        """
        for field in self._shape.fields:
            # What is written as a default for an argument holds what comes in, whatever goes out elsewhere.
            dumped = field.dumped and (self._out or field.loaded)
            if not field.loaded and not dumped:
                continue
            codec = compile(field)
            if field.loaded:
                self._loaded.append(_Field(field, codec, field.required))
            if dumped:
                self._dumped.append(_Field(field, codec, field.required or not field.loaded))
        self._known = frozenset(field.name for field in (self._dumped if self._out else self._loaded))
        if self._shape.tag is not None:
            self._known |= {self._shape.tag[0]}

    def children(self) -> Iterator[Codec]:
        return (field.codec for field in self._fields())

    def _fields(self) -> list[_Field]:
        return self._dumped if self._out else self._loaded

    @property
    def members(self) -> dict[str, Member]:
        """Its members as they are seen from outside."""
        if self._members is None:
            fields = {field.name: Member(field.codec, field.required) for field in self._fields()}
            if self._shape.tag is not None:
                name, value = self._shape.tag
                constant = frozenset({(type(value), value)})
                fields = {name: Member(None, True, constants=constant, schema={"const": value}), **fields}
            self._members = fields
        return self._members

    def definition(self) -> JSONSchema:
        schema: JSONSchema = {"type": "object", "properties": {}}
        required: list[str] = []
        if self._shape.tag is not None:
            schema["properties"][self._shape.tag[0]] = {"const": self._shape.tag[1]}
            required.append(self._shape.tag[0])
        for field in self._fields():
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
        found = Found()
        values: dict[str, Any] = {}
        for field in self._loaded:
            if field.name in value:
                try:
                    values[field.attribute] = field.codec.load(value[field.name])
                except Mismatch as exc:
                    found.under(field.name, exc)
            elif field.required:
                found.note(f"missing, expected {field.codec.expects}", field.name)
        return self._made(value, values, found)

    def _made(self, value: dict[str, Any], values: dict[str, Any], found: Found) -> Any:
        tag = self._shape.tag
        if tag is not None:
            came = value.get(tag[0], MISSING)
            if came is MISSING:
                found.note(f"missing, expected {shorten(tag[1])}", tag[0])
            elif type(came) is bool or came != tag[1]:
                found.under(tag[0], Mismatch.of(came, shorten(tag[1])))
        if self._shape.closed and len(values) < len(value):
            self._unexpected(value, self._loaded, found)
        if found:
            raise found.mismatch()
        try:
            return self._shape.make(**values)
        except (ValueError, TypeError, AssertionError) as exc:  # the class checks its own values
            # attrs puts the attribute, the rule and the value behind its sentence.
            why = exc.args[0] if exc.args and isinstance(exc.args[0], str) else exc
            raise Mismatch(Problem(f"{self._cls.__name__}: {' '.join(str(why).split())}")) from exc

    def _unexpected(self, value: Any, fields: list[_Field], found: Found) -> None:
        names = {field.name: None for field in fields}
        if self._shape.tag is not None:
            names[self._shape.tag[0]] = None
        text = f"unexpected; {self._cls.__name__} has {', '.join(field.name for field in fields) or 'no fields'}"
        for name in value:
            if name not in names:
                found.note(text, name if isinstance(name, str) else str(name))

    def dump(self, value: Any) -> Any:
        if not self._shape.check(value):
            raise Mismatch.of(value, self.expects)
        out: dict[str, Any] = {}
        found = Found()
        for field, item in self._read(value, out, found):
            try:
                out[field.name] = field.codec.dump(item)
            except RecursionError:
                raise Mismatch(Problem("nested too deep (or refers to itself)")) from None
            except Mismatch as exc:
                found.under(field.name, exc)
        return self._written(value, out, found)

    def _read(self, value: Any, out: dict[str, Any], found: Found) -> Iterator[tuple[_Field, Any]]:
        """The fields that go out, with what they hold."""
        if self._shape.tag is not None:
            out[self._shape.tag[0]] = self._shape.tag[1]
        for field in self._dumped:
            try:
                item = self._shape.get(value, field.attribute)
            except AttributeError:
                item = MISSING
            if item is MISSING or item is field.absent:
                if field.required:
                    found.note(f"missing, expected {field.codec.expects}", field.name)
                continue
            yield field, item

    def _written(self, value: Any, out: dict[str, Any], found: Found) -> dict[str, Any]:
        if isinstance(value, dict) and not self._known.issuperset(value):
            self._unexpected(value, self._dumped, found)
        if found:
            raise found.mismatch()
        return out

    def pieces(self, value: Any, out: bool, pace: Pace) -> Generator[None, None, Any]:
        if not (self._shape.check(value) if out else type(value) is dict):
            raise Mismatch.of(value, self.expects)
        found = Found()
        made: dict[str, Any] = {}
        if out:
            for field, item in self._read(value, made, found):
                try:
                    made[field.name] = yield from field.codec.pieces(item, out, pace)
                except RecursionError:
                    raise Mismatch(Problem("nested too deep (or refers to itself)")) from None
                except Mismatch as exc:
                    found.under(field.name, exc)
            return self._written(value, made, found)
        for field in self._loaded:
            if field.name in value:
                try:
                    made[field.attribute] = yield from field.codec.pieces(value[field.name], out, pace)
                except Mismatch as exc:
                    found.under(field.name, exc)
            elif field.required:
                found.note(f"missing, expected {field.codec.expects}", field.name)
        if pace.due(len(value)):
            yield
        return self._made(value, made, found)

    def owns(self, value: Any) -> bool:
        return self._shape.check(value) and (
            not isinstance(value, dict)
            or (self._known.issuperset(value) and all(field.name in value for field in self._dumped if field.required))
        )

    def misfit(self, value: Any, out: bool) -> Misfit:
        if out and not isinstance(value, dict):
            found = ((name, getattr(value, name, MISSING)) for name in (field.attribute for field in self._dumped))
            attributes = {name: item for name, item in found if item is not MISSING}
            value = {field.name: attributes[field.attribute] for field in self._dumped if field.attribute in attributes}
        return object_misfit(self.members, value, out, closed=self._shape.closed)

    def alike(self, other: Codec, out: bool) -> str | None:
        if out and self.types != other.types:
            return None
        members = getattr(other, "members", None)
        return None if members is None else alike_objects(self.members, members, out)


class AliasCodec(NamedCodec):
    """A type alias that refers to itself. Made empty, and given its type when that is compiled.

    Args:
        name: Its key in `$defs`.
        label: Its name.
    """

    kinds: frozenset[str] = frozenset()

    def __init__(self, name: str, label: str) -> None:
        self.name: str = name
        self.expects: str = label
        self.used: bool = False
        self._inner: Codec | None = None

    @property
    def inner(self) -> Codec:
        """Its type."""
        assert self._inner is not None
        return self._inner

    def become(self, inner: Codec) -> None:
        """Give it its type."""
        self._inner = inner
        self.kinds: frozenset[str] = inner.kinds
        self.types: tuple[type, ...] = inner.types
        self.rank: int = inner.rank

    def definition(self) -> JSONSchema:
        return self.inner.schema()

    def children(self) -> Iterator[Codec]:
        yield self.inner

    def load(self, value: Any) -> Any:
        return self.inner.load(value)

    def dump(self, value: Any) -> Any:
        try:
            return self.inner.dump(value)
        except RecursionError:
            raise Mismatch(Problem("nested too deep (or refers to itself)")) from None

    def pieces(self, value: Any, out: bool, pace: Pace) -> Generator[None, None, Any]:
        try:
            return (yield from self.inner.pieces(value, out, pace))
        except RecursionError:
            raise Mismatch(Problem("nested too deep (or refers to itself)")) from None

    def owns(self, value: Any) -> bool:
        return self.inner.owns(value)

    def distance(self, cls: type) -> int | None:
        return self.inner.distance(cls)

    def ordered(self) -> tuple[type, ...]:
        return self.inner.ordered() if self._inner is not None else ()

    def misfit(self, value: Any, out: bool) -> Misfit:
        return self.inner.misfit(value, out)

    def alike(self, other: Codec, out: bool) -> str | None:
        return self.inner.alike(other.inner if isinstance(other, AliasCodec) else other, out)


def with_default(schema: JSONSchema, codec: Codec, default: Any) -> JSONSchema:
    """A schema with the default of a field or parameter, if that can be written as JSON."""
    try:
        return {**schema, "default": codec.dump(default)}
    except Mismatch:
        return schema


def field_names(codec: Codec) -> list[str]:
    """The members of a class codec, in order; of any other codec, none."""
    return [field.name for field in codec._fields()] if isinstance(codec, ClassCodec) else []
