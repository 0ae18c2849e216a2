"""A connection of lines, seen from the wire, in virtual time."""

from __future__ import annotations

import contextvars
import json
import logging
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_mcp import Context, Limits, Server, ToolError
from trio_mcp.scopes.call import ENDING
from trio_mcp.server.serve.engine import open_engine
from trio_mcp.testing import RawPeer, modern_meta, open_raw, request

from .model import add_swaps


class Log:
    """What the handlers of a test server went through."""

    def __init__(self) -> None:
        self.events: list[Any] = []


def make(**options: Any) -> tuple[Server[Any], Log]:
    server = Server("test", version="1", **options)
    log = Log()

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def slow(seconds: float, ctx: Context) -> str:
        log.events.append(("start", ctx.request_id))
        try:
            await trio.sleep(seconds)
        finally:
            log.events.append(("end", ctx.request_id))
        return "slept"

    @server.tool
    async def steps(count: int, ctx: Context) -> str:
        for step in range(count):
            await ctx.report_progress(step, total=count)
        return "done"

    @server.tool
    async def fails() -> str:
        raise ToolError("for the model")

    return server, log


def call(id: Any, tool: str, meta: dict[str, Any] | None = None, **arguments: Any) -> dict[str, Any]:
    return request(id, "tools/call", name=tool, arguments=arguments, meta=meta)


def text_of(message: dict[str, Any]) -> str:
    text: str = message["result"]["content"][0]["text"]
    return text


# -- messages


@pytest.mark.parametrize("id", ["1", 1, "01", "", -5, 0, 9007199254740993, "é", "x" * 256])
async def test_an_id_comes_back_with_the_same_value_and_type(id: Any) -> None:
    server, _ = make()
    async with open_raw(server) as peer:
        await peer.send(call(id, "echo", text="hi"))
        answer = await peer.receive()
    assert (answer["id"], type(answer["id"])) == (id, type(id))
    assert text_of(answer) == "hi"


@pytest.mark.parametrize("id", [None, 1.5, True, [], {}, "x" * 257, "x" * 4_097, 2**63])
async def test_a_wrong_id_is_an_invalid_request_and_runs_nothing(id: Any) -> None:
    server, log = make()
    async with open_raw(server) as peer:
        await peer.send(call(id, "slow", seconds=1), call(2, "echo", text="next"))
        refused, answered = await peer.receive(), await peer.receive()
    assert refused["error"]["code"] == -32600
    # One that is only out of bounds is echoed, for its sender waits for it.
    assert refused.get("id") == (id if id in ("x" * 257, 2**63) else None)
    assert text_of(answered) == "next"
    assert log.events == []


async def test_what_is_not_utf8_or_not_json_is_a_parse_error_and_the_next_message_is_served() -> None:
    server, _ = make()
    damaged = json.dumps(call(1, "echo", text="caf@")).encode().replace(b"@", b"\xe9")
    async with open_raw(server) as peer:
        await peer.send_bytes(
            b"\xc3\x28\n" + damaged + b"\n{\n[]\n" + json.dumps(call(2, "echo", text="good")).encode() + b"\n"
        )
        answers = [await peer.receive() for _ in range(5)]
    assert [answer.get("error", {}).get("code") for answer in answers] == [-32700, -32700, -32700, -32600, None]
    assert all("id" not in answer for answer in answers[:4])
    assert text_of(answers[4]) == "good"


async def test_arguments_of_the_wrong_shape_are_protocol_errors_with_their_ids() -> None:
    server, _ = make()
    async with open_raw(server) as peer:
        await peer.send(
            request(1, "tools/call", name="echo", arguments='{"text": 1}'),
            {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": []},
            request(3, "tools/call", name="echo", arguments=[]),
            call(4, "echo", text="good"),
        )
        answers = [await peer.receive() for _ in range(4)]
    assert [(answer["id"], answer.get("error", {}).get("code")) for answer in answers] == [
        (1, -32602),
        (2, -32602),
        (3, -32602),
        (4, None),
    ]
    assert answers[0]["error"]["message"] == (
        'Invalid params for tools/call: arguments must be object or null, got "{\\"text\\": 1}"'
    )


@pytest.mark.parametrize("text", ["a\u2028b\u2029c\u0085d", "\u000b\u000c\u001c", "emoji \U0001f600", "a\r\nb"])
async def test_line_ends_of_unicode_are_text(text: str) -> None:
    server, _ = make()
    body = json.dumps(call(1, "echo", text=text), ensure_ascii=False).replace("\r\n", "\\r\\n")
    async with open_raw(server) as peer:
        await peer.send_bytes(b"\xef\xbb\xbf" + body.encode() + b"\r\n")
        line = await peer.receive_line()
    assert line is not None
    assert not line.endswith(b"\r")
    assert text_of(json.loads(line)) == text


async def test_a_line_over_the_limit_is_refused_without_being_held() -> None:
    server, _ = make(limits=Limits(message_bytes=10_000))
    async with open_raw(server) as peer:
        for _ in range(100):
            await peer.send_bytes(b"x" * 10_000)
        await peer.send_bytes(b"\n")
        await peer.send(call(1, "echo", text="next"))
        refused, answered = await peer.receive(), await peer.receive()
    assert refused == {
        "jsonrpc": "2.0",
        "error": {"code": -32600, "message": "Message too long: the limit is 10000 bytes a line"},
    }
    assert text_of(answered) == "next"


async def test_a_last_line_without_a_line_end_is_served() -> None:
    server, _ = make()
    async with open_raw(server) as peer:
        await peer.send_bytes(json.dumps(call(1, "echo", text="last")).encode())
        await peer.close_input()
        answers = await peer.receive_all()
    assert [text_of(answer) for answer in answers] == ["last"]


async def test_an_id_in_use_is_refused_until_it_is_free(autojump_clock: MockClock) -> None:
    server, _ = make()
    async with open_raw(server) as peer:
        await peer.send(call(1, "slow", seconds=1), call(1, "echo", text="twin"))
        refused, slept = await peer.receive(), await peer.receive()
        await peer.send(call(1, "echo", text="free again"))
        again = await peer.receive()
    assert refused["error"]["message"] == "Invalid request: a request with this id is still under way"
    assert (text_of(slept), text_of(again)) == ("slept", "free again")


# -- versions and metadata


async def test_without_older_revisions_initialize_is_refused_and_told_which_versions_there_are() -> None:
    server, _ = make(eras=["modern"])
    async with open_raw(server) as peer:
        await peer.send(
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
        )
        answer = await peer.receive()
    assert answer["error"]["code"] == -32022
    assert answer["error"]["data"] == {"supported": ["2026-07-28"], "requested": "2025-11-25"}
    assert "2026-07-28" in answer["error"]["message"]


async def test_an_unknown_version_is_refused_with_those_supported() -> None:
    server, _ = make()
    meta = {"io.modelcontextprotocol/protocolVersion": "1900-01-01"}
    message = request(1, "tools/list")
    message["params"]["_meta"] |= meta
    async with open_raw(server) as peer:
        await peer.send(message)
        answer = await peer.receive()
    assert (answer["error"]["code"], answer["error"]["data"]) == (
        -32022,
        {"supported": ["2026-07-28"], "requested": "1900-01-01"},
    )


@pytest.mark.parametrize(
    "key", ["io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientCapabilities"]
)
async def test_required_metadata_is_required_on_each_request(key: str) -> None:
    server, _ = make()
    message = request(1, "tools/list")
    del message["params"]["_meta"][key]
    async with open_raw(server) as peer:
        await peer.send(message)
        answer = await peer.receive()
    assert (answer["id"], answer["error"]["code"]) == (1, -32602)
    assert key in answer["error"]["message"]


async def test_a_request_without_client_info_is_served() -> None:
    server, _ = make()
    message = call(1, "echo", text="anonymous")
    del message["params"]["_meta"]["io.modelcontextprotocol/clientInfo"]
    async with open_raw(server) as peer:
        await peer.send(message)
        assert text_of(await peer.receive()) == "anonymous"


@pytest.mark.parametrize("method", ["ping", "nope", "prompts/list", "notifications/cancelled"])
async def test_a_method_that_is_not_there_is_not_found(method: str) -> None:
    server, _ = make()
    async with open_raw(server) as peer:
        await peer.send(request(1, method))
        assert (await peer.receive())["error"]["code"] == -32601


async def test_each_result_is_complete_and_names_the_server() -> None:
    server, _ = make()
    async with open_raw(server) as peer:
        for id, message in enumerate([request(0, "server/discover"), request(1, "tools/list"), call(2, "fails")]):
            await peer.send(message)
            answer = await peer.receive()
            assert answer["id"] == id
            assert answer["result"]["resultType"] == "complete"
            assert answer["result"]["_meta"] == {"io.modelcontextprotocol/serverInfo": {"name": "test", "version": "1"}}


# -- progress and log lines


async def test_progress_goes_out_before_the_answer_only_when_asked_for_and_with_the_token_as_sent() -> None:
    server, _ = make()
    async with open_raw(server) as peer:
        await peer.send(call(0, "steps", {"progressToken": 0}, count=2))
        messages = [await peer.receive() for _ in range(3)]
        await peer.send(call(1, "steps", count=2))
        silent = await peer.receive()
    assert messages[0] == {
        "jsonrpc": "2.0",
        "method": "notifications/progress",
        "params": {"progressToken": 0, "progress": 0, "total": 2},
    }
    assert messages[1]["params"]["progress"] == 1
    assert text_of(messages[2]) == text_of(silent) == "done"


@pytest.mark.parametrize("token", [True, None, 1.5, [], "x" * 257])
async def test_a_wrong_progress_token_is_refused(token: Any) -> None:
    server, _ = make()
    async with open_raw(server) as peer:
        await peer.send(call(1, "echo", {"progressToken": token}, text="x"))
        assert (await peer.receive())["error"]["code"] == -32602


# -- cancellation


async def test_a_cancel_reaches_the_handler_and_nothing_more_is_sent(autojump_clock: MockClock) -> None:
    server, log = make()
    async with open_raw(server) as peer:
        await peer.send(call(1, "slow", seconds=30))
        await trio.sleep(0.1)
        await peer.cancel(1, reason="changed my mind")
        await peer.send(request(2, "tools/list"))
        answer = await peer.receive()
        assert answer["id"] == 2
        assert trio.current_time() < 1
        assert await peer.nothing_for(60)
    assert log.events == [("start", 1), ("end", 1)]


async def test_cancels_that_name_no_running_call_are_ignored(autojump_clock: MockClock) -> None:
    server, _ = make()
    async with open_raw(server) as peer:
        await peer.send(call(1, "slow", seconds=1))
        await wait_all_tasks_blocked()
        for target in ("1", 99, None, True, 1.0, [1], {}):
            await peer.cancel(target)
        await peer.send({"jsonrpc": "2.0", "method": "notifications/cancelled"})
        await peer.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {}})
        await peer.send({"jsonrpc": "2.0", "method": "notifications/unheard", "params": {}})
        assert text_of(await peer.receive()) == "slept"
        # After the answer, and twice.
        await peer.cancel(1)
        await peer.cancel(1)
        await peer.send(call(2, "echo", text="alive"))
        assert text_of(await peer.receive()) == "alive"


async def test_a_request_and_its_cancel_in_one_piece_run_nothing(autojump_clock: MockClock) -> None:
    server, log = make()
    async with open_raw(server) as peer:
        await peer.send(
            call(1, "slow", seconds=1),
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
            call(1, "echo", text="the id is free"),
        )
        answers = [await peer.receive()]
        assert await peer.nothing_for(10)
    # Either order of the two is right; both must not be answered under one id at once.
    assert answers[0]["id"] == 1
    assert log.events == []


async def test_a_waiting_call_that_is_cancelled_leaves_the_queue(autojump_clock: MockClock) -> None:
    server, log = make(limits=Limits(connection_running=1, connection_waiting=2))
    async with open_raw(server) as peer:
        await peer.send(call(1, "slow", seconds=5), call(2, "slow", seconds=5), call(3, "echo", text="third"))
        await wait_all_tasks_blocked()
        await peer.cancel(2)
        # Its id and its place in the queue are free at once.
        await peer.send(call(2, "echo", text="second"))
        answers = [await peer.receive() for _ in range(3)]
        assert [answer["id"] for answer in answers] == [1, 3, 2]
        assert text_of(answers[2]) == "second"
        assert trio.current_time() == pytest.approx(5)
    assert [event for event in log.events if event[1] == 2] == []


async def test_a_thread_is_abandoned_and_its_answer_dropped() -> None:
    server, _ = make()
    entered, release, seen = trio.Event(), __import__("threading").Event(), []

    @server.tool
    def block(ctx: Context) -> str:
        trio.from_thread.run_sync(entered.set)
        release.wait()
        try:
            ctx.check_cancelled()
        except trio.Cancelled:
            seen.append("cancelled")
            raise
        return "too late"

    async with open_raw(server) as peer:
        await peer.send(call(1, "block"))
        await entered.wait()
        await peer.cancel(1)
        await peer.send(call(2, "echo", text="free"))
        assert text_of(await peer.receive()) == "free"
        release.set()
        await peer.send(call(3, "echo", text="still nothing"))
        assert (await peer.receive())["id"] == 3
        with trio.fail_after(20):
            while not seen:
                await trio.to_thread.run_sync(lambda: None)
    assert seen == ["cancelled"]


# -- bounds


async def test_a_full_connection_answers_busy_and_hears_everything(autojump_clock: MockClock) -> None:
    server, log = make(limits=Limits(connection_running=2, connection_waiting=3))
    async with open_raw(server, pipe=600) as peer:
        await peer.send(*[call(id, "slow", seconds=10) for id in range(20)])
        # The reader goes on at any load.
        await peer.cancel(0)
        answers = {(answer := await peer.receive())["id"]: answer for _ in range(19)}
    assert sorted(id for id, answer in answers.items() if "error" not in answer) == [1, 2, 3, 4]
    assert {answer["error"]["code"] for answer in answers.values() if "error" in answer} == {503}
    running = [0]
    for kind, _ in log.events:
        running.append(running[-1] + (1 if kind == "start" else -1))
    assert max(running) == 2
    assert trio.current_time() == pytest.approx(20)


async def test_a_thousand_calls_at_once_are_all_answered(autojump_clock: MockClock) -> None:
    server, _ = make()
    async with open_raw(server) as peer, trio.open_nursery() as nursery:
        nursery.start_soon(peer.send, *[call(id, "echo", text="hi") for id in range(1_000)])
        answers = [await peer.receive() for _ in range(1_000)]
    assert sorted(answer["id"] for answer in answers) == list(range(1_000))
    assert {text_of(answer) for answer in answers} == {"hi"}


async def test_at_any_load_a_cancel_and_the_end_of_input_are_heard(autojump_clock: MockClock) -> None:
    server, log = make()
    async with open_raw(server) as peer:
        await peer.send(*[call(id, "slow", seconds=500) for id in range(500)])
        await wait_all_tasks_blocked()
        await peer.cancel(0)
        await wait_all_tasks_blocked()
        assert ("end", 0) in log.events
        await peer.vanish()
        # A pipe tells that nobody reads it either, and the end is at once; here the drain has its time.
        with trio.fail_after(3):
            await peer.ended.wait()
    assert len([kind for kind, _ in log.events if kind == "start"]) == len(log.events) / 2 <= 10


async def test_waiting_requests_have_a_bound_in_bytes(autojump_clock: MockClock) -> None:
    server, _ = make(limits=Limits(connection_running=1, connection_waiting_bytes=5_000))
    async with open_raw(server) as peer:
        await peer.send(call(1, "slow", seconds=1), *[call(id, "echo", text="x" * 2_000) for id in (2, 3, 4)])
        answers = {(answer := await peer.receive())["id"]: answer for _ in range(4)}
    assert [id for id in (1, 2, 3, 4) if "error" in answers[id]] == [4]


async def test_a_full_server_answers_busy_on_a_connection_of_lines(autojump_clock: MockClock) -> None:
    server, _ = make(limits=Limits(running=1, waiting=1, connection_running=4))
    async with open_raw(server) as peer:
        await peer.send(*[call(id, "slow", seconds=1) for id in range(4)])
        answers = {(answer := await peer.receive())["id"]: answer for _ in range(4)}
    codes = [answers[id].get("error", {}).get("code") for id in range(4)]
    assert codes == [None, None, 503, 503]
    assert answers[2]["error"]["data"] == {"retryAfter": 1.0}


async def test_the_server_shares_its_places_between_connections(autojump_clock: MockClock) -> None:
    server, log = make(limits=Limits(running=1, waiting=5))
    async with open_engine(server) as engine, open_raw(engine) as one, open_raw(engine) as two:
        await one.send(call("one", "slow", seconds=5))
        await wait_all_tasks_blocked()
        await two.send(call("two", "slow", seconds=5), call("three", "slow", seconds=5))
        await wait_all_tasks_blocked()
        assert log.events == [("start", "one")]
        # A connection that goes away leaves the queue of the server too.
        await two.vanish()
        await two.ended.wait()
        assert (await one.receive())["id"] == "one"
        await one.send(call("four", "echo", text="mine"))
        assert text_of(await one.receive()) == "mine"
    assert [id for kind, id in log.events if kind == "start"] == ["one"]


async def test_a_call_that_waits_for_the_server_and_is_cancelled_gives_back_its_place(
    autojump_clock: MockClock,
) -> None:
    server, _ = make(limits=Limits(running=1, waiting=5, connection_running=1))
    async with open_engine(server) as engine, open_raw(engine) as one, open_raw(engine) as two:
        await one.send(call(1, "slow", seconds=5))
        await wait_all_tasks_blocked()
        await two.send(call(1, "slow", seconds=5), call(2, "echo", text="next"))
        await wait_all_tasks_blocked()
        assert engine.executor.statistics().waiting == 1
        await two.cancel(1)
        await wait_all_tasks_blocked()
        # The second call of that connection took over the place of the first, and waits for the server now.
        assert engine.executor.statistics().waiting == 1
        assert (await one.receive())["id"] == 1
        assert (await two.receive())["id"] == 2
        assert trio.current_time() == pytest.approx(5)
        assert engine.executor.statistics().running == 0


async def test_the_deadline_of_a_request_is_a_clear_error(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    server, log = make(limits=Limits(request_timeout=3))

    @server.tool(timeout=1)
    async def own() -> str:
        await trio.sleep_forever()
        return "never"

    @server.resource("slow://it")
    async def resource() -> str:
        await trio.sleep_forever()
        return "never"

    async with open_raw(server) as peer:
        await peer.send(call(1, "slow", seconds=30), call(2, "own"), request(3, "resources/read", uri="slow://it"))
        answers = {(answer := await peer.receive())["id"]: answer for _ in range(3)}
    slow_answer, own_answer, resource_answer = answers[1], answers[2], answers[3]
    assert text_of(own_answer) == "Tool 'own' did not finish within 1 s"
    assert text_of(slow_answer) == "Tool 'slow' did not finish within 3 s"
    assert own_answer["result"]["isError"] is True
    assert resource_answer["error"] == {"code": 504, "message": 'Resource "slow://it" did not finish within 3 s'}
    assert log.events == [("start", 1), ("end", 1)]
    assert len(caplog.records) == 3


@pytest.mark.parametrize("limits", [{"running": 1}, {"connection_running": 1}])
async def test_to_wait_for_a_place_takes_no_time_of_a_call(limits: dict[str, Any], autojump_clock: MockClock) -> None:
    server, _ = make(limits=Limits(request_timeout=3, **limits))
    async with open_raw(server) as peer:
        await peer.send(call(1, "slow", seconds=2), call(2, "slow", seconds=2))
        assert [text_of(await peer.receive()) for _ in range(2)] == ["slept", "slept"]


async def test_big_answers_to_a_peer_that_does_not_read_stall_nobody_else(autojump_clock: MockClock) -> None:
    server, _ = make(limits=Limits(write_buffer=100_000, connection_running=4))
    size = 300_000

    @server.tool
    async def big() -> str:
        return "x" * size

    async with open_engine(server) as engine, open_raw(engine) as deaf, open_raw(engine) as other:
        await deaf.send(*[call(id, "big") for id in range(20)], call(20, "echo", text="quick"))
        await wait_all_tasks_blocked()
        await other.send(call(1, "echo", text="unhurt"))
        assert text_of(await other.receive()) == "unhurt"
        answers = [await deaf.receive() for _ in range(21)]
    assert sorted(answer["id"] for answer in answers) == list(range(21))
    assert {len(text_of(answer)) for answer in answers} == {size, 5}


async def test_behind_a_peer_that_does_not_read_only_so_many_calls_have_run(autojump_clock: MockClock) -> None:
    server, _ = make(limits=Limits(write_buffer=10_000, connection_running=4))
    ran: list[None] = []

    @server.tool
    async def big() -> str:
        ran.append(None)
        return "x" * 30_000

    async with open_raw(server, pipe=4_000) as deaf:
        await deaf.send(*[call(id, "big") for id in range(30)])
        await trio.sleep(3)
        # None begins while an answer waits, and each keeps its place until its answer has room.
        assert 1 <= len(ran) <= 4
        await deaf.vanish()


async def test_nothing_begins_while_an_answer_waits(autojump_clock: MockClock) -> None:
    server, log = make(limits=Limits(write_buffer=10_000))

    @server.tool
    async def big() -> str:
        return "x" * 30_000

    async with open_raw(server, pipe=4_000) as peer:
        await peer.send(call(1, "big"))
        await wait_all_tasks_blocked()
        await peer.send(call(2, "slow", seconds=0))
        await wait_all_tasks_blocked()
        assert log.events == []
        assert [(await peer.receive())["id"] for _ in range(2)] == [1, 2]


async def test_a_peer_that_does_not_read_is_held_back_when_it_listens(autojump_clock: MockClock) -> None:
    server, _ = make(limits=Limits(write_buffer=10_000))

    @server.resource("x://{name}")
    async def resource(name: str) -> str:
        return name

    # What is watched comes back in the acknowledgement, so each of these is worth thirty of its kind.
    wanted = {"resourceSubscriptions": [f"x://{'x' * 1_000}/{number}" for number in range(20)]}
    async with open_raw(server, pipe=4_000) as deaf:
        for id in range(16):
            await deaf.send(request(id, "subscriptions/listen", notifications=wanted))
        await trio.sleep(3)
        assert len(server.notices) <= 2
        await deaf.vanish()


# -- the end


async def test_the_end_of_input_lets_running_calls_finish_within_the_drain_time(autojump_clock: MockClock) -> None:
    server, log = make(limits=Limits(drain_timeout=2))
    async with open_raw(server) as peer:
        await peer.send(call(1, "slow", seconds=1), call(2, "slow", seconds=30))
        await wait_all_tasks_blocked()
        await peer.close_input()
        answers = await peer.receive_all()
        await peer.ended.wait()
    assert [answer["id"] for answer in answers] == [1, 2]
    assert answers[1]["error"] == {"code": 504, "message": ENDING}
    assert trio.current_time() == pytest.approx(2)
    assert sorted(log.events) == [("end", 1), ("end", 2), ("start", 1), ("start", 2)]


async def test_an_idle_connection_ends_at_once(autojump_clock: MockClock) -> None:
    server, _ = make()
    async with open_raw(server) as peer:
        await peer.send(call(1, "echo", text="x"))
        await peer.receive()
        await peer.close_input()
        await peer.ended.wait()
        assert trio.current_time() < 0.1
    async with open_raw(server) as peer:
        await wait_all_tasks_blocked()
        peer.serving.cancel()
        await peer.ended.wait()
        assert trio.current_time() < 0.1


async def test_cancelling_the_scope_around_the_serving_drains_too(autojump_clock: MockClock) -> None:
    server, log = make(limits=Limits(drain_timeout=2))
    async with open_raw(server) as peer:
        await peer.send(call(1, "slow", seconds=1), call(2, "slow", seconds=30))
        await wait_all_tasks_blocked()
        peer.serving.cancel()
        await wait_all_tasks_blocked()
        # What arrives after the end is not served.
        await peer.send(call(3, "echo", text="too late"))
        answers = await peer.receive_all()
        await peer.ended.wait()
    assert [answer["id"] for answer in answers] == [1, 2]
    assert answers[1]["error"] == {"code": 504, "message": ENDING}
    assert trio.current_time() == pytest.approx(2)
    assert ("end", 2) in log.events


async def test_a_second_end_gives_no_more_time(autojump_clock: MockClock) -> None:
    server, _ = make(limits=Limits(drain_timeout=2))
    async with open_raw(server) as peer:
        await peer.send(call(1, "slow", seconds=30))
        await wait_all_tasks_blocked()
        await peer.close_input()
        await trio.sleep(1.5)
        peer.serving.cancel()
        await peer.ended.wait()
    assert trio.current_time() == pytest.approx(2)


@pytest.mark.parametrize("limits", [{"running": 1}, {"connection_running": 1}])
async def test_a_place_that_comes_free_when_the_time_of_the_drain_is_over_starts_nothing(
    limits: dict[str, Any], autojump_clock: MockClock
) -> None:
    server, log = make(limits=Limits(drain_timeout=2, **limits))
    async with open_raw(server) as peer:
        await peer.send(call(1, "slow", seconds=30), call(2, "slow", seconds=30))
        await wait_all_tasks_blocked()
        await peer.close_input()
        await peer.ended.wait()
    assert log.events == [("start", 1), ("end", 1)]


async def test_a_peer_that_is_gone_cancels_everything_at_once(autojump_clock: MockClock) -> None:
    server, log = make(limits=Limits(drain_timeout=100))

    @server.tool
    async def talks(ctx: Context) -> str:
        try:
            for step in range(1000):
                await ctx.report_progress(step)
                await trio.sleep(1)
        finally:
            log.events.append("talks ended")
        return "never heard"

    async with open_raw(server) as peer:
        await peer.send(call(1, "slow", seconds=1000), call(2, "talks", {"progressToken": 1}))
        await peer.receive()
        await peer.vanish()
        await peer.ended.wait()
    assert trio.current_time() < 5
    assert "talks ended" in log.events
    assert ("end", 1) in log.events


async def test_the_lifespan_is_entered_before_the_first_request_and_left_after_the_last(
    autojump_clock: MockClock,
) -> None:
    from contextlib import asynccontextmanager

    events: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Any) -> Any:
        events.append("enter")
        try:
            yield {"db": 1}
        finally:
            events.append("leave")

    server: Server[dict[str, int]] = Server("test", lifespan=lifespan)

    @server.tool
    async def use(ctx: Context[dict[str, int]]) -> int:
        events.append("use")
        await trio.sleep(1)
        events.append("used")
        return ctx.lifespan["db"]

    async with open_engine(server) as engine, open_raw(engine) as one, open_raw(engine) as two:
        await one.send(call(1, "use"))
        await two.send(call(1, "use"))
        assert text_of(await one.receive()) == text_of(await two.receive()) == "1"
    assert events == ["enter", "use", "use", "used", "used", "leave"]


async def test_unexpected_errors_are_masked_logged_and_survived(caplog: pytest.LogCaptureFixture) -> None:
    server, _ = make()

    @server.tool
    async def leak() -> str:
        raise RuntimeError("postgres://u:p@h/db")

    @server.tool
    async def leave() -> str:
        raise SystemExit(3)

    @server.tool
    async def group() -> str:
        raise ExceptionGroup("two", [ValueError("a"), KeyError("b")])

    @server.tool
    def thread() -> str:
        raise RuntimeError("in a thread")

    @server.resource("x://leak")
    async def resource() -> str:
        raise RuntimeError("postgres://u:p@h/db")

    @server.prompt
    async def prompt() -> str:
        raise RuntimeError("postgres://u:p@h/db")

    async with open_raw(server) as peer:
        for tool in ("leak", "leave", "group", "thread"):
            caplog.clear()
            await peer.send(call(1, tool))
            answer = await peer.receive()
            assert answer["result"]["isError"] is True
            mark = text_of(answer).removeprefix(f"Internal error in tool {tool!r} (error id ").removesuffix(")")
            assert len(mark) == 8
            (record,) = caplog.records
            assert mark in record.getMessage()
            assert record.exc_info is not None
        for message in (request(2, "resources/read", uri="x://leak"), request(3, "prompts/get", name="prompt")):
            await peer.send(message)
            error = (await peer.receive())["error"]
            assert error["code"] == -32603
            assert "postgres" not in error["message"]
        await peer.send(call(4, "echo", text="alive"))
        assert text_of(await peer.receive()) == "alive"


async def group() -> None:
    """Tasks that wait, of which one fails when it is cancelled."""

    async def fail_in_cleanup() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("clean-up failed")

    async with trio.open_nursery() as inner:
        inner.start_soon(fail_in_cleanup)
        inner.start_soon(trio.sleep_forever)


async def test_a_cancelled_group_is_not_turned_into_an_answer(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    server, _ = make()
    caplog.set_level(logging.ERROR)

    @server.tool
    async def nursery() -> str:
        await group()
        return "never"

    async with open_raw(server) as peer:
        await peer.send(call(1, "nursery"))
        await wait_all_tasks_blocked()
        await peer.cancel(1)
        assert await peer.nothing_for(10)
        await peer.send(call(2, "echo", text="alive"))
        assert text_of(await peer.receive()) == "alive"
    assert "nursery" in caplog.text


async def test_a_group_at_the_deadline_does_not_hide_it(autojump_clock: MockClock) -> None:
    server, _ = make()

    @server.tool(timeout=1)
    async def nursery() -> None:
        await group()

    async with open_raw(server) as peer:
        await peer.send(call(1, "nursery"))
        assert text_of(await peer.receive()) == "Tool 'nursery' did not finish within 1 s"


async def test_context_variables_do_not_pass_from_call_to_call() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
    # A call that waits is begun by the one that makes room.
    server, _ = make(limits=Limits(connection_running=2))

    add_swaps(server, variable)
    variable.set("outer")
    async with open_raw(server) as peer:
        await peer.send(*[call(id, "swap_in_thread" if id % 4 else "swap", value=f"of {id}") for id in range(20)])
        answers = [text_of(await peer.receive()) for _ in range(20)]
    assert answers == ["outer"] * 20


async def test_plain_functions_run_side_by_side_and_block_nobody() -> None:
    import threading

    server, _ = make()
    barrier = threading.Barrier(4)

    @server.tool
    def meet() -> str:
        # Passes only when three calls and the test are inside at the same time.
        barrier.wait(10)
        return "met"

    async with open_raw(server) as peer:
        await peer.send(*[call(id, "meet") for id in range(3)], call(3, "echo", text="quick"))
        assert text_of(await peer.receive()) == "quick"
        await trio.to_thread.run_sync(barrier.wait, 10)
        assert [text_of(await peer.receive()) for _ in range(3)] == ["met"] * 3


async def test_a_malformed_notification_is_not_answered(autojump_clock: MockClock) -> None:
    server, _ = make()
    async with open_raw(server) as peer:
        await peer.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": [1]})
        await peer.send({"jsonrpc": "2.0", "method": "notifications/anything", "params": "x"})
        assert await peer.nothing_for(1)


async def test_responses_of_a_client_are_ignored() -> None:
    server, _ = make()
    async with open_raw(server) as peer:
        await peer.send(
            {"jsonrpc": "2.0", "id": 1, "result": {}}, {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "x"}}
        )
        await peer.send(call(2, "echo", text="alive"))
        assert text_of(await peer.receive()) == "alive"


def test_the_peer_of_the_tests_sends_what_a_client_would() -> None:
    meta = modern_meta(traceparent="00-x")
    assert set(meta) == {
        "traceparent",
        "io.modelcontextprotocol/protocolVersion",
        "io.modelcontextprotocol/clientInfo",
        "io.modelcontextprotocol/clientCapabilities",
    }
    assert isinstance(RawPeer, type)
