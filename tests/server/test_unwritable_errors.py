"""An error that cannot be written, or not be read, is an error all the same, and costs its request alone."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.server.task_helpers import until
from tests.transports.http.helpers import call, open_site
from trio_mcp import (
    Context,
    InternalError,
    InvalidParams,
    Limits,
    MissingClientCapability,
    ProtocolError,
    ResourceNotFound,
    Server,
    SQLiteTaskStore,
    ToolError,
    open_client,
)
from trio_mcp.testing import open_raw, request

NO_UTF8 = os.fsdecode(b"caf\xe9.txt")


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def itself() -> Any:
    value: dict[str, Any] = {}
    value["self"] = value
    return value


class Silent:
    def __str__(self) -> str:
        raise RuntimeError("no")

    def __repr__(self) -> str:
        return "silent"


class Sad(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


ERRORS: dict[str, Callable[[], BaseException]] = {
    "set": lambda: InvalidParams("no", {"tried": {"a"}}),
    "date": lambda: InvalidParams("no", {"on": datetime.date(2024, 1, 2)}),
    "exception": lambda: InvalidParams("no", {"cause": ValueError("x")}),
    "rude data": lambda: InvalidParams("no", {"a": [Silent()]}),
    "nan": lambda: InvalidParams("no", [float("nan")]),
    "key": lambda: InvalidParams("no", {1.5: 2}),
    "itself": lambda: InvalidParams("no", itself()),
    "deep": lambda: InvalidParams("no", deep(127)),
    "deeper than a writer goes": lambda: InvalidParams("no", deep(5_000)),
    "large": lambda: InvalidParams("no", "x" * 200_000),
    "digits": lambda: InvalidParams("no", 10**2_000),
    "text": lambda: InvalidParams(f"cannot open {NO_UTF8}"),
    "text in data": lambda: InvalidParams("no", {NO_UTF8: [NO_UTF8]}),
    "long text": lambda: InvalidParams("x" * 200_000),
    "no text": lambda: InvalidParams(Silent()),  # type: ignore[arg-type]
    "another object": lambda: InvalidParams(["no"]),  # type: ignore[arg-type]
    "uri": lambda: ResourceNotFound(NO_UTF8),
    "code": lambda: ProtocolError("no", code="x"),  # type: ignore[arg-type]
    "huge code": lambda: ProtocolError("no", code=10**2_000),
    "tool error": lambda: ToolError(NO_UTF8),
    "sad": lambda: Sad(),
    "sad group": lambda: BaseExceptionGroup("two", [Sad(), Sad()]),
}


def make(**options: Any) -> Server[Any]:
    server = Server("s", limits=Limits(answer_bytes=100_000, task_result_bytes=50_000), **options)

    @server.tool(task_support="optional")
    async def fail(name: str, ctx: Context) -> str:
        while not ctx.task_id and name.startswith("task "):
            await trio.sleep(0.01)
        raise ERRORS[name.removeprefix("task ")]()

    @server.tool
    async def ping() -> str:
        return "pong"

    @server.prompt
    async def prompt(name: str) -> str:
        raise ERRORS[name]()

    @server.resource("x://{name}")
    async def resource(name: str) -> str:
        raise ERRORS[name]()

    return server


@pytest.mark.parametrize("expose", [False, True])
@pytest.mark.parametrize("name", ERRORS)
async def test_an_error_that_cannot_be_written_is_an_answer(name: str, expose: bool) -> None:
    async with open_raw(make(expose_errors=expose)) as peer:
        with trio.fail_after(30):
            await peer.send(request(1, "tools/call", name="fail", arguments={"name": name}))
            answer = await peer.receive()
            assert answer["id"] == 1
            assert "error" in answer or answer["result"]["isError"]
            await peer.send(request(2, "prompts/get", name="prompt", arguments={"name": name}))
            error = (await peer.receive())["error"]
            assert type(error["code"]) is int and type(error["message"]) is str
            await peer.send(request(3, "resources/read", uri=f"x://{name.replace(' ', '%20')}"))
            assert (await peer.receive())["error"]
            await peer.send(request(4, "tools/call", name="ping"))
            assert (await peer.receive())["result"]["content"][0]["text"] == "pong"


@pytest.mark.parametrize("name", ERRORS)
async def test_over_http_it_is_the_same_answer(name: str) -> None:
    async with open_site(make()) as site:
        with trio.fail_after(30):
            answer = await site.connect().ask(call(1, "fail", name=name))
            assert answer.json["id"] == 1
            assert "error" in answer.json or answer.json["result"]["isError"]


@pytest.mark.parametrize(
    ("name", "code", "message", "data"),
    [
        ("set", -32602, "no", {"tried": ["a"]}),
        ("date", -32602, "no", {"on": "2024-01-02"}),
        ("exception", -32602, "no", None),
        ("deep", -32602, "no", None),
        ("large", -32602, "no", None),
        ("text", -32602, "cannot open caf?.txt", None),
        ("text in data", -32602, "no", {"caf?.txt": ["caf?.txt"]}),
        ("long text", -32602, "x" * 4_095 + "…", None),
        ("another object", -32602, "['no']", None),
        ("code", -32603, "no", None),
    ],
)
async def test_what_can_be_said_of_it_is_said(
    name: str, code: int, message: str, data: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_client(make()) as client:
        with pytest.raises(ProtocolError) as caught:
            await client.get_prompt("prompt", {"name": name})
    assert (caught.value.code, caught.value.message, caught.value.data) == (code, message, data)
    assert (data is None) == ("raised an error that cannot be sent as it is" in caplog.text)


async def test_an_error_within_the_bounds_passes_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    async with open_client(server := make()) as client:
        for error in (InvalidParams("é", deep(126)), ResourceNotFound("x://é"), InvalidParams("x" * 99_000)):
            ERRORS["now"] = lambda error=error: error
            with pytest.raises(InvalidParams) as caught:
                await client.get_prompt("prompt", {"name": "now"})
            assert (caught.value.message, caught.value.data) == (error.message, error.data)
            del ERRORS["now"]
    assert server.name == "s"
    assert caplog.text == ""


@pytest.mark.parametrize("code", [-32019, -32020, -32021, -32022, -32023, -32050, -32099, -32100, 7])
async def test_codes_that_the_specification_reserves_are_not_sent(code: int) -> None:
    server = Server("s")

    @server.prompt
    async def fail() -> str:
        raise ProtocolError("no", code=code)

    async with open_raw(server) as peer:
        await peer.send(request(1, "prompts/get", name="fail"))
        kept = not -32099 <= code <= -32023
        assert (await peer.receive())["error"] == {"code": code if kept else InternalError.code, "message": "no"}


def test_the_classes_have_codes_that_are_defined() -> None:
    assert MissingClientCapability.code in range(-32099, -32019)


@pytest.mark.parametrize("file", [False, True])
@pytest.mark.parametrize("name", ERRORS)
async def test_as_the_end_of_a_task_it_is_kept_and_told(name: str, file: bool, tmp_path: Path) -> None:
    store = SQLiteTaskStore(tmp_path / "tasks.db") if file else None
    async with open_client(make(tasks=store, task_inline_ms=0)) as client:
        with trio.fail_after(50):
            task = await client.start_tool("fail", {"name": f"task {name}"})
            while not (state := await task.refresh()).final:
                await trio.sleep(0.01)
            assert state.status == "failed" or (state.result is not None and state.result["isError"])
    if store is not None:
        async with store.open("another"):
            assert task.id is not None
            row = await store.get(task.id)
            assert row is not None and row.final


@pytest.mark.parametrize(("levels", "status"), [(125, "completed"), (126, "failed")])
async def test_a_result_that_is_read_in_line_alone_is_a_failed_task(levels: int, status: str) -> None:
    """In `tasks/get` it stands one level deeper."""
    server = Server("s")

    @server.tool(task_support="optional")
    async def nest(levels: int) -> Any:
        return deep(levels)

    async with open_client(server) as client:
        server.task_inline_ms = 1_000_000
        assert (await client.start_tool("nest", {"levels": levels})).id is None
        server.task_inline_ms = 0
        task = await client.start_tool("nest", {"levels": levels})
        with trio.fail_after(30):
            while not (state := await task.refresh()).final:
                await trio.sleep(0.01)
        assert state.status == status
        if status == "failed":
            assert state.error is not None
            assert "cannot be kept: nested deeper than 126 levels" in state.error.message


async def test_the_error_of_a_task_may_be_as_large_as_its_result() -> None:
    server = make()

    @server.tool(task_support="required", task_inline_ms=0)
    async def data(size: int) -> str:
        raise InvalidParams("no", "x" * size)

    async with open_client(server) as client:
        with trio.fail_after(30):
            for size, kept in ((49_000, True), (60_000, False)):
                task = await client.start_tool("data", {"size": size})
                state = await until(client, task, "failed")
                assert state.error is not None
                assert (state.error.message, state.error.data) == ("no", "x" * size if kept else None)


async def test_the_status_of_a_task_is_a_text_of_a_length_that_has_a_bound(autojump_clock: Any) -> None:
    server = Server("s", task_inline_ms=0)

    @server.tool(task_support="required")
    async def tell(ctx: Context) -> str:
        await ctx.report_progress(1, message=f"reading {NO_UTF8}")
        await trio.sleep(1)
        await ctx.log("info", "x" * 100_000)
        await trio.sleep(1)
        raise InvalidParams("y" * 100_000)

    async with open_client(server) as client:
        task = await client.start_tool("tell")
        seen = []
        for _ in range(3):
            await trio.sleep(0.5)
            seen.append((await task.refresh()).message)
            await trio.sleep(0.5)
    assert seen == ["1: reading caf?.txt", "x" * 4_095 + "…", "y" * 4_095 + "…"]


async def test_a_file_name_in_progress_does_not_fail_the_work() -> None:
    server = Server("s")

    @server.tool
    async def read(ctx: Context) -> str:
        await ctx.report_progress(1, message=f"reading {NO_UTF8}")
        return "read"

    async with open_raw(server) as peer:
        await peer.send(request(1, "tools/call", name="read", meta={"progressToken": 1}))
        assert (await peer.receive())["params"]["message"] == "reading caf?.txt"
        assert (await peer.receive())["result"]["content"][0]["text"] == "read"
