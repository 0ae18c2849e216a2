"""Unions: one arm is chosen by a look at the value, and only that arm is entered."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator, Sequence
from typing import Any, Final

from ..protocol.jsontext import shorten
from .codec import FITS, Codec, Found, JSONSchema, Misfit, Mismatch, Pace, Unsupported, kind_of
from .looks import CONTAINERS, Member

__all__ = ["UnionCodec"]

_MISSING: Final = object()
_SLICE: Final = 1000
"""Elements or members that are looked at in one go."""
_CACHED: Final = 256
"""Python classes whose arms a union remembers."""


class UnionCodec(Codec):
    """A union.

    In: the JSON kind decides, where one arm has it. Between arms of text and numbers each is tried in the order written,
    with int before float for an integer. Between objects a member that has other constants in each arm decides, otherwise
    the names of the members and their single values; between arrays the single values in them (`looks`). Of arms that fit
    equally the first counts.

    Out: the exact Python class of the value decides, then its nearest base, then a look as above.

    Args:
        arms: Its members.
        out: Whether its values go out.
        tag: The member that must tell the arms apart, where the user named one.
    """

    def __init__(self, arms: Sequence[Codec], out: bool, tag: str | None = None) -> None:
        self._arms: list[Codec] = []
        for arm in arms:
            self._arms.extend(arm._arms if isinstance(arm, UnionCodec) else [arm])
        self._out = out
        self._tag = tag
        self._by_tag: dict[tuple[type, Any], Codec] | None = None
        self._options = ""
        self._by_class: dict[type, list[tuple[int, Codec]]] = {}
        self.kinds: frozenset[str] = frozenset().union(*(arm.kinds for arm in self._arms))
        self.expects: str = " or ".join(dict.fromkeys(arm.expects for arm in self._arms))
        self.types: tuple[type, ...] = tuple(dict.fromkeys(cls for arm in self._arms for cls in arm.types))
        taken = self.kinds | {"float"} if "int" in self.kinds else self.kinds
        self._by_kind: dict[str, list[Codec]] = {kind: self._of_kind(kind) for kind in taken}

    def _of_kind(self, kind: str) -> list[Codec]:
        arms = [arm for arm in self._arms if kind in arm.kinds]
        if kind == "int":
            arms.sort(key=lambda arm: "float" in arm.kinds and "str" not in arm.kinds)
        elif kind == "float":
            # 1.0 is an integer to JSON Schema; an int arm takes it when no float arm is there.
            arms += [arm for arm in self._arms if "int" in arm.kinds and arm not in arms]
        elif kind in CONTAINERS:
            arms.sort(key=lambda arm: arm.rank)
        return arms

    def finish(self) -> None:
        """Find what tells the arms apart. When all classes are compiled: they may refer to each other.

        Raises:
            Unsupported: nothing does.
        """
        if self._tag is not None and "dict" not in self.kinds:
            raise Unsupported(f"the discriminator {self._tag!r} needs two classes or more, and nothing else")
        for kind in sorted(self.kinds & CONTAINERS):
            arms = self._by_kind[kind]
            if kind == "dict":
                self._find_tag(arms)
                if self._by_tag is not None and not self._out:
                    continue
            for index, one in enumerate(arms):
                for other in arms[index + 1 :]:
                    why = one.alike(other, self._out) if one.rank == other.rank else None
                    if why is not None:
                        cure = (
                            "give each a member with a Literal of its own"
                            if kind == "dict"
                            else "say array of one type that is the union"
                        )
                        raise Unsupported(f"{one.expects} and {other.expects} cannot be told apart: they {why}; {cure}")

    def _find_tag(self, arms: list[Codec]) -> None:
        shapes = [members_of(arm) for arm in arms]
        if len(arms) < 2 or any(shape is None for shape in shapes):
            if self._tag is not None:
                raise Unsupported(f"the discriminator {self._tag!r} needs two classes or more, and nothing else")
            return
        first = shapes[0] or {}
        for name in [self._tag] if self._tag is not None else list(first):
            found: dict[tuple[type, Any], Codec] = {}
            total = 0
            for arm, shape in zip(arms, shapes, strict=True):
                member = (shape or {}).get(name)
                if member is None or member.constants is None:
                    break
                total += len(member.constants)
                found.update((constant, arm) for constant in member.constants)
            else:
                if len(found) == total:
                    self._tag, self._by_tag = name, found
                    return
        if self._tag is not None:
            raise Unsupported(
                f"the discriminator {self._tag!r} is not a Literal with other values in each of the classes"
            )

    def children(self) -> Iterator[Codec]:
        return iter(self._arms)

    def schema(self) -> JSONSchema:
        arms: list[JSONSchema] = []
        for schema in (arm.schema() for arm in self._arms):
            if schema not in arms:
                arms.append(schema)
        return arms[0] if len(arms) == 1 else {"anyOf": arms}

    # -- in

    def load(self, value: Any) -> Any:
        kind = kind_of(value)
        arms = self._by_kind.get(kind, ())
        if kind in CONTAINERS and arms:
            return (arms[0] if len(arms) == 1 else self._arm_for(value, arms)).load(value)
        failed: Mismatch | None = None
        for arm in arms:
            try:
                return arm.load(value)
            except Mismatch as exc:
                failed = exc
        if len(arms) == 1 and failed is not None and kind in arms[0].kinds:
            raise failed
        raise Mismatch.of(value, self.expects)

    def _arm_for(self, value: Any, arms: Sequence[Codec]) -> Codec:
        """The arm that a JSON object or array is meant for.

        Raises:
            Mismatch: the member that decides has another value, or is missing.
        """
        if self._by_tag is not None and type(value) is dict:
            tagged = self._tagged(value, arms)
            if tagged is not None:
                return tagged
        return min(arms, key=lambda arm: arm.misfit(value, False))

    def _tagged(self, value: dict[str, Any], arms: Sequence[Codec]) -> Codec | None:
        assert self._by_tag is not None and self._tag is not None
        constant = value.get(self._tag, _MISSING)
        if constant is _MISSING:
            # An arm may have it as a default.
            if any(not members[self._tag].required for arm in arms if (members := members_of(arm))):
                return None
            what = "missing"
        else:
            kind = type(constant)
            if kind is not list and kind is not dict:
                for key in ((kind, constant), (int, constant), (float, constant)):
                    arm = self._by_tag.get(key) if key[0] is kind or kind in (int, float) else None
                    if arm is not None:
                        return arm
            what = ""
        if not self._options:
            self._options = f"one of {', '.join(shorten(constant) for _, constant in self._by_tag)}"
        expected = self._options
        found = Found()
        if what:
            found.note(f"missing, expected {expected}", self._tag)
        else:
            found.under(self._tag, Mismatch.of(constant, expected))
        raise found.mismatch()

    # -- out

    def dump(self, value: Any) -> Any:
        owners = self._owners(value)
        if any(arm.kinds & CONTAINERS for arm in owners):
            return (owners[0] if len(owners) == 1 else min(owners, key=lambda arm: arm.misfit(value, True))).dump(value)
        # A single value: bounds may refuse what another arm takes. Or none owns it: an integer for a float.
        failed: Mismatch | None = None
        for arm in (*owners, *(arm for arm in self._arms if arm not in owners and arm.kinds - CONTAINERS)):
            try:
                return arm.dump(value)
            except Mismatch as exc:
                failed = failed or exc
        if len(owners) == 1 and failed is not None:
            raise failed
        raise Mismatch.of(value, self.expects)

    def _owners(self, value: Any) -> list[Codec]:
        """The arms that a Python value may be meant for: those of the nearest class."""
        near = [(far, arm) for far, arm in self._arms_of_class(type(value)) if arm.owns(value)]
        return [arm for far, arm in near if far == near[0][0]]

    def _arms_of_class(self, cls: type) -> list[tuple[int, Codec]]:
        arms = self._by_class.get(cls)
        if arms is None:
            found = [(far, arm) for arm in self._arms if (far := arm.distance(cls)) is not None]
            arms = sorted(found, key=lambda item: (item[0], item[1].rank))
            if len(self._by_class) >= _CACHED:
                self._by_class.clear()
            self._by_class[cls] = arms
        return arms

    # -- both

    def pieces(self, value: Any, out: bool, pace: Pace) -> Generator[None, None, Any]:
        arms: Sequence[Codec] = self._owners(value) if out else self._by_kind.get(kind_of(value), ())
        arm: Codec | None = None
        if len(arms) == 1 and arms[0].kinds & CONTAINERS:
            arm = arms[0]
        elif not any(arm.kinds & CONTAINERS for arm in arms) or not (out or kind_of(value) in CONTAINERS):
            if pace.due():
                yield
            return self.dump(value) if out else self.load(value)
        elif not out and self._by_tag is not None and type(value) is dict:
            arm = self._tagged(value, arms)
        if arm is None:
            arm = yield from self._look(value, out, arms, pace)
        return (yield from arm.pieces(value, out, pace))

    def _look(self, value: Any, out: bool, arms: Sequence[Codec], pace: Pace) -> Generator[None, None, Codec]:
        """The arm that a value fits best: a look at it, slice by slice where it is long."""
        best: tuple[Misfit, Codec] | None = None
        for arm in arms:
            misfit = FITS
            if arm.rank == 0 and isinstance(value, list | tuple) and len(value) >= _SLICE:
                misfit = (0, len(value), 0)  # an array of a fixed length is not that long
            elif arm.rank == 0 or not isinstance(value, list | tuple | dict):
                misfit = arm.misfit(value, out)  # of a class, so its members are looked at
                if pace.due():
                    yield
            else:
                for part in _slices(value):
                    tags, wrong, ignored = arm.misfit(part, out)
                    misfit = (misfit[0] + tags, misfit[1] + wrong, misfit[2] + ignored)
                    if pace.due(_SLICE):
                        yield
            if best is None or misfit < best[0]:
                best = (misfit, arm)
        assert best is not None
        return best[1]

    def owns(self, value: Any) -> bool:
        return any(arm.owns(value) for arm in self._arms)

    def distance(self, cls: type) -> int | None:
        found = self._arms_of_class(cls)
        return found[0][0] if found else None

    def constants(self) -> frozenset[tuple[type, Any]] | None:
        found = [arm.constants() for arm in self._arms]
        return None if None in found else frozenset().union(*(item for item in found if item is not None))

    def ordered(self) -> tuple[type, ...]:
        return tuple(cls for arm in self._arms for cls in arm.ordered())

    def misfit(self, value: Any, out: bool) -> Misfit:
        arms = self._owners(value) if out else self._by_kind.get(kind_of(value), ())
        return min((arm.misfit(value, out) for arm in arms), default=(0, 1, 0))


def _slices(value: Any) -> Iterator[Any]:
    """A long array or object in shorter ones."""
    if isinstance(value, dict):
        items = iter(value.items())
        while part := dict(itertools.islice(items, _SLICE)):
            yield part
    else:
        for start in range(0, len(value), _SLICE):
            yield value[start : start + _SLICE]


def members_of(arm: Codec) -> dict[str, Member] | None:
    """The members of an arm that is a class, as they are seen from outside."""
    members: Any = getattr(arm, "members", None)
    return members if isinstance(members, dict) else None
