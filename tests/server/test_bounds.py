"""What is too large to send is an error at once, in both directions; and what handlers may raise."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from trio_mcp import InternalError, InvalidParams, Limits, Server, ToolError, open_client


def make(**options: Any) -> Server[Any]:
    server = Server("s", **options)

    @server.tool
    async def echo(value: Any) -> Any:
        return value

    @server.tool
    async def long(size: int) -> str:
        return "x" * size

    @server.tool
    async def deep(levels: int) -> Any:
        value: Any = 1
        for _ in range(levels):
            value = [value]
        return value

    @server.tool
    async def digits(count: int) -> int:
        return int(10 ** (count - 1))

    @server.resource("big://{size}")
    async def big(size: int) -> bytes:
        return b"x" * size

    return server


async def test_a_result_that_is_too_large_is_an_error_and_not_silence(caplog: pytest.LogCaptureFixture) -> None:
    server = make(limits=Limits(answer_bytes=100_000))
    async with open_client(server) as client:
        with trio.fail_after(20):
            assert len((await client.call_tool("long", {"size": 90_000})).text) == 90_000
            result = await client.call_tool("long", {"size": 200_000})
            assert result.is_error
            assert result.text.splitlines()[1].startswith("too large to send: 200")
            assert result.text.endswith("bytes, the limit is 100000")
            with pytest.raises(InternalError, match="returned a result that is not valid"):
                await client.read_resource("big://200000")
    assert "too large to send" in caplog.text


@pytest.mark.parametrize(
    ("tool", "good", "bad", "why"),
    [
        ("deep", {"levels": 100}, {"levels": 127}, "too large to send: nested deeper than 127 levels"),
        ("deep", {"levels": 3}, {"levels": 400}, "nested too deep (or refers to itself)"),
        ("digits", {"count": 1000}, {"count": 1001}, "an integer of more than 1000 digits"),
    ],
)
async def test_a_result_that_no_client_reads_is_an_error(
    tool: str, good: dict[str, int], bad: dict[str, int], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_client(make()) as client:
        with trio.fail_after(20):
            assert not (await client.call_tool(tool, good)).is_error
            result = await client.call_tool(tool, bad)
    assert result.is_error
    assert why in result.text


async def test_a_request_that_is_too_large_is_refused_here() -> None:
    async with open_client(make()) as client:
        nested: Any = 1
        for _ in range(130):
            nested = [nested]
        for value, why in (
            ("x" * 3_000_000, r"tools/call: the request is too large: 300\d+ bytes, the limit is 2000000"),
            (nested, "nested deeper than 128 levels"),
            (10**1001, "an integer of more than 1000 digits"),
        ):
            with trio.fail_after(20), pytest.raises(ValueError, match=why):
                await client.call_tool("echo", {"value": value})
        assert (await client.call_tool("echo", {"value": [1]})).data == [1]


async def test_a_server_with_smaller_limits_is_heard_when_it_refuses() -> None:
    async with open_client(make(limits=Limits(message_bytes=1_000))) as client:
        with trio.fail_after(20), pytest.raises(Exception, match="the limit is 1000 bytes"):
            await client.call_tool("echo", {"value": "x" * 2_000})
        assert (await client.call_tool("echo", {"value": 1})).data == 1


class Odd(BaseException):
    """Neither an Exception nor one of trio's."""


async def test_one_error_in_a_handlers_nursery_is_that_error(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("s")

    @server.tool
    async def nested() -> str:
        async with trio.open_nursery(), trio.open_nursery():
            raise ToolError("for the model")

    @server.resource("x://nested")
    async def resource() -> str:
        async with trio.open_nursery():
            raise InvalidParams("not like this")

    @server.tool
    async def two() -> str:
        async def fail() -> None:
            raise ToolError("one")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail)
            raise ToolError("other")

    @server.tool
    async def odd() -> str:
        raise Odd("secret")

    @server.tool
    def leaves() -> str:
        raise GeneratorExit

    async with open_client(server) as client:
        result = await client.call_tool("nested")
        assert (result.is_error, result.text) == (True, "for the model")
        with pytest.raises(InvalidParams, match="not like this"):
            await client.read_resource("x://nested")
        assert caplog.records == []
        for tool in ("two", "odd", "leaves"):
            result = await client.call_tool(tool)
            assert result.is_error
            assert result.text.startswith(f"Internal error in tool {tool!r}")
        assert len(caplog.records) == 3


def test_wrong_settings_are_refused_when_they_are_made() -> None:
    from trio_mcp import RegistrationError

    async def lifespan(server: Any) -> Any:
        yield 1

    for options, why in (
        ({"limits": 5}, "expected Limits, got 5"),
        ({"version": 1}, "expected str, got 1"),
        ({"lifespan": 5}, "expected a function that returns an async context manager"),
        ({"lifespan": lifespan}, "put @contextlib.asynccontextmanager above"),
    ):
        with pytest.raises(RegistrationError, match=why):
            Server("s", **options)  # type: ignore[arg-type]
    with pytest.raises(RegistrationError, match=r"the name goes into name=, as in @server.tool\(name='add'\)"):
        Server("s").tool("add")  # type: ignore[call-overload]
