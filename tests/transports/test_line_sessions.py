"""Sessions on a connection of lines (2025-11-25 and older), seen from the wire, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_mcp import Server
from trio_mcp.server.serve.engine import open_engine
from trio_mcp.testing import RawPeer, open_raw, request

from .http.session_helpers import REVISIONS, ask, hello, tell, use
from .http.session_tools import Desk

each_revision = pytest.mark.parametrize("revision", REVISIONS)


async def shake(peer: RawPeer, revision: str = "2025-11-25", capabilities: dict[str, Any] | None = None) -> Any:
    """Open a session; the answer."""
    await peer.send(hello(0, revision, capabilities), tell("initialized"))
    return await peer.receive()


async def ask_for(peer: RawPeer, message: dict[str, Any]) -> Any:
    await peer.send(message)
    return await peer.receive()


@each_revision
async def test_everything_in_one_write(revision: str) -> None:
    async with open_raw(Desk().server) as peer:
        await peer.send(
            hello(0, revision),
            tell("initialized"),
            ask("", "logging/setLevel", level="error"),
            {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
            {"jsonrpc": "2.0", "id": 3, "method": "ping"},
            tell("initialized"),
        )
        answers = {}
        for _ in range(4):
            answer = await peer.receive()
            answers[answer["id"]] = answer["result"]
        assert answers[0]["protocolVersion"] == revision
        assert answers[""] == answers[3] == {}
        assert "echo" in [tool["name"] for tool in answers[2]["tools"]]


async def test_what_comes_before_initialize_is_refused_and_the_session_begins_after_it() -> None:
    async with open_raw(Desk().server) as peer:
        refused = await ask_for(peer, ask(1, "tools/list"))
        assert (refused["id"], refused["error"]["code"]) == (1, -32602)
        probed = await ask_for(peer, request(2, "server/discover"))
        assert "2026-07-28" in probed["result"]["supportedVersions"]
        assert (await shake(peer))["result"]["protocolVersion"] == "2025-11-25"
        assert (await ask_for(peer, ask(3, "ping")))["result"] == {}


async def test_both_eras_in_one_stream_are_answered_each_in_its_own_way() -> None:
    async with open_raw(Desk().server) as peer:
        await shake(peer, "2025-06-18")
        await peer.send(use(1, "data", number=1), request(2, "tools/call", name="data", arguments={"number": 2}))
        old, new = sorted([await peer.receive(), await peer.receive()], key=lambda answer: int(answer["id"]))
        assert "resultType" not in old["result"]
        assert new["result"]["resultType"] == "complete"
        missing = await ask_for(peer, ask(3, "resources/read", uri="other://x"))
        assert (missing["error"]["code"], missing["error"]["data"]) == (-32002, {"uri": "other://x"})
        missing = await ask_for(peer, request(4, "resources/read", uri="other://x"))
        assert missing["error"]["code"] == -32602


async def test_a_second_initialize_begins_the_session_anew() -> None:
    desk = Desk()
    async with open_engine(desk.server) as engine, open_raw(engine) as peer:
        await shake(peer, "2025-11-25")
        assert (await ask_for(peer, ask(1, "logging/setLevel", level="debug")))["result"] == {}
        (before,) = desk.server.sessions
        await peer.send(use(2, "roots"))
        assert (await peer.receive())["method"] == "roots/list"
        again = await shake(peer, "2024-11-05")
        # Nobody answers what the session was asked that is over.
        ended = again if again["id"] == 2 else await peer.receive()
        assert ended["result"]["isError"] is True
        (after,) = desk.server.sessions
        assert (before.closed, after.protocol_version, after.log_level) == (True, "2024-11-05", None)
        desk.server.tool(desk.echo, name="another")
        messages = [await peer.receive()]
        if messages[0].get("id") == 0:
            messages = [await peer.receive()]
        assert messages[0]["method"] == "notifications/tools/list_changed"
        assert await peer.nothing_for(0.1)


async def test_two_initializes_in_one_write_leave_one_session() -> None:
    desk = Desk()
    async with open_engine(desk.server) as engine, open_raw(engine) as peer:
        await peer.send(hello(1), hello(2, "2025-03-26"))
        answers = [await peer.receive(), await peer.receive()]
        assert [answer["result"]["protocolVersion"] for answer in answers] == ["2025-11-25", "2025-03-26"]
        desk.server.tool(desk.echo, name="another")
        assert (await peer.receive())["method"] == "notifications/tools/list_changed"
        assert await peer.nothing_for(0.1)
        assert len(desk.server.sessions) == 1


async def test_an_initialize_that_is_malformed_says_what_is_wrong() -> None:
    async with open_raw(Desk().server) as peer:
        for params in ({}, {"protocolVersion": 1}, {"protocolVersion": "2025-11-25", "capabilities": []}):
            refused = await ask_for(peer, ask(1, "initialize", **params))
            assert (refused["id"], refused["error"]["code"]) == (1, -32602)
            assert "initialize" in refused["error"]["message"]
        assert (await shake(peer))["id"] == 0


async def test_batches_are_of_one_revision() -> None:
    for revision in REVISIONS:
        desk = Desk()
        async with open_raw(desk.server) as peer:
            await shake(peer, revision)
            batch = [ask(1, "ping"), use(2, "echo", text="x"), tell("anything"), ask(3, "nothing")]
            answer = await ask_for(peer, batch)
            if revision != "2025-03-26":
                assert (answer["error"]["code"], "id" in answer) == (-32600, False)
                assert (await ask_for(peer, ask(4, "ping")))["id"] == 4
                continue
            assert sorted(one["id"] for one in answer) == [1, 2, 3]
            assert (await ask_for(peer, []))["error"]["code"] == -32600
            assert (await ask_for(peer, [ask(n, "ping") for n in range(101)]))["error"]["code"] == -32600
            (refused,) = await ask_for(peer, [hello(9)])
            assert (refused["id"], refused["error"]["code"]) == (9, -32600)
            await peer.send([tell("initialized")])
            # A call that is cancelled is missing among the answers.
            await peer.send([use(5, "wait", gate="never"), ask(6, "ping")])
            await wait_all_tasks_blocked()
            await peer.cancel(5)
            assert [one["id"] for one in await peer.receive()] == [6]
            # One of the other era has its own answer.
            await peer.send([ask(7, "ping"), request(8, "tools/call", name="echo", arguments={"text": "x"})])
            both = [await peer.receive(), await peer.receive()]
            assert sorted(type(one).__name__ for one in both) == ["dict", "list"]


async def test_batches_are_none_before_a_session_begins() -> None:
    async with open_raw(Desk().server) as peer:
        assert (await ask_for(peer, [hello(0, "2025-03-26")]))["error"]["code"] == -32600


async def test_a_question_is_answered_on_the_same_connection(caplog: pytest.LogCaptureFixture) -> None:
    async with open_raw(Desk().server) as peer:
        await shake(peer)
        question = await ask_for(peer, use(1, "elicit", question="which?"))
        assert question["method"] == "elicitation/create"
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"word": "w"}}}
        await peer.send({**answer, "id": 999}, answer, answer)
        done = await peer.receive()
        assert (done["id"], done["result"]["content"][0]["text"]) == (1, "accept: w")
        await wait_all_tasks_blocked()
    assert caplog.text.count("nobody waits for it") == 2


async def test_an_answer_without_a_session_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    async with open_raw(Desk().server) as peer:
        await peer.send({"jsonrpc": "2.0", "id": 1, "result": {}}, tell("initialized"), hello())
        assert (await peer.receive())["id"] == 0
    assert caplog.text.count("nobody waits for it") == 1


async def test_the_end_of_input_ends_a_question_and_its_call_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    async with open_raw(Desk(drain_timeout=1_000).server) as peer:
        await shake(peer)
        await ask_for(peer, use(1, "elicit", question="which?"))
        await peer.close_input()
        answer = await peer.receive()
        assert (answer["id"], answer["result"]["isError"]) == (1, True)
        assert "end of its input" in answer["result"]["content"][0]["text"]
        assert await peer.receive_line() is None
    assert "Internal error" not in caplog.text


async def test_a_call_goes_on_for_a_while_after_the_end_of_input(autojump_clock: MockClock) -> None:
    desk = Desk(drain_timeout=5)
    async with open_raw(desk.server) as peer:
        await shake(peer)
        await peer.send(use(1, "wait", gate="a"), use(2, "wait", gate="never"))
        await wait_all_tasks_blocked()
        await peer.close_input()
        await trio.sleep(4)
        desk.gate("a").set()
        assert (await peer.receive())["id"] == 1
        given_up = await peer.receive()
        assert (given_up["id"], given_up["error"]["code"]) == (2, 504)
        assert await peer.receive_line() is None
    assert desk.count["cancelled"] == 1


async def test_a_cancelled_call_says_nothing_more(autojump_clock: MockClock) -> None:
    desk = Desk()
    async with open_raw(desk.server) as peer:
        await shake(peer)
        await peer.send(use(1, "wait", gate="never"))
        await trio.sleep(0.1)
        await peer.cancel(1)
        await peer.cancel("unknown")
        await peer.send(tell("cancelled"))
        assert await peer.nothing_for(2)
        assert desk.count["cancelled"] == 1
        assert (await ask_for(peer, use(1, "echo", text="x")))["id"] == 1


async def test_a_question_of_a_cancelled_call_is_withdrawn() -> None:
    async with open_raw(Desk().server) as peer:
        await shake(peer)
        question = await ask_for(peer, use(1, "roots"))
        await peer.cancel(1)
        withdrawn = await peer.receive()
        assert withdrawn["method"] == "notifications/cancelled"
        assert withdrawn["params"]["requestId"] == question["id"]
        assert (await ask_for(peer, ask(2, "ping")))["id"] == 2


async def test_a_call_that_waits_for_its_client_gives_its_place_to_others() -> None:
    async with open_raw(Desk(connection_running=1).server) as peer:
        await shake(peer)
        question = await ask_for(peer, use(1, "roots"))
        assert (await ask_for(peer, use(2, "echo", text="x")))["id"] == 2
        await peer.send({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": [{"uri": "file:///x"}]}})
        assert (await peer.receive())["result"]["content"][0]["text"] == "file:///x"


async def test_too_many_questions_to_one_client_are_refused() -> None:
    async with open_raw(Desk(session_requests=2).server) as peer:
        await shake(peer)
        for number in (1, 2):
            assert (await ask_for(peer, use(number, "roots")))["method"] == "roots/list"
        refused = await ask_for(peer, use(3, "roots"))
        assert (refused["id"], refused["error"]["code"]) == (3, 503)
        assert "wait for an answer already" in refused["error"]["message"]


async def test_lines_that_are_no_messages_do_no_harm() -> None:
    async with open_raw(Desk().server) as peer:
        await shake(peer)
        await peer.send_bytes(b'{nope\n\n"text"\n')
        for _ in range(2):
            assert "id" not in await peer.receive()
        await peer.send(tell("unknown"))
        assert (await ask_for(peer, ask(1, "ping")))["id"] == 1


async def test_subscribers_hear_and_the_session_leaves_nothing() -> None:
    desk = Desk()
    async with open_engine(desk.server) as engine:
        async with open_raw(engine) as peer:
            await shake(peer)
            assert (await ask_for(peer, ask(1, "resources/subscribe", uri="test://a")))["result"] == {}
            for name in "ba":
                desk.server.notify_resource_updated(f"test://{name}")
            assert (await peer.receive())["params"] == {"uri": "test://a"}
            assert len(desk.server.sessions) == 1
            await peer.vanish()
            await peer.ended.wait()
        held = engine.sessions.statistics()
        assert (held.open, held.event_bytes) == (0, 0)


async def test_a_server_of_one_era_tells_the_other_what_it_speaks() -> None:
    async with open_raw(Server("new", version="1", eras={"modern"})) as peer:
        refused = await ask_for(peer, hello(1))
        assert (refused["error"]["code"], refused["error"]["data"]["supported"]) == (-32022, ["2026-07-28"])
    async with open_raw(Server("old", version="1", eras={"legacy"})) as peer:
        refused = await ask_for(peer, request(1, "server/discover"))
        assert refused["error"]["code"] not in (-32020, -32021, -32022)
        assert (await shake(peer))["id"] == 0
