"""Completion of arguments, as it is declared (server/utilities/completion)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from .registry import Prompt, Registry, Resource
from .signature import Handler

__all__ = ["Completion", "CompletionKey", "check_completion"]

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
