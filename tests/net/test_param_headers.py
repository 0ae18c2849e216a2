"""Parameters in headers, between our client, our server and a plain HTTP client."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired, TypedDict

import httpx2
import pydantic
import pytest
import trio

from trio_mcp import Header, HeaderMismatch, RegistrationError, Server, open_client, open_server, serve_http
from trio_mcp.testing import request


@dataclass
class Tenant:
    """Who pays."""

    id: Annotated[int, Header("Tenant")]
    name: str = ""


@dataclass
class Account:
    user: Annotated[str, Header("User")]


class Inner(TypedDict):
    deep: NotRequired[Annotated[bool, Header("Deep")]]


class Place(TypedDict):
    region: Annotated[str, Header("Region"), "Where to run"]
    inner: Inner


@dataclass
class Tree:
    root: Node


@dataclass
class Node:
    id: Annotated[int, Header("Node")]
    next: Node | None = None


@dataclass
class Twice:
    first: Tenant
    second: Tenant


@dataclass
class Priced:
    price: Annotated[float, Header("Price")]


class Model(pydantic.BaseModel):
    tenants: list[ModelTenant]


class ModelTenant(pydantic.BaseModel):
    id: Annotated[int, Header("Tenant")]


def database() -> Server[Any]:
    server = Server("database")

    @server.tool
    async def query(
        sql: str,
        region: Annotated[str | None, Header("Region"), "Where to run"] = None,
        limit: Annotated[int, Header("Limit")] = 10,
    ) -> str:
        return f"{sql} in {region}, {limit}"

    return server


@pytest.fixture
async def url(nursery: trio.Nursery) -> AsyncIterator[str]:
    http = await nursery.start(serve_http, database(), "127.0.0.1:0")
    yield http.urls[0]


async def post(url: str, arguments: dict[str, Any], **headers: str) -> tuple[int, dict[str, Any]]:
    body = request(1, "tools/call", name="query", arguments=arguments)
    fixed = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "query",
    }
    async with httpx2.AsyncClient() as http:
        response = await http.post(url, content=json.dumps(body), headers={**fixed, **headers})
        return response.status_code, response.json()


async def test_the_schema_says_which_parameters_travel_in_headers() -> None:
    async with open_client(database()) as client:
        [tool] = await client.list_tools()
    assert tool.input_schema["properties"]["region"] == {
        "type": "string",
        "description": "Where to run",
        "x-mcp-header": "Region",
    }
    assert tool.input_schema["properties"]["limit"]["x-mcp-header"] == "Limit"


async def test_our_client_sends_them_and_our_server_checks_them(url: str) -> None:
    async with open_client(url) as client:
        # Known from the list, or, without one, from the refusal.
        assert (await client.call_tool("query", {"sql": "s", "region": "Zürich", "limit": 3})).text == "s in Zürich, 3"
        await client.list_tools()
        assert (await client.call_tool("query", {"sql": "s"})).text == "s in None, 10"
        with pytest.raises(ValueError, match="limit: 9007199254740993 does not fit into a header"):
            await client.call_tool("query", {"sql": "s", "limit": 2**53 + 1})


@pytest.mark.parametrize(
    ("arguments", "headers", "status"),
    [
        ({"sql": "s"}, {}, 200),
        ({"sql": "s", "region": None}, {}, 200),
        ({"sql": "s", "region": "eu", "limit": 3}, {"mcp-param-region": "eu", "MCP-PARAM-LIMIT": "3.0"}, 200),
        ({"sql": "s", "region": "eu"}, {"mcp-param-region": "=?base64?ZXU=?=", "mcp-param-other": "x"}, 200),
        ({"sql": "s", "region": "eu"}, {}, 400),
        ({"sql": "s", "region": "eu"}, {"mcp-param-region": "us"}, 400),
        ({"sql": "s"}, {"mcp-param-region": "eu"}, 400),
        ({"sql": "s", "region": "eu"}, {"mcp-param-region": "=?base64?ZXU?="}, 400),
        ({"sql": "s", "limit": 3}, {"mcp-param-limit": "4"}, 400),
    ],
)
async def test_a_header_that_disagrees_is_refused(
    url: str, arguments: dict[str, Any], headers: dict[str, str], status: int
) -> None:
    found, answer = await post(url, arguments, **headers)
    assert found == status
    if status == 400:
        assert answer["error"]["code"] == HeaderMismatch.code
        assert "Mcp-Param-" in answer["error"]["message"]


@pytest.mark.parametrize(
    ("annotation", "said"),
    [
        (Annotated[float, Header("X")], "value: .*only for text, integers and booleans"),
        (Annotated[list[str], Header("X")], "value: .*only for text, integers and booleans"),
        (Annotated[str, Header("a b")], "value: .*must be the name of a header"),
        (Annotated[str, Header("")], "value: .*must be the name of a header"),
        (list[Annotated[str, Header("X")]], "properties/value/items: .* reached through properties alone"),
        (dict[str, Annotated[str, Header("X")]], "properties/value/additionalProperties: .* properties alone"),
        (tuple[int, Annotated[str, Header("X")]], "properties/value/prefixItems/1: .* properties alone"),
        (Annotated[str, Header("X")] | None, "properties/value/anyOf/0: .* properties alone"),
        (list[Tenant], r"\$defs/Tenant/properties/id: .* properties alone"),
        (dict[str, Tenant], r"\$defs/Tenant/properties/id: .* properties alone"),
        (Tenant | Account, r"\$defs/Account/properties/user: .* properties alone"),
        (Tree, r"\$defs/Node/properties/id: .* properties alone"),
        (Twice, "value.second.id: the header Mcp-Param-Tenant is taken by another parameter"),
        (Priced, "value.price: .* only for text, integers and booleans"),
        (Model, r"\$defs/Model.ModelTenant/properties/id: .* properties alone"),
    ],
)
def test_a_mark_that_breaks_the_rules_is_refused_at_registration(annotation: Any, said: str) -> None:
    server = Server("s")

    async def tool(value: Any) -> None: ...

    tool.__annotations__["value"] = annotation
    with pytest.raises(RegistrationError, match=f"tool 'tool': .*{said}"):
        server.tool(tool)


async def test_fields_of_classes_travel_in_headers_too(nursery: trio.Nursery) -> None:
    server = Server("s")

    @server.tool
    async def bill(tenant: Tenant, place: Place, more: Account | None = None) -> str:
        return f"{tenant.id} {place['region']} {more.user if more else None}"

    http = await nursery.start(serve_http, server, "127.0.0.1:0")
    seen: list[dict[str, str]] = []

    async def note(request: httpx2.Request) -> None:
        headers = {name.lower(): value for name, value in request.headers.items()}
        seen.append({name: value for name, value in headers.items() if name.startswith("mcp-param-")})

    async with (
        httpx2.AsyncClient(event_hooks={"request": [note]}) as mine,
        open_client(http.urls[0], http=mine) as client,
    ):
        [tool] = await client.list_tools()
        properties = tool.input_schema["properties"]
        assert properties["tenant"] == {
            "type": "object",
            "properties": {
                "id": {"type": "integer", "x-mcp-header": "Tenant"},
                "name": {"type": "string", "default": ""},
            },
            "required": ["id"],
            "additionalProperties": False,
            "description": "Who pays.",
        }
        assert properties["more"]["type"] == ["object", "null"]
        assert "$defs" not in tool.input_schema
        place = {"region": "eu", "inner": {"deep": True}}
        for more, text in (({"user": "ada"}, "7 eu ada"), (None, "7 eu None")):
            arguments = {"tenant": {"id": 7}, "place": place, "more": more}
            assert (await client.call_tool("bill", arguments)).text == text
    common = {"mcp-param-tenant": "7", "mcp-param-region": "eu", "mcp-param-deep": "true"}
    assert seen[-2:] == [{**common, "mcp-param-user": "ada"}, common]


async def test_a_result_has_no_marks() -> None:
    server = Server("s")

    @server.tool
    async def tenants() -> list[Tenant]:
        return [Tenant(1)]

    @server.tool
    async def model() -> Model:
        return Model(tenants=[])

    @server.tool
    async def named() -> Annotated[int, Header("X")]:
        return 1

    async with open_client(server) as client:
        for tool in await client.list_tools():
            assert "x-mcp-header" not in json.dumps(tool.output_schema)


async def opened(server: Server[Any], task_status: trio.TaskStatus[Any]) -> None:
    async with open_server(server) as running:
        task_status.started(running)
        await trio.sleep_forever()


async def test_a_client_leaves_out_a_tool_whose_marks_break_the_rules(
    caplog: pytest.LogCaptureFixture, nursery: trio.Nursery
) -> None:
    server = database()
    broken = server.registry.tools["query"]
    server.tool(lambda: None, name="fine")
    server.registry.tools["query"].wire["inputSchema"] = {
        "type": "object",
        "properties": {"x": {"type": "number", "x-mcp-header": "X"}},
    }
    assert broken.name == "query"
    running = await nursery.start(opened, server)
    http = await nursery.start(serve_http, running, "127.0.0.1:0")
    async with open_client(http.urls[0]) as client:
        with caplog.at_level(logging.WARNING):
            assert [tool.name for tool in await client.list_tools()] == ["fine"]
        assert "the tool 'query' is left out: x: x-mcp-header 'X' is only for text" in caplog.text.replace('"', "'")
    # It does not matter elsewhere.
    async with open_client(running) as client:
        assert [tool.name for tool in await client.list_tools()] == ["query", "fine"]
