"""What a client or a handler gives that is almost right: texts that are no JSON, names without end, cursors of one's own."""

from __future__ import annotations

from typing import Any

import pytest

from trio_mcp import (
    InternalError,
    InvalidParams,
    RegistrationError,
    ResourceNotFound,
    Server,
    open_client,
    open_server,
)
from trio_mcp.limits import TASK_TTL_MOST
from trio_mcp.protocol.cursors import page_after

NO_JSON = ["NaN", "Infinity", "-Infinity", "1e999", "-1e400"]


def texts() -> Server[Any]:
    server = Server("s")

    @server.prompt
    async def half(x: float) -> str:
        return f"{x / 2:g}"

    @server.resource("half://{x}")
    async def halves(x: float) -> str:
        return f"{x / 2:g}"

    return server


@pytest.mark.parametrize("text", NO_JSON)
async def test_a_number_as_text_is_one_that_json_has(text: str) -> None:
    async with open_client(texts()) as client:
        with pytest.raises(InvalidParams, match="expected number"):
            await client.get_prompt("half", {"x": text})
        with pytest.raises(InvalidParams, match="expected number"):
            await client.read_resource(f"half://{text}")
        assert (await client.read_resource("half://3")).contents[0].data == "1.5"


async def test_a_name_without_end_is_compared_with_no_other() -> None:
    """The comparison takes as long as the name is: half a second for two megabytes, in which nobody else is served."""
    server = Server("s")
    longest = "weather_" * 16

    @server.tool(name=longest)
    async def weather() -> None:
        pass

    async with open_client(server) as client:
        with pytest.raises(InvalidParams, match="did you mean"):
            await client.call_tool(longest * 2)
        with pytest.raises(InvalidParams, match="Unknown tool: weather_") as caught:
            await client.call_tool(longest * 2 + "_")
    # As like as the other, and longer than any name that is compared.
    assert "did you mean" not in str(caught.value)


async def test_pages_that_a_client_makes_up_are_not_kept() -> None:
    server = Server("s", page_size=10)
    for number in range(35):

        @server.tool(name=f"t{number}")
        async def tool() -> None:
            pass

    names = [f"t{number}" for number in range(35)]
    async with open_server(server) as engine, open_client(engine) as client:
        for number in range(34):
            # The cursor of a page that would end with this tool.
            cursor = page_after("tools/list", None, names, number + 1)[2]
            page = await client.request("tools/list", {"cursor": cursor})
            assert [tool["name"] for tool in page["tools"]] == names[number + 1 : number + 11]
        assert len(await client.list_tools()) == 35
        assert len(engine.registry.pages) <= 5


def test_a_tool_that_can_be_a_task_has_a_timeout_that_a_task_can_have() -> None:
    server = Server("s")

    async def work() -> None:
        pass

    with pytest.raises(RegistrationError, match="86,400 seconds at most, got 200000"):
        server.tool(timeout=200_000, task_support="optional")(work)
    server.tool(timeout=TASK_TTL_MOST, task_support="optional")(work)
    server.tool(name="in_line", timeout=200_000)(work)


async def test_letters_are_no_suggestions(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("s")

    @server.prompt
    async def paint(colour: str, shade: str) -> str:
        return colour

    @server.completion("paint", "colour")
    async def colours(value: str) -> Any:
        return "red"

    @server.completion("paint", "shade")
    async def shades(value: str) -> Any:
        return None

    async with open_client(server) as client:
        for argument, kind in (("colour", "str"), ("shade", "NoneType")):
            with pytest.raises(InternalError, match="not valid"):
                await client.complete("paint", argument, "r")
            assert f"expected a list of text, got {kind}" in caplog.text


async def test_what_a_handler_says_of_a_resource_that_is_not_there_is_told() -> None:
    server = Server("s")

    @server.resource("note://{id}")
    async def note(id: str) -> str:
        raise ResourceNotFound(message="the note was archived")

    async with open_client(server) as client:
        with pytest.raises(InvalidParams, match="the note was archived") as caught:
            await client.read_resource("note://7")
    assert caught.value.data == {"uri": "note://7"}
