"""From what a handler returned, or raised, to a result."""

from __future__ import annotations

import types
from typing import Annotated, Any, Final, Union, get_args, get_origin

from ..convert.anything import AnyCodec
from ..convert.codec import Codec, Mismatch, Problem, Unsupported
from ..convert.compiler import Compiler
from ..convert.inline import inlined
from ..convert.json_schema import BadSchema, CheckedCodec, GivenSchema
from ..convert.scalars import plain_text
from ..protocol.content import (
    Audio,
    ContentBlock,
    EmbeddedResource,
    Image,
    ResourceContents,
    ResourceLink,
    Text,
)
from ..protocol.jsontext import dumps, find_unwritable
from ..protocol.results import UNSET, CallToolResult, GetPromptResult, PromptMessage, ReadResourceResult
from .registry import Prompt, Resource, Tool
from .signature import Handler

__all__ = [
    "BLOCKS",
    "inlined_for",
    "is_data",
    "output_of",
    "prompt_result",
    "read_result",
    "returns_content",
    "tool_result",
]

BLOCKS: Final = (Text, Image, Audio, ResourceLink, EmbeddedResource)
_WHOLE: Final = (CallToolResult, ReadResourceResult, GetPromptResult, PromptMessage, ResourceContents)


def returns_content(annotation: Any) -> bool:
    """Whether a return type is content rather than data: blocks, lists with them, whole results, text, None."""
    if annotation in (None, type(None), str) or annotation in BLOCKS or annotation in _WHOLE:
        return True
    origin = get_origin(annotation)
    if origin is Annotated:
        return returns_content(get_args(annotation)[0])
    args = [arg for arg in get_args(annotation) if arg is not Ellipsis]
    if origin in (Union, types.UnionType):
        return all(returns_content(arg) for arg in args) or any(_has_block(arg) for arg in args)
    return _has_block(annotation)


def _has_block(annotation: Any) -> bool:
    if annotation in BLOCKS or annotation in _WHOLE:
        return True
    return any(_has_block(arg) for arg in get_args(annotation) if arg is not Ellipsis)


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


def inlined_for(handler: Handler, schema: dict[str, Any]) -> dict[str, Any]:
    """A schema of a tool without references.

    Raises:
        RegistrationError: a type refers to itself.
    """
    try:
        return inlined(schema)
    except Unsupported as exc:
        raise handler.error(f"inline_refs: {exc.message}") from None


def output_of(
    handler: Handler, structured: bool | None, given: dict[str, Any] | None = None
) -> tuple[Codec | None, dict[str, Any] | None]:
    """The codec and the schema of a tool's structured result, or Nones.

    Args:
        handler: The tool's function.
        given: A schema that the user wrote: it is the one that counts.
        structured: True asks for a structured result (text, too), False for none; None decides by the return type.

    Raises:
        RegistrationError: the return type cannot be expressed as JSON, or the given schema cannot be checked.
    """
    if given is not None:
        try:
            checked = CheckedCodec(AnyCodec(Compiler(output=True).for_instance), GivenSchema(given))
        except BadSchema as exc:
            raise handler.error(f"output_schema: {exc}") from None
        return checked, checked.schema()
    annotation = handler.returns
    # These promise nothing that a schema could say, and are what people write for lists that mix content.
    unannotated = annotation in (Handler.UNANNOTATED, Any, object, list, tuple) or annotation == list[Any]
    if structured is False or (structured is None and (unannotated or returns_content(annotation))):
        return None, None
    codec, schema = handler.output()
    return codec, schema
