"""Completion of the arguments of prompts and resource templates (server/utilities/completion)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...convert.codec import Mismatch, Problem
from ...errors import InvalidParams
from ...protocol.jsontext import find_unwritable
from ...scopes.call import Call
from ..ask.context import Context
from ..ask.running_server import RunningServer
from ..declare.completion import Completion
from ..declare.registry import Prompt, Resource, did_you_mean

__all__ = ["complete"]


async def complete(running: RunningServer, call: Call) -> dict[str, Any]:
    """`completion/complete`. An argument that nobody completes has no suggestions, or those of its type."""
    ref, argument = call.params["ref"], call.params["argument"]
    target, key = _target(running, ref)
    names = {item.name: item for item in target.handler.parameters}
    name, value = argument["name"], argument["value"]
    if name not in names:
        raise InvalidParams(did_you_mean("argument", name, names, running.limits))
    handler = running.registry.completions.get((key, name))
    if handler is None:
        found = Completion([text for text in _choices(names[name].schema) if text.lower().startswith(value.lower())])
        return {"completion": found.to_wire()}
    given = {"value": value, "arguments": (call.params.get("context") or {}).get("arguments") or {}}
    taken = {item.name for item in handler.parameters}
    result = await handler.call(
        {name: item for name, item in given.items() if name in taken}, Context(running, call), running.threads
    )
    values = result.values if isinstance(result, Completion) else result
    if isinstance(values, str) or not isinstance(values, Iterable):
        # The letters of a text are no suggestions.
        found_type = type(values).__name__
        raise Mismatch(Problem(f"completion of {key!r}.{name}: expected a list of text, got {found_type}"))
    completion = result if isinstance(result, Completion) else Completion(list(values))
    if not all(isinstance(text, str) for text in completion.values) or find_unwritable(list(completion.values)):
        raise Mismatch(Problem(f"completion of {key!r}.{name}: expected a list of text"))
    return {"completion": completion.to_wire()}


def _target(running: RunningServer, ref: dict[str, Any]) -> tuple[Prompt | Resource, str]:
    registry = running.registry
    if ref["type"] == "ref/prompt":
        name = ref.get("name")
        if not isinstance(name, str):
            raise InvalidParams("Invalid params for completion/complete: ref.name must be a string")
        if name not in registry.prompts:
            raise InvalidParams(did_you_mean("prompt", name, registry.prompts, running.limits))
        return registry.prompts[name], name
    uri = ref.get("uri")
    if not isinstance(uri, str):
        raise InvalidParams("Invalid params for completion/complete: ref.uri must be a string")
    found = registry.templates.get(uri) or registry.resources.get(uri)
    if found is None:
        raise InvalidParams(did_you_mean("resource template", uri, registry.templates, running.limits))
    return found, uri


def _choices(schema: dict[str, Any]) -> list[str]:
    """The fixed texts that a schema allows, also among other things."""
    values = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
    found = [value for value in values if isinstance(value, str)]
    found += [value for arm in schema.get("anyOf", ()) for value in _choices(arm)]
    return list(dict.fromkeys(found))
