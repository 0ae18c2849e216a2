"""What registrations have in common: their definition on the wire, and checks of what was written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from ..errors import RegistrationError
from .signature import Handler, title_of

__all__ = ["CacheScope", "Icons", "a_function", "a_timeout", "cache_hints", "check_variables", "definition"]

Icons = Sequence[dict[str, Any]]
CacheScope = Literal["public", "private"]


def cache_hints(what: str, ttl: float, scope: str) -> dict[str, Any]:
    """Caching hints, as results carry them."""
    if not (ttl >= 0 and math.isfinite(ttl)) or scope not in ("public", "private"):
        raise RegistrationError(
            f"{what}: expected cache_ttl in seconds, 0 or more, and cache_scope 'public' or 'private', got {ttl!r}, {scope!r}"
        )
    return {"ttlMs": round(ttl * 1000), "cacheScope": scope}


def a_function(fn: Any, kind: str) -> Any:
    """What was given to a decorator, unless it is a name in the wrong place."""
    if isinstance(fn, str):
        raise RegistrationError(f"@server.{kind}({fn!r}): the name goes into name=, as in @server.{kind}(name={fn!r})")
    return fn


def definition(
    handler: Handler, title: str | None, description: str | None, icons: Icons | None, meta: dict[str, Any] | None
) -> dict[str, Any]:
    """What a list shows of every kind of component."""
    wire: dict[str, Any] = {"name": handler.name, "title": title or title_of(handler.name)}
    text = handler.text if description is None else description
    if text:
        wire["description"] = text
    if icons:
        wire["icons"] = list(icons)
    if meta:
        wire["_meta"] = meta
    return wire


def a_timeout(handler: Handler, timeout: float | None) -> float | None:
    """A timeout that is one."""
    if timeout is not None and not timeout > 0:
        raise handler.error(f"timeout must be a positive number of seconds, got {timeout!r}")
    return timeout


def check_variables(handler: Handler, uri: str, variables: Sequence[str], optional: Any) -> None:
    """Variables of a template and parameters of its function agree."""
    names = {item.name for item in handler.parameters}
    for name in variables:
        if name not in names:
            raise handler.error(f"{uri!r} has the variable {name!r}, the function has no such parameter")
    for item in handler.parameters:
        if item.name not in variables:
            if item.required:
                raise handler.error(f"parameter {item.name!r} is not a variable of {uri!r}")
        elif item.name in optional and item.required:
            raise handler.error(f"parameter {item.name!r} needs a default: {uri!r} lets a URI leave it out")
