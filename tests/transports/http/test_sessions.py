"""Sessions over HTTP (2025-11-25 and older): what each request is answered, which stream carries what, and what ends what."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_mcp import Context, Server
from trio_mcp.testing import request

from .session_helpers import (
    BOTH,
    REVISIONS,
    Client,
    Exchange,
    ask,
    hello,
    open_sessions,
    tell,
    use,
)
from .session_tools import Desk

each_revision = pytest.mark.parametrize("revision", REVISIONS)
streamable = pytest.mark.parametrize("revision", REVISIONS[1:])


def steps(count: int, gate: str = "go", id: Any = 1) -> dict[str, Any]:
    return use(id, "steps", token=f"t{id}", count=count, gate=gate)


def progress_of(*exchanges: Exchange) -> list[int]:
    """What was reported on these, in the order of the connections."""
    return [
        message["params"]["progress"]
        for exchange in exchanges
        for message in exchange.messages
        if message.get("method") == "notifications/progress"
    ]


# -- the statuses of requests


@each_revision
async def test_a_session_is_opened_used_and_ended(revision: str) -> None:
    async with open_sessions(Desk().server) as site:
        first = await site.stranger().ask(hello("a", revision))
        assert (first.status, first.json["id"]) == (200, "a")
        assert first.json["result"]["protocolVersion"] == revision
        id = first.fields_sent["mcp-session-id"]
        assert len(id) > 32 and all(0x21 <= ord(letter) <= 0x7E for letter in id)
        client = Client(site, id, revision)
        # Some clients are quicker than their own notification; and it may come twice, or never.
        assert "echo" in str((await client.ask(ask(1, "tools/list"))).json["result"]["tools"])
        for _ in range(2):
            ready = await client.ask(tell("initialized"))
            assert (ready.status, bytes(ready.data), ready.fields_sent) == (202, b"", {})
        assert (await client.ask(use(2, "echo", text="x"))).text == "x"
        assert (await client.ask({"jsonrpc": "2.0", "id": 3, "method": "ping"})).json == {
            "jsonrpc": "2.0",
            "id": 3,
            "result": {},
        }
        gone = await client.delete()
        assert (gone.status, bytes(gone.data)) == (204, b"")
        for exchange in (
            await client.ask(use(4, "echo", text="x")),
            await client.ask(tell("initialized")),
            await client.get(),
            await client.delete(),
        ):
            assert (exchange.status, exchange.code) == (404, -32600)


async def test_each_session_has_an_id_of_its_own() -> None:
    async with open_sessions(Desk().server) as site:
        assert len({(await site.open()).id for _ in range(50)}) == 50


async def test_an_unknown_id_is_404_and_a_missing_one_is_400_and_says_what_to_do() -> None:
    async with open_sessions(Desk().server) as site:
        for id, status in (("0-" + "a" * 32, 404), ("", 404), ("é", 404), (None, 400)):
            client = Client(site, id)
            answers = [await client.get(), await client.delete()]
            if id is not None:
                answers += [await client.ask(ask(1, "tools/list")), await client.ask(tell("initialized"))]
                answers += [await client.ask([ask(1, "ping")])]
            for answer in answers:
                assert (answer.status, "id" in answer.json) == (status, False), id
                assert "initialize" in answer.json["error"]["message"]
        lost = await site.stranger().ask(ask(1, "tools/list"))
        assert (lost.status, lost.json["id"]) == (400, 1)


@pytest.mark.parametrize("version", ["2099-01-01", "2000-01-01", "abc", "", "2025-11-25, 2025-11-25", "2026-07-28"])
async def test_a_version_header_that_has_no_sessions_is_400(version: str) -> None:
    async with open_sessions(Desk().server) as site:
        client = await site.open()
        for verb in ("POST", "GET", "DELETE"):
            message = ask(1, "ping") if verb == "POST" else None
            answer = await client.ask(message, verb=verb, mcp_protocol_version=version)
            assert (answer.status, answer.code) == (400, -32600)
            assert "2025-03-26" in answer.json["error"]["message"]
        assert (await client.ask(ask(1, "ping"))).status == 200


@each_revision
async def test_without_a_version_header_the_one_of_the_session_counts(revision: str) -> None:
    async with open_sessions(Desk().server) as site:
        client = await site.open(revision)
        tools = (await client.ask(ask(1, "tools/list"), mcp_protocol_version=None)).json["result"]["tools"]
        assert any("outputSchema" in tool for tool in tools) == (revision >= "2025-06-18")


@each_revision
async def test_errors_in_a_session_have_status_200_and_their_ids(revision: str) -> None:
    async with open_sessions(Desk().server) as site:
        client = await site.open(revision)
        for message, code in (
            (ask("a", "nothing/here"), -32601),
            (ask("b", "server/discover"), -32601),
            (ask("c", "tools/call", nam="echo"), -32602),
            (use("d", "missing"), -32602),
            (ask("e", "resources/read", uri="other://x"), -32002),
            (ask("f", "prompts/get", name="x"), -32601),
            (ask("g", "logging/setLevel", level="loud"), -32602),
            (ask("h", "tools/list", cursor="nonsense"), -32602),
            (ask("i", "tools/call", name="echo", arguments=[]), -32602),
            (ask("j", "tools/call", name="echo", arguments="text"), -32602),
            ({"jsonrpc": "2.0", "id": "k", "method": "tools/call", "params": []}, -32602),
            (ask("l", "tools/call", name="echo", arguments={}, _meta=1), -32602),
        ):
            answer = await client.ask(message)
            # What is no request at all is the envelope's business.
            status = 400 if message["id"] == "k" else 200
            assert (answer.status, answer.json["id"], answer.code) == (status, message["id"], code), message
        assert (await client.ask(ask("e", "resources/read", uri="other://x"))).json["error"]["data"] == {
            "uri": "other://x"
        }
        failed = await client.ask(use("m", "fails"))
        assert (failed.status, failed.json["result"]["isError"]) == (200, True)
        wrong = await client.ask(use("n", "echo"))
        assert (wrong.status, wrong.json["result"]["isError"]) == (200, True)


async def test_what_is_no_message_is_400_and_the_session_lives_on() -> None:
    async with open_sessions(Desk().server) as site:
        client = await site.open()
        for body in (b"{nope", b'"text"', b'{"id":1,"method":"ping"}', b"[]", b"", b"null", b"1"):
            assert (await client.ask(body=body)).status == 400, body
        assert (await client.ask(ask(1, "ping"))).status == 200


async def test_notifications_and_answers_that_mean_nothing_are_202(caplog: pytest.LogCaptureFixture) -> None:
    async with open_sessions(Desk().server) as site:
        client = await site.open()
        for message in (
            tell("anything"),
            tell("cancelled", requestId="unknown"),
            tell("cancelled", requestId=[1]),
            tell("cancelled"),
            tell("progress", progressToken=1, progress=1),
            {"jsonrpc": "2.0", "id": 1, "result": {}},
            {"jsonrpc": "2.0", "id": "1", "error": {"code": 1, "message": "no"}},
        ):
            answer = await client.ask(message)
            assert (answer.status, bytes(answer.data)) == (202, b"")
    assert caplog.text.count("ignored a response that nobody waits for") == 2


async def test_other_verbs_and_forms_of_an_answer() -> None:
    async with open_sessions(Desk().server) as site:
        client = await site.open()
        for verb in ("PUT", "PATCH", "HEAD", "OPTIONS"):
            answer = await client.ask(ask(1, "ping"), verb=verb)
            assert (answer.status, answer.fields_sent["allow"]) == (405, "GET, POST, DELETE")
        assert (await client.ask(ask(1, "ping"), content_type="text/plain")).status == 415
        assert (await client.ask(verb="GET", accept="application/json")).status == 406
        for accept, json_answer in (
            ("*/*", True),
            (None, True),
            ("application/json", True),
            ("text/event-stream, application/json", True),
            ("application/*, text/*;q=0.5", True),
            ("Application/JSON", True),
            ("application/json;q=0, text/event-stream", False),
            ("text/event-stream", False),
        ):
            answer = await client.ask(use(1, "echo", text="x"), accept=accept)
            assert (answer.status, answer.text, not answer.sse) == (200, "x", json_answer), accept
        assert (await client.ask(use(1, "echo", text="x"), accept="image/png")).status == 406


# -- the era of a message


async def test_the_body_decides_which_era_a_message_is_of() -> None:
    async with open_sessions(Desk().server) as site:
        client = await site.open("2025-06-18")
        held = site.engine.sessions.statistics().open
        modern = request(1, "tools/call", name="echo", arguments={"text": "new"})
        headers = {"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/call", "mcp_name": "echo"}
        for who in (client, site.stranger()):
            answer = await who.ask(modern, **headers)
            assert (answer.status, answer.text, answer.json["result"]["resultType"]) == (200, "new", "complete")
        old = await client.ask(use(2, "echo", text="old"))
        assert (old.text, "resultType" in old.json["result"]) == ("old", False)
        # The header of another era than the body.
        mixed = await client.ask(modern, mcp_method="tools/call", mcp_name="echo")
        assert (mixed.status, mixed.code) == (400, -32020)
        assert site.engine.sessions.statistics().open == held
        assert (await client.ask(ask(3, "ping"))).status == 200


async def test_a_server_without_sessions_says_which_versions_there_are() -> None:
    async with open_sessions(Server("new", version="1", eras={"modern"})) as site:
        answer = await site.stranger().ask(hello())
        assert (answer.status, answer.code) == (400, -32022)
        assert answer.json["error"]["data"]["supported"] == ["2026-07-28"]
        for verb in ("GET", "DELETE"):
            refused = await site.stranger().ask(verb=verb, accept=BOTH)
            assert (refused.status, refused.fields_sent["allow"]) == (405, "POST")


async def test_a_server_with_sessions_only_has_no_modern_code_for_a_modern_client() -> None:
    desk = Desk()
    server: Server[None] = Server("old", version="1", eras={"legacy"})
    server.tool(desk.echo)
    async with open_sessions(server) as site:
        answer = await site.stranger().ask(
            request(1, "server/discover"), mcp_protocol_version="2026-07-28", mcp_method="server/discover"
        )
        assert answer.code not in (-32020, -32021, -32022)
        assert "initialize" in answer.json["error"]["message"]
        assert (await (await site.open()).ask(use(1, "echo", text="x"))).text == "x"


# -- batches


async def test_batches_are_of_one_revision(caplog: pytest.LogCaptureFixture) -> None:
    async with open_sessions(Desk().server) as site:
        for revision in REVISIONS:
            client = await site.open(revision)
            several = await client.ask([ask(1, "ping"), tell("anything"), use(2, "echo", text="x"), ask(3, "nothing")])
            if revision != "2025-03-26":
                assert (several.status, several.code) == (400, -32600)
                assert "batches" in several.json["error"]["message"]
                continue
            assert several.status == 200
            assert {answer["id"]: answer.get("error", {}).get("code") for answer in several.json} == {
                1: None,
                2: None,
                3: -32601,
            }
            only = await client.ask([tell("initialized"), {"jsonrpc": "2.0", "id": 9, "result": {}}])
            assert (only.status, bytes(only.data)) == (202, b"")
            for wrong in ([], [hello()], [ask(n, "ping") for n in range(101)]):
                assert (await client.ask(wrong)).status == 400
    assert "ignored a response" in caplog.text


async def test_a_batch_with_progress_is_one_stream_with_all_answers_in_one_event() -> None:
    desk = Desk()
    async with open_sessions(desk.server) as site:
        client = await site.open("2025-03-26")
        exchange = client.send([steps(2, "a", 1), steps(2, "b", 2), use(3, "wait", gate="c")])
        await wait_all_tasks_blocked()
        desk.gate("b").set()
        desk.gate("c").set()
        await wait_all_tasks_blocked()
        assert not exchange.over.is_set()
        # The third is not wanted any more.
        desk.gate("a").set()
        await exchange.over.wait()
        *notes, answers = exchange.messages
        assert sorted(note["params"]["progress"] for note in notes) == [1, 1, 2, 2]
        assert sorted(answer["id"] for answer in answers) == [1, 2, 3]


async def test_a_call_of_a_batch_that_is_cancelled_is_missing_among_the_answers() -> None:
    desk = Desk()
    async with open_sessions(desk.server) as site:
        client = await site.open("2025-03-26")
        exchange = client.send([use(1, "wait", gate="a"), use(2, "echo", text="x")])
        await wait_all_tasks_blocked()
        await client.ask(tell("cancelled", requestId=1))
        await exchange.over.wait()
        assert [answer["id"] for answer in exchange.json] == [2]


# -- plain answers and streams


@streamable
async def test_a_quick_answer_is_plain_and_progress_opens_a_stream(revision: str) -> None:
    desk = Desk()
    desk.gate("go").set()
    async with open_sessions(desk.server) as site:
        client = await site.open(revision)
        assert not (await client.ask(use(1, "echo", text="x"))).sse
        answer = await client.ask(steps(3))
        first, *rest = answer.events
        if revision == "2025-11-25":
            assert first == ("1-0", None)
            assert b"retry: 1000\n" in answer.data
        else:
            # Clients of these take an event without data for a message.
            assert first[1] is not None
            assert b"retry" not in answer.data
            rest = answer.events
        assert [id for id, _ in rest] == ["1-1", "1-2", "1-3", "1-4"]
        assert progress_of(answer) == [1, 2, 3]
        assert answer.text == "all 3"
        # Nothing is left that could be asked for.
        again = await client.get(last="1-4")
        assert (again.status, bytes(again.data)) == (204, b"")


async def test_progress_has_no_text_in_the_oldest_revision() -> None:
    desk = Desk()
    desk.gate("go").set()
    async with open_sessions(desk.server) as site:
        for revision in REVISIONS:
            (first, *_) = (await (await site.open(revision)).ask(steps(1))).messages
            assert ("message" in first["params"]) == (revision > "2024-11-05")


async def test_a_call_that_is_silent_becomes_a_stream() -> None:
    desk = Desk()
    async with open_sessions(desk.server) as site:
        client = await site.open()
        exchange = client.send(use(1, "wait", gate="go"))
        await wait_all_tasks_blocked()
        assert exchange.status == 0
        exchange.silent()
        exchange.silent()
        assert exchange.data.endswith(b"data:\n\n:\n\n:\n\n")
        assert exchange.events == [("1-0", None)]
        assert exchange.fields_sent["x-accel-buffering"] == "no"
        desk.gate("go").set()
        await exchange.over.wait()
        assert exchange.text == "past go"


async def test_a_client_that_takes_no_stream_has_its_plain_answer_and_the_rest_on_its_other_stream() -> None:
    desk = Desk()
    async with open_sessions(desk.server) as site:
        client = await site.open()
        stream = await client.get()
        exchange = client.send(steps(2), accept="application/json")
        await wait_all_tasks_blocked()
        exchange.silent()
        desk.gate("go").set()
        await exchange.over.wait()
        assert exchange.json["result"]["content"][0]["text"] == "all 2"
        assert progress_of(stream) == [1, 2]


@streamable
async def test_a_stream_that_broke_off_goes_on_where_the_client_stopped(revision: str) -> None:
    desk = Desk()
    async with open_sessions(desk.server) as site:
        client = await site.open(revision)
        for had in range(6):
            desk.gates.clear()
            first = client.send(steps(5, id=had))
            await wait_all_tasks_blocked()
            # What the client got of it is less than what was sent.
            desk.gate("go").set()
            if had % 2:
                await wait_all_tasks_blocked()
            first.vanish()
            await wait_all_tasks_blocked()
            stream = first.last_id.partition("-")[0]
            second = await client.get(last=f"{stream}-{had}" if had or revision == "2025-11-25" else f"{stream}-0")
            assert second.over.is_set(), "the stream of a call ends with its answer"
            assert progress_of(second) == list(range(had + 1, 6))
            assert [message["id"] for message in second.messages if "id" in message] == [had]


async def test_a_stream_that_is_taken_up_goes_on_live() -> None:
    desk = Desk()
    async with open_sessions(desk.server) as site:
        client = await site.open()
        first = client.send(steps(3))
        await wait_all_tasks_blocked()
        first.vanish()
        second = await client.get(last=first.last_id)
        assert (second.status, second.events) == (200, [])
        third = await client.get(last=first.last_id)
        desk.gate("go").set()
        await third.over.wait()
        assert progress_of(third) == [2, 3]
        assert third.text == "all 3"
        await wait_all_tasks_blocked()
        assert second.events == [], "a message went out twice"


@pytest.mark.parametrize("last", ["9-1", "1-99", "x", "1", "-", "1-", "-1", "1-1-1", "1-²", "1" * 40 + "-1", "0-1"])
async def test_an_event_that_never_was_is_400(last: str) -> None:
    desk = Desk()
    desk.gate("go").set()
    async with open_sessions(desk.server) as site:
        client = await site.open()
        await client.ask(steps(1))
        answer = await client.get(last=last)
        assert (answer.status, answer.code) == (400, -32600)
        assert "Last-Event-ID" in answer.json["error"]["message"]


async def test_an_event_of_another_session_is_not_replayed() -> None:
    desk = Desk()
    desk.gate("go").set()
    async with open_sessions(desk.server) as site:
        mine, other = await site.open(), await site.open()
        await mine.ask(steps(1))
        assert (await other.get(last="1-0")).status == 400
        assert (await mine.get(last="1-0")).status == 200


async def test_a_disconnect_does_not_cancel_and_a_notice_does() -> None:
    desk = Desk()
    async with open_sessions(desk.server) as site:
        client = await site.open()
        gone, told = client.send(use(1, "wait", gate="a")), client.send(use(2, "wait", gate="b"))
        await wait_all_tasks_blocked()
        gone.vanish()
        await gone.returned.wait()
        await client.ask(tell("cancelled", requestId=2, reason="enough"))
        await told.over.wait()
        assert (desk.count["began"], desk.count["cancelled"]) == (2, 1)
        assert (told.status, told.messages if told.sse else None) == (200, [])
        desk.gate("a").set()
        await wait_all_tasks_blocked()
        assert (desk.count["ended"], desk.count["cancelled"]) == (2, 1)
        # The id is free again.
        assert (await client.ask(use(2, "echo", text="x"))).text == "x"


async def test_a_cancelled_call_says_nothing_more_and_its_stream_ends() -> None:
    desk = Desk()
    async with open_sessions(desk.server) as site:
        client = await site.open()
        exchange = client.send(steps(5))
        plain = client.send(use(9, "wait", gate="x"), accept="application/json")
        await wait_all_tasks_blocked()
        for id in (1, 9):
            await client.ask(tell("cancelled", requestId=id))
        await exchange.over.wait()
        assert [message.get("id") for message in exchange.messages] == [None]
        await plain.over.wait()
        assert (plain.status, bytes(plain.data)) == (204, b"")
        # Clients come back to a stream that had an id and no answer: there is nothing for them.
        assert (await client.get(last=exchange.last_id)).status == 204


async def test_a_call_that_was_cancelled_before_it_said_anything_has_nothing_to_come_back_for() -> None:
    desk = Desk()
    async with open_sessions(desk.server) as site:
        client = await site.open()
        exchange = client.send(use(1, "wait", gate="x"))
        await wait_all_tasks_blocked()
        exchange.silent()
        assert exchange.last_id == "1-0"
        await client.ask(tell("cancelled", requestId=1))
        await exchange.over.wait()
        assert (await client.get(last="1-0")).status == 204


async def test_a_call_of_another_session_cannot_be_cancelled() -> None:
    desk = Desk()
    async with open_sessions(desk.server) as site:
        mine, other = await site.open(), await site.open()
        exchange = mine.send(use(1, "wait", gate="a"))
        await wait_all_tasks_blocked()
        assert (await other.ask(tell("cancelled", requestId=1))).status == 202
        desk.gate("a").set()
        await exchange.over.wait()
        assert exchange.text == "past a"


async def test_an_id_that_is_under_way_is_refused_and_the_first_call_goes_on() -> None:
    desk = Desk()
    async with open_sessions(desk.server) as site:
        client = await site.open()
        exchange = client.send(use(1, "wait", gate="a"))
        await wait_all_tasks_blocked()
        twice = await client.ask(use(1, "echo", text="x"))
        assert (twice.status, twice.code) == (200, -32600)
        desk.gate("a").set()
        await exchange.over.wait()
        assert exchange.text == "past a"


async def test_a_stream_that_a_tool_closes_is_polled() -> None:
    desk = Desk()
    async with open_sessions(desk.server) as site:
        client = await site.open()
        first = await client.ask(use(1, "poll", gate="go"), accept="text/event-stream, application/json")
        assert first.events == [("1-0", None)]
        assert b"retry: 1000\n" in first.data
        early = await client.get(last="1-0")
        assert not early.over.is_set()
        desk.gate("go").set()
        await early.over.wait()
        assert (early.text, early.messages[0]["id"]) == ("polled", 1)
        # Elsewhere it does nothing.
        desk.gates.clear()
        older = await site.open("2025-06-18")
        for who, accept in ((older, BOTH), (client, "application/json")):
            answer = who.send(use(1, "poll", gate="go"), accept=accept)
            await wait_all_tasks_blocked()
            assert not answer.over.is_set()
            desk.gate("go").set()
            await answer.over.wait()
            assert answer.json["result"]["content"][0]["text"] == "polled"
            desk.gates.clear()


# -- the stream of what belongs to no call


@streamable
async def test_only_the_newest_revision_is_told_where_a_stream_begins(revision: str) -> None:
    async with open_sessions(Desk().server) as site:
        client = await site.open(revision)
        stream = await client.get()
        assert stream.events == ([("0-0", None)] if revision == "2025-11-25" else [])
        stream.silent()
        assert stream.data.endswith(b":\n\n")


async def test_subscribers_hear_of_a_resource_and_nobody_else() -> None:
    desk = Desk()
    async with open_sessions(desk.server) as site:
        mine, other = await site.open(), await site.open()
        streams = [await mine.get(), await other.get()]
        for _ in range(2):
            answer = await mine.ask(ask(1, "resources/subscribe", uri="test://a"))
            assert answer.json["result"] == {}
        desk.server.notify_resource_updated("test://a")
        desk.server.notify_resource_updated("test://b")
        await wait_all_tasks_blocked()
        await mine.ask(ask(2, "resources/unsubscribe", uri="test://a"))
        desk.server.notify_resource_updated("test://a")
        desk.server.tool(desk.echo, name="another")
        await wait_all_tasks_blocked()
        assert [message["method"] for message in streams[0].messages] == [
            "notifications/resources/updated",
            "notifications/tools/list_changed",
        ]
        assert streams[0].messages[0]["params"] == {"uri": "test://a"}
        assert [message["method"] for message in streams[1].messages] == ["notifications/tools/list_changed"]


async def test_subscriptions_are_bounded() -> None:
    async with open_sessions(Desk(listened_uris=2).server) as site:
        client = await site.open()
        codes = [(await client.ask(ask(1, "resources/subscribe", uri=f"test://{name}"))).code for name in "abac"]
        assert codes == [None, None, None, -32602]


async def test_of_several_streams_the_newest_carries_and_each_message_comes_once() -> None:
    desk = Desk()
    async with open_sessions(desk.server) as site:
        client = await site.open()
        await client.ask(ask(1, "resources/subscribe", uri="test://a"))
        streams = [await client.get() for _ in range(3)]
        # The client went away from this one, and nobody was told: what was sent there comes again where it is asked for.
        desk.server.notify_resource_updated("test://a")
        await wait_all_tasks_blocked()
        assert [len(stream.messages) for stream in streams] == [0, 0, 1]
        assert not any(stream.over.is_set() for stream in streams)
        newest = await client.get()
        desk.server.notify_resource_updated("test://a")
        await wait_all_tasks_blocked()
        assert [len(stream.messages) for stream in (*streams, newest)] == [0, 0, 1, 1]
        # The stream of a call that is taken up does not carry what belongs to none.
        desk.gates.clear()
        call = client.send(steps(2))
        await wait_all_tasks_blocked()
        call.vanish()
        rest = await client.get(last=call.last_id)
        desk.server.notify_resource_updated("test://a")
        desk.gate("go").set()
        await rest.over.wait()
        await wait_all_tasks_blocked()
        assert (len(newest.messages), progress_of(rest)) == (2, [2])


async def test_what_is_said_while_nobody_listens_waits_and_comes_once() -> None:
    desk = Desk()
    async with open_sessions(desk.server) as site:
        client = await site.open()
        for name in "ab":
            await client.ask(ask(1, "resources/subscribe", uri=f"test://{name}"))
        first = await client.get()
        desk.server.notify_resource_updated("test://a")
        await wait_all_tasks_blocked()
        had = first.last_id
        first.vanish()
        await first.returned.wait()
        for name in "aabab":
            desk.server.notify_resource_updated(f"test://{name}")
        second = await client.get(last=had)
        desk.server.notify_resource_updated("test://a")
        await wait_all_tasks_blocked()
        assert [message["params"]["uri"][-1] for message in second.messages] == ["a", "b", "a"]
        assert [id for id, _ in second.events] == ["0-2", "0-3", "0-4"]


async def test_one_stream_too_many_ends_the_oldest() -> None:
    async with open_sessions(Desk(session_streams=2).server) as site:
        client = await site.open()
        streams = [await client.get() for _ in range(4)]
        assert [stream.over.is_set() for stream in streams] == [True, True, False, False]
        for stream in streams[:2]:
            await stream.returned.wait()


async def test_a_client_that_reads_slowly_gets_all_of_it_in_the_end() -> None:
    desk = Desk()
    async with open_sessions(desk.server) as site:
        client = await site.open()
        await client.ask(ask(1, "resources/subscribe", uri="test://a"))
        stream = await client.get()
        stream.slow = True
        for _ in range(3):
            desk.server.notify_resource_updated("test://a")
        client.session.log("error", "a line")
        await wait_all_tasks_blocked()
        assert stream.messages == []
        stream.go_on()
        await wait_all_tasks_blocked()
        assert [message["method"][14:] for message in stream.messages] == ["resources/updated", "message"]


async def test_a_request_that_is_gone_when_it_is_served_leaves_nothing() -> None:
    async with open_sessions(Desk().server) as site:
        client = await site.open()
        for verb, message in (("GET", None), ("POST", use(1, "echo", text="x"))):
            exchange = client.send(message, verb=verb, accept="text/event-stream")
            exchange.vanish()
            await wait_all_tasks_blocked()
            assert exchange.returned.is_set(), verb
        assert client.session.idle
        unknown = site.stranger().send(hello())
        unknown.vanish()
        await wait_all_tasks_blocked()
        assert site.engine.sessions.statistics().open == 1


# -- what was dropped is told


def lines(exchange: Exchange) -> list[str]:
    """The log lines that came."""
    return [one["params"]["data"] for one in exchange.messages if one.get("method") == "notifications/message"]


async def test_what_was_dropped_before_it_was_sent_is_told() -> None:
    async with open_sessions(Desk(session_events=3).server) as site:
        client = await site.open()
        for number in range(5):
            client.session.log("error", number)
        stream = await client.get()
        assert lines(stream) == ["2 messages were dropped, since they waited for too long", 2, 3, 4]
        # Once.
        again = await client.get(last="0-5")
        assert again.messages == []


async def test_what_was_dropped_after_it_was_sent_is_told_to_a_client_that_has_missed_it() -> None:
    async with open_sessions(Desk(session_events=3).server) as site:
        client = await site.open()
        stream = await client.get()
        for number in range(6):
            client.session.log("error", number)
        stream.vanish()
        again = await client.get(last="0-1")
        assert lines(again) == ["2 messages were dropped, since they waited for too long", 3, 4, 5]


async def test_what_was_dropped_for_a_client_that_reads_slowly_is_told() -> None:
    async with open_sessions(Desk(session_events=3).server) as site:
        client = await site.open()
        stream = await client.get()
        stream.slow = True
        for number in range(5):
            client.session.log("error", number)
        stream.go_on()
        await wait_all_tasks_blocked()
        assert lines(stream) == ["2 messages were dropped, since they waited for too long", 2, 3, 4]


async def test_an_answer_that_was_dropped_is_told_with_its_id() -> None:
    desk = Desk(session_events=3)
    async with open_sessions(desk.server) as site:
        client = await site.open()
        exchange = client.send(steps(2, id="mine"))
        await wait_all_tasks_blocked()
        exchange.vanish()
        desk.gate("go").set()
        await wait_all_tasks_blocked()
        for number in range(5):
            client.session.log("error", number)
        rest = await client.get(last=exchange.last_id)
        assert rest.over.is_set()
        assert [(one["id"], one["error"]["code"]) for one in rest.messages] == [("mine", -32600)]


# -- questions


def answer_to(question: dict[str, Any], **result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": question["id"], "result": result}


async def questions(exchange: Exchange, count: int = 1) -> list[dict[str, Any]]:
    """The requests of the server on a stream."""
    await wait_all_tasks_blocked()
    found = [message for message in exchange.messages if "method" in message and "id" in message]
    assert len(found) == count, exchange
    return found


async def test_a_question_comes_on_the_stream_of_its_call_and_is_answered_with_a_post() -> None:
    async with open_sessions(Desk().server) as site:
        client = await site.open()
        stream = await client.get()
        exchange = client.send(use(1, "elicit", question="which?"))
        (question,) = await questions(exchange)
        assert question["method"] == "elicitation/create"
        taken = await client.ask(answer_to(question, action="accept", content={"word": "this"}))
        assert (taken.status, bytes(taken.data)) == (202, b"")
        await exchange.over.wait()
        assert exchange.text == "accept: this"
        assert stream.messages == []


async def test_two_questions_at_once_and_their_answers_in_another_order() -> None:
    async with open_sessions(Desk().server) as site:
        client = await site.open()
        exchange = client.send(use(1, "both"))
        first, second = await questions(exchange, 2)
        for question in (second, first):
            word = question["params"]["message"]
            await client.ask(answer_to(question, action="accept", content={"word": word.upper()}))
        await exchange.over.wait()
        assert exchange.text == "FIRST SECOND"


async def test_answers_of_others_and_those_that_do_not_fit_do_not_count(caplog: pytest.LogCaptureFixture) -> None:
    async with open_sessions(Desk().server) as site:
        mine, other = await site.open(), await site.open()
        exchange = mine.send(use(1, "elicit", question="which?"))
        (question,) = await questions(exchange)
        fits = answer_to(question, action="accept", content={"word": "this"})
        assert (await other.ask(fits)).status == 202
        assert (await mine.ask({**fits, "id": str(question["id"])})).status == 202
        await wait_all_tasks_blocked()
        assert caplog.text.count("ignored a response that nobody waits for") == 2
        # One that does not fit is asked again.
        await mine.ask(answer_to(question, action="accept", content={"word": 7}))
        _, again = await questions(exchange, 2)
        assert again["params"] == question["params"]
        assert again["id"] != question["id"]
        await mine.ask({**fits, "id": again["id"]})
        await exchange.over.wait()
        assert exchange.text == "accept: this"
        # Late.
        await mine.ask(fits)
        assert caplog.text.count("ignored a response that nobody waits for") == 3


async def test_a_question_is_asked_so_often_and_no_oftener() -> None:
    async with open_sessions(Desk(question_tries=2).server) as site:
        client = await site.open()
        exchange = client.send(use(1, "elicit", question="which?"))
        for number in (1, 2):
            question = (await questions(exchange, number))[-1]
            await client.ask(answer_to(question, nonsense=True))
        await exchange.over.wait()
        assert exchange.messages[-1]["result"]["isError"] is True
        assert "do not fit" in exchange.text


async def test_an_error_of_the_client_is_told_to_the_model() -> None:
    async with open_sessions(Desk().server) as site:
        client = await site.open()
        exchange = client.send(use(1, "sample"))
        (question,) = await questions(exchange)
        assert question["params"]["maxTokens"] == 10
        await client.ask({"jsonrpc": "2.0", "id": question["id"], "error": {"code": -1, "message": "the user says no"}})
        await exchange.over.wait()
        assert exchange.messages[-1]["result"]["isError"] is True
        assert "the user says no" in exchange.text


async def test_a_question_that_is_not_answered_in_time_is_withdrawn(autojump_clock: MockClock) -> None:
    async with open_sessions(Desk(question_timeout=30, request_timeout=10, silence=1_000).server) as site:
        client = await site.open()
        began = trio.current_time()
        exchange = await client.ask(use(1, "roots"))
        assert trio.current_time() - began == pytest.approx(30)
        question, withdrawn, answer = exchange.messages
        assert (withdrawn["method"], withdrawn["params"]["requestId"]) == ("notifications/cancelled", question["id"])
        assert "did not answer roots/list within 30 s" in str(answer)


async def test_what_the_client_has_not_declared_is_not_asked() -> None:
    async with open_sessions(Desk().server) as site:
        for revision in REVISIONS:
            client = await site.open(revision, {})
            for tool in ("elicit", "visit", "sample", "roots"):
                arguments = {"question": "x"} if tool == "elicit" else {}
                answer = await client.ask(use(1, tool, **arguments))
                assert not answer.sse
                assert answer.code == -32600 or answer.json["result"]["isError"]
        forms = await site.open("2025-11-25", {"elicitation": {}})
        assert (await forms.ask(use(1, "visit"))).code == -32600
        # The revision has no such thing, whatever the client says.
        older = await site.open("2025-03-26")
        assert (await older.ask(use(1, "elicit", question="x"))).code == -32600


async def test_a_page_to_visit_has_an_id_that_tells_nothing_of_the_session() -> None:
    async with open_sessions(Desk().server) as site:
        client = await site.open()
        ids = set()
        for number in range(2):
            exchange = client.send(use(number, "visit"))
            (question,) = await questions(exchange)
            ids.add(question["params"]["elicitationId"])
            await client.ask(answer_to(question, action="accept"))
            await exchange.over.wait()
            assert exchange.text == "accept"
        assert len(ids) == 2
        assert client.id is not None and not any(client.id in id for id in ids)


async def test_a_question_of_a_call_whose_connection_is_gone_comes_where_what_belongs_to_no_call_goes() -> None:
    desk = Desk()

    @desk.server.tool
    async def later(ctx: Context) -> str:
        await desk.gate("go").wait()
        return str((await ctx.list_roots())[0]["uri"])

    async with open_sessions(desk.server) as site:
        client = await site.open()
        stream = await client.get()
        exchange = client.send(use(1, "later"))
        await wait_all_tasks_blocked()
        exchange.vanish()
        desk.gate("go").set()
        (question,) = await questions(stream)
        await client.ask(answer_to(question, roots=[{"uri": "file:///x"}]))
        await wait_all_tasks_blocked()
        assert client.session.calls == {}


async def test_what_is_asked_and_told_outside_of_a_call() -> None:
    desk = Desk()
    async with open_sessions(desk.server) as site:
        client = await site.open()
        stream = await client.get()
        (session,) = desk.server.sessions
        found: list[Any] = []

        async def talk() -> None:
            found.append(await session.list_roots())
            await session.ping()
            found.append((await session.sample("x"))["model"])
            found.append((await session.elicit_url("look", "https://example.com")).accepted)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(talk)
            for number, result in enumerate(
                ({"roots": []}, {}, {"role": "assistant", "content": {"type": "text", "text": "t"}, "model": "m"}), 1
            ):
                question = (await questions(stream, number))[-1]
                await client.ask(answer_to(question, **result))
            question = (await questions(stream, 4))[-1]
            await client.ask(answer_to(question, action="decline"))
        assert found == [[], "m", False]
        assert repr(session).startswith(f"<Session {session.id[:8]} of 'test'") or "test" in repr(session)
        assert await client.delete()
        assert desk.server.sessions == []


async def test_the_level_of_log_lines_is_of_the_session() -> None:
    async with open_sessions(Desk().server) as site:
        loud, quiet = await site.open(), await site.open()
        assert (await loud.ask(ask(1, "logging/setLevel", level="debug"))).json["result"] == {}
        assert (await quiet.ask(ask(1, "logging/setLevel", level="error"))).json["result"] == {}
        for level in ("debug", "warning", "emergency"):
            assert (await loud.ask(use(1, "log", level=level))).sse
            assert (await quiet.ask(use(1, "log", level=level))).sse == (level == "emergency")
        fresh = await site.open()
        assert not (await fresh.ask(use(1, "log", level="debug"))).sse
        assert (await fresh.ask(use(1, "log", level="info"))).sse


# -- the end of a session


async def test_delete_ends_calls_questions_and_streams() -> None:
    desk = Desk()
    async with open_sessions(desk.server) as site:
        client, other = await site.open(), await site.open()
        replaced = await client.get()
        alone = await client.get()
        calls = [client.send(steps(3)), client.send(use(2, "wait", gate="a"))]
        asked = client.send(use(3, "elicit", question="x"))
        closed = await client.ask(use(4, "poll", gate="b"))
        bystander = other.send(use(1, "wait", gate="c"))
        await wait_all_tasks_blocked()
        (session,) = [one for one in desk.server.sessions if one.id == client.id]
        assert (await client.delete()).status == 204
        for exchange in (replaced, alone, *calls, asked):
            await exchange.returned.wait()
            assert exchange.over.is_set()
            assert not exchange.sse or [one for one in exchange.messages if "id" in one and "method" not in one] == []
        await wait_all_tasks_blocked()
        assert desk.count["cancelled"] == 2
        assert (await client.get(last=closed.last_id)).status == 404
        with pytest.raises(Exception, match="has ended the session"):
            await session.ping()
        desk.gate("c").set()
        await bystander.over.wait()
        assert bystander.text == "past c"
        places = site.engine.executor.statistics()
        assert (places.running, places.waiting) == (0, 0)


async def test_what_is_told_to_a_session_that_is_over_is_held_nowhere() -> None:
    desk = Desk()
    async with open_sessions(desk.server) as site:
        client = await site.open()
        session = client.session
        session.close("now")
        # In the step in which it ended, and later.
        desk.server.tool(desk.echo, name="another")
        session.log("error", "nobody hears this")
        await wait_all_tasks_blocked()
        session.log("error", "nor this")
        assert site.engine.sessions.statistics().event_bytes == 0
        assert session.events.streams == {}


async def test_a_session_that_nobody_uses_ends_and_one_with_a_stream_or_a_call_does_not(
    autojump_clock: MockClock,
) -> None:
    desk = Desk(session_idle=100)
    async with open_sessions(desk.server) as site:
        left, streaming, calling, pinging = [await site.open() for _ in range(4)]
        stream = await streaming.get()
        call = calling.send(use(1, "wait", gate="a"))
        for _ in range(3):
            await trio.sleep(60)
            assert (await pinging.ask(ask(1, "ping"))).status == 200
        assert (await left.ask(ask(1, "ping"))).status == 404
        desk.gate("a").set()
        await call.over.wait()
        stream.vanish()
        await trio.sleep(99)
        for client in (streaming, calling):
            assert (await client.ask(tell("anything"))).status == 202
        await trio.sleep(101)
        for client in (streaming, calling, pinging):
            assert (await client.ask(ask(1, "ping"))).status == 404
        assert site.engine.sessions.statistics().open == 0


async def test_one_session_too_many_takes_the_place_of_the_one_that_has_idled_longest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    desk = Desk(sessions=3)
    async with open_sessions(desk.server) as site:
        first, second, third = [await site.open() for _ in range(3)]
        await first.ask(ask(1, "ping"))
        stream = await second.get()
        fourth = await site.open()
        assert (await third.ask(ask(1, "ping"))).status == 404
        for client in (first, second, fourth):
            assert (await client.ask(ask(1, "ping"))).status == 200
        assert "another one begins" in caplog.text
        streams = [stream, await first.get(), await fourth.get()]
        refused = await site.stranger().ask(hello(7))
        assert (refused.status, refused.json["id"]) == (503, 7)
        assert refused.fields_sent["retry-after"] == "1"
        assert "3 sessions are open" in refused.json["error"]["message"]
        streams[1].vanish()
        await wait_all_tasks_blocked()
        await site.open()
        assert (await first.ask(ask(1, "ping"))).status == 404


async def test_sessions_that_begin_at_once_leave_none_that_nobody_ends() -> None:
    async with open_sessions(Desk(sessions=2).server) as site:
        answers = [site.stranger().send(hello(number)) for number in range(7)]
        for answer in answers:
            await answer.over.wait()
        await wait_all_tasks_blocked()
        nursery = site.engine.sessions._nursery
        assert nursery is not None
        # One more waits for sessions to expire.
        assert len(nursery.child_tasks) == 2 + 1
        assert site.engine.sessions.statistics().open == 2
        alive = [
            await Client(site, one.fields_sent["mcp-session-id"]).ask(ask(1, "ping"))
            for one in answers
            if one.status == 200
        ]
        assert sorted(one.status for one in alive)[:2] == [200, 200]


# -- the end of the server


async def test_a_drain_ends_streams_at_once_also_those_that_come_later() -> None:
    desk = Desk()
    async with open_sessions(desk.server) as site:
        client = await site.open()
        stream = await client.get()
        call = client.send(use(1, "wait", gate="a"))
        await wait_all_tasks_blocked()
        site.endpoint.drain()
        await stream.returned.wait()
        assert stream.over.is_set()
        late = await client.get()
        assert late.over.is_set()
        assert late.returned.is_set()
        desk.gate("a").set()
        await call.over.wait()
        assert call.text == "past a"


async def test_calls_that_are_given_up_are_answered() -> None:
    desk = Desk()
    async with open_sessions(desk.server) as site:
        client = await site.open()
        calls = [client.send(use(1, "wait", gate="a")), client.send(steps(2, id=2))]
        await wait_all_tasks_blocked()
        site.endpoint.give_up()
        for call in calls:
            await call.over.wait()
            assert (call.status, call.code) == (200, 504)
        await wait_all_tasks_blocked()
        assert desk.count["cancelled"] == 2


async def test_the_end_of_the_server_ends_its_sessions(autojump_clock: MockClock) -> None:
    desk = Desk(drain_timeout=5)
    began = trio.current_time()
    async with open_sessions(desk.server) as site:
        client = await site.open()
        await site.open()
        client.send(use(1, "wait", gate="never"))
        await wait_all_tasks_blocked()
        sessions = desk.server.sessions
        assert len(sessions) == 2
    assert all(session.closed for session in sessions)
    assert trio.current_time() - began == pytest.approx(5)
    assert desk.count["cancelled"] == 1
    assert desk.server.sessions == []


async def test_a_stale_id_after_a_restart_is_404_and_a_new_session_works() -> None:
    desk = Desk()
    async with open_sessions(desk.server) as site:
        old = (await site.open()).id
    async with open_sessions(desk.server) as site:
        assert (await Client(site, old).ask(ask(1, "ping"))).status == 404
        assert (await (await site.open()).ask(ask(1, "ping"))).status == 200


async def test_no_line_of_the_log_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    async with open_sessions(desk.server) as site:
        client = await site.open()
        stream = await client.get()
        client.send(use(1, "wait", gate="x"))
        client.send(use(2, "elicit", question="x"))
        await wait_all_tasks_blocked()
        await client.delete()
        await stream.returned.wait()
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_the_messages_of_a_stream_are_one_line_each() -> None:
    async with open_sessions(Desk().server) as site:
        client = await site.open()
        text = "a\u2028b\u2029c\x85d\r\ne"
        answer = await client.ask(use(1, "echo", text=text), accept="text/event-stream")
        assert answer.text == text
        assert b"\r" not in answer.data
        assert json.loads(answer.data.split(b"data: ")[1]) == answer.messages[0]
