"""Lists: pages, cursors, caching hints, completion, and a registry that changes."""

from __future__ import annotations

import enum
from typing import Annotated, Any, Literal

import pydantic
import pytest
import trio

from trio_mcp import (
    Completion,
    Context,
    InvalidParams,
    MethodNotFound,
    RegistrationError,
    ResourceNotFound,
    Server,
    open_client,
)


def numbered(count: int, **options: Any) -> Server[Any]:
    server = Server("s", **options)
    for number in range(count):
        server.tool(lambda: None, name=f"t{number:03}")
        server.resource(f"x://{number:03}")(named(number))
        server.resource(f"x://{number:03}/{{name}}")(templated)
        server.prompt(named(number), name=f"p{number:03}")
    return server


def named(number: int) -> Any:
    def fixed() -> str:
        return str(number)

    return fixed


def templated(name: str) -> str:
    return name


async def pages(client: Any, method: str, member: str) -> list[list[str]]:
    out: list[list[str]] = []
    params: dict[str, Any] = {}
    while True:
        result = await client.request(method, params)
        out.append([item.get("uri") or item.get("uriTemplate") or item["name"] for item in result[member]])
        if "nextCursor" not in result:
            return out
        params = {"cursor": result["nextCursor"]}


async def test_every_list_comes_in_pages_of_the_size_that_was_set_and_in_order() -> None:
    async with open_client(numbered(7, page_size=3)) as client:
        assert await pages(client, "tools/list", "tools") == [
            ["t000", "t001", "t002"],
            ["t003", "t004", "t005"],
            ["t006"],
        ]
        assert [len(page) for page in await pages(client, "resources/list", "resources")] == [3, 3, 1]
        assert [len(page) for page in await pages(client, "resources/templates/list", "resourceTemplates")] == [3, 3, 1]
        assert [len(page) for page in await pages(client, "prompts/list", "prompts")] == [3, 3, 1]
        # The client walks them by itself.
        assert [tool.name for tool in await client.list_tools()] == [f"t{number:03}" for number in range(7)]


@pytest.mark.parametrize("count", [1, 50, 51, 100])
async def test_the_last_page_has_no_cursor(count: int) -> None:
    async with open_client(numbered(count)) as client:
        found = await pages(client, "tools/list", "tools")
    assert [len(page) for page in found] == [50] * (count // 50) + ([count % 50] if count % 50 else [])


async def test_a_cursor_that_was_not_given_out_is_refused() -> None:
    async with open_client(numbered(7, page_size=3)) as client:
        tools = (await client.request("tools/list"))["nextCursor"]
        for method, cursor in (
            ("tools/list", ""),
            ("tools/list", "nonsense!"),
            ("tools/list", "é"),
            ("prompts/list", tools),
            ("resources/list", tools),
        ):
            with pytest.raises(InvalidParams, match="was not given out for this list"):
                await client.request(method, {"cursor": cursor})
        with pytest.raises(InvalidParams, match="cursor must be string"):
            await client.request("tools/list", {"cursor": 3})


async def test_a_cursor_survives_a_change_unless_its_item_is_gone() -> None:
    server = numbered(7, page_size=3)
    async with open_client(server) as client:
        cursor = (await client.request("tools/list"))["nextCursor"]
        server.remove_tool("t000")
        server.tool(lambda: None, name="t999")
        after = await client.request("tools/list", {"cursor": cursor})
        assert [tool["name"] for tool in after["tools"]] == ["t003", "t004", "t005"]
        server.remove_tool("t002")
        with pytest.raises(InvalidParams, match="no longer valid; start again"):
            await client.request("tools/list", {"cursor": cursor})


async def test_what_is_registered_or_taken_back_while_serving_counts_at_once() -> None:
    server = numbered(1)
    async with open_client(server) as client:
        with pytest.raises(InvalidParams):
            await client.call_tool("late")

        @server.tool
        async def late() -> str:
            return "here"

        assert (await client.call_tool("late")).text == "here"
        assert [tool.name for tool in await client.list_tools()] == ["t000", "late"]
        server.remove_tool("late")
        server.remove_tool("t000")
        server.remove_resource("x://000")
        server.remove_resource("x://000/{name}")
        server.remove_prompt("p000")
        # What was declared once stays: the list is empty, and still there.
        with pytest.raises(InvalidParams, match="Unknown tool: late"):
            await client.call_tool("late")
        with pytest.raises(ResourceNotFound):
            await client.read_resource("x://000")
        for method, member in (
            ("tools/list", "tools"),
            ("resources/list", "resources"),
            ("resources/templates/list", "resourceTemplates"),
            ("prompts/list", "prompts"),
        ):
            assert (await client.request(method))[member] == []
        capabilities = (await client.request("server/discover"))["capabilities"]
        assert {"tools", "resources", "prompts", "completions"} <= set(capabilities)
    with pytest.raises(KeyError):
        server.remove_tool("late")


async def test_caching_hints_are_on_every_cacheable_result() -> None:
    server = numbered(1, cache_ttl=60, cache_scope="private")

    @server.resource("y://shared", cache_ttl=1.5, cache_scope="public")
    def shared() -> str:
        return "same for all"

    async with open_client(server) as client:
        for method in ("server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list"):
            result = await client.request(method)
            assert (result["ttlMs"], result["cacheScope"]) == (60_000, "private")
        result = await client.request("resources/read", {"uri": "y://shared"})
        assert (result["ttlMs"], result["cacheScope"]) == (1_500, "public")
        result = await client.request("resources/read", {"uri": "x://000"})
        assert (result["ttlMs"], result["cacheScope"]) == (0, "private")
        assert "ttlMs" not in await client.request("tools/call", {"name": "t000"})
    for options in ({"cache_ttl": -1}, {"cache_ttl": float("nan")}, {"cache_scope": "mine"}, {"page_size": 0}):
        with pytest.raises(RegistrationError):
            Server("s", **options)  # type: ignore[arg-type]


async def test_completion() -> None:
    server = Server("s")

    @server.prompt
    def greet(name: str, mood: Literal["fine", "foul", "glad"] = "fine") -> str:
        return f"{name} {mood}"

    @server.resource("city://{country}/{city}")
    def city(country: str, city: str) -> str:
        return f"{country}/{city}"

    @server.completion("greet", "name")
    async def names(value: str, ctx: Context) -> list[str]:
        await trio.lowlevel.checkpoint()
        return [f"{value}{number}" for number in range(150)]

    @server.completion("city://{country}/{city}", "city")
    def cities(value: str, arguments: dict[str, str]) -> Completion:
        return Completion([f"{arguments.get('country')}-{value}"], total=7, has_more=True)

    async with open_client(server) as client:
        assert client.capabilities["completions"] == {}
        found = await client.complete("greet", "name", "Bo")
        assert found == {"values": [f"Bo{number}" for number in range(100)], "total": 150, "hasMore": True}
        found = await client.complete("city://{country}/{city}", "city", "Par", arguments={"country": "fr"})
        assert found == {"values": ["fr-Par"], "total": 7, "hasMore": True}
        # A type with choices completes itself; what nobody completes has no suggestions.
        assert await client.complete("greet", "mood", "F") == {"values": ["fine", "foul"], "total": 2, "hasMore": False}
        assert await client.complete("city://{country}/{city}", "country") == {
            "values": [],
            "total": 0,
            "hasMore": False,
        }
        for ref, argument, why in (
            ("gret", "name", "Unknown prompt: gret; did you mean 'greet'?"),
            ("greet", "nam", "Unknown argument: nam; did you mean 'name'?"),
            ("x://{y}", "y", "Unknown resource template"),
        ):
            with pytest.raises(InvalidParams, match=why.replace("?", r"\?")):
                await client.complete(ref, argument)
        for params in ({}, {"ref": {"type": "ref/other"}, "argument": {"name": "a", "value": ""}}):
            with pytest.raises(InvalidParams):
                await client.request("completion/complete", params)


class Color(enum.Enum):
    RED = "red"
    ROSE = "rose"
    BLUE = "blue"


class Size(enum.IntEnum):
    SMALL = 1


async def test_arguments_of_optional_choices_complete_themselves() -> None:
    server = Server("s")

    @server.prompt
    def paint(
        plain: Color,
        optional: Color | None = None,
        literal: Literal["a", "b"] | None = None,
        with_null: Literal["a", "b", None] = None,
        one: Literal["a"] | None = None,
        either: Literal["a", "b"] | Color = "a",
        noted: Annotated[Annotated[Color, "A color"] | None, "Or none"] = None,
        modelled: Annotated[Literal["a", "b"] | None, pydantic.Field(title="Letter")] = None,
        size: Size | None = None,
        mixed: Literal["a", 1] | None = None,
        open: Literal["a"] | str = "a",
        listed: list[Color] | None = None,
        text: str | None = None,
    ) -> str:
        return ""

    @server.resource("paint://{color}{?other}")
    def read(color: Color | None, other: Literal["b"] | None = None) -> str:
        return ""

    colors = ["red", "rose", "blue"]
    async with open_client(server) as client:
        for argument, values in {
            "plain": colors,
            "optional": colors,
            "literal": ["a", "b"],
            "with_null": ["a", "b"],
            "one": ["a"],
            "either": ["a", "b", *colors],
            "noted": colors,
            "modelled": ["a", "b"],
            "size": [],
            "mixed": ["a"],
            "open": ["a"],
            "listed": [],
            "text": [],
        }.items():
            assert (await client.complete("paint", argument))["values"] == values, argument
        assert (await client.complete("paint", "optional", "RO"))["values"] == ["rose"]
        assert (await client.complete("paint://{color}{?other}", "color", "r"))["values"] == ["red", "rose"]
        assert (await client.complete("paint://{color}{?other}", "other"))["values"] == ["b"]


def test_a_completion_of_nothing_is_refused() -> None:
    server = Server("s")

    @server.prompt
    def greet(name: str) -> str:
        return name

    def complete(value: str) -> list[str]:
        return [value]

    def strange(text: str) -> list[str]:
        return [text]

    for ref, argument, function, why in (
        ("nope", "name", complete, "there is no prompt or template 'nope' to complete; there is: greet"),
        ("greet", "nam", complete, "'greet' has no argument 'nam'; it has: name"),
        ("greet", "name", strange, "parameter 'text': a completion takes value"),
    ):
        with pytest.raises(RegistrationError, match=why):
            server.completion(ref, argument)(function)
    server.completion("greet", "name")(complete)
    with pytest.raises(RegistrationError, match="registered already"):
        server.completion("greet", "name")(complete)
    server.remove_prompt("greet")
    assert server.registry.completions == {}


async def test_a_server_without_prompts_and_templates_has_no_completion() -> None:
    server = Server("s")
    server.tool(lambda: None, name="t")
    async with open_client(server) as client:
        assert "completions" not in client.capabilities
        with pytest.raises(MethodNotFound):
            await client.complete("greet", "name")
