"""The codec interface and the report of mismatches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

from ..limits import DEFAULT, Limits
from ..protocol.jsontext import shorten

__all__ = [
    "ALL_KINDS",
    "FITS",
    "KEPT",
    "Codec",
    "Found",
    "Misfit",
    "Mismatch",
    "NamedCodec",
    "Pace",
    "Problem",
    "Unsupported",
    "counted",
    "described",
    "finished",
    "kind_name",
    "kind_of",
    "render",
]

T = TypeVar("T")
JSONSchema = dict[str, Any]
Misfit = tuple[int, int, int]
"""How badly a value seems to be of a type: constants that differ, other faults, members that would be ignored."""

ALL_KINDS: Final = frozenset({"null", "bool", "int", "float", "str", "list", "dict"})
FITS: Final[Misfit] = (0, 0, 0)

KEPT: Final = 1000
"""Problems of one value that are kept, more than any message shows (`limits.shown_errors`); the rest is counted."""

_PIECE: Final = 2000
"""Values that are converted between two places where others may run: a few milliseconds."""

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


class Problem:
    """One thing that is wrong with a value. `path` is kept innermost first while it grows.

    Its text is made when it is read: of many problems few are shown.
    """

    __slots__ = ("_expected", "_text", "_value", "path")

    def __init__(self, text: str | None, expected: str = "", value: Any = None) -> None:
        self.path: list[str | int] = []
        self._text = text
        self._expected = expected
        self._value = value

    @property
    def text(self) -> str:
        """What is wrong, without where."""
        if self._text is not None:
            return self._text
        value, hint = self._value, ""
        if type(value) is str and self._expected.startswith(("array", "object")) and value.lstrip()[:1] in ("[", "{"):
            hint = " (JSON text in a string: pass the value itself)"
        return f"expected {self._expected}, got {described(value)}{hint}"

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
    """A value is not of the type.

    Attributes:
        problems: What was found, from the first on.
        more: How many problems there are besides.
        counted: Whether that is all; false where nobody looked for more.
    """

    def __init__(self, *problems: Problem, more: int = 0) -> None:
        super().__init__()
        self.problems: list[Problem] = list(problems)
        self.more: int = more
        self.counted: bool = True

    @staticmethod
    def of(value: Any, expected: str) -> Mismatch:
        """The value is of the wrong kind altogether."""
        return Mismatch(Problem(None, expected, value))

    def __str__(self) -> str:
        return render(self)


class Found:
    """What is wrong with the parts of one value, as it is found: the first problems, and the number of the others."""

    __slots__ = ("more", "problems")

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.more: int = 0

    def __bool__(self) -> bool:
        return bool(self.problems)

    def under(self, key: str | int, exc: Mismatch) -> None:
        """Add the problems of a part, seen from the whole: each path gets the key of the part."""
        self.more += exc.more
        room = KEPT - len(self.problems)
        if room < len(exc.problems):
            self.more += len(exc.problems) - room
            del exc.problems[room:]
        for problem in exc.problems:
            problem.path.append(key)
        self.problems += exc.problems

    def note(self, text: str, key: str | int | None = None) -> None:
        """Add one problem, of the whole or of a part of it."""
        if len(self.problems) >= KEPT:
            self.more += 1
            return
        problem = Problem(text)
        if key is not None:
            problem.path.append(key)
        self.problems.append(problem)

    def add(self, problem: Problem) -> None:
        """Add a problem with its path."""
        if len(self.problems) >= KEPT:
            self.more += 1
        else:
            self.problems.append(problem)

    def mismatch(self) -> Mismatch:
        """All of it, to be raised."""
        return Mismatch(*self.problems, more=self.more)


def render(found: Mismatch | Iterable[Problem], limits: Limits = DEFAULT) -> str:
    """One line a problem, at most `limits.shown_errors` of them."""
    problems, more = (found.problems, found.more) if isinstance(found, Mismatch) else (list(found), 0)
    more += max(len(problems) - limits.shown_errors, 0)
    lines = [str(problem) for problem in problems[: limits.shown_errors]]
    unsure = isinstance(found, Mismatch) and not found.counted
    return "\n".join([*lines, f"… and {more} more{', or above' * unsure}"] if more else lines)


class Pace:
    """How much has been converted since others could last run."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = _PIECE

    def due(self, done: int = 1) -> bool:
        """Whether it is time to let others run, after so many values more."""
        self._left -= done
        if self._left > 0:
            return False
        self._left = _PIECE
        return True


def finished(steps: Generator[None, None, T]) -> T:
    """What work in pieces comes to, in one go."""
    while True:
        try:
            next(steps)
        except StopIteration as exc:
            made: T = exc.value
            return made


class Codec(ABC):
    """How one Python type travels as JSON.

    Attributes:
        kinds: The JSON kinds that a value of this type may have.
        expects: What it is called in an error message.
        types: The Python classes whose instances it writes; decides between the arms of a union on the way out.
        rank: Between arms of a union that fit equally: the lower is tried first.
    """

    kinds: frozenset[str] = frozenset()
    expects: str = "a value"
    types: tuple[type, ...] = ()
    rank: int = 0

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

    def pieces(self, value: Any, out: bool, pace: Pace) -> Generator[None, None, Any]:
        """`load`, or `dump` where `out` is true, as a generator that yields where others may run.

        Returns:
            What `load` or `dump` returns, and raises what they raise.
        """
        if pace.due():
            yield
        return self.dump(value) if out else self.load(value)

    def children(self) -> Iterator[Codec]:
        """The codecs that this one is made of."""
        return iter(())

    def owns(self, value: Any) -> bool:
        """Whether a Python value is clearly of this type, as far as that is seen without its parts."""
        return False

    def distance(self, cls: type) -> int | None:
        """How far a class is from the ones that this codec writes: 0 is the class itself; None when it writes others."""
        for far, base in enumerate(cls.__mro__):
            if base in self.types:
                return far
        return len(cls.__mro__) if issubclass(cls, self.types) else None

    def constants(self) -> frozenset[tuple[type, Any]] | None:
        """The only JSON values that it takes, with their types, when these are a fixed set."""
        return None

    def ordered(self) -> tuple[type, ...]:
        """The Python types that its values can be compared with."""
        return ()

    def misfit(self, value: Any, out: bool) -> Misfit:
        """How badly a value seems to be of this type, from its names and its single values; parts are not entered.

        Args:
            value: A JSON value of one of the kinds, or a Python value that it owns.
            out: Whether it is a Python value.
        """
        return FITS

    def alike(self, other: Codec, out: bool) -> str | None:
        """Why a look at the names and single values cannot tell a value of this type from one of another.

        Args:
            other: A codec with a kind in common.
            out: Whether Python values are to be told apart.

        Returns:
            None when it can.
        """
        return None


class NamedCodec(Codec):
    """A codec that stands in `$defs`."""

    name: str

    def schema(self) -> JSONSchema:
        return {"$ref": f"#/$defs/{self.name}"}

    @abstractmethod
    def definition(self) -> JSONSchema:
        """The schema itself, for `$defs` or for the root."""

    def parts(self) -> dict[str, JSONSchema]:
        """Definitions that only this one refers to, by their names in `$defs`."""
        return {}
