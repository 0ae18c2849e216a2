"""Answers without sessions and streams (`simple=True`), in all revisions, over every edge; and sessions that no client ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
import trio

from trio_mcp import Context, open_server
from trio_mcp.serve import OpenServer

from .servers.http_peers import Site, call, fields
from .servers.http_tools import Lab
from .servers.pair_peers import HOSTED_2, WAYS, Way, ask, initialize, post_alone, tell, until, use

every_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
hosts_too = pytest.mark.parametrize("way", [*WAYS, HOSTED_2], ids=lambda way: way.name)
one_way = pytest.mark.parametrize("way", WAYS[:1], ids=lambda way: way.name)


def lab_of(**limits: Any) -> Lab:
    """A server with a resource, and a tool that asks."""
    lab = Lab(**limits)

    @lab.server.resource("test://one")
    async def one() -> str:
        return "one"

    @lab.server.tool
    async def greet(ctx: Context) -> str:
        answer = await ctx.sample("Who is there?", max_tokens=10)
        return str(answer)

    @lab.server.tool
    async def stray(ctx: Context) -> str:
        """Tells a session what nobody will hear."""
        ctx.session.log("error", "x" * 1_000)
        lab.note(f"session {ctx.session.closed}")
        return ctx.session.protocol_version

    @lab.server.tool
    async def point() -> dict[str, int]:
        return {"x": 1}

    return lab


@asynccontextmanager
async def served(way: Way, lab: Lab, **options: Any) -> AsyncIterator[tuple[OpenServer, Site, httpx2.AsyncClient]]:
    """A server without sessions; at the end nothing is left."""
    async with open_server(lab.server) as engine:
        async with way.serve(engine, **(options or {"simple": True})) as site, way.client(site) as http:
            yield engine, site, http
            if not options:
                assert engine.sessions.statistics().open == 0
                assert engine.sessions.statistics().event_bytes == 0
        await until(lambda: not engine.executor.statistics().running)


async def modern(http: httpx2.AsyncClient, message: dict[str, Any], **more: str) -> httpx2.Response:
    return await http.post("/mcp", json=message, headers={**fields(message), **more})


@every_way
async def test_initialize_is_answered_and_no_session_begins(way: Way) -> None:
    async with served(way, lab_of()) as (engine, _, http):
        for revision in ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"):
            answer = await post_alone(http, initialize(revision, sampling={}))
            assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
            assert "mcp-session-id" not in answer.headers
            result = answer.json()["result"]
            assert result["protocolVersion"] == revision
            # Nothing is promised that needs a session or a stream.
            assert result["capabilities"] == {"tools": {}, "resources": {}}
            told = await post_alone(http, tell("notifications/initialized"), revision)
            assert (told.status_code, told.content) == (202, b"")
            assert engine.server.sessions == []
        unknown = await post_alone(http, initialize("1999-01-01"))
        assert unknown.json()["result"]["protocolVersion"] == "2025-11-25"
        assert (await post_alone(http, ask(1, "initialize"))).json()["error"]["code"] == -32602


@hosts_too
async def test_the_header_says_in_which_revision_a_request_is_answered(way: Way) -> None:
    async with served(way, lab_of()) as (_, _, http):
        for header, revision in ((None, "2025-03-26"), ("2024-11-05", "2024-11-05"), ("2025-11-25", "2025-11-25")):
            answer = await post_alone(http, use("s", "stray"), header)
            assert answer.status_code == 200
            assert answer.json()["id"] == "s"
            assert answer.json()["result"]["content"][0]["text"] == revision
            result = (await post_alone(http, use(1, "point"), header)).json()["result"]
            assert ("structuredContent" in result) == (revision >= "2025-06-18")
            assert "resultType" not in result
        for wrong in ("2099-01-01", "x"):
            refused = await post_alone(http, use(1, "point"), wrong)
            assert refused.status_code == 400
            assert "MCP-Protocol-Version" in refused.json()["error"]["message"]
            assert "2025-11-25" in refused.json()["error"]["message"]


@every_way
async def test_the_modern_revision_is_answered_beside_it(way: Way) -> None:
    lab = lab_of()
    async with served(way, lab) as (_, _, http):
        answer = await modern(http, call(1, "chatter", count=3, size=10, progress=True))
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
        assert answer.json()["result"]["resultType"] == "complete"
        # Without a revision anywhere but in the header it is malformed, as it always was.
        malformed = await post_alone(http, use(1, "point"), "2026-07-28")
        assert (malformed.status_code, malformed.json()["error"]["code"]) == (400, -32020)
        listen = {"jsonrpc": "2.0", "id": 2, "method": "subscriptions/listen"}
        listen["params"] = {"notifications": {"toolsListChanged": True}, "_meta": call(1, "x")["params"]["_meta"]}
        refused = await modern(http, listen)
        assert refused.status_code == 406
        assert "this server has none" in refused.json()["error"]["message"]


@every_way
async def test_there_is_one_answer_and_no_stream(way: Way) -> None:
    async with served(way, lab_of(silence=0.05, keep_alive=0.05)) as (_, _, http):
        for answer in (
            await post_alone(http, use(1, "chatter", count=3, size=10, progress=True), "2025-11-25"),
            await post_alone(http, use(1, "slow", seconds=0.2), "2025-11-25"),
            await modern(http, call(1, "slow", seconds=0.2)),
        ):
            assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
        for method in ("GET", "DELETE", "PUT"):
            refused = await http.request(method, "/mcp", headers={"accept": "text/event-stream"})
            assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
        only = await post_alone(http, use(1, "point"), headers={"accept": "text/event-stream"})
        assert only.status_code == 406
        assert "application/json" in only.json()["error"]["message"]


@every_way
async def test_what_needs_a_session_is_an_error_with_status_200(way: Way) -> None:
    async with served(way, lab_of()) as (_, _, http):
        for message in (
            ask(1, "logging/setLevel", level="debug"),
            ask(1, "resources/subscribe", uri="test://one"),
            ask(1, "tasks/get", taskId="x"),
            ask(1, "nope"),
        ):
            answer = await post_alone(http, message, "2025-11-25")
            assert (answer.status_code, answer.json()["error"]["code"]) == (200, -32601)
            assert answer.json()["id"] == 1
        assert (await post_alone(http, ask(2, "ping"), "2025-11-25")).json()["result"] == {}
        asked = await post_alone(http, use(3, "greet"), "2025-11-25")
        assert asked.status_code == 200
        assert asked.json()["error"]["code"] == -32600
        missing = await post_alone(http, ask(4, "resources/read", uri="test://two"), "2025-11-25")
        assert (missing.status_code, missing.json()["error"]["code"]) == (200, -32002)
        # `task` was promised by nobody, so it is not there.
        plain = await post_alone(http, ask(5, "tools/call", name="point", arguments={}, task={"ttl": 1}), "2025-11-25")
        assert plain.json()["result"]["structuredContent"] == {"x": 1}


@every_way
async def test_the_calls_of_a_client_that_leaves_are_cancelled(way: Way) -> None:
    lab = lab_of()
    async with served(way, lab) as (_, site, _):

        async def leave(message: Any) -> None:
            # This client resets no stream of HTTP/2, so it leaves with its connection.
            async with way.client(site) as http:
                await post_alone(http, message)

        for batch in (False, True):
            message: Any = use(1, "slow", seconds=60)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(leave, [message, use(2, "echo", text="x")] if batch else message)
                await lab.wait("start", 1 + batch)
                nursery.cancel_scope.cancel()
            await lab.wait("finally", 1 + batch)
        assert lab.count("slept") == 0


@every_way
async def test_batches_are_one_answer(way: Way) -> None:
    async with served(way, lab_of(batch_messages=4)) as (_, _, http):
        several = [use(1, "echo", text="a"), tell("notifications/x"), ask(2, "ping"), use(3, "crash")]
        for header in (None, "2025-03-26"):
            answer = await post_alone(http, several, header)
            assert answer.status_code == 200
            assert {one["id"] for one in answer.json()} == {1, 2, 3}
        assert (await post_alone(http, [tell("notifications/x")])).status_code == 202
        for wrong in ([], [ask(1, "ping")] * 5, [initialize()], [ask(1, "ping"), "x"]):
            assert (await post_alone(http, wrong)).status_code == 400
        assert (await post_alone(http, several, "2025-06-18")).status_code == 400
        assert (await post_alone(http, {"jsonrpc": "2.0", "id": 1, "result": {}})).status_code == 400


@one_way
async def test_what_does_not_finish_at_the_end_is_answered_so(way: Way) -> None:
    lab = lab_of(drain_timeout=0.3)
    async with served(way, lab) as (_, site, http):
        answers = []

        async def slow() -> None:
            answers.append(await post_alone(http, use(1, "slow", seconds=600)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(slow)
            await lab.wait("start")
            site.end()
        assert answers[0].status_code == 200
        assert "shutting down" in answers[0].json()["error"]["message"]


@every_way
async def test_sessions_may_be_such_that_no_client_ends_them(way: Way) -> None:
    async with served(way, lab_of(), no_delete=True) as (_, _, http):
        made = await post_alone(http, initialize())
        session = {"mcp-session-id": made.headers["mcp-session-id"]}
        refused = await http.delete("/mcp", headers=session)
        assert (refused.status_code, refused.headers["allow"]) == (405, "GET, POST")
        assert (await post_alone(http, ask(1, "ping"), headers=session)).json()["result"] == {}
