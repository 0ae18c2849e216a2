"""Content blocks: what tools return, prompts say and resources hold (server/tools, section Tool Result).

Small frozen objects for the person who writes or reads them; on the wire they are plain dicts.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

__all__ = [
    "Audio",
    "ContentBlock",
    "EmbeddedResource",
    "Image",
    "ResourceContents",
    "ResourceLink",
    "Role",
    "Text",
    "content_from_wire",
    "optional",
]

Role = Literal["user", "assistant"]

T = TypeVar("T")


def optional(wire: dict[str, Any], key: str, kind: type[T]) -> T | None:
    """A member that may be left out; one of another type counts as left out."""
    value = wire.get(key)
    return value if type(value) is kind else None


def _extras(wire: dict[str, Any], annotations: dict[str, Any] | None, meta: dict[str, Any] | None) -> dict[str, Any]:
    if annotations is not None:
        wire["annotations"] = annotations
    if meta is not None:
        wire["_meta"] = meta
    return wire


@dataclass(frozen=True, slots=True)
class Text:
    """Text.

    Args:
        text: Any text.
        annotations: Hints about it: `audience`, `priority`, `lastModified`.
        meta: The block's `_meta`.
    """

    text: str
    annotations: dict[str, Any] | None = None
    meta: dict[str, Any] | None = None

    def to_wire(self) -> dict[str, Any]:
        """The block as it is sent."""
        return _extras({"type": "text", "text": self.text}, self.annotations, self.meta)


@dataclass(frozen=True, slots=True)
class Image:
    """A picture.

    Args:
        data: The bytes of the file (base64 on the wire).
        mime_type: Its media type.
        annotations: As for `Text`.
        meta: The block's `_meta`.
    """

    data: bytes
    mime_type: str = "image/png"
    annotations: dict[str, Any] | None = None
    meta: dict[str, Any] | None = None

    def to_wire(self) -> dict[str, Any]:
        """The block as it is sent."""
        wire = {"type": "image", "data": base64.b64encode(self.data).decode(), "mimeType": self.mime_type}
        return _extras(wire, self.annotations, self.meta)


@dataclass(frozen=True, slots=True)
class Audio:
    """Sound. The arguments are those of `Image`."""

    data: bytes
    mime_type: str = "audio/wav"
    annotations: dict[str, Any] | None = None
    meta: dict[str, Any] | None = None

    def to_wire(self) -> dict[str, Any]:
        """The block as it is sent."""
        wire = {"type": "audio", "data": base64.b64encode(self.data).decode(), "mimeType": self.mime_type}
        return _extras(wire, self.annotations, self.meta)


@dataclass(frozen=True, slots=True)
class ResourceLink:
    """A link to a resource, to be read when it is needed.

    Args:
        uri: Where it is.
        name: What to call it.
        title: For display.
        description: For the model.
        mime_type: Its media type.
        size: Its size in bytes.
        annotations: As for `Text`.
        meta: The block's `_meta`.
    """

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    annotations: dict[str, Any] | None = None
    meta: dict[str, Any] | None = None

    def to_wire(self) -> dict[str, Any]:
        """The block as it is sent."""
        wire: dict[str, Any] = {"type": "resource_link", "uri": self.uri, "name": self.name}
        optional = {
            "title": self.title,
            "description": self.description,
            "mimeType": self.mime_type,
            "size": self.size,
        }
        wire.update({key: value for key, value in optional.items() if value is not None})
        return _extras(wire, self.annotations, self.meta)


@dataclass(frozen=True, slots=True)
class ResourceContents:
    """What a resource holds: text, or bytes.

    Args:
        data: `str` is sent as `text`, `bytes` as base64 `blob`.
        uri: Which resource; a resource handler may leave it out and means the URI that was asked for.
        mime_type: Its media type.
        meta: Its `_meta`.
    """

    data: str | bytes
    uri: str = ""
    mime_type: str | None = None
    meta: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """The text; of bytes, their UTF-8 decoding.

        Raises:
            UnicodeDecodeError: the bytes are not UTF-8.
        """
        return self.data if isinstance(self.data, str) else self.data.decode()

    def to_wire(self) -> dict[str, Any]:
        """The contents as they are sent."""
        wire: dict[str, Any] = {"uri": self.uri}
        if self.mime_type is not None:
            wire["mimeType"] = self.mime_type
        if isinstance(self.data, str):
            wire["text"] = self.data
        else:
            wire["blob"] = base64.b64encode(self.data).decode()
        return _extras(wire, None, self.meta)

    @staticmethod
    def from_wire(wire: Any) -> ResourceContents:
        """Read contents that were received.

        Raises:
            ValueError: they have neither text nor a base64 blob, or no URI.
        """
        if type(wire) is not dict or type(wire.get("uri")) is not str:
            raise ValueError("resource contents must be an object with a uri")
        data: str | bytes
        if type(wire.get("text")) is str:
            data = wire["text"]
        elif type(wire.get("blob")) is str:
            data = _bytes(wire, "blob")
        else:
            raise ValueError(f"resource contents of {wire['uri']} have neither text nor blob")
        return ResourceContents(data, wire["uri"], optional(wire, "mimeType", str), optional(wire, "_meta", dict))


@dataclass(frozen=True, slots=True)
class EmbeddedResource:
    """A resource sent along, contents and all."""

    resource: ResourceContents
    annotations: dict[str, Any] | None = None
    meta: dict[str, Any] | None = None

    def to_wire(self) -> dict[str, Any]:
        """The block as it is sent."""
        return _extras({"type": "resource", "resource": self.resource.to_wire()}, self.annotations, self.meta)


ContentBlock = Text | Image | Audio | ResourceLink | EmbeddedResource
"""Any content block."""


def _bytes(wire: dict[str, Any], key: str) -> bytes:
    try:
        return base64.b64decode(wire[key], validate=True)
    except (binascii.Error, KeyError, ValueError, TypeError):
        raise ValueError(f"{wire.get('type', 'resource')} content: {key} is not base64") from None


def content_from_wire(wire: Any) -> ContentBlock:
    """Read one received content block.

    Raises:
        ValueError: it is not one; the text says why.
    """
    if type(wire) is not dict:
        raise ValueError("a content block must be an object")
    kind = wire.get("type")
    notes, meta = optional(wire, "annotations", dict), optional(wire, "_meta", dict)
    if kind == "text" and type(wire.get("text")) is str:
        return Text(wire["text"], notes, meta)
    if kind == "image" and type(wire.get("mimeType")) is str:
        return Image(_bytes(wire, "data"), wire["mimeType"], notes, meta)
    if kind == "audio" and type(wire.get("mimeType")) is str:
        return Audio(_bytes(wire, "data"), wire["mimeType"], notes, meta)
    if kind == "resource_link" and type(wire.get("uri")) is str and type(wire.get("name")) is str:
        return ResourceLink(
            wire["uri"],
            wire["name"],
            optional(wire, "title", str),
            optional(wire, "description", str),
            optional(wire, "mimeType", str),
            optional(wire, "size", int),
            notes,
            meta,
        )
    if kind == "resource":
        return EmbeddedResource(ResourceContents.from_wire(wire.get("resource")), notes, meta)
    raise ValueError(f"unknown or incomplete content block of type {kind!r}")
