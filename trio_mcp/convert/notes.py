"""What stands beside a type in `Annotated`.

Every note is understood, or handed to pydantic together with the type, or refused when the function is registered. None is
dropped: a validator that is not run lets through what its author meant to stop.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from ..protocol.jsontext import shorten
from .codec import JSONSchema, Unsupported
from .constrained import Bound
from .shapes import is_field

__all__ = ["MISSING", "Notes", "description_of", "read_notes"]

MISSING: Final[Any] = object()

_BOUNDS: Final = ("ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length", "pattern")
_TEXTS: Final = ("title", "description")
_EXTRAS: Final = ("extra_json_schema", "json_schema_extra")
# What a Field may have besides, and what it is when nobody set it. The rest of its attributes says how a model is made.
_FIELD: Final = {
    "alias": None,
    "validation_alias": None,
    "serialization_alias": None,
    "exclude": None,
    "exclude_if": None,
}


class Notes:
    """Notes, read.

    Attributes:
        bounds: What holds for values.
        members: Members for the schema.
        default: The default that a Field names, or `MISSING`.
        factory: Makes the default for each call, or None.
        tag: The member that tells the arms of a union apart, or None.
        foreign: Notes that pydantic has to apply.
    """

    __slots__ = ("bounds", "default", "factory", "foreign", "members", "tag")

    def __init__(self) -> None:
        self.bounds: list[Bound] = []
        self.members: JSONSchema = {}
        self.default: Any = MISSING
        self.factory: Callable[[], Any] | None = None
        self.tag: str | None = None
        self.foreign: list[Any] = []


def read_notes(notes: Sequence[Any], out: bool) -> Notes:
    """Read the notes of a type.

    Args:
        notes: As they stand in `Annotated`.
        out: Whether values of the type go out.

    Raises:
        Unsupported: one is not understood.
    """
    read = Notes()
    for note in _flat(notes):
        if note is None:  # pydantic's conint() and its like put it for each rule that was not given
            continue
        if isinstance(note, str):
            read.members.setdefault("description", note)
        elif is_field(note):
            _field(note, read)
        elif not (_ours(note, out, read) or _annotated_types(note, read) or _meta(note, read)):
            read.foreign.append(_foreign(note))
    # A description of the user's own stands before one of a Field.
    text = description_of(notes)
    if text:
        read.members["description"] = text
    return read


def _flat(notes: Sequence[Any]) -> Iterator[Any]:
    for note in notes:
        if getattr(note, "__is_annotated_types_grouped_metadata__", False) and not is_field(note):
            inner = list(note)
            # One that is a group for nobody but itself is a note as it stands.
            if inner and inner != [note]:
                yield from _flat(inner)
                continue
        yield note
        if is_field(note):
            yield from _flat(note.metadata)


def _foreign(note: Any) -> Any:
    """A note that pydantic applies."""
    marks = ("__get_pydantic_core_schema__", "__get_pydantic_json_schema__")
    if type(note).__module__.partition(".")[0] != "pydantic" and not any(hasattr(note, mark) for mark in marks):
        raise Unsupported(
            f"the note {shorten(note)} beside the type is not understood; "
            "a description is text, bounds are those of annotated_types, msgspec.Meta or pydantic.Field"
        )
    if "pydantic" not in sys.modules:
        raise Unsupported(f"the note {shorten(note)} beside the type needs pydantic")
    return note


def _field(note: Any, read: Notes) -> None:
    for name, unset in _FIELD.items():
        if getattr(note, name, unset) is not unset:
            raise Unsupported(f"Field({name}=…) has no meaning for an argument: it is named after its parameter")
    if note.validate_default:
        raise Unsupported("Field(validate_default=True) is not supported: a default is used as it is")
    _texts(note, read)
    if note.deprecated:
        read.members["deprecated"] = True
    extra = note.json_schema_extra
    if isinstance(extra, dict):
        read.members.update(extra)
    elif extra is not None:
        read.foreign.append(note)
    if note.discriminator is not None:
        if not isinstance(note.discriminator, str):
            raise Unsupported("a Discriminator that is a function is not supported; name a member that is a Literal")
        read.tag = note.discriminator
    if note.default_factory is not None:
        if getattr(note, "default_factory_takes_validated_data", False):
            raise Unsupported("a default_factory that takes the other values is not supported")
        read.factory = note.default_factory
    elif not note.is_required():
        read.default = note.default


def _texts(note: Any, read: Notes) -> None:
    for name in _TEXTS:
        value = getattr(note, name, None)
        if isinstance(value, str) and value:
            read.members.setdefault(name, value)
    examples = getattr(note, "examples", None)
    if examples:
        read.members["examples"] = list(examples)


def _ours(note: Any, out: bool, read: Notes) -> bool:
    """A note that says what the schema is to hold, as our Header does."""
    known = False
    for name in (*_EXTRAS, "input_json_schema"):
        value = getattr(note, name, None)
        if isinstance(value, dict) and type(note).__module__ != "msgspec":
            known = True
            if not (out and name == "input_json_schema"):
                read.members.update(value)
    if isinstance(getattr(note, "documentation", None), str):  # typing_extensions.Doc, annotated_types.DocInfo
        read.members.setdefault("description", note.documentation)
        known = True
    return known


def _annotated_types(note: Any, read: Notes) -> bool:
    """The notes of annotated_types, and pydantic's own of the same meaning."""
    module, kind = type(note).__module__.partition(".")[0], type(note).__name__
    if module == "annotated_types" and kind == "Predicate":
        read.bounds.append(("predicate", note.func))
        return True
    if module == "annotated_types" and kind == "Not":
        read.bounds.append(("predicate", note))
        return True
    if module == "annotated_types" and kind == "Timezone":
        if note.tz is not None and note.tz is not ...:
            raise Unsupported(f"Timezone({note.tz!r}) is not supported; Timezone(...) asks for any offset")
        read.bounds.append(("tz", note.tz is ...))
        return True
    if module not in ("annotated_types", "pydantic"):
        return False
    names = vars(note) if hasattr(note, "__dict__") else {name: getattr(note, name, None) for name in _BOUNDS}
    given = {name: value for name, value in names.items() if value is not None}
    if not given or not given.keys() <= set(_BOUNDS):
        return False
    read.bounds += given.items()
    return True


def _meta(note: Any, read: Notes) -> bool:
    """msgspec.Meta."""
    if type(note).__module__ != "msgspec" or type(note).__name__ != "Meta":
        return False
    for name in (*_BOUNDS, "tz"):
        bound = getattr(note, name)
        if bound is not None:
            read.bounds.append((name, bound))
    _texts(note, read)
    if note.extra_json_schema:
        read.members.update(note.extra_json_schema)
    return True


def description_of(notes: Sequence[Any]) -> str | None:
    """The description in `Annotated` notes: a string, a `Doc`, or a Field or Meta with one."""
    for note in notes:
        if isinstance(note, str):
            return note
        for name in ("documentation", "description"):
            value = getattr(note, name, None)
            if isinstance(value, str) and value:
                return value
    return None
