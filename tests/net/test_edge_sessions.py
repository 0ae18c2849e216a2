"""Sessions (2025-11-25 and older) over every edge, as a peer sees them."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio

from trio_mcp import Context, open_server

from .edges import EDGES, OURS, OWN_HOST, Edge
from .servers.http_peers import Site, events_of, settled
from .servers.http_tools import Lab

every_edge = pytest.mark.parametrize("edge", EDGES, ids=lambda edge: edge.name)

BOTH = "application/json, text/event-stream"


def ask(id: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def slow(id: Any, seconds: float = 30) -> dict[str, Any]:
    arguments = {"seconds": seconds}
    return ask(id, "tools/call", name="slow", arguments=arguments, _meta={"progressToken": id})


HELLO = ask(
    0, "initialize", protocolVersion="2025-11-25", capabilities={"roots": {}}, clientInfo={"name": "c", "version": "1"}
)


class Request:
    """One request on a connection of its own."""

    def __init__(self, edge: Edge, site: Site, session: str | None, verb: str, message: Any, **extra: str) -> None:
        self._edge = edge
        self._site = site
        self._fields = {"accept": BOTH, "content-type": "application/json"}
        if session is not None:
            self._fields |= {"mcp-session-id": session, "mcp-protocol-version": "2025-11-25"}
        self._fields |= {name.replace("_", "-"): value for name, value in extra.items()}
        self._verb = verb
        self._body = b"" if message is None else json.dumps(message).encode()

    async def send(self) -> Request:
        if self._edge.http2:
            self._h2 = await self._site.h2()
            head = [
                (b":method", self._verb.encode()),
                (b":scheme", b"http"),
                (b":authority", b"127.0.0.1"),
                (b":path", b"/mcp"),
            ]
            head += [(name.encode(), value.encode()) for name, value in self._fields.items()]
            self._stream = await self._h2.request(head, end=not self._body)
            if self._body:
                self._h2.h2.send_data(self._stream, self._body, end_stream=True)
                await self._h2.flush()
        else:
            self._h1 = await self._site.h1()
            lines = [f"{self._verb} /mcp HTTP/1.1", "host: 127.0.0.1", f"content-length: {len(self._body)}"]
            lines += [f"{name}: {value}" for name, value in self._fields.items()]
            await self._h1.send("\r\n".join(lines).encode() + b"\r\n\r\n" + self._body)
        return self

    async def until(self, mark: bytes) -> None:
        """Read until something has come in the body."""
        with trio.fail_after(30):
            if self._edge.http2:
                while mark not in self._h2.bodies.get(self._stream, b""):
                    assert await self._h2.pump()
            else:
                while mark not in self._h1.data:
                    await self._h1.more()

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        with trio.fail_after(30):
            if self._edge.http2:
                status, body = await self._h2.response(self._stream)
                assert status is not None
                return status, self._h2.headers[self._stream], body
            status, fields = await self._h1.head()
            # That has no body, and no length of it.
            return status, fields, b"" if status == 204 else await self._h1.body(fields)

    async def leave(self) -> None:
        await (self._h2 if self._edge.http2 else self._h1).aclose()


class Lines:
    """A client of one edge."""

    def __init__(self, edge: Edge, site: Site, session: str | None = None) -> None:
        self._edge = edge
        self._site = site
        self.session = session

    async def send(self, message: Any = None, verb: str = "POST", **extra: str) -> Request:
        return await Request(self._edge, self._site, self.session, verb, message, **extra).send()

    async def ask(self, message: Any = None, verb: str = "POST", **extra: str) -> tuple[int, dict[str, str], bytes]:
        request = await self.send(message, verb, **extra)
        answer = await request.answer()
        await request.leave()
        return answer


def messages(body: bytes) -> list[Any]:
    return [one for one in events_of(body.replace(b"data:\n", b"data: null\n")) if one is not None]


@every_edge
async def test_a_session_from_its_begin_to_its_end(edge: Edge) -> None:
    lab = Lab()

    @lab.server.tool
    async def roots(ctx: Context) -> str:
        return str((await ctx.list_roots())[0]["uri"])

    async with open_server(lab.server) as engine, edge.serve(engine) as site:
        client = Lines(edge, site)
        status, fields, body = await client.ask(HELLO)
        assert (status, fields["content-type"]) == (200, "application/json")
        assert json.loads(body)["result"]["protocolVersion"] == "2025-11-25"
        client.session = fields["mcp-session-id"]
        assert (await client.ask({"jsonrpc": "2.0", "method": "notifications/initialized"}))[::2] == (202, b"")
        status, _, body = await client.ask(ask(1, "nothing"))
        assert (status, json.loads(body)["error"]["code"]) == (200, -32601)
        # A client that goes away does not cancel, and finds the rest.
        call = await client.send(slow(2))
        await call.until(b'"progress":0')
        await call.leave()
        waiting = await client.send(verb="GET", last_event_id="1-1")
        lab.release.set()
        status, fields, body = await waiting.answer()
        assert (status, fields["content-type"], fields["x-accel-buffering"]) == (200, "text/event-stream", "no")
        (answer,) = messages(body)
        assert (answer["id"], answer["result"]["content"][0]["text"]) == (2, "slept")
        await waiting.leave()
        assert (await client.ask(verb="GET", last_event_id="1-2"))[0] == 204
        again = (await client.ask(verb="GET", last_event_id="1-0"))[2]
        assert [message.get("id") for message in messages(again)] == [None, 2]
        # A question, and its answer on another connection.
        call = await client.send(ask(3, "tools/call", name="roots", arguments={}))
        await call.until(b"roots/list")
        result = {"jsonrpc": "2.0", "id": 1, "result": {"roots": [{"uri": "file:///x"}]}}
        assert (await client.ask(result))[0] == 202
        assert b"file:///x" in (await call.answer())[2]
        await call.leave()
        # The end of it ends what is under way.
        lab.release = trio.Event()
        call, stream = await client.send(slow(4)), await client.send(verb="GET")
        await call.until(b'"progress":0')
        await stream.until(b"id: 0-0")
        assert (await client.ask(verb="DELETE"))[0] == 204
        for request in (call, stream):
            assert (await request.answer())[0] == 200
            await request.leave()
        for verb, message in (("POST", ask(5, "ping")), ("GET", None), ("DELETE", None)):
            assert (await client.ask(message, verb))[0] == 404
        assert lab.count("finally") == 2
        assert (engine.sessions.statistics().open, engine.executor.statistics().running) == (0, 0)
        site.close()
        await settled()


@pytest.mark.parametrize("edge", [*OURS, OWN_HOST], ids=lambda edge: edge.name)
async def test_open_streams_do_not_hold_up_the_end(edge: Edge) -> None:
    # Hypercorn tells an application of the end when it has waited for its requests.
    lab = Lab(drain_timeout=20)
    async with open_server(lab.server) as engine, edge.serve(engine) as site:
        client = Lines(edge, site)
        client.session = (await client.ask(HELLO))[1]["mcp-session-id"]
        stream = await client.send(verb="GET")
        await stream.until(b"id: 0-0")
        site.end()
        assert (await stream.answer())[0] == 200
        await stream.leave()
        with trio.fail_after(15):
            await site.ended.wait()
