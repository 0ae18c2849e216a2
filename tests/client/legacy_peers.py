"""Servers of the revisions with sessions, as far as a client needs them: one behind an `httpx2` transport, so that it lives in
virtual time and can cut a stream wherever it likes; one at the end of a byte stream; and the names that tests have for both."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import trio
from trio.testing import memory_stream_pair

from trio_mcp import Client, Limits, open_client
from trio_mcp.client.answers import Answers
from trio_mcp.client.channel import Channel
from trio_mcp.client.opening import Opening, open_by_era
from trio_mcp.connect import _stream_channel
from trio_mcp.scopes.groups import unwrapped

URL = "http://server/mcp"
CAPABILITIES = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "logging": {},
}
MODERN = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {}, "ttlMs": 0}
EXIT = b""
"""In place of a message: the server ends."""
TEXT = {"content": [{"type": "text", "text": "done"}]}


def hello(revision: str = "2025-11-25", **more: Any) -> dict[str, Any]:
    """A result of `initialize`."""
    return {
        "protocolVersion": revision,
        "capabilities": CAPABILITIES,
        "serverInfo": {"name": "old", "version": "1"},
        **more,
    }


def error(code: int = -32601, message: str = "what?", data: Any = None) -> dict[str, Any]:
    """The `error` member of an answer."""
    return {"error": {"code": code, "message": message} | ({} if data is None else {"data": data})}


def answer(message: dict[str, Any], outcome: dict[str, Any]) -> dict[str, Any]:
    """An answer to a request: a result, or what `error` makes."""
    told = outcome if "error" in outcome else {"result": outcome}
    return {"jsonrpc": "2.0", "id": message["id"], **told}


def notification(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def question(id: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


async def until(condition: Callable[[], Any]) -> None:
    """Wait for a sign, in steps of time that are virtual."""
    with trio.fail_after(1000):
        while not condition():
            await trio.sleep(0.01)


async def silence(seen: Any) -> None:
    """No answer."""
    await trio.sleep_forever()


# -- HTTP


class EventStream(httpx2.AsyncByteStream):
    """A body that is written while it is read."""

    def __init__(self) -> None:
        self._in, self._out = trio.open_memory_channel[bytes | None | Exception](math.inf)
        self.closed = False

    def event(self, message: dict[str, Any] | None, id: str | None = None, retry: int | None = None) -> None:
        lines = [] if id is None else [f"id: {id}"]
        lines += [] if retry is None else [f"retry: {retry}"]
        lines.append("data: " + ("" if message is None else json.dumps(message)))
        self._in.send_nowait("\n".join(lines).encode() + b"\n\n")

    def raw(self, data: bytes) -> None:
        self._in.send_nowait(data)

    def end(self) -> None:
        self._in.send_nowait(None)

    def cut(self) -> None:
        self._in.send_nowait(httpx2.ReadError("cut"))

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for item in self._out:
            if item is None:
                return
            if isinstance(item, Exception):
                raise item
            yield item

    async def aclose(self) -> None:
        self.closed = True


@dataclass
class Seen:
    """One request, as the server saw it."""

    verb: str
    headers: httpx2.Headers
    message: dict[str, Any]

    @property
    def method(self) -> str:
        method: str = self.message.get("method", "")
        return method

    @property
    def session(self) -> str | None:
        session: str | None = self.headers.get("mcp-session-id")
        return session

    @property
    def last(self) -> str | None:
        last: str | None = self.headers.get("last-event-id")
        return last


class Web(httpx2.AsyncBaseTransport):
    """A server with sessions.

    Attributes:
        replies: By method, a function of what was seen: gives a result, an `EventStream`, a status, an exception to raise, or a
            `httpx2.Response`; plain or async. "GET" and "DELETE" stand for these.
        lost: The status for a session that is not there.
    """

    def __init__(self, revision: str = "2025-11-25") -> None:
        self.revision = revision
        self.replies: dict[str, Callable[[Seen], Any]] = {}
        self.seen: list[Seen] = []
        self.sessions: set[str] = set()
        self.begun = 0
        self.lost = 404
        self.streams: list[EventStream] = []

    def methods(self) -> list[str]:
        """What was asked and told, in order; answers as an empty text."""
        return [one.method or one.verb * (one.verb != "POST") for one in self.seen]

    def of(self, method: str) -> list[Seen]:
        return [one for one in self.seen if method in (one.method, one.verb)]

    def stream(self) -> EventStream:
        stream = EventStream()
        self.streams.append(stream)
        return stream

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        raw = await request.aread()
        seen = Seen(request.method, request.headers, json.loads(raw) if raw else {})
        self.seen.append(seen)
        outcome = self._outcome(seen)
        if inspect.isawaitable(outcome):
            outcome = await outcome
        if isinstance(outcome, Exception):
            raise outcome
        if isinstance(outcome, httpx2.Response):
            return outcome
        if isinstance(outcome, int):
            return httpx2.Response(outcome, headers={"content-type": "text/plain"}, stream=self._body(b"no"))
        if isinstance(outcome, EventStream):
            return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=outcome)
        headers = {"content-type": "application/json"}
        if seen.method == "initialize" and "error" not in outcome:
            self.begun += 1
            headers["mcp-session-id"] = f"s{self.begun}"
            self.sessions.add(f"s{self.begun}")
        return httpx2.Response(
            200, headers=headers, stream=self._body(json.dumps(answer(seen.message, outcome)).encode())
        )

    def _body(self, raw: bytes) -> EventStream:
        body = self.stream()
        body.raw(raw)
        body.end()
        return body

    def _outcome(self, seen: Seen) -> Any:
        reply = self.replies.get(seen.method or seen.verb)
        if seen.method == "server/discover":
            if reply is not None:
                return reply(seen)
            # With an id of a session that is none.
            bad = {"jsonrpc": "2.0", "id": "server-error", **error(-32600)}
            headers = {"content-type": "application/json", "mcp-session-id": "never"}
            return httpx2.Response(400, headers=headers, stream=self._body(json.dumps(bad).encode()))
        if seen.method == "initialize":
            return hello(self.revision) if reply is None else reply(seen)
        if seen.session not in self.sessions:
            return self.lost
        if reply is not None:
            return reply(seen)
        if seen.verb == "GET":
            return 405
        if seen.verb == "DELETE":
            self.sessions.discard(str(seen.session))
            return 204
        return 202 if "id" not in seen.message or "method" not in seen.message else {}

    @asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator[Client]:
        """A client of it; afterwards every response that it got is closed."""
        try:
            async with httpx2.AsyncClient(transport=self) as http, open_client(URL, http=http, **options) as client:
                yield client
        finally:
            assert [stream for stream in self.streams if not stream.closed] == []


# -- lines


class Lines:
    """A server at the end of a byte stream.

    Args:
        reply: Gives what is answered to a message: an outcome, a list of messages or bytes, or None; plain or async.

    Attributes:
        got: What has come.
    """

    def __init__(self, reply: Callable[[dict[str, Any]], Any]) -> None:
        self.reply = reply
        self.got: list[dict[str, Any]] = []
        self.ours, self.theirs = memory_stream_pair()
        self._sending = trio.Lock()

    def methods(self) -> list[str]:
        return [message.get("method", "") for message in self.got]

    def of(self, method: str) -> list[dict[str, Any]]:
        return [message for message in self.got if message.get("method", "") == method]

    async def send(self, *messages: dict[str, Any] | bytes) -> None:
        async with self._sending:
            for message in messages:
                if message == EXIT:
                    await self.theirs.aclose()
                    return
                raw = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
                await self.theirs.send_all(raw)

    async def serve(self) -> None:
        buffer = b""
        try:
            async with trio.open_nursery() as nursery:
                while data := await self.theirs.receive_some():
                    *lines, buffer = (buffer + data).split(b"\n")
                    for line in lines:
                        message = json.loads(line)
                        self.got.append(message)
                        nursery.start_soon(self._answer, message)
                nursery.cancel_scope.cancel()
        except* (trio.ClosedResourceError, trio.BrokenResourceError):
            pass  # one of the two has ended it

    async def _answer(self, message: dict[str, Any]) -> None:
        outcome = self.reply(message)
        if inspect.isawaitable(outcome):
            outcome = await outcome
        if isinstance(outcome, dict):
            outcome = [answer(message, outcome)]
        await self.send(*(outcome or []))

    async def exit(self) -> None:
        await self.theirs.aclose()


def old(**replies: Any) -> Callable[[dict[str, Any]], Any]:
    """What an old server answers; names are methods with `_` for `/`, values outcomes or functions of the message."""

    def reply(message: dict[str, Any]) -> Any:
        method = message.get("method", "")
        if method.replace("/", "_") in replies:
            outcome = replies[method.replace("/", "_")]
            return outcome(message) if callable(outcome) else outcome
        if method == "server/discover":
            return error()
        if method == "initialize":
            return hello()
        return {} if "id" in message and method else None

    return reply


@asynccontextmanager
async def lines(reply: Callable[[dict[str, Any]], Any], **options: Any) -> AsyncIterator[tuple[Client, Lines]]:
    """A client of one such server."""
    peer = Lines(reply)
    with unwrapped():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.serve)
            async with open_client(peer.ours, **options) as client:
                yield client, peer
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def started(
    *replies: Callable[[dict[str, Any]], Any],
    limits: Limits = Limits(),  # noqa: B008
    timeout: float = 30,
    eras: tuple[str, ...] = ("modern", "legacy"),
    revision: str | None = None,
) -> AsyncIterator[tuple[Client, list[Lines]]]:
    """A client of something that can be started anew, as a process can: the first, second … time it answers by these."""
    peers: list[Lines] = []
    answers = Answers()

    @asynccontextmanager
    async def open_channel() -> AsyncIterator[Channel]:
        peer = Lines(replies[len(peers)])
        peers.append(peer)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.serve)
            async with _stream_channel(peer.ours, peer.ours, "the process", limits) as channel:
                yield channel
            nursery.cancel_scope.cancel()

    def make(channel: Channel) -> Client:
        return Client(channel, info={"name": "test", "version": "1"}, limits=limits, answers=answers)

    opening = Opening(
        open_channel, lambda channel: channel, None, True, {"name": "test", "version": "1"}, answers, limits, timeout,
        eras, revision,
    )  # fmt: skip
    with unwrapped():
        async with open_by_era(opening, make) as client:
            yield client, peers
