"""Lists: what they hold, tools, resources, templates and prompts as a client sees them, and how they are read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from ..errors import InvalidParams, InvalidResponse, MethodNotFound
from ..limits import Limits
from ..protocol.content import optional
from ..protocol.jsontext import shorten
from ..protocol.results import require

__all__ = ["PromptArgument", "PromptInfo", "ResourceInfo", "ResourceTemplateInfo", "ToolInfo", "all_pages"]

_BEGINNINGS: Final = 4
"""How often a list is begun whose cursors are refused."""


def _text(wire: Any, key: str, what: str) -> str:
    value = wire.get(key) if type(wire) is dict else None
    if type(value) is not str:
        raise InvalidResponse(f"a {what} in the list has no {key}: {shorten(wire)}")
    return value


class _WithMeta:
    __slots__ = ()

    raw: dict[str, Any]

    @property
    def meta(self) -> dict[str, Any]:
        """Its `_meta`; empty when it has none."""
        meta = self.raw.get("_meta")
        return meta if type(meta) is dict else {}


@dataclass(frozen=True, slots=True)
class ToolInfo(_WithMeta):
    """A tool of a server. `raw` is all that was sent."""

    name: str
    title: str | None
    description: str | None
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    annotations: dict[str, Any]
    raw: dict[str, Any] = field(repr=False)

    @staticmethod
    def from_wire(wire: Any) -> ToolInfo:
        """Read one item of `tools/list`.

        Raises:
            InvalidResponse: it has no name or no input schema.
        """
        name = _text(wire, "name", "tool")
        schema = wire.get("inputSchema")
        if type(schema) is not dict:
            raise InvalidResponse(f"tool {name!r} in the list has no inputSchema")
        return ToolInfo(
            name,
            optional(wire, "title", str),
            optional(wire, "description", str),
            schema,
            optional(wire, "outputSchema", dict),
            optional(wire, "annotations", dict) or {},
            wire,
        )


@dataclass(frozen=True, slots=True)
class ResourceInfo(_WithMeta):
    """A resource of a server. `raw` is all that was sent."""

    uri: str
    name: str
    title: str | None
    description: str | None
    mime_type: str | None
    size: int | None
    raw: dict[str, Any] = field(repr=False)

    @staticmethod
    def from_wire(wire: Any) -> ResourceInfo:
        """Read one item of `resources/list`.

        Raises:
            InvalidResponse: it has no URI or no name.
        """
        uri, name = _text(wire, "uri", "resource"), _text(wire, "name", "resource")
        return ResourceInfo(
            uri,
            name,
            optional(wire, "title", str),
            optional(wire, "description", str),
            optional(wire, "mimeType", str),
            optional(wire, "size", int),
            wire,
        )


@dataclass(frozen=True, slots=True)
class ResourceTemplateInfo(_WithMeta):
    """A resource template of a server. `raw` is all that was sent."""

    uri_template: str
    name: str
    title: str | None
    description: str | None
    mime_type: str | None
    raw: dict[str, Any] = field(repr=False)

    @staticmethod
    def from_wire(wire: Any) -> ResourceTemplateInfo:
        """Read one item of `resources/templates/list`.

        Raises:
            InvalidResponse: it has no template or no name.
        """
        template, name = _text(wire, "uriTemplate", "resource template"), _text(wire, "name", "resource template")
        return ResourceTemplateInfo(
            template,
            name,
            optional(wire, "title", str),
            optional(wire, "description", str),
            optional(wire, "mimeType", str),
            wire,
        )


@dataclass(frozen=True, slots=True)
class PromptArgument:
    """An argument of a prompt."""

    name: str
    description: str | None
    required: bool


@dataclass(frozen=True, slots=True)
class PromptInfo(_WithMeta):
    """A prompt of a server. `raw` is all that was sent."""

    name: str
    title: str | None
    description: str | None
    arguments: tuple[PromptArgument, ...]
    raw: dict[str, Any] = field(repr=False)

    @staticmethod
    def from_wire(wire: Any) -> PromptInfo:
        """Read one item of `prompts/list`.

        Raises:
            InvalidResponse: it, or an argument of it, has no name, or its arguments are no list.
        """
        name = _text(wire, "name", "prompt")
        listed = wire.get("arguments")
        if not (listed is None or type(listed) is list):
            raise InvalidResponse(f"prompt {name!r} in the list has arguments that are no list: {shorten(listed)}")
        arguments = tuple(
            PromptArgument(
                _text(item, "name", "prompt argument"), optional(item, "description", str), item.get("required") is True
            )
            for item in listed or ()
        )
        return PromptInfo(name, optional(wire, "title", str), optional(wire, "description", str), arguments, wire)


async def all_pages(
    ask: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]],
    method: str,
    key: str,
    keep: Callable[[list[Any]], list[Any]],
    limits: Limits,
) -> list[Any]:
    """The items of a list, over all pages (server/utilities/pagination). Empty when the server does not know the list: what a
    server has may change, so it is asked whatever it declared before.

    Args:
        ask: Sends the request with these parameters.
        method: Its method.
        key: The member of the result with the items.
        keep: Those of the items of a page that count.
        limits: Bounds.

    Raises:
        InvalidParams: the server refuses its own cursors.
        InvalidResponse: a page is none, or there are too many.
    """
    out: list[Any] = []
    params: dict[str, Any] = {}
    begun = 1
    for _ in range(limits.client_pages):
        try:
            result = await ask(params)
        except MethodNotFound:
            return []
        except InvalidParams:
            # The list has changed, and the cursor leads nowhere any more.
            if not params or begun == _BEGINNINGS:
                raise
            begun += 1
            out, params = [], {}
            continue
        out += keep(require(result, key, list, method))
        cursor = result.get("nextCursor")
        # Only a missing cursor is the end; the empty string is one.
        if cursor is None:
            return out
        if not isinstance(cursor, str):
            raise InvalidResponse(f"{method}: nextCursor must be a string")
        params = {"cursor": cursor}
    raise InvalidResponse(f"{method}: more than {limits.client_pages} pages; the server repeats itself")
