"""What registrations have in common: their definition on the wire, and checks of what was written."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import Any, Literal

from ..errors import RegistrationError
from ..limits import Limits
from ..tasks.store import TaskStore
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


def check_server(
    name: Any, version: Any, limits: Any, lifespan: Any, page_size: int, tasks: Any, task_inline_ms: Any
) -> None:
    """The arguments of `Server`.

    Raises:
        RegistrationError: one is not what it should be.
    """
    if not isinstance(name, str) or not name:
        raise RegistrationError(f"Server(name): expected a text that is not empty, got {name!r}")
    for what, value, kind in (("version", version, str), ("limits", limits, Limits)):
        if not isinstance(value, kind):
            raise RegistrationError(f"Server({what}=…): expected {kind.__name__}, got {value!r}")
    if tasks is not None and not isinstance(tasks, TaskStore):
        raise RegistrationError(
            f"Server(tasks=…): expected a TaskStore, as in Server(tasks=SQLiteTaskStore('tasks.db')), got {tasks!r}"
        )
    if type(task_inline_ms) is not int or task_inline_ms < 0:
        raise RegistrationError(f"Server(task_inline_ms=…): expected milliseconds, 0 or more, got {task_inline_ms!r}")
    if lifespan is not None and (not callable(lifespan) or inspect.isasyncgenfunction(lifespan)):
        raise RegistrationError(
            "Server(lifespan=…): expected a function that returns an async context manager; "
            "put @contextlib.asynccontextmanager above an 'async def' that yields"
        )
    if page_size < 1:
        raise RegistrationError(f"Server(page_size=…): expected at least 1, got {page_size}")


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
