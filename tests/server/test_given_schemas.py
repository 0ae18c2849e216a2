"""Schemas that a user wrote."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest

from trio_mcp import CallToolResult, Context, RegistrationError, Server, open_client

PERSON: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"$anchor": "a", "type": "object", "properties": {"city": {"type": "string"}}}},
    "properties": {
        "name": {"type": "string", "minLength": 2, "pattern": "^[A-Z]"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "address": {"$ref": "#/$defs/address"},
        "contact": {"enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "required": ["name"],
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contact": {"const": "phone"}}, "required": ["contact"]},
    "then": {"required": ["phone"]},
    "additionalProperties": False,
}


def people() -> Server[Any]:
    server = Server("people")

    @server.tool(input_schema=PERSON)
    async def add(ctx: Context, **person: Any) -> dict[str, Any]:
        assert ctx.server is server
        return person

    @server.tool(input_schema=PERSON)
    async def greet(name: str, age: int = 3, **rest: Any) -> str:
        return f"{name}, {age}, {sorted(rest)}"

    return server


async def test_the_schema_is_shown_as_it_was_written() -> None:
    async with open_client(people()) as client:
        for tool in await client.list_tools():
            assert tool.input_schema == PERSON


async def test_arguments_that_fit_arrive() -> None:
    async with open_client(people()) as client:
        person = {"name": "Ada", "email": "a@b", "address": {"city": "London"}}
        assert (await client.call_tool("add", person)).data == person
        assert (await client.call_tool("greet", {"name": "Ada", "age": 36, "phone": "1"})).text == "Ada, 36, ['phone']"


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ({"email": "x"}, ["name: missing"]),
        ({"name": 3, "email": "x"}, ["name: expected string, got integer 3"]),
        ({"name": "A", "email": "x"}, ['name: expected at least 2 characters, got string "A"']),
        ({"name": "ada", "email": "x"}, ['name: expected text that matches "^[A-Z]", got string "ada"']),
        (
            {"name": "Ada", "email": "x", "age": -1, "extra": 1},
            ["age: expected at least 0, got integer -1", "extra: unexpected"],
        ),
        ({"name": "Ada", "email": "x", "age": 200}, ["age: expected at most 150, got integer 200"]),
        (
            {"name": "Ada", "email": "x", "contact": "fax"},
            ['contact: expected one of "phone", "email", got string "fax"'],
        ),
        ({"name": "Ada", "email": "x", "contact": "phone"}, ["phone: missing"]),
        ({"name": "Ada"}, ["fits none of the alternatives (phone: missing | email: missing)"]),
        ({"name": "Ada", "email": "x", "address": {"city": 1}}, ["address.city: expected string, got integer 1"]),
    ],
)
async def test_what_does_not_fit_is_told_line_by_line(arguments: dict[str, Any], lines: list[str]) -> None:
    async with open_client(people()) as client:
        result = await client.call_tool("add", arguments)
    assert result.is_error
    first, *rest = result.text.splitlines()
    assert first == "Invalid arguments for tool 'add':"
    assert sorted(rest) == sorted(lines)


async def test_a_schema_that_refers_to_itself_is_checked_and_told_in_short() -> None:
    server = Server("s")
    tree = {
        "type": "object",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {"children": {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/node"}] * 4}}},
                "additionalProperties": False,
            }
        },
        "properties": {"root": {"$ref": "#/$defs/node"}},
    }

    @server.tool(input_schema=tree)
    async def walk(root: Any) -> None: ...

    bad: dict[str, Any] = {"wrong": 1}
    for _ in range(6):
        bad = {"children": [bad]}
    async with open_client(server) as client:
        assert not (await client.call_tool("walk", {"root": {"children": [{}]}})).is_error
        start = time.monotonic()
        result = await client.call_tool("walk", {"root": bad})
    assert result.is_error
    assert "root" in result.text
    assert len(result.text) < 2000
    assert time.monotonic() - start < 5


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "nope"}, "not a JSON Schema that can be checked"),
        ({"type": "object", "$schema": "http://nope/x"}, "Unknown meta-schema"),
        (
            {"type": "object", "properties": {"a": {"$ref": "http://example.com/x"}}},
            "not a JSON Schema that can be checked",
        ),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}}, "not a JSON Schema that can be checked"),
        ({"type": "object", "properties": {"a": {"pattern": "("}}}, "not a JSON Schema that can be checked"),
        ({"type": "array"}, 'arguments are an object: it needs "type": "object"'),
        ({}, 'arguments are an object: it needs "type": "object"'),
        ([], "expected a JSON Schema as a dict"),
        ({"type": "object", "properties": {"b": {}}}, "has the property 'b', the function has no such parameter"),
        (
            {"type": "object", "properties": {"a": {"type": "number", "x-mcp-header": "A"}}},
            "only for text, integers and booleans",
        ),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_at_registration(schema: Any, said: str) -> None:
    server = Server("s")

    async def tool(a: Any = None) -> None: ...

    with pytest.raises(RegistrationError) as caught:
        server.tool(tool, input_schema=schema)
    assert "tool 'tool'" in str(caught.value)
    assert said in str(caught.value)


@pytest.mark.parametrize("name", ["ctx", "c"])
def test_a_property_of_the_name_of_the_context_is_refused(name: str) -> None:
    server = Server("s")

    async def tool(ctx: Context, **rest: Any) -> None: ...

    async def other(c: Context | None, a: int = 1) -> None: ...

    schema = {"type": "object", "properties": {"a": {"type": "integer"}, name: {"type": "string"}}}
    with pytest.raises(RegistrationError) as caught:
        server.tool(tool if name == "ctx" else other, input_schema=schema)
    said = f"input_schema has the property {name!r}, and the Context is passed as that; give the parameter another name"
    assert said in str(caught.value)


async def test_an_argument_of_the_name_of_the_context_that_no_property_names_is_told() -> None:
    server = Server("s")

    @server.tool(input_schema={"type": "object"})
    async def tool(ctx: Context, **rest: Any) -> str:
        return f"{ctx.server is server} {rest}"

    async with open_client(server) as client:
        assert (await client.call_tool("tool", {"a": 1})).text == "True {'a': 1}"
        result = await client.call_tool("tool", {"ctx": 1, "a": 1})
        assert (result.is_error, result.text.splitlines()[1:]) == (
            True,
            ["ctx: unexpected, tool takes no such argument"],
        )


def test_arguments_of_any_name_need_a_schema() -> None:
    server = Server("s")

    async def tool(**rest: Any) -> None: ...

    with pytest.raises(RegistrationError, match=r"'\*\*rest'.*input_schema"):
        server.tool(tool)


async def test_an_output_that_breaks_its_schema_is_logged_and_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("s")
    schema = {"type": "array", "items": {"type": "integer"}}

    @server.tool(output_schema=schema)
    async def numbers(good: bool) -> list[Any]:
        return [1, 2] if good else [1, "two"]

    @server.tool(output_schema=schema)
    async def whole(good: bool) -> CallToolResult:
        return CallToolResult(structured_content=[1] if good else ["one"])

    async with open_client(server) as client:
        assert [tool.output_schema for tool in await client.list_tools()] == [schema] * 2
        assert (await client.call_tool("numbers", {"good": True})).structured_content == [1, 2]
        assert (await client.call_tool("whole", {"good": True})).structured_content == [1]
        with caplog.at_level(logging.ERROR):
            for name, line in (("numbers", "[1]: expected integer"), ("whole", "[0]: expected integer")):
                result = await client.call_tool(name, {"good": False})
                assert result.is_error
                assert line in result.text
                assert line in caplog.text


def test_an_output_schema_that_cannot_be_checked_is_refused() -> None:
    server = Server("s")
    with pytest.raises(RegistrationError, match="output_schema: not a JSON Schema"):
        server.tool(lambda: 1, name="x", output_schema={"type": "nope"})
