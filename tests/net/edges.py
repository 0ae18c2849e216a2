"""The edges over which a server can be reached, each with a client that says what a peer of it sees.

A client sends requests and reads answers; whether they share a connection, and what their frames look like, is the edge's own.
"""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import hypercorn.trio
import trio
from hypercorn.config import Config

from trio_mcp import HttpEndpoint, http_app
from trio_mcp.serve import OpenServer

from ..examples.helpers import load
from .servers.http_peers import H1Peer, H2Peer, Site, events_of, post, reset, serving, text_of
from .servers.http_peers import call as call_of


@dataclass(frozen=True)
class Reply:
    """A whole answer.

    Attributes:
        status: Its status.
        headers: Its fields.
        messages: The messages in it: one, or those of an event stream; none in what is plain text.
    """

    status: int
    headers: dict[str, str]
    messages: list[dict[str, Any]]

    @property
    def text(self) -> str:
        """The text in the result of a tool."""
        return text_of(self.messages[-1])


class Client(ABC):
    """One connection to an edge. What is begun on it gets a number."""

    @abstractmethod
    async def send(
        self, message: dict[str, Any], *, path: str = "/mcp", method: str = "POST", host: str = "127.0.0.1"
    ) -> int:
        """Send a request; with another method than POST it has no body."""

    @abstractmethod
    async def begin(self, message: dict[str, Any], size: int | None) -> int:
        """Send a head alone, which declares a body of that size, or does not say how long it is."""

    @abstractmethod
    async def piece(self, number: int, data: bytes, *, end: bool = False) -> None:
        """Send more of the body, as far as the server takes it."""

    @abstractmethod
    async def reply(self, number: int, timeout: float = 30) -> Reply:
        """The whole answer."""

    @abstractmethod
    async def event(self, number: int) -> dict[str, Any]:
        """The first message of an event stream that goes on."""

    @abstractmethod
    async def read(self) -> None:
        """Read once; what came is kept for the answer."""

    @abstractmethod
    async def give_up(self, number: int) -> None:
        """Tell the server that this answer is not wanted any more, and keep the connection."""

    @abstractmethod
    async def reset(self) -> None:
        """End the connection with a TCP reset."""

    @abstractmethod
    async def ended(self, timeout: float = 30) -> None:
        """Read until the server has closed the connection."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close the connection."""

    async def call(self, message: dict[str, Any], **options: Any) -> Reply:
        """Send a request and read the answer."""
        return await self.reply(await self.send(message, **options))

    async def echo(self, text: str) -> str:
        """Call the tool `echo`, which must work."""
        reply = await self.call(call_of(1, "echo", text=text))
        assert reply.status == 200, reply
        return reply.text


class OverHttp1(Client):
    """HTTP/1.1: one answer at a time."""

    def __init__(self, peer: H1Peer) -> None:
        self._peer = peer
        self._chunked = False

    async def send(
        self, message: dict[str, Any], *, path: str = "/mcp", method: str = "POST", host: str = "127.0.0.1"
    ) -> int:
        if method == "POST":
            data = post(message, path=path).replace(b"host: 127.0.0.1", f"host: {host}".encode())
        else:
            data = f"{method} {path} HTTP/1.1\r\nhost: {host}\r\n\r\n".encode()
        await self._peer.send(data)
        return 0

    async def begin(self, message: dict[str, Any], size: int | None) -> int:
        head, _, body = post(message).partition(b"\r\n\r\n")
        self._chunked = size is None
        framing = b"transfer-encoding: chunked" if size is None else b"content-length: %d" % size
        await self._peer.send(head.replace(b"content-length: %d" % len(body), framing) + b"\r\n\r\n")
        return 0

    async def piece(self, number: int, data: bytes, *, end: bool = False) -> None:
        if self._chunked:
            data = (b"%x\r\n%b\r\n" % (len(data), data) if data else b"") + (b"0\r\n\r\n" if end else b"")
        try:
            await self._peer.send(data)
        except trio.BrokenResourceError:
            pass  # the answer may be there

    async def reply(self, number: int, timeout: float = 30) -> Reply:
        with trio.fail_after(timeout):
            status, headers, body = await self._peer.response()
        return Reply(status, headers, _messages(headers, body))

    async def event(self, number: int) -> dict[str, Any]:
        with trio.fail_after(30):
            status, headers = await self._peer.head()
            assert (status, headers["content-type"]) == (200, "text/event-stream")
            await self._peer.until(b"data: ")
            message: dict[str, Any] = json.loads(await self._peer.until(b"\n"))
        return message

    async def read(self) -> None:
        await self._peer.more()

    async def give_up(self, number: int) -> None:
        # There is no other way to say it, and the connection can still be read.
        await self._peer.stream.send_eof()

    async def reset(self) -> None:
        await reset(self._peer.stream)

    async def ended(self, timeout: float = 30) -> None:
        await self._peer.ended(timeout)

    async def aclose(self) -> None:
        await self._peer.aclose()


class OverHttp2(Client):
    """HTTP/2, by prior knowledge: each request is a stream."""

    def __init__(self, peer: H2Peer) -> None:
        self._peer = peer

    async def send(
        self, message: dict[str, Any], *, path: str = "/mcp", method: str = "POST", host: str = "127.0.0.1"
    ) -> int:
        changed = {b":method": method.encode(), b":authority": host.encode()}
        head = [(name, changed.get(name, value)) for name, value in self._peer.head(message, path.encode())]
        number = await self._peer.request(head, end=method != "POST")
        if method == "POST":
            await self.piece(number, json.dumps(message).encode(), end=True)
        return number

    async def begin(self, message: dict[str, Any], size: int | None) -> int:
        declared = [] if size is None else [(b"content-length", b"%d" % size)]
        return await self._peer.request([*self._peer.head(message), *declared])

    async def piece(self, number: int, data: bytes, *, end: bool = False) -> None:
        peer = self._peer
        with trio.fail_after(30):
            while data and number not in peer.ended:
                room = min(peer.h2.local_flow_control_window(number), peer.h2.max_outbound_frame_size, len(data))
                if room:
                    peer.h2.send_data(number, data[:room], end_stream=end and room == len(data))
                    data = data[room:]
                    await peer.flush()
                elif not await peer.pump():
                    return

    async def reply(self, number: int, timeout: float = 30) -> Reply:
        status, body = await self._peer.response(number, timeout)
        assert status is not None, self._peer.resets
        headers = self._peer.headers[number]
        return Reply(status, headers, _messages(headers, body))

    async def event(self, number: int) -> dict[str, Any]:
        with trio.fail_after(30):
            while b"\n\n" not in self._peer.bodies.get(number, b""):
                assert await self._peer.pump()
        assert self._peer.statuses[number] == 200
        assert self._peer.headers[number]["content-type"] == "text/event-stream"
        return events_of(self._peer.bodies[number])[0]

    async def read(self) -> None:
        await self._peer.pump()

    async def give_up(self, number: int) -> None:
        self._peer.h2.reset_stream(number, 8)
        await self._peer.flush()

    async def reset(self) -> None:
        await reset(self._peer.stream)

    async def ended(self, timeout: float = 30) -> None:
        await self._peer.closed(timeout)

    async def aclose(self) -> None:
        await self._peer.aclose()


def _messages(headers: dict[str, str], body: bytes) -> list[dict[str, Any]]:
    kind = headers.get("content-type")
    if kind == "text/event-stream":
        return events_of(body)
    return [json.loads(body)] if kind == "application/json" and body else []


# -- the edges


@asynccontextmanager
async def hosting(app: Any, **settings: Any) -> AsyncIterator[Site]:
    """A stock Hypercorn with an application."""
    config = Config()
    config.bind = ["127.0.0.1:0"]
    config.errorlog = logging.getLogger("host.error")
    config.graceful_timeout = 0.5
    for name, value in settings.items():
        setattr(config, name, value)
    leave = trio.Event()
    site = Site("", leave.set)

    async def serve(*, task_status: trio.TaskStatus[list[str]]) -> None:
        try:
            await hypercorn.trio.serve(app, config, shutdown_trigger=leave.wait, task_status=task_status, mode="asgi")
        finally:
            site.ended.set()

    async with trio.open_nursery() as nursery:
        urls = await nursery.start(serve)
        site.url = urls[0]
        try:
            yield site
        finally:
            site.close()
            leave.set()
            with trio.move_on_after(30, shield=True):
                await site.ended.wait()
            nursery.cancel_scope.cancel()


def _hosted(engine: OpenServer) -> AbstractAsyncContextManager[Site]:
    # A half-closed connection counts as idle there, and `graceful_timeout` is what `drain_timeout` is here.
    return hosting(http_app(engine), keep_alive_timeout=0.5, graceful_timeout=engine.limits.drain_timeout)


own_host = load("own_host")


@asynccontextmanager
async def _own_host(engine: OpenServer) -> AsyncIterator[Site]:
    """The example of a host that somebody writes."""
    leave = trio.Event()
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    site = Site(f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/mcp", leave.set)

    async def serve() -> None:
        try:
            await own_host.serve(HttpEndpoint(engine, address="127.0.0.1"), listeners, leave.wait)
        finally:
            site.ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        try:
            yield site
        finally:
            site.close()
            nursery.cancel_scope.cancel()


@dataclass(frozen=True)
class Edge:
    """One way to be reached.

    Attributes:
        name: Its name.
        serve: Serves a server that is open.
        http2: Whether its clients speak HTTP/2.
    """

    name: str
    serve: Callable[[OpenServer], AbstractAsyncContextManager[Site]]
    http2: bool

    async def connect(self, site: Site) -> Client:
        """A new client."""
        return OverHttp2(await site.h2()) if self.http2 else OverHttp1(await site.h1())

    async def connect_deaf(self, site: Site) -> Client:
        """A new client that leaves room for everything, so that nothing but its silence holds the server back."""
        if not self.http2:
            return OverHttp1(await site.h1())
        peer = H2Peer(await site.connect(), window=False, initial=2**30)
        await peer.begin()
        peer.h2.increment_flow_control_window(2**30)
        await peer.flush()
        return OverHttp2(peer)


HTTP_1 = Edge("HTTP/1.1", serving, False)
HTTP_2 = Edge("HTTP/2", serving, True)
HOSTED_1 = Edge("ASGI, HTTP/1.1", _hosted, False)
HOSTED_2 = Edge("ASGI, HTTP/2", _hosted, True)
OWN_HOST = Edge("own host", _own_host, False)

OURS = [HTTP_1, HTTP_2]
EDGES = [*OURS, HOSTED_1, HOSTED_2, OWN_HOST]
