"""Lists that change while a client reads them, and lists that a server does not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest
import trio

from trio_mcp import InternalError, InvalidParams, InvalidResponse, Limits, Server, open_client, serve_http

from .test_client import result, scripted


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}}


def error(message: dict[str, Any], code: int, text: str = "no") -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": code, "message": text}}


def changing(refusals: int, asked: list[Any]) -> Callable[[dict[str, Any]], Any]:
    """A server with three pages that refuses the cursor of the last one so many times."""
    left = [refusals]

    def reply(message: dict[str, Any]) -> Any:
        if message["method"] != "tools/list":
            return None
        cursor = message["params"].get("cursor")
        asked.append(cursor)
        if cursor is None:
            return [result(message, tools=[tool(f"a{left[0]}")], nextCursor="b")]
        if cursor == "b":
            return [result(message, tools=[tool("b")], nextCursor="c")]
        if left[0]:
            left[0] -= 1
            return [error(message, -32602, "the cursor is no longer valid")]
        return [result(message, tools=[tool("c")])]

    return reply


@pytest.mark.parametrize("refusals", [0, 1, 3])
async def test_a_list_whose_cursor_is_refused_in_the_middle_is_read_again(refusals: int) -> None:
    asked: list[Any] = []
    async with scripted(changing(refusals, asked)) as stream, open_client(stream) as client:
        # What was read before is not there twice, and not in an old state.
        assert [item.name for item in await client.list_tools()] == ["a0", "b", "c"]
    assert asked == [None, "b", "c"] * (refusals + 1)


async def test_a_cursor_that_is_refused_again_and_again_is_an_error() -> None:
    asked: list[Any] = []
    async with scripted(changing(1_000, asked)) as stream, open_client(stream) as client:
        with pytest.raises(InvalidParams, match="no longer valid"):
            await client.list_tools()
    assert asked == [None, "b", "c"] * 4


async def test_reading_again_counts_as_pages() -> None:
    asked: list[Any] = []
    async with scripted(changing(1_000, asked)) as stream, open_client(stream, limits=Limits(client_pages=5)) as client:
        with pytest.raises(InvalidResponse, match="more than 5 pages"):
            await client.list_tools()
    assert len(asked) == 5


async def test_a_list_that_is_refused_at_once_is_an_error() -> None:
    asked: list[Any] = []

    def reply(message: dict[str, Any]) -> Any:
        if message["method"] != "tools/list":
            return None
        asked.append(message)
        return [error(message, -32602)]

    async with scripted(reply) as stream, open_client(stream) as client:
        with pytest.raises(InvalidParams):
            await client.list_tools()
    assert len(asked) == 1


async def test_a_list_from_which_the_item_of_the_cursor_is_removed_is_read_whole(nursery: trio.Nursery) -> None:
    server = Server("s", page_size=2)
    for number in range(5):
        server.tool(lambda: None, name=f"t{number}")
    asked: list[str] = []

    async def hear(request: httpx2.Request) -> None:
        asked.append(request.headers["mcp-method"])
        if asked.count("tools/list") == 2:
            server.remove_tool("t1")

    http = await nursery.start(serve_http, server, "127.0.0.1:0")
    async with (
        httpx2.AsyncClient(event_hooks={"request": [hear]}) as mine,
        open_client(http.urls[0], http=mine) as client,
    ):
        assert [item.name for item in await client.list_tools()] == ["t0", "t2", "t3", "t4"]


async def test_what_is_registered_after_the_client_was_opened_is_listed() -> None:
    server = Server("s")
    async with open_client(server) as client:
        for lists in (client.list_tools, client.list_prompts, client.list_resources, client.list_resource_templates):
            assert await lists() == []
        server.tool(lambda: None, name="late")
        server.prompt(lambda: "", name="late")
        server.resource("x://late", name="late")(lambda: "")
        assert [item.name for item in await client.list_tools()] == ["late"]
        assert [item.name for item in await client.list_prompts()] == ["late"]
        assert [item.uri for item in await client.list_resources()] == ["x://late"]
        assert await client.list_resource_templates() == []
        server.remove_tool("late")
        assert await client.list_tools() == []


async def test_another_error_for_what_a_server_did_not_declare_is_told() -> None:
    def reply(message: dict[str, Any]) -> Any:
        return [error(message, -32603)] if message["method"] == "prompts/list" else None

    async with scripted(reply) as stream, open_client(stream) as client:
        with pytest.raises(InternalError):
            await client.list_prompts()
