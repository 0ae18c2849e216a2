"""The codec interface and the report of mismatches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..limits import DEFAULT, Limits
from ..protocol.jsontext import shorten

__all__ = ["Codec", "Mismatch", "Problem", "Unsupported", "counted", "described", "kind_name", "kind_of", "render"]

JSONSchema = dict[str, Any]

_NAMES = {
    "null": "null",
    "bool": "boolean",
    "int": "integer",
    "float": "number",
    "str": "string",
    "list": "array",
    "dict": "object",
}
_KINDS: dict[type, str] = {
    type(None): "null",
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    list: "list",
    dict: "dict",
}


def kind_of(value: Any) -> str:
    """The JSON kind of a JSON value: null, bool, int, float, str, list or dict."""
    return _KINDS.get(type(value), type(value).__name__)


def kind_name(value: Any) -> str:
    """The JSON Schema name of a JSON value's kind."""
    return _NAMES.get(kind_of(value), type(value).__name__)


def described(value: Any) -> str:
    """A value as an error message names it: `integer 3`, `string "a"`, `null`."""
    kind, shown = kind_name(value), shorten(value)
    return kind if kind == shown else f"{kind} {shown}"


def counted(count: int, unit: str) -> str:
    """`1 element`, `2 elements`."""
    return f"{count} {unit}" if count == 1 else f"{count} {unit}s"


class Unsupported(Exception):
    """A type that cannot be expressed as JSON. `where` leads to it, outermost first."""

    def __init__(self, message: str, where: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.message: str = message
        self.where: list[str] = list(where)

    def within(self, name: str) -> Unsupported:
        """The same report, seen from one level further out."""
        return Unsupported(self.message, [name, *self.where])


class Problem:
    """One thing that is wrong with a value. `path` is kept innermost first while it grows."""

    __slots__ = ("path", "text")

    def __init__(self, text: str) -> None:
        self.path: list[str | int] = []
        self.text: str = text

    def __str__(self) -> str:
        out = ""
        for part in reversed(self.path):
            if isinstance(part, int):
                out += f"[{part}]"
            elif part.isidentifier():
                out += f".{part}" if out else part
            else:
                out += f"[{shorten(part)}]"
        return f"{out}: {self.text}" if out else self.text


class Mismatch(Exception):
    """A value is not of the type. Holds every problem that was found."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__()
        self.problems: list[Problem] = list(problems)

    @staticmethod
    def of(value: Any, expected: str) -> Mismatch:
        """The value is of the wrong kind altogether."""
        hint = ""
        if type(value) is str and expected.startswith(("array", "object")) and value.lstrip()[:1] in ("[", "{"):
            hint = " (JSON text in a string: pass the value itself)"
        return Mismatch(Problem(f"expected {expected}, got {described(value)}{hint}"))

    def under(self, key: str | int, found: list[Problem]) -> None:
        """Add these problems to `found`, seen from the container: each path gets `key`."""
        for problem in self.problems:
            problem.path.append(key)
        found.extend(self.problems)

    def __str__(self) -> str:
        return render(self.problems)


def render(problems: Iterable[Problem], limits: Limits = DEFAULT) -> str:
    """One line a problem, at most `limits.shown_errors` of them."""
    lines = [str(problem) for problem in problems]
    more = len(lines) - limits.shown_errors
    if more > 0:
        lines[limits.shown_errors :] = [f"… and {more} more"]
    return "\n".join(lines)


class Codec(ABC):
    """How one Python type travels as JSON.

    Attributes:
        kinds: The JSON kinds that a value of this type may have.
        expects: What it is called in an error message.
    """

    kinds: frozenset[str] = frozenset()
    expects: str = "a value"

    @abstractmethod
    def schema(self) -> JSONSchema:
        """A new JSON Schema (2020-12) object. Named types are `$ref`s to `#/$defs/…`."""

    @abstractmethod
    def load(self, value: Any) -> Any:
        """The Python value of a JSON value.

        Raises:
            Mismatch: with every problem.
        """

    @abstractmethod
    def dump(self, value: Any) -> Any:
        """The JSON value of a Python value.

        Raises:
            Mismatch: the value is not of this type, or cannot be JSON.
        """

    def children(self) -> Iterator[Codec]:
        """The codecs that this one is made of."""
        return iter(())

    def owns(self, value: Any) -> bool:
        """Whether a Python value is clearly of this type; decides between the arms of a union on the way out."""
        return False

    def unknown_keys(self, value: Any) -> int:
        """How many members of a JSON object this type would ignore; decides between classes in a union."""
        return 0
