"""Completion of the arguments of prompts and resource templates (server/utilities/completion)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..convert.codec import Mismatch, Problem
from ..errors import InvalidParams
from ..protocol.jsontext import find_unwritable
from ..scopes.call import Call
from .context import Context
from .registry import Prompt, Registry, Resource, did_you_mean
from .signature import Handler

if TYPE_CHECKING:
    from .engine import Engine

__all__ = ["Completion", "CompletionKey", "check_completion", "complete"]

MOST: Final = 100
"""Values of one answer, as the specification bounds it."""

CompletionKey = tuple[str, str]
"""The name of a prompt or the text of a template, and the argument."""


@dataclass(frozen=True, slots=True)
class Completion:
    """Suggestions for an argument.

    Args:
        values: The best first; those beyond 100 are not sent.
        total: How many there are in all, if that is known; otherwise `len(values)`.
        has_more: Whether there are more than these; otherwise it follows from the numbers.
    """

    values: Sequence[str]
    total: int | None = None
    has_more: bool | None = None

    def to_wire(self) -> dict[str, Any]:
        """The `completion` member of the result."""
        values = list(self.values)
        total = len(values) if self.total is None else self.total
        more = total > min(len(values), MOST) if self.has_more is None else self.has_more
        return {"values": values[:MOST], "total": total, "hasMore": more}


def check_completion(handler: Handler, registry: Registry, ref: str, argument: str) -> CompletionKey:
    """Check what a completion is registered for.

    Raises:
        RegistrationError: there is no such prompt, template or argument, or the function takes something else.
    """
    target: Prompt | Resource | None = registry.prompts.get(ref) or registry.templates.get(ref)
    if target is None:
        there = ", ".join([*registry.prompts, *registry.templates]) or "nothing"
        raise handler.error(f"there is no prompt or template {ref!r} to complete; there is: {there}")
    names = [item.name for item in target.handler.parameters]
    if argument not in names:
        raise handler.error(f"{ref!r} has no argument {argument!r}; it has: {', '.join(names) or 'none'}")
    for item in handler.parameters:
        if item.name not in ("value", "arguments"):
            raise handler.error(
                f"parameter {item.name!r}: a completion takes value (the text so far), arguments (a dict of what is chosen "
                "already) and a Context"
            )
    return ref, argument


async def complete(engine: Engine, call: Call) -> dict[str, Any]:
    """`completion/complete`. An argument that nobody completes has no suggestions, or those of its type."""
    ref, argument = call.params["ref"], call.params["argument"]
    target, key = _target(engine, ref)
    names = {item.name: item for item in target.handler.parameters}
    name, value = argument["name"], argument["value"]
    if name not in names:
        raise InvalidParams(did_you_mean("argument", name, names, engine.limits))
    handler = engine.registry.completions.get((key, name))
    if handler is None:
        found = Completion([text for text in _choices(names[name].schema) if text.lower().startswith(value.lower())])
        return {"completion": found.to_wire()}
    given = {"value": value, "arguments": (call.params.get("context") or {}).get("arguments") or {}}
    taken = {item.name for item in handler.parameters}
    result = await handler.call(
        {name: item for name, item in given.items() if name in taken}, Context(engine, call), engine.threads
    )
    completion = result if isinstance(result, Completion) else Completion(list(result))
    if not all(isinstance(text, str) for text in completion.values) or find_unwritable(list(completion.values)):
        raise Mismatch(Problem(f"completion of {key!r}.{name}: expected a list of text"))
    return {"completion": completion.to_wire()}


def _target(engine: Engine, ref: dict[str, Any]) -> tuple[Prompt | Resource, str]:
    registry = engine.registry
    if ref["type"] == "ref/prompt":
        name = ref.get("name")
        if not isinstance(name, str):
            raise InvalidParams("Invalid params for completion/complete: ref.name must be a string")
        if name not in registry.prompts:
            raise InvalidParams(did_you_mean("prompt", name, registry.prompts, engine.limits))
        return registry.prompts[name], name
    uri = ref.get("uri")
    if not isinstance(uri, str):
        raise InvalidParams("Invalid params for completion/complete: ref.uri must be a string")
    found = registry.templates.get(uri) or registry.resources.get(uri)
    if found is None:
        raise InvalidParams(did_you_mean("resource template", uri, registry.templates, engine.limits))
    return found, uri


def _choices(schema: dict[str, Any]) -> list[str]:
    """The fixed texts that a schema allows, also among other things."""
    values = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
    found = [value for value in values if isinstance(value, str)]
    found += [value for arm in schema.get("anyOf", ()) for value in _choices(arm)]
    return list(dict.fromkeys(found))
