"""The type table: for each type its schema, a good value, a bad value and the message, and what comes out."""

from __future__ import annotations

import jsonschema_rs
import pytest

from trio_mcp import open_client

from ..types_server import ROWS, Row, server

each_type = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


@each_type
async def test_input_schema(row: Row) -> None:
    async with open_client(server) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
    assert tools[row.name].input_schema == row.input_schema
    validator = jsonschema_rs.validator_for(row.input_schema, validate_formats=True)
    assert validator.is_valid({"value": row.good})
    assert validator.is_valid({"value": row.bad}) is not row.schema_tells


@each_type
async def test_good_value(row: Row) -> None:
    async with open_client(server) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
        wire = (await client.call_tool(row.name, {"value": row.good}, raise_on_error=True)).to_wire()
    output_schema = tools[row.name].output_schema
    if row.text:
        assert output_schema is None
        assert (wire["content"], "structuredContent" in wire) == (row.content, False)
    else:
        assert output_schema is not None
        assert wire["structuredContent"] == row.out
        assert type(wire["structuredContent"]) is type(row.out)
        assert jsonschema_rs.validator_for(output_schema, validate_formats=True).is_valid(row.out)


@each_type
async def test_bad_value(row: Row) -> None:
    async with open_client(server) as client:
        result = await client.call_tool(row.name, {"value": row.bad})
    assert (result.is_error, result.text) == (True, row.refusal)


def test_every_tool_has_a_row() -> None:
    assert [row.name for row in ROWS] == list(server.registry.tools)
