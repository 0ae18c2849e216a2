"""Schemas that a user wrote."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest

from trio_mcp import CallToolResult, Context, RegistrationError, Server, Text, open_client

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


DRAFT_7 = {"$schema": "http://json-schema.org/draft-07/schema#"}


@pytest.mark.parametrize(
    ("schema", "value", "lines"),
    [
        ({"multipleOf": 15}, 20, ["x: expected a multiple of 15, got integer 20"]),
        ({"multipleOf": 0.5}, 0.3, ["x: expected a multiple of 0.5, got number 0.3"]),
        ({"$ref": "#/$defs/even"}, 3, ["x: expected a multiple of 2, got integer 3"]),
        ({"not": {"type": "string"}}, "a", ['x: expected nothing that fits {"type":"string"}, got string "a"']),
        ({"uniqueItems": True}, [1, 1], ["x: expected different elements, got array [1,1]"]),
        ({"propertyNames": {"pattern": "^a"}}, {"b": 1}, ['x: key "b": expected text that matches "^a"']),
        (
            {"propertyNames": {"maxLength": 1}},
            {"bb": 1, "a": 1, "cc": 1},
            ['x: key "bb": expected at most 1 character', 'x: key "cc": expected at most 1 character'],
        ),
        (
            {"propertyNames": {"not": {"const": "b"}}},
            {"b": 1},
            ['x: key "b": expected nothing that fits {"const":"b"}'],
        ),
        ({"propertyNames": {"$ref": "#/$defs/one"}}, {"b": 1}, ['x: key "b": expected "one"']),
        ({"propertyNames": False}, {"b": 1}, ['x: expected no members, got object {"b":1}']),
        ({"contains": {"type": "string"}}, [1], ['x: expected an element that fits {"type":"string"}, got array [1]']),
        (
            {"contains": {"const": 3}, "minContains": 2},
            [3],
            ['x: expected at least 2 elements that fit {"const":3}, got array [3]'],
        ),
        (
            {"contains": {"const": 3}, "maxContains": 1},
            [3, 3],
            ['x: expected at most 1 element that fits {"const":3}, got array [3,3]'],
        ),
        (
            {"dependentRequired": {"a": ["b", "c"], "d": ["b"]}},
            {"a": 1},
            ["x.b: missing, needed with a", "x.c: missing, needed with a"],
        ),
        (
            {"dependentRequired": {"a": ["b"], "d": ["b"]}},
            {"a": 1, "d": 1},
            ["x.b: missing, needed with a, d"],
        ),
        ({"dependentSchemas": {"a": {"required": ["b"]}}}, {"a": 1}, ["x.b: missing, needed with a"]),
        ({"required": ["dependentSchemas"]}, {}, ["x.dependentSchemas: missing"]),
        (
            {"properties": {"dependentSchemas": {"items": {"required": ["b"]}}}},
            {"dependentSchemas": [{}]},
            ["x.dependentSchemas[0].b: missing"],
        ),
        ({"prefixItems": [{}], "items": False}, [1, 2], ["x[1]: unexpected"]),
        ({"properties": {"a": False}}, {"a": 1}, ["x.a: unexpected"]),
        ({"prefixItems": [{}], "unevaluatedItems": False}, [1, 2, "a"], ['x: unexpected elements: 2, "a"']),
        (
            {"oneOf": [{"type": "integer"}, {"minimum": 1}, {"type": "string"}]},
            3,
            ["x: fits 2 of the alternatives, expected exactly one, got integer 3"],
        ),
        (
            {"oneOf": [{"multipleOf": 2}, {"const": 1}]},
            3,
            [
                "x: fits none of the alternatives (x: expected a multiple of 2, got integer 3 | x: expected 1, got integer 3)"
            ],
        ),
        ({"if": {"type": "integer"}, "then": {"multipleOf": 2}}, 3, ["x: expected a multiple of 2, got integer 3"]),
        (
            {"allOf": [{"properties": {"a": {"multipleOf": 2}}}]},
            {"a": 3},
            ["x.a: expected a multiple of 2, got integer 3"],
        ),
    ],
)
async def test_what_was_expected_is_told_for_every_keyword(schema: Any, value: Any, lines: list[str]) -> None:
    server = Server("s")
    definitions = {"even": {"multipleOf": 2}, "one": {"const": "one"}}

    @server.tool(input_schema={"type": "object", "properties": {"x": schema}, "$defs": definitions})
    async def tool(x: Any) -> None: ...

    async with open_client(server) as client:
        result = await client.call_tool("tool", {"x": value})
    assert result.is_error
    assert result.text.splitlines()[1:] == lines


@pytest.mark.parametrize(
    ("schema", "value", "line"),
    [
        ({"format": "date"}, "28 July", 'x: expected text of the format date, got string "28 July"'),
        ({"contentEncoding": "base64"}, "%", 'x: expected text encoded as base64, got string "%"'),
        ({"contentMediaType": "application/json"}, "{", 'x: expected text of type application/json, got string "{"'),
        ({"items": [{}], "additionalItems": False}, [1, 2], "x: expected at most 1 element, got array [1,2]"),
        ({"dependencies": {"a": ["b"]}}, {"a": 1}, "x.b: missing, needed with a"),
        ({"dependencies": {"a": {"required": ["b"]}}}, {"a": 1}, "x.b: missing, needed with a"),
    ],
)
async def test_what_was_expected_is_told_for_keywords_of_older_drafts(schema: Any, value: Any, line: str) -> None:
    server = Server("s")

    @server.tool(input_schema={**DRAFT_7, "type": "object", "properties": {"x": schema}})
    async def tool(x: Any) -> None: ...

    async with open_client(server) as client:
        result = await client.call_tool("tool", {"x": value})
    assert (result.is_error, result.text.splitlines()[1:]) == (True, [line])


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
        start = time.process_time()
        result = await client.call_tool("walk", {"root": bad})
    assert result.is_error
    assert "root" in result.text
    assert len(result.text) < 2000
    assert time.process_time() - start < 5


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


async def test_a_whole_result_without_the_data_that_was_promised_is_not_sent() -> None:
    server = Server("s")

    @server.tool(output_schema={"type": "array"})
    async def bare(failed: bool) -> CallToolResult:
        return CallToolResult([Text("failed" if failed else "done")], is_error=failed)

    async with open_client(server) as client:
        assert "expected structured content" in (await client.call_tool("bare", {"failed": False})).text
        assert (await client.call_tool("bare", {"failed": True})).text == "failed"


def test_an_output_schema_that_cannot_be_checked_is_refused() -> None:
    server = Server("s")
    with pytest.raises(RegistrationError, match="output_schema: not a JSON Schema"):
        server.tool(lambda: 1, name="x", output_schema={"type": "nope"})
