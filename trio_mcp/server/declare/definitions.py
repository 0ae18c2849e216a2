"""What registrations have in common: their definition on the wire, and checks of what was written."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ...errors import RegistrationError
from ...limits import TASK_TTL_MOST, Limits
from ...protocol.jsontext import check_written, dumps, find_unwritable, shorten
from ...protocol.revisions import Era
from ...tasks.store import TaskStore
from .options import Options
from .signature import Handler, title_of

__all__ = [
    "cache_hints",
    "check_eras",
    "check_function",
    "check_info",
    "check_resource",
    "check_server",
    "check_timeout",
    "check_variables",
    "check_wire",
    "definition",
    "resource_annotations",
    "tool_annotations",
]

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")
_HINTS: Final = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_HINTS_PLAIN: Final = {name.lower(): name for name in _HINTS}


def cache_hints(what: str, ttl: float, scope: str) -> dict[str, Any]:
    """Caching hints, as results carry them."""
    if not _is_number(ttl) or not (ttl >= 0 and math.isfinite(ttl)) or scope not in ("public", "private"):
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
    if type(page_size) is not int or page_size < 1:
        raise RegistrationError(f"Server(page_size=…): expected at least 1, got {page_size!r}")


def check_eras(eras: Any) -> frozenset[Era]:
    """The eras of a server.

    Raises:
        RegistrationError: there is none, or one that is not known.
    """
    names = sorted(era.value for era in Era)
    if isinstance(eras, str) or not isinstance(eras, Iterable) or not (given := [*eras]) or set(given) - {*names}:
        raise RegistrationError(f"Server(eras=…): expected one or both of {', '.join(map(repr, names))}, got {eras!r}")
    return frozenset(Era(name) for name in given)


def check_info(info: dict[str, Any], instructions: Any) -> dict[str, Any]:
    """What a server says of itself, as it is sent.

    Args:
        info: Its `Implementation` object, with None for what was not given.
        instructions: Its instructions.

    Raises:
        RegistrationError: the specification does not allow a part of it.
    """
    arguments = {"websiteUrl": "website_url"}
    out: dict[str, Any] = {}
    for name, value in {**info, "instructions": instructions}.items():
        where = f"Server({arguments.get(name, name)}=…)"
        if value is None:
            continue
        if name == "icons":
            if value:
                out[name] = _icons(where, value)
            continue
        _check_text(where, value)
        if name == "websiteUrl" and not _SCHEME.match(value):
            raise RegistrationError(f"{where}: expected a URL, as in 'https://example.com', got {value!r}")
        if name != "instructions":
            out[name] = value
    return out


def check_function(fn: Any, kind: str) -> Any:
    """What was given to a decorator, unless it is a name in the wrong place."""
    if isinstance(fn, str):
        raise RegistrationError(f"@server.{kind}({fn!r}): the name goes into name=, as in @server.{kind}(name={fn!r})")
    return fn


def definition(handler: Handler, options: Options) -> dict[str, Any]:
    """What a list shows of every kind of component.

    Raises:
        RegistrationError: the specification does not allow a part of it.
    """
    where = str(handler.error("")).removesuffix(": ")
    wire: dict[str, Any] = {"name": handler.name, "title": options.get("title") or title_of(handler.name)}
    text = options.get("description")
    if text is None:
        text = handler.text
    if text:
        wire["description"] = text
    for name in wire:
        _check_text(f"{where}: {name}", wire[name])
    if icons := options.get("icons"):
        wire["icons"] = _icons(f"{where}: icons", icons)
    if meta := options.get("meta"):
        wire["_meta"] = _object(f"{where}: meta", meta)
    return wire


def check_wire(handler: Handler, wire: dict[str, Any], limits: Limits) -> dict[str, Any]:
    """A whole definition, as a list will show it: one that cannot be written would fail the list for everybody.

    Raises:
        RegistrationError: it cannot be sent.
    """
    bad = find_unwritable(wire)
    # The result, the list and the item stand around it.
    bad = bad or check_written(dumps(wire), wire, limits.json_depth - 3, limits.answer_bytes)
    if bad:
        raise handler.error(f"its definition cannot be sent: {bad.removeprefix('$.')}")
    return wire


def tool_annotations(handler: Handler, annotations: Any) -> dict[str, Any]:
    """The `ToolAnnotations` object.

    Raises:
        RegistrationError: it is none.
    """
    where = str(handler.error("annotations"))
    wire = _object(where, annotations)
    for name, value in wire.items():
        if name == "title":
            _check_text(f"{where}: title", value)
        elif name in _HINTS and type(value) is not bool:
            raise RegistrationError(f"{where}: {name}: expected True or False, got {value!r}")
        elif name not in _HINTS and (meant := _HINTS_PLAIN.get(name.replace("_", "").lower())):
            raise RegistrationError(f"{where}: {name!r} is spelled {meant!r} in the protocol")
    return wire


def resource_annotations(handler: Handler, annotations: Any) -> dict[str, Any]:
    """The `Annotations` object.

    Raises:
        RegistrationError: it is none.
    """
    where = str(handler.error("annotations"))
    wire = _object(where, annotations)
    audience, priority, modified = (wire.get(name) for name in ("audience", "priority", "lastModified"))
    if audience is not None and (
        not isinstance(audience, list) or any(one not in ("user", "assistant") for one in audience)
    ):
        raise RegistrationError(f"{where}: audience: expected a list of 'user' and 'assistant', got {audience!r}")
    if priority is not None and (not _is_number(priority) or not 0 <= priority <= 1):
        raise RegistrationError(f"{where}: priority: expected a number from 0 to 1, got {priority!r}")
    if modified is not None:
        _check_text(f"{where}: lastModified", modified)
    return wire


def check_resource(handler: Handler, mime_type: Any, size: Any) -> None:
    """The rest of what is told of a resource.

    Raises:
        RegistrationError: the specification does not allow it.
    """
    if mime_type is not None:
        _check_text(str(handler.error("mime_type")), mime_type)
    if size is not None and (type(size) is not int or size < 0):
        raise handler.error(f"size: expected a number of bytes, 0 or more, got {size!r}")


def _object(where: str, value: Any) -> dict[str, Any]:
    """A JSON object: a dict, or a model of another package that makes one, as `mcp.types.ToolAnnotations` does."""
    if callable(dump := getattr(value, "model_dump", None)) and not isinstance(value, type):
        try:
            value = dump(mode="json", by_alias=True, exclude_none=True)
        except Exception as exc:
            raise RegistrationError(f"{where}: {type(value).__name__}.model_dump failed: {exc}") from exc
    if not isinstance(value, Mapping):
        raise RegistrationError(f"{where}: expected a dict, got {shorten(value)}")
    wire = dict(value)
    bad = find_unwritable(wire)
    if bad:
        raise RegistrationError(f"{where}: {bad.removeprefix('$.')}")
    return wire


def _icons(where: str, icons: Any) -> list[dict[str, Any]]:
    if isinstance(icons, str | bytes | Mapping) or not isinstance(icons, Iterable):
        raise RegistrationError(
            f"{where}: expected a list of icons, as in [{{'src': 'https://example.com/icon.png'}}], got {shorten(icons)}"
        )
    out: list[dict[str, Any]] = []
    for number, icon in enumerate(icons):
        here = f"{where}[{number}]"
        wire = _object(here, icon)
        if "src" not in wire:
            raise RegistrationError(f"{here}: an icon needs 'src', a URL")
        for name in ("src", "mimeType"):
            if name in wire:
                _check_text(f"{here}: {name}", wire[name])
        if not _SCHEME.match(wire["src"]):
            raise RegistrationError(f"{here}: src: expected a URL (https: or data:), got {shorten(wire['src'])}")
        sizes = wire.get("sizes", [])
        if not isinstance(sizes, list | tuple) or not all(isinstance(size, str) for size in sizes):
            raise RegistrationError(f"{here}: sizes: expected a list of text, as in ['48x48'], got {sizes!r}")
        if wire.get("theme", "light") not in ("light", "dark"):
            raise RegistrationError(f"{here}: theme: expected 'light' or 'dark', got {wire['theme']!r}")
        out.append(wire)
    return out


def _check_text(where: str, value: Any) -> None:
    if not isinstance(value, str):
        raise RegistrationError(f"{where}: expected a text, got {shorten(value)}")
    bad = find_unwritable(str(value))
    if bad:
        raise RegistrationError(f"{where}: {bad.removeprefix('$: ')}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and type(value) is not bool


def check_timeout(handler: Handler, timeout: float | None, task_support: str = "forbidden") -> float | None:
    """A timeout that is one, and that a task can have."""
    if timeout is not None and not (_is_number(timeout) and timeout > 0):
        raise handler.error(f"timeout must be a positive number of seconds, got {timeout!r}")
    if timeout is not None and timeout > TASK_TTL_MOST and task_support != "forbidden":
        raise handler.error(
            f"timeout of a tool that can be a task is {TASK_TTL_MOST:,.0f} seconds at most, got {timeout!r}"
        )
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
