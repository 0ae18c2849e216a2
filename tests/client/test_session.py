"""Sessions with servers of the older revisions, over HTTP and over lines, in virtual time."""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import httpx2
import pytest
import trio
from trio.testing import MockClock

from trio_mcp import ConnectionClosed, HttpError, InvalidResponse, Limits, MethodNotFound, ProtocolError, RequestTimeout

from .legacy_peers import (
    EXIT,
    TEXT,
    EventStream,
    Seen,
    Web,
    answer,
    error,
    hello,
    lines,
    notification,
    old,
    question,
    silence,
    until,
)

PROGRESS = "notifications/progress"


async def gathered(*calls: Callable[[], Awaitable[Any]]) -> list[Any]:
    """What each gives or raises."""
    outcomes: list[Any] = [None] * len(calls)

    async def run(index: int) -> None:
        try:
            outcomes[index] = await calls[index]()
        except Exception as exc:
            outcomes[index] = exc

    async with trio.open_nursery() as nursery:
        for index in range(len(calls)):
            nursery.start_soon(run, index)
    return outcomes


# -- a session that is lost


@pytest.mark.parametrize("status", [404, 400])
async def test_one_new_session_for_all_calls_that_have_lost_the_old_one(status: int, autojump_clock: MockClock) -> None:
    web = Web()
    web.lost = status
    web.replies["tools/call"] = lambda seen: TEXT
    async with web.client() as client:
        web.sessions.clear()
        outcomes = await gathered(*[lambda: client.call_tool("a")] * 5)
        assert [outcome.text for outcome in outcomes] == ["done"] * 5
        assert len(web.of("initialize")) == 2
        assert web.of("initialize")[1].session is None
        assert web.of("initialize")[1].headers.get("mcp-protocol-version") is None
        assert [seen.session for seen in web.of("tools/call")] == ["s1"] * 5 + ["s2"] * 5
        assert len(web.of("notifications/initialized")) == 2


async def test_a_second_refusal_is_an_error(autojump_clock: MockClock) -> None:
    web = Web()
    async with web.client() as client:
        web.replies["tools/call"] = lambda seen: 404
        with pytest.raises(HttpError, match="answered 404"):
            await client.call_tool("a")
        assert len(web.of("tools/call")) == 2
        assert len(web.of("initialize")) == 2


async def test_a_late_refusal_of_the_old_session_changes_nothing(autojump_clock: MockClock) -> None:
    web = Web()
    go = trio.Event()

    async def slow(seen: Seen) -> Any:
        if seen.session == "s1" and seen.message["params"]["name"] == "late":
            await go.wait()
        return TEXT if seen.session in web.sessions else 404

    web.replies["tools/call"] = slow
    async with web.client() as client, trio.open_nursery() as nursery:
        nursery.start_soon(client.call_tool, "late")
        await until(lambda: web.of("tools/call"))
        web.sessions.clear()
        await client.call_tool("a")
        go.set()
        await until(lambda: len(web.of("tools/call")) == 4)
        await client.call_tool("b")
        assert len(web.of("initialize")) == 2
        assert web.of("tools/call")[-1].session == "s2"


async def test_a_caller_that_leaves_does_not_take_the_new_session_with_it(autojump_clock: MockClock) -> None:
    web = Web()

    async def slow(seen: Seen) -> Any:
        await trio.sleep(5)
        return hello()

    async with web.client() as client:
        web.sessions.clear()
        web.replies["initialize"] = slow
        with pytest.raises(RequestTimeout):
            await client.request("ping", timeout=1)
        await client.request("ping")
        assert len(web.of("initialize")) == 2
        assert len(web.of("notifications/initialized")) == 2


async def test_a_new_session_that_cannot_be_opened_is_tried_again_by_the_next_call(autojump_clock: MockClock) -> None:
    web = Web()
    async with web.client() as client:
        web.sessions.clear()
        web.replies["initialize"] = lambda seen: httpx2.ConnectError("down")
        for outcome in await gathered(*[lambda: client.request("ping")] * 3):
            assert isinstance(outcome, ConnectionClosed)
        assert len(web.of("initialize")) == 2
        web.replies["initialize"] = silence
        with pytest.raises(RequestTimeout, match="no new session from http://server/mcp within 30 s"):
            await client.request("ping")
        del web.replies["initialize"]
        await client.request("ping")


async def test_a_new_session_knows_what_the_old_one_was_told(autojump_clock: MockClock) -> None:
    web = Web()
    web.replies["tools/call"] = lambda seen: TEXT
    async with web.client() as client, client.listen(uris=["a://b", "a://c"]):
        await client.call_tool("a", on_log=print, log_level="warning")
        web.sessions.clear()
        web.replies["resources/subscribe"] = lambda seen: error(-32602) if "b" in str(seen.message) else {}
        await client.call_tool("a", on_log=print, log_level="warning")
        assert [seen.message["params"]["uri"] for seen in web.of("resources/subscribe")] == ["a://b", "a://c"] * 2
        assert [seen.session for seen in web.of("logging/setLevel")] == ["s1", "s2"]


async def test_an_error_of_the_call_itself_costs_no_session(autojump_clock: MockClock) -> None:
    web = Web()
    web.replies["tools/call"] = lambda seen: error(-32602, "unknown tool")
    async with web.client() as client:
        with pytest.raises(ProtocolError, match="unknown tool"):
            await client.call_tool("a")
    assert len(web.of("initialize")) == 1


# -- streams of calls


async def test_a_stream_is_taken_up_again_where_it_was(autojump_clock: MockClock) -> None:
    web = Web()
    heard: list[float] = []
    at: list[float] = []

    def call(seen: Seen) -> EventStream:
        stream = web.stream()
        stream.event(None, id="1", retry=2500)
        stream.event(
            notification(PROGRESS, progressToken=seen.message["params"]["_meta"]["progressToken"], progress=1), id="2"
        )
        stream.cut()
        return stream

    def resumed(seen: Seen) -> Any:
        if seen.last is None:
            return 405
        at.append(trio.current_time())
        stream = web.stream()
        id = web.of("tools/call")[0].message
        if seen.last == "2":
            stream.event(
                notification(PROGRESS, progressToken=id["params"]["_meta"]["progressToken"], progress=2), id="3"
            )
            stream.end()
        else:
            stream.event(answer(id, TEXT), id="4")  # and it stays open
        return stream

    web.replies.update({"tools/call": call, "GET": resumed})
    async with web.client() as client:
        began = trio.current_time()
        result = await client.call_tool("a", on_progress=lambda progress, total, message: heard.append(progress))
        assert result.text == "done"
        assert heard == [1, 2]
        assert [round(time - began, 1) for time in at] == [2.5, 5.0]
        assert [seen.last for seen in web.of("GET")] == [None, "2", "3"]
        assert len(web.of("tools/call")) == 1


@pytest.mark.parametrize("empty", [False, True])
async def test_a_stream_without_ids_that_breaks_off_ends_its_call_at_once(
    empty: bool, autojump_clock: MockClock
) -> None:
    web = Web()

    def call(seen: Seen) -> EventStream:
        stream = web.stream()
        stream.event(None, id="" if empty else None)
        stream.end()
        return stream

    web.replies["tools/call"] = call
    async with web.client() as client:
        began = trio.current_time()
        with pytest.raises(ConnectionClosed, match="ended the stream without an answer"):
            await client.call_tool("a")
        assert trio.current_time() == began
        assert len(web.of("tools/call")) == 1


@pytest.mark.parametrize("way", ["empty", "cut", "refused", "503"])
async def test_a_stream_without_news_is_taken_up_five_times_and_no_more(way: str, autojump_clock: MockClock) -> None:
    web = Web()

    def stream(id: str | None) -> EventStream:
        stream = web.stream()
        if id is not None:
            stream.event(None, id=id)
        if way == "cut":
            stream.cut()
        else:
            stream.end()
        return stream

    def again(seen: Seen) -> Any:
        if seen.last is None:
            return 405
        return {"refused": httpx2.ConnectError("down"), "503": 503}.get(way) or stream(None)

    web.replies.update({"tools/call": lambda seen: stream("1"), "GET": again})
    async with web.client() as client:
        began = trio.current_time()
        with pytest.raises(ConnectionClosed):
            await client.call_tool("a")
        assert [seen.last for seen in web.of("GET")] == [None, *["1"] * 5]
        assert trio.current_time() - began == pytest.approx(5)
        assert len(web.of("tools/call")) == 1


@pytest.mark.parametrize("status", [404, 405, 204])
async def test_a_stream_that_cannot_be_taken_up_ends_its_call(status: int, autojump_clock: MockClock) -> None:
    web = Web()

    def call(seen: Seen) -> EventStream:
        stream = web.stream()
        stream.event(None, id="1")
        stream.end()
        return stream

    web.replies.update({"tools/call": call, "GET": lambda seen: 405 if seen.last is None else status})
    async with web.client() as client:
        with pytest.raises(ConnectionClosed):
            await client.call_tool("a")
    # What may have run is not repeated, and one GET is enough to know.
    assert (len(web.of("tools/call")), len(web.of("GET"))) == (1, 2)


# -- leaving a call


@pytest.mark.parametrize("where", ["before the answer", "in the stream", "in the pause"])
async def test_leaving_a_call_is_told(where: str, autojump_clock: MockClock) -> None:
    web = Web()

    def call(seen: Seen) -> Any:
        if where == "before the answer":
            return silence(seen)
        stream = web.stream()
        stream.event(None, id="1", retry=60_000)
        if where == "in the pause":
            stream.end()
        return stream

    web.replies["tools/call"] = call
    async with web.client() as client:
        with pytest.raises(RequestTimeout):
            await client.call_tool("a", timeout=3)
        id = web.of("tools/call")[0].message["id"]
        assert [seen.message["params"]["requestId"] for seen in web.of("notifications/cancelled")] == [id]
        assert web.of("notifications/cancelled")[0].session == "s1"


async def test_initialize_is_never_cancelled(autojump_clock: MockClock) -> None:
    web = Web()
    web.replies["initialize"] = silence
    with pytest.raises(RequestTimeout):
        async with web.client(connect_timeout=5):
            raise AssertionError("opened")
    assert web.of("notifications/cancelled") == []
    async with trio.open_nursery() as nursery:
        with pytest.raises(RequestTimeout):
            async with lines(old(initialize=silence), connect_timeout=5) as _:
                raise AssertionError("opened")
        nursery.cancel_scope.cancel()


# -- the stream that belongs to no call


async def test_a_server_without_that_stream_is_fine(autojump_clock: MockClock) -> None:
    web = Web()
    async with web.client() as client:
        await until(lambda: web.of("GET"))
        await trio.sleep(500)
        await client.request("ping")
    assert len(web.of("GET")) == 1


async def test_that_stream_is_taken_up_again_and_nothing_is_lost(autojump_clock: MockClock) -> None:
    web = Web()
    streams: list[EventStream] = []
    at: list[float] = []

    def get(seen: Seen) -> Any:
        at.append(trio.current_time())
        if len(at) in (2, 3):
            return 503
        streams.append(web.stream())
        return streams[-1]

    web.replies["GET"] = get
    async with web.client() as client, client.listen(uris=["a://b"], tools=True) as changes:
        await until(lambda: streams)
        streams[0].event(notification("notifications/resources/updated", uri="a://b"), id="7", retry=100)
        assert (await anext(changes)).uri == "a://b"
        streams[0].cut()
        await until(lambda: len(streams) == 2)
        assert [seen.last for seen in web.of("GET")] == [None, "7", "7", "7"]
        streams[1].event(notification("notifications/tools/list_changed"), id="8")
        assert (await anext(changes)).kind == "tools"
    assert all(later > before for before, later in pairwise(at))


async def test_a_new_session_has_a_stream_of_its_own(autojump_clock: MockClock) -> None:
    web = Web()
    streams: list[EventStream] = []

    def get(seen: Seen) -> Any:
        if seen.last is not None and seen.session == "s2":
            return 400  # of another session
        streams.append(web.stream())
        streams[-1].event(None, id=f"{seen.session}-1")
        return streams[-1]

    web.replies["GET"] = get
    async with web.client() as client, client.listen(tools=True) as changes:
        await until(lambda: streams)
        web.sessions.clear()  # and the stream of the old one stays open
        await client.request("ping")
        await until(lambda: len(streams) == 2)
        assert streams[0].closed
        assert (web.of("GET")[-1].session, web.of("GET")[-1].last) == ("s2", None)
        streams[1].event(notification("notifications/tools/list_changed"))
        assert (await anext(changes)).kind == "tools"


async def test_an_event_that_the_server_has_forgotten_does_not_end_the_stream(autojump_clock: MockClock) -> None:
    web = Web()
    streams: list[EventStream] = []

    def get(seen: Seen) -> Any:
        if seen.last is not None:
            return 400
        streams.append(web.stream())
        streams[-1].event(None, id="1")
        return streams[-1]

    web.replies["GET"] = get
    async with web.client():
        await until(lambda: streams)
        streams[0].end()
        await until(lambda: len(streams) == 2)
    assert [seen.last for seen in web.of("GET")] == [None, "1", None]


async def test_the_answer_of_a_lost_session_is_not_kept_open_by_that_stream(autojump_clock: MockClock) -> None:
    web = Web()
    async with web.client():
        web.sessions.clear()
        await until(lambda: web.of("GET"))
        await trio.sleep(1)
        assert all(stream.closed for stream in web.streams)


# -- the end


async def test_the_end_is_told(autojump_clock: MockClock) -> None:
    web = Web()
    async with web.client():
        pass
    assert web.methods()[-1] == "DELETE"
    assert (web.sessions, web.of("DELETE")[0].session) == (set(), "s1")


@pytest.mark.parametrize("outcome", [405, 500, httpx2.ConnectError("gone"), "silence"])
async def test_a_server_that_does_not_take_the_end_does_not_hold_it_up(outcome: Any, autojump_clock: MockClock) -> None:
    web = Web()
    web.replies["DELETE"] = silence if outcome == "silence" else lambda seen: outcome
    async with web.client():
        began = trio.current_time()
    assert trio.current_time() - began <= 1.1


@pytest.mark.parametrize("over", ["http", "lines"])
async def test_a_call_after_the_end_and_one_that_is_under_way(over: str, autojump_clock: MockClock) -> None:
    web = Web()
    web.replies["tools/call"] = silence
    silent = old(tools_call=silence)
    outcomes: list[Any] = []
    async with trio.open_nursery() as nursery:
        async with web.client() if over == "http" else lines(silent) as opened:
            client = opened if over == "http" else opened[0]  # type: ignore[index]

            async def call() -> None:
                outcomes.extend(await gathered(lambda: client.call_tool("a", timeout=5)))

            async def listen() -> None:
                async with client.listen(tools=True) as changes:
                    heard.set()
                    outcomes.extend(await gathered(lambda: anext(changes)))

            heard = trio.Event()
            nursery.start_soon(call)
            nursery.start_soon(listen)
            await heard.wait()
            await trio.sleep(1)
        outcomes.extend(await gathered(lambda: client.request("ping"), lambda: client.call_tool("b")))
    assert len(outcomes) == 4
    kinds = {type(outcome) for outcome in outcomes}
    assert kinds <= {ConnectionClosed, RequestTimeout}
    assert sum(type(outcome) is ConnectionClosed for outcome in outcomes) >= 3


@pytest.mark.parametrize("state", ["renewing", "resuming", "asking", "subscribing", "listening", "streaming"])
async def test_nothing_is_left_when_the_client_is_closed_in_the_middle(state: str, autojump_clock: MockClock) -> None:
    web = Web()
    done = trio.Event()

    def stream(seen: Seen) -> EventStream:
        stream = web.stream()
        stream.event(None, id="1", retry=60_000)
        if state == "asking":
            stream.event(question(1, "elicitation/create", message="?"))
        if state == "resuming":
            stream.end()
        return stream

    async def elicit(params: Any) -> None:
        done.set()
        await trio.sleep_forever()

    async def use() -> None:
        if state == "renewing":
            web.sessions.clear()
            web.replies["initialize"] = silence
        if state in ("subscribing", "listening"):
            if state == "subscribing":
                web.replies["resources/subscribe"] = silence
            async with client.listen(uris=["a://b"]):
                await trio.sleep_forever()
        await client.call_tool("a")

    web.replies.update({"tools/call": stream, "GET": lambda seen: web.stream()})
    with trio.move_on_after(10) as scope:
        async with web.client(on_elicit=elicit) as client, trio.open_nursery() as nursery:
            nursery.start_soon(use)
            await trio.sleep(5)
            if state == "asking":
                await done.wait()
            nursery.cancel_scope.cancel()
    assert not scope.cancelled_caught
    assert trio.current_time() < 9  # and all responses are closed


# -- questions


def asks(web: Web, *messages: dict[str, Any]) -> Callable[[Seen], EventStream]:
    def call(seen: Seen) -> EventStream:
        stream = web.stream()
        for message in messages:
            stream.event(message)
        return stream

    return call


async def asked(messages: list[dict[str, Any]], wait: Callable[[Web], bool], **options: Any) -> Web:
    """A server that asks during a call, until there is a sign; then it answers the call."""
    web = Web()
    web.replies["tools/call"] = asks(web, *messages)
    async with web.client(**options) as client, trio.open_nursery() as nursery:
        nursery.start_soon(client.call_tool, "a")
        await until(lambda: wait(web))
        for stream in web.streams:
            if not stream.closed:
                stream.event(answer(web.of("tools/call")[0].message, TEXT))
    return web


def answers(web: Web) -> dict[Any, dict[str, Any]]:
    return {seen.message["id"]: seen.message for seen in web.seen if "id" in seen.message and not seen.method}


async def test_questions_are_answered_at_once_by_the_same_callbacks(autojump_clock: MockClock) -> None:
    order: list[str] = []

    async def elicit(params: dict[str, Any]) -> dict[str, Any]:
        await trio.sleep(5)
        order.append(params["message"])
        return {"a": 1}

    web = await asked(
        [
            question(0, "elicitation/create", message="slow"),
            question("x", "sampling/createMessage", messages=[]),
            question(2, "roots/list", _meta={"a": 1}),
            question(3, "ping"),
        ],
        lambda web: len(answers(web)) == 4,
        on_elicit=elicit,
        on_sample=lambda params: "text",
        roots=["file:///a"],
    )
    got = answers(web)
    assert list(got) == ["x", 2, 3, 0] or set(list(got)[:3]) == {"x", 2, 3}
    assert got[0]["result"] == {"action": "accept", "content": {"a": 1}}
    assert got["x"]["result"]["content"]["text"] == "text"
    assert got[2]["result"] == {"roots": [{"uri": "file:///a"}]}
    assert got[3]["result"] == {}
    declared = web.of("initialize")[0].message["params"]["capabilities"]
    assert set(declared) == {"elicitation", "sampling", "roots"}


async def test_a_question_that_nobody_can_answer(autojump_clock: MockClock) -> None:
    web = await asked(
        [question(0, "elicitation/create", message="?"), question(1, "tools/list"), question(2, "roots/list")],
        lambda web: len(answers(web)) == 3,
    )
    assert {message["error"]["code"] for message in answers(web).values()} == {MethodNotFound.code}


async def test_a_callback_that_raises(caplog: pytest.LogCaptureFixture, autojump_clock: MockClock) -> None:
    def elicit(params: Any) -> None:
        raise ZeroDivisionError("secret")

    web = await asked([question(0, "elicitation/create", message="?")], lambda web: 0 in answers(web), on_elicit=elicit)
    assert answers(web)[0]["error"] == {"code": -32603, "message": "the client could not answer: ZeroDivisionError"}
    assert "secret" in caplog.text


async def test_a_question_that_the_server_takes_back(autojump_clock: MockClock) -> None:
    left: list[str] = []

    async def elicit(params: Any) -> None:
        try:
            await trio.sleep_forever()
        finally:
            left.append(params["message"])

    messages = [
        question(0, "elicitation/create", message="?"),
        notification("notifications/cancelled", requestId=0.0),
        notification("notifications/cancelled", requestId="0"),
        notification("notifications/cancelled"),
        question(1, "ping"),
    ]
    web = await asked(
        [*messages, notification("notifications/cancelled", requestId=0)], lambda web: left, on_elicit=elicit
    )
    assert left == ["?"]
    assert 0 not in answers(web)


async def test_a_question_that_is_told_twice_is_asked_once(autojump_clock: MockClock) -> None:
    count: list[Any] = []

    async def elicit(params: Any) -> bool:
        count.append(params)
        await trio.sleep(3)
        return True

    twice = question(0, "elicitation/create", message="?")
    web = await asked([twice, twice], lambda web: answers(web), on_elicit=elicit)
    assert len(count) == 1
    assert [seen.message.get("result") for seen in web.seen if not seen.method and seen.verb == "POST"] == [
        {"action": "accept"}
    ]


async def test_too_many_questions_are_refused(autojump_clock: MockClock) -> None:
    async def elicit(params: Any) -> bool:
        await trio.sleep(3)
        return True

    messages = [question(number, "elicitation/create", message="?") for number in range(5)]
    web = await asked(messages, lambda web: len(answers(web)) == 5, on_elicit=elicit, limits=Limits(session_requests=3))
    refused = {id for id, message in answers(web).items() if "error" in message}
    assert refused == {3, 4}
    assert answers(web)[3]["error"]["message"] == "Invalid request: more than 3 questions at once"


async def test_a_server_that_asks_without_end_and_takes_no_answer_fills_nothing(autojump_clock: MockClock) -> None:
    async def deaf(message: dict[str, Any]) -> Any:
        if message.get("method") == "tools/call":
            await peer.send(b"".join(json.dumps(question(number, "ping")).encode() + b"\n" for number in range(200)))
            return TEXT
        return old()(message)

    async with lines(lambda message: deaf(message), limits=Limits(session_requests=4)) as (client, peer):
        await client.call_tool("a")
        await client.request("ping")
        # As many as may wait, for each piece that was read.
        assert 0 < len([message for message in peer.got if "result" in message]) < 100


# -- levels, progress, listening


async def test_one_level_for_a_session_which_only_goes_down(autojump_clock: MockClock) -> None:
    heard: list[Any] = []
    levels: list[str] = []

    def set_level(message: dict[str, Any]) -> dict[str, Any]:
        levels.append(message["params"]["level"])
        return {}

    def log(level: str, data: Any, name: str | None) -> None:
        heard.append((level, data))

    def call(message: dict[str, Any]) -> Any:
        told = [notification("notifications/message", level=level, data=1) for level in ("debug", "warning")]
        return [*told, answer(message, TEXT)]

    async with lines(old(tools_call=call, logging_setLevel=set_level)) as (client, _):
        await client.call_tool("a")
        assert levels == []
        for level in ("warning", "error", "info", "warning"):
            await client.call_tool("a", on_log=log, log_level=level)
        await client.call_tool("a")
    assert levels == ["warning", "info"]
    assert heard == [("warning", 1)] * 3


async def test_a_server_without_a_log_is_not_asked_for_one_and_one_that_refuses_is_called_all_the_same(
    autojump_clock: MockClock,
) -> None:
    async with lines(old(tools_call=TEXT, initialize=hello(capabilities={}))) as (client, peer):
        await client.call_tool("a", on_log=print)
        assert "logging/setLevel" not in peer.methods()
    async with lines(old(tools_call=TEXT, logging_setLevel=error())) as (client, peer):
        await client.call_tool("a", on_log=print)
        await client.call_tool("a", on_log=print)
        assert peer.methods().count("logging/setLevel") == 1


async def test_two_who_listen_share_what_is_subscribed(autojump_clock: MockClock) -> None:
    async with lines(old()) as (client, peer):
        async with client.listen(uris=["a://1", "a://2"]) as one:
            assert one.agreed == {"resourceSubscriptions": ["a://1", "a://2"]}
            async with client.listen(uris=["a://2", "a://3"], tools=True) as two:
                assert two.agreed == {"toolsListChanged": True, "resourceSubscriptions": ["a://2", "a://3"]}
                await peer.send(notification("notifications/resources/updated", uri="a://2"))
                await peer.send(notification("notifications/tools/list_changed"))
                assert (await anext(one)).uri == "a://2"
                assert [(await anext(two)).kind, (await anext(two)).kind] == ["resource", "tools"]
            assert [message["params"]["uri"] for message in peer.of("resources/unsubscribe")] == ["a://3"]
        assert sorted(message["params"]["uri"] for message in peer.of("resources/unsubscribe")) == [
            "a://1",
            "a://2",
            "a://3",
        ]


async def test_one_who_leaves_does_not_take_the_resource_from_one_who_comes(autojump_clock: MockClock) -> None:
    subscribed: set[str] = set()

    async def subscribe(message: dict[str, Any]) -> Any:
        await trio.sleep(1)
        subscribed.add(message["params"]["uri"])
        return {}

    async def unsubscribe(message: dict[str, Any]) -> Any:
        await trio.sleep(2)
        subscribed.discard(message["params"]["uri"])
        return {}

    replies = old(resources_subscribe=subscribe, resources_unsubscribe=unsubscribe)
    async with lines(replies) as (client, peer), trio.open_nursery() as nursery:

        async def come() -> None:
            async with client.listen(uris=["a://b"]):
                assert subscribed == {"a://b"}
                await trio.sleep(10)
                assert subscribed == {"a://b"}

        async with client.listen(uris=["a://b"]):
            nursery.start_soon(come)
            await until(lambda: len(peer.of("resources/subscribe")) == 2)
    # Once, by the last one.
    assert len(peer.of("resources/unsubscribe")) == 1


async def test_a_server_that_takes_no_subscription(autojump_clock: MockClock) -> None:
    async with lines(old(resources_subscribe=error())) as (client, _):
        with pytest.raises(MethodNotFound):
            async with client.listen(uris=["a://b"]):
                raise AssertionError("listens")
        await client.request("ping")


async def test_who_listens_hears_of_the_end_of_the_connection(autojump_clock: MockClock) -> None:
    async with lines(old()) as (client, peer), client.listen(tools=True) as changes:
        await peer.send(EXIT)
        with trio.fail_after(5), pytest.raises(ConnectionClosed):
            await anext(changes)
        with pytest.raises(ConnectionClosed):
            async with client.listen(tools=True):
                raise AssertionError("listens")


async def test_progress_goes_to_its_call(autojump_clock: MockClock) -> None:
    heard: dict[str, list[float]] = {"a": [], "b": []}

    async def call(message: dict[str, Any]) -> Any:
        token = message["params"]["_meta"]["progressToken"]
        await peer.send(notification(PROGRESS, progressToken=token, progress=token))
        await peer.send(notification(PROGRESS, progressToken=999, progress=1))
        await trio.sleep(1)
        return TEXT

    def progress(name: str) -> Callable[..., None]:
        return lambda value, total, message: heard[name].append(value)

    async with lines(old(tools_call=call)) as (client, peer):
        await gathered(*[lambda name=name: client.call_tool(name, on_progress=progress(name)) for name in ("a", "b")])
        tokens = {
            message["params"]["name"]: message["params"]["_meta"]["progressToken"] for message in peer.of("tools/call")
        }
    assert heard == {name: [token] for name, token in tokens.items()}


async def test_late_and_double_answers_are_dropped(autojump_clock: MockClock) -> None:
    async def call(message: dict[str, Any]) -> Any:
        if message["params"]["name"] == "late":
            await trio.sleep(5)
        return [answer(message, TEXT), answer(message, {"content": []})]

    async with lines(old(tools_call=call)) as (client, _):
        with pytest.raises(RequestTimeout):
            await client.call_tool("late", timeout=1)
        await trio.sleep(10)
        assert (await client.call_tool("a")).text == "done"
        assert (await client.call_tool("b")).text == "done"


async def test_a_hook_that_fails_beside_the_calls_does_not_end_them(autojump_clock: MockClock) -> None:
    web = Web()
    web.replies["GET"] = lambda seen: ZeroDivisionError("hook")
    async with web.client() as client:
        await until(lambda: web.of("GET"))
        await client.request("ping")


async def test_an_answer_without_an_end(autojump_clock: MockClock) -> None:
    web = Web()

    def call(seen: Seen) -> EventStream:
        stream = web.stream()
        stream.raw(b"data: " + b"x" * 2000)
        return stream

    web.replies["tools/call"] = call
    async with web.client(limits=Limits(answer_bytes=1000, connect_timeout=math.inf)) as client:
        with pytest.raises(InvalidResponse, match="over 1000 bytes"):
            await client.call_tool("a")
