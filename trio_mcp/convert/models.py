"""Types that pydantic reads: its models, and types with notes that only it understands.

pydantic is never imported here: whoever has such a type has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import Any, Final

from ..protocol.jsontext import dumps, find_unwritable
from .codec import ALL_KINDS, KEPT, Codec, JSONSchema, Misfit, Mismatch, NamedCodec, Pace, Problem, Unsupported
from .looks import Member, alike_objects, object_misfit
from .pieces import count_of
from .shapes import told_error

__all__ = ["PydanticCodec", "is_pydantic"]

_KINDS: Final = {
    "null": {"null"},
    "boolean": {"bool"},
    "integer": {"int"},
    "number": {"int", "float"},
    "string": {"str"},
    "array": {"list"},
    "object": {"dict"},
}
_KEPT_FORMATS: Final = frozenset({"date", "uuid", "ipv4"})
"""Formats that every value satisfies which pydantic writes. A date and time may lack the offset, a duration has fractions."""

_LISTED: Final = 10_000
"""Errors that pydantic is asked for, which it makes all at once: of 400,000 that takes ten seconds."""


def is_pydantic(cls: Any) -> bool:
    """Whether a class tells pydantic how to read it."""
    marks = ("__pydantic_core_schema__", "__get_pydantic_core_schema__")
    return "pydantic" in sys.modules and any(hasattr(cls, mark) for mark in marks)


class PydanticCodec(NamedCodec):
    """A pydantic model, or any type that tells pydantic how to read it: pydantic's own rules apply.

    Args:
        annotation: The type.
        name: Its key in `$defs`.
        out: Whether its values go out.
        inner: The codec of the type without the notes that are for pydantic; None for a model.
    """

    def __init__(self, annotation: Any, name: str, out: bool, inner: Codec | None = None) -> None:
        pydantic: Any = sys.modules["pydantic"]
        self.name: str = name
        self._inner = inner
        self._out = out
        mode = "serialization" if out else "validation"
        try:
            self._adapter = pydantic.TypeAdapter(annotation)
            schema = self._adapter.json_schema(mode=mode, by_alias=True, ref_template=f"#/$defs/{name}.{{model}}")
        except pydantic.errors.PydanticUserError as exc:
            raise Unsupported(f"{annotation!r}: {str(exc).splitlines()[0]}") from None
        except Exception as exc:  # a class says itself how it is read, and may need what is not installed
            raise Unsupported(f"{annotation!r}: {told_error(exc)}") from None
        if out:
            schema = _without_formats(schema)
        self._error = pydantic.ValidationError
        self._parts: dict[str, JSONSchema] = {f"{name}.{key}": part for key, part in schema.pop("$defs", {}).items()}
        self.body: JSONSchema = schema
        root = self._resolved(schema)
        self.kinds: frozenset[str] = _kinds_of(root, self._resolved)
        if inner is not None:
            self.types: tuple[type, ...] = inner.types
            self.expects: str = inner.expects
            # As strict as our own codecs, which it stands for.
            self._strict: bool | None = True if not isinstance(inner, PydanticCodec) else None
        else:
            self.types = (annotation,) if isinstance(annotation, type) else ()
            kind, label = root.get("type"), getattr(annotation, "__name__", str(annotation))
            self.expects = f"object {label}" if kind in ("object", None) else f"{kind} ({label})"
            self._strict = None
        self.members: dict[str, Member] | None = None
        if self.kinds == {"dict"}:
            self.members = self._members(root, annotation)
            self._closed = root.get("additionalProperties") is False

    def _resolved(self, schema: Any) -> JSONSchema:
        for _ in range(20):
            target = schema.get("$ref") if isinstance(schema, dict) else None
            if not isinstance(target, str):
                break
            schema = self._parts.get(target.removeprefix("#/$defs/"), {})
        return schema if isinstance(schema, dict) else {}

    def _members(self, root: JSONSchema, annotation: Any) -> dict[str, Member]:
        required = set(root.get("required", ()))
        members = {
            name: Member(
                None,
                name in required,
                kinds=_kinds_of(self._resolved(part), self._resolved),
                constants=_constants(self._resolved(part)),
                schema=part,
            )
            for name, part in root.get("properties", {}).items()
        }
        # With populate_by_name a member has two names.
        config = getattr(annotation, "model_config", {})
        if config.get("populate_by_name") or config.get("validate_by_name"):
            for name, field in getattr(annotation, "model_fields", {}).items():
                member = members.get(field.alias) if field.alias is not None else None
                if member is not None and name not in members and not self._out:
                    member.required = False
                    members[name] = Member(
                        None, False, kinds=member.kinds, constants=member.constants, schema=member.schema
                    )
        return members

    def schema(self) -> JSONSchema:
        return super().schema() if self._inner is None else dict(self.body)

    def definition(self) -> JSONSchema:
        return dict(self.body)

    def parts(self) -> dict[str, JSONSchema]:
        return self._parts

    def load(self, value: Any) -> Any:
        try:
            return self._adapter.validate_json(dumps(value), strict=self._strict)
        except self._error as exc:
            raise _mismatch(exc) from None

    def dump(self, value: Any) -> Any:
        if self._inner is not None:
            self._inner.dump(value)
            try:
                self._adapter.validate_python(value)
            except self._error as exc:
                raise _mismatch(exc) from None
        elif self.types and not isinstance(value, self.types):
            raise Mismatch.of(value, self.expects)
        try:
            # What is not of its type is written as it is, with a warning only, and would not fit the schema.
            wire = self._adapter.dump_python(value, mode="json", by_alias=True, warnings="error")
        except (ValueError, RecursionError) as exc:
            raise Mismatch(Problem(f"{self.expects}: {_last_line(exc)}")) from None
        bad = find_unwritable(wire)
        if bad:
            raise Mismatch(Problem(bad.removeprefix("$: ").removeprefix("$.")))
        return wire

    def pieces(self, value: Any, out: bool, pace: Pace) -> Generator[None, None, Any]:
        # pydantic reads and writes a model in one go, and nothing else runs meanwhile, not even in another thread.
        # So what is in a model counts, that many small ones share a piece and a large one has its own.
        if pace.due(0 if out else count_of(value)):
            yield
        made = self.dump(value) if out else self.load(value)
        if out and pace.due(count_of(made)):
            yield
        return made

    def owns(self, value: Any) -> bool:
        return self._inner.owns(value) if self._inner is not None else isinstance(value, self.types)

    def constants(self) -> frozenset[tuple[type, Any]] | None:
        return _constants(self._resolved(self.body))

    def ordered(self) -> tuple[type, ...]:
        return self._inner.ordered() if self._inner is not None else ()

    def misfit(self, value: Any, out: bool) -> Misfit:
        if out or self.members is None or not isinstance(value, dict):
            return (0, 0, 0)
        return object_misfit(self.members, value, False, closed=self._closed)

    def alike(self, other: Codec, out: bool) -> str | None:
        members: Any = getattr(other, "members", None)
        if self.members is None or members is None or (out and self.types != other.types):
            return None
        return alike_objects(self.members, members, out)


def _last_line(exc: Exception) -> str:
    """What pydantic says of a value that it cannot write; before it stands a headline."""
    return str(exc).strip().splitlines()[-1].strip() if str(exc).strip() else type(exc).__name__


def _mismatch(exc: Any) -> Mismatch:
    count = exc.error_count()
    if count > _LISTED:
        return Mismatch(Problem(f"{count:,} values do not fit, too many to list"))
    problems = []
    for item in exc.errors(include_url=False, include_context=False)[:KEPT]:
        wrong = Mismatch.of(item["input"], "…").problems[0].text.split(", got ", 1)[1]
        missing = item["type"] == "missing"
        problem = Problem("missing" if missing else f"{_lower(item['msg'])}, got {wrong}")
        problem.path = list(reversed(item["loc"]))
        problems.append(problem)
    return Mismatch(*problems, more=count - len(problems))


def _kinds_of(schema: JSONSchema, resolve: Any, depth: int = 0) -> frozenset[str]:
    """The JSON kinds that a schema of pydantic takes; all where it does not say so simply."""
    kind = schema.get("type")
    if isinstance(kind, str):
        return frozenset(_KINDS.get(kind, ALL_KINDS))
    if "const" in schema or "enum" in schema:
        return frozenset(cls for value in schema.get("enum", [schema.get("const")]) for cls in _kind(value))
    arms = schema.get("anyOf", schema.get("oneOf"))
    if isinstance(arms, list) and depth < 10:
        return frozenset().union(*(_kinds_of(resolve(arm), resolve, depth + 1) for arm in arms))
    return ALL_KINDS


def _kind(value: Any) -> set[str]:
    return {"null"} if value is None else {type(value).__name__}


def _constants(schema: JSONSchema) -> frozenset[tuple[type, Any]] | None:
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if not isinstance(values, list) or any(isinstance(value, list | dict) for value in values):
        return None
    return frozenset((type(value), value) for value in values)


def _without_formats(schema: Any) -> Any:
    """A schema that promises no format that a value may miss (server/tools, Output Schema)."""
    if isinstance(schema, list):
        return [_without_formats(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    out: JSONSchema = {}
    for key, value in schema.items():
        if key in ("properties", "patternProperties", "$defs") and isinstance(value, dict):
            out[key] = {name: _without_formats(part) for name, part in value.items()}
        elif key in ("const", "enum", "default", "examples"):
            out[key] = value
        elif key != "format" or value in _KEPT_FORMATS:
            out[key] = _without_formats(value)
    return out


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
