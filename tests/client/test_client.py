"""The client: callbacks, cancellation, timeouts, pages, the order of closing, and errors that are plain."""

from __future__ import annotations

import contextvars
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock, memory_stream_pair, wait_all_tasks_blocked

from trio_mcp import (
    CallToolResult,
    Client,
    ConnectionClosed,
    Context,
    InvalidParams,
    InvalidResponse,
    LegacyServer,
    Limits,
    MCPError,
    RequestTimeout,
    Server,
    UnsupportedVersion,
    connect_client,
    open_client,
    open_server,
    serve_stream,
)
from trio_mcp.client.channel import Channel, Listener

DISCOVERY = {
    "resultType": "complete",
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}},
    "ttlMs": 0,
    "cacheScope": "public",
}


@asynccontextmanager
async def scripted(reply: Callable[[dict[str, Any]], Any]) -> AsyncIterator[trio.abc.Stream]:
    """A server made of one function: it gives the lines (dicts, or bytes as they are) that answer a message."""
    ours, theirs = memory_stream_pair()

    async def serve() -> None:
        buffer = b""
        while data := await theirs.receive_some():
            buffer += data
            *lines, buffer = buffer.split(b"\n")
            for line in lines:
                message = json.loads(line)
                answers = reply(message)
                if answers is None and message["method"] == "server/discover":
                    answers = [{"jsonrpc": "2.0", "id": message["id"], "result": DISCOVERY}]
                for answer in answers or []:
                    raw = answer if isinstance(answer, bytes) else json.dumps(answer).encode() + b"\n"
                    if raw == b"EOF":
                        await theirs.aclose()
                        return
                    await theirs.send_all(raw)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        yield ours
        nursery.cancel_scope.cancel()


def result(message: dict[str, Any], **value: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": message["id"], "result": {"resultType": "complete", **value}}


def make() -> tuple[Server[Any], list[Any]]:
    server = Server("test", version="1")
    events: list[Any] = []

    @server.tool
    async def steps(count: int, ctx: Context) -> str:
        for step in range(count):
            await ctx.report_progress(step, total=count, message=f"step {step}")
            await ctx.log("info", {"step": step}, logger="steps")
            await ctx.log("debug", "unheard")
        return "done"

    @server.tool
    async def slow(seconds: float) -> str:
        events.append("start")
        try:
            await trio.sleep(seconds)
        finally:
            events.append("end")
        return "slept"

    return server, events


# -- callbacks


async def test_progress_and_log_lines_are_heard_in_order_before_the_result() -> None:
    server, _ = make()
    heard: list[Any] = []

    async def on_log(level: str, data: Any, logger: str | None) -> None:
        await trio.lowlevel.checkpoint()
        heard.append((level, data, logger))

    async with open_client(server) as client:
        answer = await client.call_tool(
            "steps", {"count": 2}, on_progress=lambda *what: heard.append(what), on_log=on_log
        )
        assert heard == [
            (0, 2, "step 0"),
            ("info", {"step": 0}, "steps"),
            (1, 2, "step 1"),
            ("info", {"step": 1}, "steps"),
        ]
        heard.clear()
        await client.call_tool("steps", {"count": 1}, on_log=on_log, log_level="debug")
        assert heard == [("info", {"step": 0}, "steps"), ("debug", "unheard", None)]
        heard.clear()
        await client.call_tool("steps", {"count": 2})
        assert heard == []
    assert answer.text == "done"


async def test_an_error_in_a_callback_reaches_the_caller_and_stops_the_tool(autojump_clock: MockClock) -> None:
    server, events = make()

    @server.tool
    async def endless(ctx: Context) -> str:
        try:
            for step in range(10_000):
                await ctx.report_progress(step)
                await trio.sleep(1)
        finally:
            events.append("stopped")
        return "never"

    def complain(*what: Any) -> None:
        if what[0] == 3:
            raise KeyError("mine")

    async with open_client(server) as client:
        with pytest.raises(KeyError, match="mine"):
            await client.call_tool("endless", on_progress=complain)
        await wait_all_tasks_blocked()
        assert events == ["stopped"]
        assert (await client.call_tool("steps", {"count": 0})).text == "done"


async def test_a_slow_callback_delays_its_own_call_only_and_keeps_the_latest(autojump_clock: MockClock) -> None:
    server, _ = make()
    heard: list[float] = []

    async def dawdle(progress: float, total: float | None, message: str | None) -> None:
        await trio.sleep(1)
        heard.append(progress)

    async with open_client(server, limits=Limits(client_events=10)) as client, trio.open_nursery() as nursery:
        nursery.start_soon(lambda: client.call_tool("steps", {"count": 500}, on_progress=dawdle))
        await wait_all_tasks_blocked()
        before = trio.current_time()
        assert (await client.call_tool("steps", {"count": 1})).text == "done"
        assert trio.current_time() == before
    assert len(heard) <= 12
    assert heard[-1] == 499


# -- cancellation and time


async def test_leaving_a_scope_around_a_call_stops_the_tool(autojump_clock: MockClock) -> None:
    server, events = make()
    async with open_client(server) as client:
        with trio.move_on_after(2) as scope:
            await client.call_tool("slow", {"seconds": 60})
        assert scope.cancelled_caught
        await wait_all_tasks_blocked()
        assert events == ["start", "end"]
        assert trio.current_time() == pytest.approx(2)
        assert (await client.call_tool("steps", {"count": 0})).text == "done"


async def test_a_call_has_a_timeout_of_its_own(autojump_clock: MockClock) -> None:
    server, events = make()
    async with open_client(server, limits=Limits(client_timeout=5)) as client:
        with pytest.raises(RequestTimeout, match=r"^tools/call: no answer from test within 5 s$"):
            await client.call_tool("slow", {"seconds": 60})
        with pytest.raises(RequestTimeout, match="within 2 s"):
            await client.call_tool("slow", {"seconds": 60}, timeout=2)
        await wait_all_tasks_blocked()
        assert sorted(events) == ["end", "end", "start", "start"]
        assert trio.current_time() == pytest.approx(7)


async def test_leaving_the_client_stops_what_it_started(autojump_clock: MockClock) -> None:
    server, events = make()
    async with open_server(server) as running, trio.open_nursery() as nursery, open_client(running) as client:
        nursery.start_soon(ignore_closed, client.call_tool("slow", {"seconds": 60}))
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert events == ["start", "end"]


async def ignore_closed(call: Any) -> None:
    try:
        await call
    except ConnectionClosed:
        pass


async def test_a_late_answer_is_nobodys(autojump_clock: MockClock) -> None:
    asked: list[Any] = []

    def reply(message: dict[str, Any]) -> Any:
        asked.append(message)
        if message["method"] == "notifications/cancelled":
            # The answer was on its way already.
            return [result(asked[1], content=[])]
        if message["method"] == "tools/call" and len(asked) > 2:
            return [result(message, content=[{"type": "text", "text": "second"}])]
        return None if message["method"] == "server/discover" else []

    async with scripted(reply) as stream, open_client(stream) as client:
        with trio.move_on_after(1):
            await client.call_tool("a")
        assert (await client.call_tool("b")).text == "second"
    assert [message["method"] for message in asked] == [
        "server/discover",
        "tools/call",
        "notifications/cancelled",
        "tools/call",
    ]
    assert asked[2]["params"]["requestId"] == asked[1]["id"]
    assert len({message["id"] for message in asked if "id" in message}) == 3


# -- what a server may send


async def test_a_word_before_an_answer_is_reported_by_the_timeout(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    def reply(message: dict[str, Any]) -> Any:
        if message["method"] != "tools/call":
            return None
        if message["params"]["name"] == "good":
            return [result(message, content=[])]
        return [b"starting up" + json.dumps(result(message, content=[])).encode() + b"\n"]

    async with scripted(reply) as stream, open_client(stream) as client:
        with pytest.raises(RequestTimeout, match='wrote a line that is no message: "starting up'):
            await client.call_tool("bad", timeout=3)
        assert await client.call_tool("good") == CallToolResult(())
    assert "starting up" in caplog.text


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ({"resultType": "input_required", "_meta": {}, "inputRequests": {}, "content": []}, "input_required"),
        ({"resultType": "mystery", "content": []}, "mystery"),
        ({"resultType": None, "content": []}, "null"),
        ({"resultType": "complete"}, "must have content"),
        ({"resultType": "complete", "content": [{"type": "smell"}]}, "smell"),
        ({"resultType": "complete", "content": [{"type": "image", "data": "?", "mimeType": "a/b"}]}, "base64"),
    ],
)
async def test_a_result_is_told_by_its_type_alone(value: Any, error: str) -> None:
    def reply(message: dict[str, Any]) -> Any:
        if message["method"] != "tools/call":
            return None
        return [{"jsonrpc": "2.0", "id": message["id"], "result": value}]

    async with scripted(reply) as stream, open_client(stream) as client:
        with pytest.raises(InvalidResponse, match=error):
            await client.call_tool("a")


async def test_each_round_carries_the_state_of_the_last_result_and_no_other() -> None:
    ask = {"method": "elicitation/create", "params": {"mode": "form", "message": "?", "requestedSchema": {}}}
    results: list[dict[str, Any]] = [
        {"resultType": "input_required", "requestState": "one", "inputRequests": {"a": ask}},
        {"resultType": "input_required", "inputRequests": {"b": ask}},
        {"resultType": "input_required", "requestState": "three"},
        {"resultType": "complete", "content": []},
    ]
    sent: list[dict[str, Any]] = []

    def reply(message: dict[str, Any]) -> Any:
        if message["method"] != "tools/call":
            return None
        sent.append(message["params"])
        return [{"jsonrpc": "2.0", "id": message["id"], "result": results[len(sent) - 1]}]

    async with scripted(reply) as stream, open_client(stream, on_elicit=lambda params: False) as client:
        await client.call_tool("x")
    assert [params.get("requestState") for params in sent] == [None, "one", None, "three"]
    assert [list(params.get("inputResponses", ())) for params in sent] == [[], ["a"], ["b"], []]


async def test_what_a_channel_adds_to_one_round_is_not_in_the_next() -> None:
    seen: list[dict[str, Any]] = []

    class Adding(Channel):
        peer = "a channel"

        async def call(self, method: str, params: dict[str, Any], listener: Listener) -> dict[str, Any]:
            await trio.lowlevel.checkpoint()
            seen.append(dict(params["_meta"]))
            params["_meta"]["progressToken"] = len(seen)
            return {"resultType": "input_required" if len(seen) < 3 else "complete", "requestState": "x"}

    await Client(Adding(), info={"name": "test", "version": "1"}, limits=Limits()).request("x/y")
    assert seen[0] == seen[1] == seen[2]
    assert "progressToken" not in seen[0]


@pytest.mark.parametrize(("info", "known"), [({"name": "s"}, {"name": "s"}), ("s", {}), (["s"], {}), (None, {})])
async def test_a_server_that_does_not_say_properly_who_it_is_has_no_name(info: Any, known: dict[str, Any]) -> None:
    def reply(message: dict[str, Any]) -> Any:
        return [result(message, **{**DISCOVERY, "_meta": {"io.modelcontextprotocol/serverInfo": info}})]

    async with scripted(reply) as stream, open_client(stream) as client:
        assert client.server_info == known


async def test_a_missing_result_type_means_complete() -> None:
    def reply(message: dict[str, Any]) -> Any:
        if message["method"] != "tools/call":
            return None
        return [{"jsonrpc": "2.0", "id": message["id"], "result": {"content": [], "inputRequests": {}}}]

    async with scripted(reply) as stream, open_client(stream) as client:
        assert (await client.call_tool("a")).content == ()


async def test_an_empty_cursor_is_a_page_and_a_missing_or_null_one_is_the_end() -> None:
    tool = {"inputSchema": {"type": "object"}}
    pages = {
        None: {"tools": [{"name": "a", **tool}], "nextCursor": ""},
        "": {"tools": [{"name": "b", **tool}], "nextCursor": "c"},
        "c": {"tools": [{"name": "c", **tool}], "nextCursor": None},
    }

    def reply(message: dict[str, Any]) -> Any:
        if message["method"] == "prompts/list":
            return [{"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no prompts"}}]
        if message["method"] != "tools/list":
            return None
        return [result(message, **pages[message["params"].get("cursor")])]

    async with scripted(reply) as stream, open_client(stream) as client:
        assert [item.name for item in await client.list_tools()] == ["a", "b", "c"]
        assert await client.list_prompts() == []


async def test_a_server_that_repeats_its_cursor_is_left() -> None:
    def reply(message: dict[str, Any]) -> Any:
        return [result(message, tools=[], nextCursor="x")] if message["method"] == "tools/list" else None

    async with scripted(reply) as stream, open_client(stream, limits=Limits(client_pages=7)) as client:
        with pytest.raises(InvalidResponse, match="more than 7 pages"):
            await client.list_tools()


@pytest.mark.parametrize("code", [-32601, -32602, -32600])
async def test_a_server_of_the_old_era_is_named_as_one(code: int) -> None:
    def reply(message: dict[str, Any]) -> Any:
        return [{"jsonrpc": "2.0", "id": message["id"], "error": {"code": code, "message": "what?"}}]

    async with scripted(reply) as stream:
        with pytest.raises(LegacyServer, match=r"only revisions before 2026-07-28.*what\?"):
            async with open_client(stream, eras=["modern"]):
                raise AssertionError("opened")


@pytest.mark.parametrize("refuses", [True, False])
async def test_a_server_without_a_common_version_is_none_of_the_old_era(refuses: bool) -> None:
    asked: list[str] = []

    def newer(message: dict[str, Any]) -> Any:
        asked.append(message["method"])
        error = {"code": -32022, "message": "no", "data": {"supported": ["2030-01-01"], "requested": "2026-07-28"}}
        if refuses:
            return [{"jsonrpc": "2.0", "id": message["id"], "error": error}]
        return [result(message, **{**DISCOVERY, "supportedVersions": ["2030-01-01"]})]

    async with scripted(newer) as stream:
        with pytest.raises(UnsupportedVersion, match="2030-01-01"):
            async with open_client(stream):
                raise AssertionError("opened")
    assert asked == ["server/discover"]


async def test_silence_ends_the_opening(autojump_clock: MockClock) -> None:
    async with scripted(lambda message: []) as stream:
        with pytest.raises(RequestTimeout, match=r"(server/discover|initialize): no answer from the stream within 4 s"):
            async with open_client(stream, connect_timeout=4):
                raise AssertionError("opened")
    assert trio.current_time() == pytest.approx(4)


async def test_the_end_of_the_connection_fails_every_call_at_once_and_each_later_one() -> None:
    def reply(message: dict[str, Any]) -> Any:
        if message["method"] != "tools/call":
            return None
        return [b"EOF"] if message["params"]["name"] == "last" else []

    async with scripted(reply) as stream, open_client(stream) as client:
        failed: list[str] = []

        async def call(name: str) -> None:
            with pytest.raises(ConnectionClosed) as caught:
                await client.call_tool(name)
            failed.append(str(caught.value))

        async with trio.open_nursery() as nursery:
            for name in ("first", "second"):
                nursery.start_soon(call, name)
            await wait_all_tasks_blocked()
            nursery.start_soon(call, "last")
        await call("later")
    assert failed == ["the stream closed the connection"] * 4


async def test_parameters_that_are_not_json_are_refused_here() -> None:
    server, _ = make()
    async with open_client(server) as client:
        with pytest.raises(ValueError, match=r"\$\.arguments\.x: set is not a JSON value"):
            await client.call_tool("steps", {"x": {1}})
        with pytest.raises(ValueError, match="no level 'loud'"):
            await client.call_tool("steps", log_level="loud")


# -- opening and closing


async def test_what_is_no_target_is_refused_with_what_was_expected() -> None:
    with pytest.raises(
        TypeError, match="expected a URL, a Server, a StdioCommand, the path of a Python file or a stream, got 3"
    ):
        async with open_client(3):  # type: ignore[arg-type]
            pass
    with pytest.raises(ValueError, match="'ftp://h/mcp' is no URL of a server"):
        async with open_client("ftp://h/mcp"):
            pass
    with pytest.raises(TypeError, match="headers are for URLs"):
        async with open_client(make()[0], headers={"a": "b"}):
            pass
    with pytest.raises(ConnectionClosed, match=r"there is no file 'nowhere\.py'"):
        async with open_client("nowhere.py"):
            pass


async def test_blocks_left_out_of_order_fail_at_once_and_are_closed() -> None:
    one, two = open_client(make()[0]), open_client(make()[0])
    before = list(trio.lowlevel.current_task().child_nurseries)
    await one.__aenter__()
    client = await two.__aenter__()
    with pytest.raises(RuntimeError, match=r"was left before a block inside it.*connect_client\(nursery, target\)"):
        await one.__aexit__(None, None, None)
    # Both are closed, in order: no nursery is left open, and leaving the other one is no error.
    assert trio.lowlevel.current_task().child_nurseries == before
    with pytest.raises(ConnectionClosed):
        await client.call_tool("steps", {"count": 0})
    await two.__aexit__(None, None, None)


async def test_a_block_left_inside_a_nursery_fails_at_once_and_can_still_be_left_in_order() -> None:
    one = open_client(make()[0])
    client = await one.__aenter__()
    async with trio.open_nursery():
        with pytest.raises(RuntimeError, match="was left before a block inside it"):
            await one.__aexit__(None, None, None)
        assert (await client.call_tool("steps", {"count": 0})).text == "done"
    await one.__aexit__(None, None, None)


async def test_a_block_left_in_another_task_fails_at_once() -> None:
    manager = open_client(make()[0])
    await manager.__aenter__()
    failed: list[RuntimeError] = []

    async def leave() -> None:
        try:
            await manager.__aexit__(None, None, None)
        except RuntimeError as exc:
            failed.append(exc)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(leave)
    assert "in another task than it was entered in" in str(failed[0])
    await manager.__aexit__(None, None, None)
    with pytest.raises(RuntimeError, match="was entered already"):
        await manager.__aenter__()


async def test_connected_clients_close_in_any_order_from_any_task() -> None:
    async with trio.open_nursery() as nursery:
        one = await connect_client(nursery, make()[0])
        two = await connect_client(nursery, make()[0])
        await one.aclose()
        await one.aclose()
        assert (await two.call_tool("steps", {"count": 0})).text == "done"
        with pytest.raises(ConnectionClosed):
            await one.call_tool("steps", {"count": 0})
        async with trio.open_nursery() as inner:
            inner.start_soon(two.aclose)


async def test_a_client_that_cannot_connect_leaves_the_nursery_alone() -> None:
    async with trio.open_nursery() as nursery:
        with pytest.raises(ConnectionClosed, match="there is no file"):
            await connect_client(nursery, "nowhere.py")
        client = await connect_client(nursery, make()[0])
        assert (await client.call_tool("steps", {"count": 0})).text == "done"
        await client.aclose()


async def test_an_error_of_the_body_comes_out_as_itself() -> None:
    with pytest.raises(KeyError, match="mine") as caught:
        async with open_client(make()[0]):
            raise KeyError("mine")
    assert not isinstance(caught.value, BaseExceptionGroup)
    with pytest.raises(InvalidParams):
        async with open_client(make()[0]) as client:
            await client.call_tool("nope")


async def test_a_server_is_open_once_and_shared_when_it_was_opened() -> None:
    server, _ = make()
    async with open_client(server):
        with pytest.raises(MCPError, match="is open already; to serve it in several ways at once"):
            async with open_client(server):
                pass
    async with open_server(server) as running, open_client(running) as one, open_client(running) as two:
        assert one.server_info == two.server_info == {"name": "test", "version": "1"}
    async with open_client(server) as client:
        assert client.protocol_version == "2026-07-28"


async def test_a_failing_lifespan_comes_out_as_itself() -> None:
    @asynccontextmanager
    async def lifespan(server: Any) -> AsyncIterator[None]:
        raise OSError("no database")
        yield

    with pytest.raises(OSError, match="no database"):
        async with open_client(Server("s", lifespan=lifespan)):
            pass


async def test_serving_a_byte_stream_inside_a_program() -> None:
    server, _ = make()
    ours, theirs = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        await nursery.start(serve_stream, server, theirs)
        async with open_client(ours) as client:
            assert (await client.call_tool("steps", {"count": 0})).text == "done"


async def test_a_callback_sees_the_context_of_its_call() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    server, _ = make()
    seen: list[str] = []

    async with open_client(server) as client:

        async def call(value: str) -> None:
            variable.set(value)
            await client.call_tool("steps", {"count": 1}, on_progress=lambda *what: seen.append(variable.get()))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, "a")
            nursery.start_soon(call, "b")
    assert sorted(seen) == ["a", "b"]


async def test_trace_context_arrives() -> None:
    server = Server("s")

    @server.tool
    async def trace(ctx: Context) -> dict[str, str]:
        return ctx.trace_context

    async with open_client(server, name="tracer", client_version="9") as client:
        answer = await client.call_tool("trace", meta={"traceparent": "00-0-0-01", "tracestate": 3, "x/y": "z"})
    assert answer.data == {"traceparent": "00-0-0-01"}
