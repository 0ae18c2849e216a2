"""Results as a user holds them: the same classes for the handler that returns one and the client that received it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import InvalidResponse
from .content import ContentBlock, ResourceContents, Role, Text, content_from_wire, optional
from .jsontext import shorten

__all__ = ["UNSET", "CallToolResult", "GetPromptResult", "PromptMessage", "ReadResourceResult", "complete", "require"]


class _Unset:
    """The mark of a value that was left out, where None is a value."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Any = _Unset()


@dataclass(frozen=True, slots=True)
class CallToolResult:
    """The result of a tool (server/tools, section Tool Result).

    Args:
        content: Content blocks, in order.
        structured_content: Any JSON value, or `UNSET` when there is none (None is JSON null).
        is_error: Whether the tool failed.
        meta: The result's `_meta`.
    """

    content: Sequence[ContentBlock] = ()
    structured_content: Any = UNSET
    is_error: bool = False
    meta: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The text blocks, joined by line ends."""
        return "\n".join(block.text for block in self.content if isinstance(block, Text))

    @property
    def data(self) -> Any:
        """The value: the structured content, or else the text, or else None."""
        if self.structured_content is not UNSET:
            return self.structured_content
        return self.text if any(isinstance(block, Text) for block in self.content) else None

    def to_wire(self) -> dict[str, Any]:
        """The result as it is sent, without `resultType`."""
        wire: dict[str, Any] = {"content": [block.to_wire() for block in self.content]}
        if self.structured_content is not UNSET:
            wire["structuredContent"] = self.structured_content
        if self.is_error:
            wire["isError"] = True
        if self.meta:
            wire["_meta"] = self.meta
        return wire

    @staticmethod
    def from_wire(wire: dict[str, Any]) -> CallToolResult:
        """Read a received result.

        Raises:
            InvalidResponse: it has no valid content.
        """
        blocks = require(wire, "content", list, "tools/call")
        try:
            content = tuple(content_from_wire(block) for block in blocks)
        except ValueError as exc:
            raise InvalidResponse(f"tools/call: {exc}") from None
        structured = wire.get("structuredContent", UNSET)
        return CallToolResult(content, structured, wire.get("isError") is True, optional(wire, "_meta", dict) or {})


@dataclass(frozen=True, slots=True)
class ReadResourceResult:
    """What `resources/read` found.

    Args:
        contents: One or more contents; a folder may have many.
        meta: The result's `_meta`.
    """

    contents: Sequence[ResourceContents]
    meta: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The text of all contents, joined by line ends (bytes are left out)."""
        return "\n".join(item.data for item in self.contents if isinstance(item.data, str))

    def to_wire(self) -> dict[str, Any]:
        """The result as it is sent, without `resultType` and caching hints."""
        wire: dict[str, Any] = {"contents": [item.to_wire() for item in self.contents]}
        if self.meta:
            wire["_meta"] = self.meta
        return wire

    @staticmethod
    def from_wire(wire: dict[str, Any]) -> ReadResourceResult:
        """Read a received result.

        Raises:
            InvalidResponse: it has no valid contents.
        """
        items = require(wire, "contents", list, "resources/read")
        try:
            contents = tuple(ResourceContents.from_wire(item) for item in items)
        except ValueError as exc:
            raise InvalidResponse(f"resources/read: {exc}") from None
        return ReadResourceResult(contents, optional(wire, "_meta", dict) or {})


@dataclass(frozen=True, slots=True)
class PromptMessage:
    """One message of a prompt."""

    content: ContentBlock
    role: Role = "user"

    def to_wire(self) -> dict[str, Any]:
        """The message as it is sent."""
        return {"role": self.role, "content": self.content.to_wire()}


@dataclass(frozen=True, slots=True)
class GetPromptResult:
    """What `prompts/get` made.

    Args:
        messages: In order.
        description: What the prompt is for.
        meta: The result's `_meta`.
    """

    messages: Sequence[PromptMessage]
    description: str | None = None
    meta: dict[str, Any] = field(default_factory=dict)

    def to_wire(self) -> dict[str, Any]:
        """The result as it is sent, without `resultType`."""
        wire: dict[str, Any] = {"messages": [message.to_wire() for message in self.messages]}
        if self.description is not None:
            wire["description"] = self.description
        if self.meta:
            wire["_meta"] = self.meta
        return wire

    @staticmethod
    def from_wire(wire: dict[str, Any]) -> GetPromptResult:
        """Read a received result.

        Raises:
            InvalidResponse: it has no valid messages.
        """
        messages: list[PromptMessage] = []
        for item in require(wire, "messages", list, "prompts/get"):
            if type(item) is not dict or item.get("role") not in ("user", "assistant"):
                raise InvalidResponse(f"prompts/get: not a message: {shorten(item)}")
            try:
                messages.append(PromptMessage(content_from_wire(item.get("content")), item["role"]))
            except ValueError as exc:
                raise InvalidResponse(f"prompts/get: {exc}") from None
        return GetPromptResult(tuple(messages), optional(wire, "description", str), optional(wire, "_meta", dict) or {})


def require(wire: dict[str, Any], key: str, kind: type, method: str) -> Any:
    """A member that a result must have.

    Raises:
        InvalidResponse: it is missing or of another type.
    """
    value = wire.get(key)
    if type(value) is not kind:
        got = shorten(value) if key in wire else "nothing"
        raise InvalidResponse(f"{method}: the result must have {key} ({kind.__name__}), got {got}")
    return value


def complete(wire: dict[str, Any], method: str) -> dict[str, Any]:
    """Accept a result whose `resultType` is `complete` or, as in older revisions, missing (basic/index, ResultType).

    Raises:
        InvalidResponse: any other `resultType`; nothing is concluded from the other members.
    """
    kind = wire.get("resultType", "complete")
    if kind != "complete":
        raise InvalidResponse(f"{method}: resultType {shorten(kind)} is not known to this client")
    return wire
