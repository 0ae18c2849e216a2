"""What a call brings: defaults that a `Field` names, schemas for hosts, arguments that are large."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pydantic
import pytest
import trio

from trio_mcp import RegistrationError, Server, open_client

numbers = itertools.count(1)


@dataclass
class Item:
    name: str
    size: int
    tags: list[str] = field(default_factory=list)


@dataclass
class Folder:
    name: str
    inside: list[Folder] = field(default_factory=list)


async def test_the_default_of_a_field_is_what_the_function_gets() -> None:
    server = Server("defaults")

    @server.tool
    async def find(
        limit: int = pydantic.Field(3, ge=1),
        tags: list[str] = pydantic.Field(default_factory=list),  # noqa: B008
        number: int = pydantic.Field(default_factory=lambda: next(numbers)),
        shared: list[int] = pydantic.Field([1]),  # noqa: B008
        word: Annotated[str, pydantic.Field(default="w", max_length=3)] = "x",
        other: str = pydantic.Field(default=None),
    ) -> list[Any]:
        tags.append("used")
        shared.append(2)
        return [limit, tags, number, shared, word, other]

    @server.tool
    async def annotated(n: Annotated[int, pydantic.Field(default=7, le=9)], m: int = pydantic.Field(ge=1)) -> list[int]:
        return [n, m]

    @server.prompt
    async def ask(about: str = pydantic.Field("rain", description="What about")) -> str:
        return f"about {about}"

    @server.resource("data://{?kind}")
    async def data(kind: str = pydantic.Field("all")) -> str:
        return kind

    async with open_client(server) as client:
        tools = {tool.name: tool.input_schema for tool in await client.list_tools()}
        assert tools["find"]["properties"]["limit"] == {"type": "integer", "minimum": 1, "default": 3}
        assert tools["find"]["properties"]["tags"] == {"type": "array", "items": {"type": "string"}}
        assert "required" not in tools["find"]
        assert tools["annotated"]["required"] == ["m"]
        for turn in (1, 2):
            # Each call has its own.
            result = await client.call_tool("find", {})
            assert result.data == [3, ["used"], turn, [1, 2], "x", None]
        assert (await client.call_tool("annotated", {"m": 1})).data == [7, 1]
        assert (await client.call_tool("find", {"limit": 0})).is_error
        assert (await client.get_prompt("ask")).messages[0].content.text == "about rain"
        assert (await client.read_resource("data://")).contents[0].text == "all"


async def test_schemas_without_references() -> None:
    server = Server("inline", inline_refs=True)

    @server.tool
    async def move(items: list[Item], first: Annotated[Item, "The first."]) -> dict[str, Item]:
        return {"first": first}

    async with open_client(server) as client:
        [tool] = await client.list_tools()
        assert "$" not in str(tool.input_schema) + str(tool.output_schema)
        assert tool.input_schema["properties"]["first"]["description"] == "The first."
        assert tool.input_schema["properties"]["items"]["items"]["required"] == ["name", "size"]
        assert (await client.call_tool("move", {"items": [], "first": {"name": "a", "size": 1}})).data["first"][
            "size"
        ] == 1
    with pytest.raises(RegistrationError, match="'grow': inline_refs: Folder refers to itself"):

        @server.tool
        async def grow(folder: Folder) -> None: ...


async def test_large_arguments_and_results_let_others_run() -> None:
    server = Server("large")

    @server.tool
    async def count(items: list[Item]) -> list[Item]:
        return items

    @server.tool
    async def wrong(items: list[int]) -> int:
        return len(items)

    @server.tool
    async def tick() -> str:
        return "tick"

    items = [{"name": f"item {number}", "size": number, "tags": []} for number in range(20_000)]
    async with open_client(server) as client, trio.open_nursery() as nursery:
        ticks = 0

        async def ticking() -> None:
            nonlocal ticks
            while True:
                await client.call_tool("tick")
                ticks += 1

        nursery.start_soon(ticking)
        before = ticks
        result = await client.call_tool("count", {"items": items})
        assert result.data == items
        # Between its pieces, and not only before and after.
        assert ticks - before > 3
        before = ticks
        result = await client.call_tool("wrong", {"items": ["a"] * 100_000})
        assert result.text.endswith(
            '[49]: expected integer, got string "a"\n… and 99950 more'.replace("[49]", "items[49]")
        )
        assert ticks - before > 3
        nursery.cancel_scope.cancel()


async def test_unexpected_arguments_are_compared_for_the_lines_that_are_shown() -> None:
    server = Server("many")

    @server.tool
    async def find(alpha: int = 0, beta: int = 0, gamma: int = 0) -> int:
        return alpha

    async with open_client(server) as client:
        begin = time.process_time()
        result = await client.call_tool("find", {f"alpha{number}": 1 for number in range(50_000)})
        # To compare each of them took eight seconds.
        assert time.process_time() - begin < 4
    assert "alpha0: unexpected, find takes alpha, beta, gamma; did you mean 'alpha'?" in result.text
    assert result.text.endswith("… and 49950 more")


async def test_a_form_is_told_about_the_kind_that_was_meant() -> None:
    server = Server("kinds")

    @dataclass
    class Card:
        kind: Literal["card"]
        number: str

    @dataclass
    class Cash:
        kind: Literal["cash"]
        amount: int

    @server.tool
    async def pay(by: Card | Cash) -> str:
        return by.kind

    async with open_client(server) as client:
        result = await client.call_tool("pay", {"by": {"kind": "cash"}})
    assert result.text == "Invalid arguments for tool 'pay':\nby.amount: missing, expected integer"
