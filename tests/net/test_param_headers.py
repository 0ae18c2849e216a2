"""Parameters in headers, between our client, our server and a plain HTTP client."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from typing import Annotated, Any

import httpx2
import pytest
import trio

from trio_mcp import Header, HeaderMismatch, RegistrationError, Server, open_client, open_server, serve_http
from trio_mcp.testing import request


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
        "type": ["string", "null"],
        "default": None,
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
        (Annotated[float, Header("X")], "only for text, integers and booleans"),
        (Annotated[list[str], Header("X")], "only for text, integers and booleans"),
        (Annotated[str, Header("a b")], "must be the name of a header"),
        (Annotated[str, Header("")], "must be the name of a header"),
        (list[Annotated[str, Header("X")]], None),
    ],
)
def test_a_mark_that_breaks_the_rules_is_refused_at_registration(annotation: Any, said: str | None) -> None:
    server = Server("s")

    async def tool(value: Any) -> None: ...

    tool.__annotations__["value"] = annotation
    if said is None:
        # Inside another type it marks nothing.
        server.tool(tool)
        return
    with pytest.raises(RegistrationError, match=f"tool 'tool': value: .*{said}"):
        server.tool(tool)


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
