"""From what a handler returned to a result."""

from __future__ import annotations

from typing import Any

from ...convert.codec import Codec, Mismatch, Problem
from ...convert.scalars import plain_text
from ...protocol.content import ContentBlock, EmbeddedResource, ResourceContents, Text
from ...protocol.jsontext import dumps, find_unwritable
from ...protocol.results import UNSET, CallToolResult, GetPromptResult, PromptMessage, ReadResourceResult
from ...scopes.call import Call
from ..declare.extensions import ExtensionResult, check_declared
from ..declare.output import BLOCKS
from ..declare.registry import Prompt, Resource, Tool

__all__ = ["extension_result", "is_data", "prompt_result", "read_result", "tool_result"]


def is_data(tool: Tool, value: Any) -> bool:
    """Whether what a tool returned is data, and neither text, content nor a whole result."""
    return not isinstance(value, CallToolResult) and (tool.output is not None or not _is_content(value))


def tool_result(tool: Tool, value: Any, fallback: Codec, data: Any = UNSET) -> dict[str, Any]:
    """The wire form of what a tool returned, without `resultType`.

    Args:
        tool: The tool; its output codec decides.
        value: What it returned.
        fallback: Writes values of tools without an output schema.
        data: The JSON value of it, where it has been written already.

    Raises:
        Mismatch: the value is not of the declared type, or cannot be JSON.
    """
    if type(value) is str and tool.output is None:
        return {"content": [{"type": "text", "text": plain_text(value)}]}
    if isinstance(value, CallToolResult):
        return _checked(value, tool)
    if tool.output is None and _is_content(value):
        return _finite({"content": [block.to_wire() for block in _blocks(value, fallback)]})
    if data is UNSET:
        data = (tool.output or fallback).dump(value)
    text = data if type(data) is str else _json_text(data)
    return {"content": [{"type": "text", "text": text}], "structuredContent": data}


def _checked(result: CallToolResult, tool: Tool) -> dict[str, Any]:
    wire = result.to_wire()
    if result.structured_content is not UNSET and not result.is_error and tool.output is not None:
        tool.output.load(result.structured_content)
    if tool.output is not None and result.structured_content is UNSET and not result.is_error:
        raise Mismatch.of(None, f"structured content ({tool.output.expects})")
    return _finite(wire)


def _json_text(data: Any) -> str:
    try:
        return dumps(data).decode()
    except ValueError as exc:
        raise Mismatch(Problem(str(exc).removeprefix("$: ").removeprefix("$."))) from None


def _finite(wire: dict[str, Any]) -> dict[str, Any]:
    """What users filled in by hand (annotations, `_meta`, structured content) may not be JSON."""
    bad = find_unwritable(wire)
    if bad:
        raise Mismatch(Problem(f"cannot be sent as JSON: {bad.removeprefix('$.')}"))
    return wire


def _is_content(value: Any) -> bool:
    if value is None or isinstance(value, (*BLOCKS, ResourceContents, str)):
        return True
    return isinstance(value, list | tuple) and any(isinstance(item, (*BLOCKS, ResourceContents)) for item in value)


def _blocks(value: Any, fallback: Codec) -> list[ContentBlock]:
    """Content blocks of a value without a schema: blocks as they are, text as text, the rest as JSON text."""
    if value is None:
        return []
    if isinstance(value, BLOCKS):
        return [value]
    if isinstance(value, ResourceContents):
        return [EmbeddedResource(value)]
    if isinstance(value, str):
        return [Text(plain_text(value))]
    if isinstance(value, list | tuple) and any(isinstance(item, (*BLOCKS, ResourceContents)) for item in value):
        return [block for item in value for block in _blocks(item, fallback)]
    return [Text(_json_text(fallback.dump(value)))]


def read_result(resource: Resource, uri: str, value: Any, fallback: Codec) -> dict[str, Any]:
    """The wire form of what a resource returned, without `resultType` and caching hints.

    Raises:
        Mismatch: the value cannot be written.
    """
    if isinstance(value, ReadResourceResult):
        contents, meta = list(value.contents), value.meta
    elif isinstance(value, list | tuple) and value and all(isinstance(item, ResourceContents) for item in value):
        contents, meta = list(value), {}
    else:
        contents, meta = [_contents(resource, value, fallback)], {}
    result = ReadResourceResult(
        [
            ResourceContents(item.data, item.uri or uri, item.mime_type or resource.mime_type, item.meta)
            for item in contents
        ],
        meta,
    )
    return _finite(result.to_wire())


def _contents(resource: Resource, value: Any, fallback: Codec) -> ResourceContents:
    if isinstance(value, ResourceContents):
        return value
    if isinstance(value, str):
        return ResourceContents(value, mime_type=resource.mime_type or "text/plain")
    if isinstance(value, bytes | bytearray | memoryview):
        return ResourceContents(bytes(value), mime_type=resource.mime_type or "application/octet-stream")
    text = _json_text(fallback.dump(value))
    return ResourceContents(text, mime_type=resource.mime_type or "application/json")


def prompt_result(prompt: Prompt, value: Any, fallback: Codec) -> dict[str, Any]:
    """The wire form of what a prompt returned, without `resultType`.

    Raises:
        Mismatch: the value cannot be written.
    """
    if not isinstance(value, GetPromptResult):
        items = value if isinstance(value, list | tuple) else [value]
        value = GetPromptResult([_message(item, fallback) for item in items], prompt.handler.text or None)
    return _finite(value.to_wire())


def _message(value: Any, fallback: Codec) -> PromptMessage:
    if isinstance(value, PromptMessage):
        return value
    blocks = _blocks(value, fallback)
    if len(blocks) != 1:
        raise Mismatch.of(None, "a message, text, a content block or a list of them")
    return PromptMessage(blocks[0])


def extension_result(call: Call, result: ExtensionResult) -> dict[str, Any]:
    """A result of an extension's type, as it is sent.

    Raises:
        MissingClientCapability: the client did not declare the extension.
    """
    check_declared(call.method, call.meta.client_capabilities, result.extension)
    return {**result.members, "resultType": result.kind}
