"""What a tool promises of its result: content, or data with a schema."""

from __future__ import annotations

import types
from typing import Annotated, Any, Final, Union, get_args, get_origin

from ...convert.anything import AnyCodec
from ...convert.codec import Codec, Unsupported
from ...convert.compiler import Compiler
from ...convert.inline import inlined
from ...convert.json_schema import BadSchema, CheckedCodec, GivenSchema
from ...protocol.content import Audio, EmbeddedResource, Image, ResourceContents, ResourceLink, Text
from ...protocol.results import CallToolResult, GetPromptResult, PromptMessage, ReadResourceResult
from .signature import Handler

__all__ = ["BLOCKS", "inlined_for", "output_of", "returns_content"]

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
