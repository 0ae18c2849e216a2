"""One argument of a handler."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ...convert.classes import with_default
from ...convert.codec import Codec, JSONSchema

__all__ = ["EMPTY", "Header", "Parameter"]

EMPTY: Final = inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class Header:
    """In `Annotated`: over HTTP the argument travels in the header `Mcp-Param-<name>` as well, for proxies to route by.

        async def query(region: Annotated[str, Header("Region")], sql: str): ...

    For tools, and for text, integers and booleans (server/tools, section x-mcp-header): a parameter, or a field of a class that
    is one, however deep, but not inside of a list or a union.

    Args:
        name: The name behind `Mcp-Param-`.
    """

    name: str

    @property
    def input_json_schema(self) -> JSONSchema:
        """What the schema of an argument says of it."""
        return {"x-mcp-header": self.name}

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: Any) -> JSONSchema:
        """The same, for fields of pydantic's models."""
        schema: JSONSchema = handler(core_schema)
        return {**schema, **self.input_json_schema} if handler.mode == "validation" else schema


class Parameter:
    """One argument of a handler.

    Attributes:
        name: Its name, in Python and on the wire.
        codec: Its type.
        required: Whether it has no default.
        schema: Its JSON Schema, with description and default.
        description: From `Annotated` or the docstring.
        supply: Makes its value for a call that does not have it, where Python would not: the default of a `Field`.
    """

    __slots__ = ("codec", "description", "load", "name", "required", "schema", "supply")

    def __init__(
        self, name: str, codec: Codec, default: Any, description: str | None, supply: Callable[[], Any] | None = None
    ) -> None:
        self.name: str = name
        self.codec: Codec = codec
        self.load: Callable[[Any], Any] = codec.load
        self.supply: Callable[[], Any] | None = supply
        self.required: bool = default is EMPTY and supply is None
        self.description: str | None = description
        schema = codec.schema()
        if default is not EMPTY:
            schema = with_default(schema, codec, default)
        if description and "description" not in schema:
            schema = {**schema, "description": description}
        self.schema: JSONSchema = schema
