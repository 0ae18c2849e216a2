"""Faults of sessions over lines, and of an endpoint that ends: each test says what ought to hold."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
from trio.testing import MockClock, memory_stream_pair, wait_all_tasks_blocked

from trio_mcp import Context, Limits, Server, open_server, serve_stream
from trio_mcp.serve import OpenServer

from .http.helpers import make, open_site


def ask(id: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def hello(id: Any = 0, revision: str = "2025-11-25", **capabilities: Any) -> dict[str, Any]:
    info = {"name": "t", "version": "1"}
    return ask(id, "initialize", protocolVersion=revision, capabilities=capabilities, clientInfo=info)


class Peer:
    """A client on a byte stream."""

    def __init__(self, stream: trio.StapledStream[Any, Any]) -> None:
        self.stream = stream
        self._data = b""
        self._turn = trio.Lock()

    async def say(self, *messages: Any) -> None:
        async with self._turn:
            await self.stream.send_all(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    async def hear(self) -> dict[str, Any]:
        while b"\n" not in self._data:
            data = await self.stream.receive_some()
            assert data, "the connection has ended"
            self._data += data
        line, _, self._data = self._data.partition(b"\n")
        out: dict[str, Any] = json.loads(line)
        return out


@asynccontextmanager
async def talking(server: Server[None]) -> AsyncIterator[tuple[OpenServer, Peer]]:
    """A client of a server on a byte stream."""
    ours, theirs = memory_stream_pair()
    async with open_server(server) as engine, trio.open_nursery() as nursery:
        nursery.start_soon(serve_stream, engine, theirs)
        yield engine, Peer(ours)
        nursery.cancel_scope.cancel()


async def test_a_session_that_is_begun_anew_leaves_nothing_of_the_old_one(autojump_clock: MockClock) -> None:
    """`initialize` again and again: `Session.keep_alive` of a closed session finds no taker, and never ends.

    It stands in the nursery of the connection (`LineSession.begin`), and keeps its session.
    """
    server: Server[None] = Server("lab", version="1", limits=Limits(session_ping=1))
    async with talking(server) as (_, peer):

        async def pongs() -> None:
            while True:
                message = await peer.hear()
                if message.get("method") == "ping":
                    await peer.say({"jsonrpc": "2.0", "id": message["id"], "result": {}})

        async with trio.open_nursery() as nursery:
            nursery.start_soon(pongs)
            await peer.say(hello())
            await trio.sleep(5)
            before = trio.lowlevel.current_statistics().tasks_living
            for number in range(50):
                await peer.say(hello(number))
            await trio.sleep(5)
            assert trio.lowlevel.current_statistics().tasks_living <= before + 1
            nursery.cancel_scope.cancel()


async def test_a_malformed_answer_ends_no_request_of_the_client(autojump_clock: MockClock) -> None:
    """Ids of both directions are apart (2025-11-25, basic): a client asks with 1 and is asked with 1.

    An answer to 1 that is malformed is answered with an error under 1, which the client takes for the end of its own request
    1; that is answered a second time later. `parse_value` gives the id of a response to `BadMessage`.
    """
    server: Server[None] = Server("lab", version="1", limits=Limits(question_timeout=30))

    @server.tool
    async def greet(ctx: Context) -> str:
        """Asks who is there."""
        answer = await ctx.sample("Who is there?", max_tokens=10)
        return f"hello {answer['content']['text']}"

    async with talking(server) as (_, peer):
        await peer.say(hello(sampling={}))
        await peer.hear()
        await peer.say(ask(1, "tools/call", name="greet", arguments={}))
        question = await peer.hear()
        assert question["id"] == 1
        await peer.say({"jsonrpc": "2.0", "id": 1, "error": {"code": -1}})
        answers = []
        with trio.move_on_after(60):
            while True:
                answers.append(await peer.hear())
        assert len([answer for answer in answers if answer.get("id") == 1 and "method" not in answer]) == 1, answers


async def test_a_ping_before_initialize_is_answered(autojump_clock: MockClock) -> None:
    """A client may ping before it is answered (2025-11-25, basic/lifecycle), and each ping MUST be answered with `{}`
    (basic/utilities/ping). `Connection._admit` takes it for a request of 2026-07-28."""
    server: Server[None] = Server("lab", version="1")
    async with talking(server) as (_, peer):
        await peer.say(ask(1, "ping"))
        assert await peer.hear() == {"jsonrpc": "2.0", "id": 1, "result": {}}


async def test_a_bad_message_in_a_batch_is_answered_in_it(autojump_clock: MockClock) -> None:
    """JSON-RPC 2.0, section 6: one array, with an error for each member that is no message."""
    server: Server[None] = Server("lab", version="1")
    async with talking(server) as (_, peer):
        await peer.say(hello(revision="2025-03-26"))
        await peer.hear()
        await peer.say([ask(1, "ping"), 7])
        answer: Any = await peer.hear()
        assert type(answer) is list and len(answer) == 2, answer


async def test_a_get_that_comes_while_the_endpoint_drains_comes_back(autojump_clock: MockClock) -> None:
    """`drain` answers what only waits, and what comes later (`HttpEndpoint.drain`).

    `Lasting.add` ends the taker, and then `EventStream.pump` attaches it and waits.
    """
    server, _ = make()
    async with open_site(server) as site:
        peer = site.connect()
        body = json.dumps(hello()).encode()
        head = b"host: 127.0.0.1\r\naccept: application/json, text/event-stream\r\n"
        await peer.send(
            b"POST /mcp HTTP/1.1\r\ncontent-type: application/json\r\n%scontent-length: %d\r\n\r\n" % (head, len(body)),
            body,
        )
        answer = await peer.answer()
        session = answer.fields["mcp-session-id"].encode()
        site.endpoint.drain()
        await peer.send(b"GET /mcp HTTP/1.1\r\n%smcp-session-id: %s\r\n\r\n" % (head, session))
        await wait_all_tasks_blocked()
        (session_of,) = server.sessions
        assert session_of.idle
