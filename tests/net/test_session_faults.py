"""Faults of sessions over HTTP: each test says what ought to hold."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from trio_mcp import Context, MemoryTaskStore, Server, open_server
from trio_mcp.serve import OpenServer

from .servers.http_peers import H1Peer, Site, serving
from .servers.http_tools import Lab
from .servers.pair_peers import ask, initialize, tell, use

BOTH = "application/json, text/event-stream"


def raw(verb: str, message: Any = None, **fields: str) -> bytes:
    """A whole HTTP/1.1 request."""
    body = b"" if message is None else json.dumps(message).encode()
    lines = [f"{verb} /mcp HTTP/1.1", "host: 127.0.0.1"]
    if body:
        lines += ["content-type: application/json", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in {"accept": BOTH, **fields}.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Stream:
    """An answer that is an event stream, as it arrives."""

    def __init__(self, peer: H1Peer) -> None:
        self.peer = peer
        self._data = b""

    async def event(self) -> dict[str, str]:
        """The next event, without comments.

        Raises:
            EOFError: the stream has ended.
        """
        while True:
            while b"\n\n" not in self._data:
                size = int(await self.peer.until(b"\r\n"), 16)
                while len(self.peer.data) < size + 2:
                    await self.peer.more()
                self._data += self.peer.data[:size]
                self.peer.data = self.peer.data[size + 2 :]
                if not size:
                    raise EOFError("the stream has ended")
            text, _, self._data = self._data.partition(b"\n\n")
            lines = [line.partition(":") for line in text.decode().split("\n") if not line.startswith(":")]
            if lines:
                return {name: value.strip() for name, _, value in lines}

    async def message(self) -> dict[str, Any]:
        """The next message."""
        while not (data := (await self.event()).get("data")):
            pass
        out: dict[str, Any] = json.loads(data)
        return out

    async def rest(self) -> list[dict[str, str]]:
        """What comes until it ends."""
        out = []
        try:
            while True:
                out.append(await self.event())
        except EOFError:
            return out

    def cut(self) -> None:
        """Break the connection off."""
        cut(self.peer)


def cut(peer: H1Peer) -> None:
    """Break a connection off."""
    sock = peer.stream.socket
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


class Client:
    """A client with one session, which opens a connection for each request."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.id = ""

    async def begin(self, revision: str = "2025-11-25", **capabilities: Any) -> Client:
        _, headers, _ = await self.post(initialize(revision, **capabilities))
        self.id = headers["mcp-session-id"]
        await self.post(tell("notifications/initialized"))
        return self

    def _fields(self, fields: dict[str, str]) -> dict[str, str]:
        return {**({"mcp-session-id": self.id} if self.id else {}), **fields}

    async def send(self, verb: str, message: Any = None, **fields: str) -> H1Peer:
        peer = await self.site.h1()
        await peer.send(raw(verb, message, **self._fields(fields)))
        return peer

    async def post(self, message: Any, **fields: str) -> tuple[int, dict[str, str], bytes]:
        """POST, and read the whole answer."""
        peer = await self.send("POST", message, **fields)
        status, headers = await peer.head()
        body = b"" if status in (202, 204) else await peer.body(headers)
        await peer.aclose()
        return status, headers, body

    async def ask(self, message: Any) -> dict[str, Any]:
        out: dict[str, Any] = json.loads((await self.post(message))[2])
        return out

    async def stream(self, verb: str, message: Any = None, **fields: str) -> Stream:
        """A request that is answered with a stream."""
        peer = await self.send(verb, message, **fields)
        status, headers = await peer.head()
        assert (status, headers["content-type"]) == (200, "text/event-stream"), (status, headers)
        return Stream(peer)


def says(id: Any, text: str) -> dict[str, Any]:
    """The answer to `sampling/createMessage`."""
    content = {"type": "text", "text": text}
    return {"jsonrpc": "2.0", "id": id, "result": {"role": "assistant", "model": "m", "content": content}}


@asynccontextmanager
async def lab_site(lab: Lab) -> AsyncIterator[tuple[OpenServer, Site]]:
    with trio.fail_after(60):
        async with open_server(lab.server) as engine, serving(engine) as site:
            yield engine, site


async def test_a_get_that_is_cut_at_once_leaves_nothing() -> None:
    """A peer that is gone before its GET is served is told of no event; its stream must end all the same.

    `HttpSessions.get` sets `on_gone` and does not look whether `exchange.gone` is set already (`_wait` and `_run` do).
    """
    async with lab_site(Lab()) as (engine, site):
        client = await Client(site).begin()
        (session,) = engine.server.sessions
        for _ in range(60):
            cut(await client.send("GET"))
        await client.ask(ask(1, "ping"))
        with trio.fail_after(10):
            while not session.idle:
                await trio.sleep(0.01)


async def test_a_get_that_is_reset_at_once_leaves_nothing_over_http2() -> None:
    """The same, where one write opens and resets many: they stay, beyond any bound, and the session never idles."""
    async with lab_site(Lab()) as (engine, site):
        client = await Client(site).begin()
        (session,) = engine.server.sessions
        peer = await site.h2()
        head = [(b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"127.0.0.1"), (b":path", b"/mcp")]
        head += [(b"accept", b"text/event-stream"), (b"mcp-session-id", client.id.encode())]
        for _ in range(40):
            number = peer.h2.get_next_available_stream_id()
            peer.h2.send_headers(number, head, end_stream=True)
            peer.h2.reset_stream(number)
        await peer.flush()
        await client.ask(ask(1, "ping"))
        with trio.fail_after(10):
            while not session.idle:
                await trio.sleep(0.01)


async def test_streams_that_begin_in_one_moment_keep_to_their_bound() -> None:
    """`limits.session_streams` holds whatever arrives in one read: `Session.hold` ends the same oldest one again and again."""
    async with lab_site(Lab(session_streams=4)) as (_, site):
        client = await Client(site).begin()
        peer = await site.h2()
        head = [(b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"127.0.0.1"), (b":path", b"/mcp")]
        head += [(b"accept", b"text/event-stream"), (b"mcp-session-id", client.id.encode())]
        for _ in range(20):
            peer.h2.send_headers(peer.h2.get_next_available_stream_id(), head, end_stream=True)
        await peer.flush()
        with trio.fail_after(10):
            while len(peer.ended) < 16:
                assert await peer.pump()


async def test_a_stream_that_is_left_open_hears_on_when_a_later_one_ends() -> None:
    """Several streams may be open (2025-11-25, basic/transports, Multiple Connections): a message goes on one of those.

    The later GET takes the stream over; when it ends, nobody gives it back to the one that is still open.
    """
    async with lab_site(Lab()) as (engine, site):
        client = await Client(site).begin()
        (session,) = engine.server.sessions
        first = await client.stream("GET")
        await first.event()
        second = await client.stream("GET")
        await second.event()
        taker = session.events.standalone.taker
        second.cut()
        with trio.fail_after(10):
            while session.events.standalone.taker is taker:
                await trio.sleep(0.01)
        session.log("error", "hello")
        with trio.fail_after(10):
            assert (await first.message())["params"]["data"] == "hello"


async def test_sessions_that_push_each_other_out_at_birth_leave_nothing() -> None:
    """A session that has to make room before its task runs is closed, and its task then sleeps for ever: the server ends late.

    `Sessions.start` lists it as idle before `nursery.start`; `close` finds no nursery; `_live` does not look at `closed`.
    """
    lab = Lab(sessions=1, drain_timeout=60)
    async with open_server(lab.server) as engine:
        async with serving(engine) as site:
            peers = [await site.h1() for _ in range(10)]
            with trio.fail_after(30):
                for _ in range(10):
                    async with trio.open_nursery() as nursery:
                        for peer in peers:
                            nursery.start_soon(peer.send, raw("POST", initialize()))
                    for peer in peers:
                        await peer.response()
        since = trio.current_time()
        assert engine.sessions.statistics().open <= 1
    assert trio.current_time() - since < 20


async def test_whoever_was_answered_by_a_person_is_not_refused_as_busy() -> None:
    """A call that asks gives its place back; it was admitted, and a person has answered: it waits for a place, whoever else does.

    `Call._come_back` draws a new ticket behind `limits.waiting`, and `ServerBusy` throws the answer away.
    """
    lab = Lab(running=1, waiting=1)

    @lab.server.tool
    async def greet(ctx: Context) -> str:
        """Asks who is there."""
        answer = await ctx.sample("Who is there?", max_tokens=10)
        return f"hello {answer['content']['text']}"

    async with lab_site(lab) as (engine, site):
        client = await Client(site).begin(sampling={})
        asking = await client.stream("POST", use(1, "greet"))
        question = await asking.message()
        running = [await client.send("POST", use(number, "slow", seconds=60)) for number in (2, 3)]
        with trio.fail_after(10):
            while engine.executor.statistics().waiting < 1:
                await trio.sleep(0.01)
        await client.post(says(question["id"], "you"))
        # Whoever comes back has drawn its ticket by now.
        await client.ask(ask(9, "ping"))
        lab.release.set()
        with trio.fail_after(20):
            answer = await asking.message()
        assert answer.get("result", {}).get("content", [{}])[0].get("text") == "hello you", answer
        for peer in running:
            await peer.aclose()


@pytest.mark.parametrize("bad", [{"error": {"code": 1}}, {"result": None}], ids=["error", "result"])
async def test_a_malformed_answer_is_not_answered_under_its_id(bad: dict[str, Any]) -> None:
    """An id of a response is one of the server's own: an error with it would be one to another request, of the client."""
    async with lab_site(Lab()) as (_, site):
        client = await Client(site).begin()
        status, _, body = await client.post({"jsonrpc": "2.0", "id": 1, **bad})
        assert status == 400
        assert "id" not in json.loads(body)


async def test_what_is_missing_between_two_events_is_told() -> None:
    """A client that comes back for what was dropped meanwhile hears that it was, whether it had been sent or not.

    `EventStream.dropped` counts what was not sent; what was written to a broken connection counts as sent.
    """
    async with lab_site(Lab(session_events=8)) as (_, site):
        client = await Client(site).begin()
        stream = await client.stream("POST", use(1, "chatter", progress=True, count=100, size=1))
        await stream.rest()
        resumed = await client.stream("GET", last_event_id="1-1")
        with trio.fail_after(10):
            rest = await resumed.rest()
        assert rest[0].get("id") == "1-2" or "dropped" in rest[0]["data"], rest[0]


async def test_a_session_that_is_over_keeps_nothing() -> None:
    """Whoever still has it may log: what nobody can fetch is not held among the events of all sessions."""
    async with lab_site(Lab()) as (engine, site):
        client = await Client(site).begin()
        (session,) = engine.server.sessions
        peer = await client.send("DELETE")
        await peer.head()
        session.log("error", "x" * 1000)
        assert engine.sessions.statistics().event_bytes == 0


async def test_a_session_that_is_cleaning_up_hears_of_no_change() -> None:
    """The same for a change of a list, while a tool of the session still cleans up: the event stays in the store for ever."""
    lab = Lab()
    leaving = trio.Event()

    @lab.server.tool
    async def tidy() -> None:
        """Takes its time at the end."""
        try:
            lab.note("working")
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True), trio.move_on_after(20):
                await leaving.wait()

    async with lab_site(lab) as (engine, site):
        client = await Client(site).begin()
        call = await client.send("POST", use(1, "tidy"))
        await lab.wait("working")
        await (await client.send("DELETE")).head()
        lab.server.tool(lab.echo, name="other")
        leaving.set()
        with trio.fail_after(10):
            while engine.sessions.statistics().open:
                await trio.sleep(0.01)
        await call.aclose()
        assert engine.sessions.statistics().event_bytes == 0


async def test_a_client_that_takes_streams_only_gets_no_document() -> None:
    """`Accept: text/event-stream` alone (RFC 9110): what is answered at once is a stream as well, or 406."""
    async with lab_site(Lab()) as (_, site):
        client = await Client(site).begin()
        status, headers, _ = await client.post(ask(1, "ping"), accept="text/event-stream")
        assert status == 406 or headers["content-type"] == "text/event-stream"


async def test_one_bad_message_does_not_spoil_a_batch() -> None:
    """JSON-RPC 2.0, section 6: each member is answered for itself (`[1]` gives `[error]`), as it is over lines."""
    async with lab_site(Lab()) as (_, site):
        client = await Client(site).begin("2025-03-26")
        status, _, body = await client.post([ask(1, "ping"), 7])
        assert status == 200
        assert {"jsonrpc": "2.0", "id": 1, "result": {}} in json.loads(body)


async def test_a_stream_that_was_taken_up_again_can_be_closed_again() -> None:
    """`close_stream` ends the connection that takes the stream, not only the first one (2025-11-25: at any time)."""
    lab = Lab(resume_after=0.1)
    back = trio.Event()

    @lab.server.tool
    async def polled(ctx: Context) -> str:
        """Lets its client come back twice."""
        await ctx.close_stream()
        await back.wait()
        await ctx.report_progress(1)
        await ctx.close_stream()
        await lab.release.wait()
        return "done"

    async with lab_site(lab) as (_, site):
        client = await Client(site).begin()
        first = await client.stream("POST", use(1, "polled", progress=True))
        (prime,) = await first.rest()
        second = await client.stream("GET", last_event_id=prime["id"])
        back.set()
        with trio.move_on_after(5) as patience:
            await second.rest()
        lab.release.set()
        assert not patience.cancelled_caught


# -- tasks


def task_lab() -> tuple[Server[None], trio.Event]:
    server: Server[None] = Server("lab", version="1", tasks=MemoryTaskStore())
    done = trio.Event()

    @server.tool(task_support="optional")
    async def greet(ctx: Context) -> str:
        """Asks who is there."""
        answer = await ctx.sample("Who is there?", max_tokens=10)
        return f"hello {answer['content']['text']}"

    @server.tool(task_support="optional")
    async def stubborn() -> str:
        """Does not let itself be cancelled."""
        with trio.CancelScope(shield=True), trio.move_on_after(20):
            await done.wait()
        return "done all the same"

    return server, done


@pytest.mark.parametrize("how", ["cancelled", "cut"])
async def test_the_question_of_a_task_reaches_whoever_waits_for_its_result(how: str) -> None:
    """A second `tasks/result` asks what the first one cannot ask any more (2025-11-25, tasks: a requestor MAY drop the stream
    of `tasks/result` and poll, and call it again on `input_required`).

    `_Asker.wait` skips what is in `session.asking` and looks again only when the task changes; and after a cut the first call
    goes on asking where nobody listens, for `limits.question_timeout`.
    """
    server, _ = task_lab()
    with trio.fail_after(60):
        async with open_server(server) as engine, serving(engine) as site:
            client = await Client(site).begin(sampling={})
            begun = await client.ask({**use(1, "greet"), "params": {"name": "greet", "arguments": {}, "task": {}}})
            task = begun["result"]["task"]["taskId"]
            first = await client.stream("POST", ask(2, "tasks/result", taskId=task))
            await first.message()
            peer = await client.send("POST", ask(3, "tasks/result", taskId=task))
            (session,) = engine.server.sessions
            while len(session.calls) < 2:
                await trio.sleep(0.01)
            if how == "cut":
                first.cut()
            else:
                await client.post(tell("notifications/cancelled", requestId=2))
            with trio.fail_after(15):
                await peer.head()
                question = await Stream(peer).message()
            assert question.get("method") == "sampling/createMessage"


async def test_a_task_that_was_cancelled_stays_so() -> None:
    """`tasks/cancel` MUST set the status before it answers, and it MUST remain even if the work completes (2025-11-25, tasks).

    `session_tasks.cancel` writes "cancelled" over a row that is still working; `ServerTask.run` settles with the outcome.
    """
    server, done = task_lab()
    with trio.fail_after(60):
        async with open_server(server) as engine, serving(engine) as site:
            client = await Client(site).begin()
            message = ask(1, "tools/call", name="stubborn", arguments={}, task={})
            task = (await client.ask(message))["result"]["task"]["taskId"]
            answer = await client.ask(ask(2, "tasks/cancel", taskId=task))
            assert answer["result"]["status"] == "cancelled"
            seen = [(await client.ask(ask(3, "tasks/get", taskId=task)))["result"]["status"]]
            done.set()
            while engine.tasks.running:
                await trio.sleep(0.01)
            seen.append((await client.ask(ask(4, "tasks/get", taskId=task)))["result"]["status"])
            assert seen == ["cancelled", "cancelled"]
