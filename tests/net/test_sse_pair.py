"""The HTTP+SSE transport of 2024-11-05, over every edge, as its clients see it."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
import trio

from trio_mcp import Context, HttpEndpoint, Server, http_app, open_server, serve_http
from trio_mcp.serve import OpenServer

from .servers.http_peers import Site
from .servers.http_tools import Lab
from .servers.pair_peers import HOSTED_2, WAYS, Pair, Way, ask, initialize, open_pair, post_alone, tell, until, use

every_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
hosts_too = pytest.mark.parametrize("way", [*WAYS, HOSTED_2], ids=lambda way: way.name)
our_ways = pytest.mark.parametrize("way", WAYS[:2], ids=lambda way: way.name)
REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")


def lab_of(**limits: Any) -> Lab:
    """A server whose tools ask and tell."""
    lab = Lab(**limits)

    @lab.server.tool
    async def greet(ctx: Context) -> str:
        """Asks who is there."""
        answer = await ctx.sample("Who is there?", max_tokens=10)
        return f"hello {answer['content']['text']}"

    @lab.server.tool
    async def rename(ctx: Context) -> str:
        """Changes the list of tools."""
        lab.server.tool(greet, name="hello")
        return "renamed"

    return lab


@asynccontextmanager
async def served(way: Way, lab: Lab) -> AsyncIterator[tuple[OpenServer, Site, httpx2.AsyncClient]]:
    """A server with the pair; at the end nothing is left of it."""
    async with open_server(lab.server) as engine:
        async with way.serve(engine, sse=True) as site, way.client(site) as http:
            yield engine, site, http
        with trio.fail_after(20):
            while engine.sessions.statistics().open or engine.executor.statistics().running:
                await trio.sleep(0.002)


async def ended(pair: Pair) -> list[dict[str, Any]]:
    """Read to the end of the stream; what came."""
    out = []
    try:
        while True:
            out.append(await pair.message())
    except (EOFError, trio.BrokenResourceError):
        return out


# -- what it is for


@every_way
async def test_every_revision_may_be_spoken_on_it(way: Way) -> None:
    async with served(way, lab_of()) as (engine, site, http):
        seen = set()
        for revision in REVISIONS:
            async with open_pair(way, site, http) as pair:
                assert (await pair.begin(revision))["protocolVersion"] == revision
                answer = await pair.ask(use("a", "echo", text=revision))
                assert answer["result"]["content"][0]["text"] == revision
                assert (await pair.ask(ask("p", "ping")))["result"] == {}
                assert len(engine.server.sessions) == 1
                seen.add(pair.endpoint)
            await until(lambda: not engine.server.sessions)
        assert len(seen) == len(REVISIONS)
        for endpoint in seen:
            # 128 random bits.
            assert re.search(r"/messages\?session=[^?&]*[0-9a-f]{32}$", endpoint)


@hosts_too
async def test_everything_comes_on_the_one_stream(way: Way) -> None:
    async with served(way, lab_of()) as (_, site, http), open_pair(way, site, http) as pair:
        await pair.begin(sampling={})
        await pair.send(use(1, "chatter", count=3, size=1, progress=True))
        told = [await pair.message() for _ in range(4)]
        assert [one["params"]["progress"] for one in told[:3]] == [1, 2, 3]
        assert told[3]["id"] == 1
        await pair.send(use(2, "greet"))
        question = await pair.message()
        assert question["method"] == "sampling/createMessage"
        said = {"role": "assistant", "content": {"type": "text", "text": "me"}, "model": "m"}
        await pair.send({"jsonrpc": "2.0", "id": question["id"], "result": said})
        assert (await pair.message())["result"]["content"][0]["text"] == "hello me"
        await pair.send(use(3, "rename"))
        last = [await pair.message() for _ in range(2)]
        assert {one.get("method", one.get("id")) for one in last} == {"notifications/tools/list_changed", 3}


@every_way
async def test_a_call_that_is_cancelled_by_notice_ends(way: Way) -> None:
    lab = lab_of()
    async with served(way, lab) as (_, site, http), open_pair(way, site, http) as pair:
        await pair.begin()
        await pair.send(use(1, "slow", seconds=60))
        await lab.wait("start")
        await pair.send(tell("notifications/cancelled", requestId=1))
        await lab.wait("finally")
        assert lab.count("slept") == 0
        assert (await pair.ask(ask(2, "ping")))["result"] == {}


@hosts_too
async def test_the_session_ends_with_the_stream_and_its_calls_too(way: Way) -> None:
    lab = lab_of()
    async with served(way, lab) as (engine, site, http):
        async with open_pair(way, site, http) as pair:
            await pair.begin()
            await pair.send(use(1, "slow", seconds=60))
            await lab.wait("start")
        await lab.wait("finally")
        assert lab.count("slept") == 0
        await until(lambda: not engine.server.sessions)
        answer = await pair.post(ask(2, "ping"))
        assert answer.status_code == 404
        assert "open one with GET" in answer.json()["error"]["message"]


@every_way
async def test_batches_are_taken_in_the_one_revision_that_has_them(way: Way) -> None:
    async with served(way, lab_of()) as (_, site, http):
        async with open_pair(way, site, http) as pair:
            await pair.begin("2025-03-26")
            await pair.send([ask(1, "ping"), tell("notifications/x"), use(2, "echo", text="b")])
            _, data = await pair.event()
            assert {one["id"] for one in json.loads(data)} == {1, 2}
        async with open_pair(way, site, http) as pair:
            await pair.begin("2025-06-18")
            assert (await pair.post([ask(1, "ping")])).status_code == 400
            assert (await pair.ask(ask(2, "ping")))["result"] == {}


# -- what is refused


@every_way
async def test_what_does_not_fit_is_refused_at_once(way: Way) -> None:
    async with served(way, lab_of()) as (_, site, http), open_pair(way, site, http) as pair:
        await pair.begin()
        assert (await pair.post(b"{nope")).status_code == 400
        assert (await pair.post("text")).status_code == 400
        assert (await pair.post({"jsonrpc": "2.0", "id": 1})).status_code == 400
        assert (await pair.post(ask(1, "ping"), headers={"content-type": "text/plain"})).status_code == 415
        # Also where it is valid but for its place.
        for target in ("/messages", "/messages?session=", "/messages?session=0-" + "0" * 32, "/messages?other=1"):
            found = await http.post(target, json=ask(1, "ping"))
            assert found.status_code == 404, target
        for method, target, allow in (
            ("GET", pair.endpoint, "POST"),
            ("POST", "/sse", "GET"),
            ("DELETE", "/sse", "GET"),
        ):
            refused = await http.request(method, target, json=ask(1, "ping") if method == "POST" else None)
            assert (refused.status_code, refused.headers["allow"]) == (405, allow)
        assert (await http.get("/sse", headers={"accept": "application/json"})).status_code == 406
        assert (await http.get("/sse/")).status_code == 404
        # None of that has harmed it.
        assert (await pair.ask(ask(2, "ping")))["result"] == {}


@every_way
async def test_another_host_or_page_gets_no_stream_and_sends_nothing(way: Way) -> None:
    lab = lab_of()
    async with served(way, lab) as (_, site, http), open_pair(way, site, http) as pair:
        await pair.begin()
        for headers in ({"host": "evil.example"}, {"origin": "https://evil.example"}):
            assert (await http.get("/sse", headers=headers)).status_code == 403
            assert (await pair.post(use(1, "slow", seconds=0), headers=headers)).status_code == 403
        assert (await pair.ask(ask(2, "ping")))["result"] == {}
        assert lab.count("start") == 0


@our_ways
async def test_a_message_over_the_limit_is_refused(way: Way) -> None:
    async with served(way, lab_of(message_bytes=1_000)) as (_, site, http), open_pair(way, site, http) as pair:
        await pair.begin()
        assert (await pair.post(use(1, "echo", text="x" * 1_000))).status_code == 413


@our_ways
async def test_streams_count_among_the_sessions(way: Way) -> None:
    async with served(way, lab_of(sessions=2)) as (engine, site, http):
        made = [await post_alone(http, initialize()) for _ in range(2)]
        first = made[0].headers["mcp-session-id"]
        async with open_pair(way, site, http) as pair:
            await pair.begin()
            # The one that has idled longest made room.
            assert (await post_alone(http, ask(1, "ping"), headers={"mcp-session-id": first})).status_code == 404
            async with open_pair(way, site, http):
                full = await http.get("/sse")
                assert (full.status_code, full.headers["retry-after"]) == (503, "1")
                assert "2 sessions are open" in full.json()["error"]["message"]
                assert (await post_alone(http, initialize())).status_code == 503
            with trio.fail_after(30):
                while (await post_alone(http, initialize())).status_code == 503:
                    await trio.sleep(0.002)
        await until(lambda: engine.sessions.statistics().open == 1)
        ending = {"mcp-session-id": engine.server.sessions[0].id}
        assert (await http.delete("/mcp", headers=ending)).status_code == 204


# -- a client that does not read


@our_ways
async def test_a_request_waits_while_its_client_does_not_read(way: Way) -> None:
    async with served(way, lab_of(write_buffer=10_000)) as (_, site, http), open_pair(way, site, http) as pair:
        await pair.begin()
        # More than the system holds for a client that does not read.
        for number in range(300):
            with trio.move_on_after(0.5) as patience:
                await pair.send(use(number, "echo", text="x" * 100_000))
            if patience.cancelled_caught:
                break
        else:
            raise AssertionError("all were taken")
        # An answer to a question, or a cancellation, gets through.
        await pair.send(tell("notifications/x"))
        # What was taken is answered. The last one may be, too: its client has not said over HTTP/2 that it does not wait.
        answered = set()
        async with trio.open_nursery() as nursery:
            # Whoever speaks HTTP/2 says that it has read only while it reads.
            nursery.start_soon(pair.send, ask("p", "ping"))
            while "p" not in answered:
                answered.add((await pair.message())["id"])
        assert answered >= {*range(number)}


@pytest.mark.parametrize("way", WAYS[:1], ids=lambda way: way.name)
async def test_a_client_that_reads_nothing_is_gone(way: Way) -> None:
    async with (
        served(way, lab_of(write_stall=0.3)) as (_, site, http),
        open_pair(way, site, http) as pair,
    ):
        await pair.begin()
        await pair.send(use(1, "big", size=12_000_000))
        with trio.fail_after(30):
            # A request that waits for room is told so, too.
            while (answer := await pair.post(ask("p", "ping"))).status_code != 404:
                assert answer.status_code == 202


@every_way
async def test_a_silent_stream_is_kept_open_with_comments(way: Way) -> None:
    async with (
        served(way, lab_of(silence=0.05, keep_alive=0.05)) as (_, site, http),
        open_pair(way, site, http) as pair,
    ):
        await pair.begin()
        await pair.send(use(1, "slow", seconds=0.2))
        assert (await pair.message())["id"] == 1
        assert pair.comments > 0


async def test_a_host_that_cannot_tell_whether_its_client_reads_ends_the_stream() -> None:
    async with (
        served(HOSTED_2, lab_of(write_buffer=20_000)) as (engine, site, http),
        open_pair(HOSTED_2, site, http) as pair,
    ):
        await pair.begin()
        await pair.send(use(1, "chatter", count=50, size=1_000, progress=True))
        assert 0 < len(await ended(pair)) < 20
        await until(lambda: not engine.server.sessions)


# -- the end


@every_way
async def test_at_the_end_of_the_server_an_open_stream_ends(way: Way) -> None:
    # A host tells the application nothing until it has waited so long.
    lab = lab_of(drain_timeout=0.3 if way.hosted else 60)
    async with served(way, lab) as (_, site, http), open_pair(way, site, http) as pair:
        await pair.begin()
        site.end()
        assert await ended(pair) == []
        with trio.fail_after(20):
            await site.ended.wait()


@our_ways
async def test_what_runs_at_the_end_may_finish(way: Way) -> None:
    lab = lab_of(drain_timeout=60)
    async with served(way, lab) as (_, site, http), open_pair(way, site, http) as pair:
        await pair.begin()
        await pair.send(use(1, "slow", seconds=60))
        await lab.wait("start")
        site.end()
        with trio.fail_after(30), pytest.raises(OSError, match=r"refused|connect"):
            while True:
                await (await site.connect()).aclose()
        lab.release.set()
        [answer] = await ended(pair)
        assert answer["result"]["content"][0]["text"] == "slept"
        with trio.fail_after(20):
            await site.ended.wait()


@our_ways
async def test_what_does_not_finish_at_the_end_is_told_so(way: Way) -> None:
    lab = lab_of(drain_timeout=0.3)
    async with served(way, lab) as (_, site, http), open_pair(way, site, http) as pair:
        await pair.begin()
        await pair.send(use(1, "slow", seconds=600))
        await lab.wait("start")
        site.end()
        [answer] = await ended(pair)
        assert "shutting down" in answer["error"]["message"]
        with trio.fail_after(20):
            await site.ended.wait()
        assert lab.count("slept") == 0


# -- options


async def test_options_that_contradict_each_other_are_refused_where_they_are_given() -> None:
    legacy, modern = Server("s"), Server("s", eras=("modern",))
    for options, words in (
        ({"sse": True, "simple": True}, "sse and simple exclude each other"),
        ({"no_delete": True, "simple": True}, "no_delete and simple exclude each other"),
        ({"sse": True, "path": "/sse"}, "belongs to HTTP+SSE"),
    ):
        with pytest.raises(ValueError, match=re.escape(words)):
            await serve_http(legacy, "127.0.0.1:0", **options)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=re.escape(words)):
            http_app(legacy, **options)  # type: ignore[arg-type]
    for options in ({"sse": True}, {"no_delete": True}):
        with pytest.raises(ValueError, match="revisions with sessions"):
            await serve_http(modern, "127.0.0.1:0", **options)
        async with open_server(modern) as engine:
            with pytest.raises(ValueError, match="revisions with sessions"):
                HttpEndpoint(engine, **options)


@our_ways
async def test_the_pair_stands_beside_the_endpoint_and_only_where_it_is_wanted(way: Way) -> None:
    async with open_server(lab_of().server) as engine:
        async with (
            way.serve(engine, sse=True, path="/deep/down/mcp") as site,
            way.client(site) as http,
            open_pair(way, site, http, "/deep/down/sse") as pair,
        ):
            assert pair.endpoint.startswith("/deep/down/messages?")
            await pair.begin()
        async with way.serve(engine) as site, way.client(site) as http:
            assert (await http.get("/sse")).status_code == 404
            assert (await http.post("/messages", json=ask(1, "ping"))).status_code == 404
