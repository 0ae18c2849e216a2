"""Clients of the older revisions over HTTP: of the pair of 2024-11-05, and of answers without sessions; and their edges."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin

import httpx2
import trio

from trio_mcp import http_app
from trio_mcp.serve import OpenServer

from ..edges import hosting
from .http_peers import H1Peer, H2Peer, Site, serving


def initialize(revision: str = "2025-11-25", **capabilities: Any) -> dict[str, Any]:
    """The first message."""
    info = {"name": "t", "version": "1"}
    return ask(0, "initialize", protocolVersion=revision, capabilities=capabilities, clientInfo=info)


def ask(id: Any, method: str, **params: Any) -> dict[str, Any]:
    """A request of an older revision."""
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def tell(method: str, **params: Any) -> dict[str, Any]:
    """A notification."""
    return {"jsonrpc": "2.0", "method": method, "params": params}


def use(id: Any, tool: str, *, progress: bool = False, **arguments: Any) -> dict[str, Any]:
    """A `tools/call`."""
    meta = {"_meta": {"progressToken": id}} if progress else {}
    return ask(id, "tools/call", name=tool, arguments=arguments, **meta)


@dataclass(frozen=True)
class Way:
    """An edge and what its client speaks.

    Attributes:
        name: Its name.
        hosted: Whether the endpoint is an ASGI application in a host.
        http2: Whether its clients speak HTTP/2.
    """

    name: str
    hosted: bool
    http2: bool

    def serve(self, engine: OpenServer, **options: Any) -> AbstractAsyncContextManager[Site]:
        """Serve a server that is open."""
        if self.hosted:
            return hosting(http_app(engine, **options), graceful_timeout=engine.limits.drain_timeout)
        return serving(engine, **options)

    @asynccontextmanager
    async def client(self, site: Site) -> AsyncIterator[httpx2.AsyncClient]:
        """A client, whose paths begin at the root."""
        base = f"http://127.0.0.1:{site.port}"
        async with httpx2.AsyncClient(http1=not self.http2, http2=self.http2, base_url=base, timeout=30) as http:
            yield http


WAYS = [Way("HTTP/1.1", False, False), Way("HTTP/2", False, True), Way("ASGI, HTTP/1.1", True, False)]
HOSTED_2 = Way("ASGI, HTTP/2", True, True)


class _Stream1:
    """The stream of a GET over HTTP/1.1."""

    def __init__(self, peer: H1Peer) -> None:
        self._peer = peer

    async def open(self, path: str) -> tuple[int, dict[str, str]]:
        """Its status and fields."""
        await self._peer.send(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: text/event-stream\r\n\r\n".encode())
        return await self._peer.head()

    async def more(self) -> bytes:
        """The next piece."""
        peer = self._peer
        size = int(await peer.until(b"\r\n"), 16)
        if not size:
            raise EOFError
        while len(peer.data) < size + 2:
            await peer.more()
        out, peer.data = peer.data[:size], peer.data[size + 2 :]
        return out

    async def aclose(self) -> None:
        await self._peer.aclose()


class _Stream2:
    """The same over HTTP/2."""

    def __init__(self, peer: H2Peer) -> None:
        self._peer = peer
        self._number = 0

    async def open(self, path: str) -> tuple[int, dict[str, str]]:
        """Its status and fields."""
        head = [(b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"127.0.0.1"), (b":path", path.encode())]
        number = self._number = await self._peer.request([*head, (b"accept", b"text/event-stream")], end=True)
        while number not in self._peer.statuses:
            assert await self._peer.pump()
        return self._peer.statuses[number], self._peer.headers[number]

    async def more(self) -> bytes:
        """The next piece."""
        peer, number = self._peer, self._number
        while not peer.bodies.get(number):
            if number in peer.ended or number in peer.resets or not await peer.pump():
                raise EOFError
        out, peer.bodies[number] = peer.bodies[number], b""
        return out

    async def aclose(self) -> None:
        await self._peer.aclose()


class Pair:
    """One stream, and what is POSTed to it.

    Attributes:
        endpoint: What its first event says, as a path.
        comments: How many comments came.
    """

    def __init__(self, http: httpx2.AsyncClient, stream: _Stream1 | _Stream2) -> None:
        self._http = http
        self._stream = stream
        self._data = b""
        self.endpoint = ""
        self.comments = 0

    async def event(self) -> tuple[str, str]:
        """The next event: its name, and its data.

        Raises:
            EOFError: the stream has ended.
        """
        with trio.fail_after(30):
            while True:
                while b"\n\n" not in self._data:
                    self._data += await self._stream.more()
                block, _, self._data = self._data.partition(b"\n\n")
                if block == b":":
                    self.comments += 1
                    continue
                # These two lines, and nothing else: no id.
                first, second = block.decode().split("\n")
                assert first.startswith("event: ")
                assert second.startswith("data: ")
                return first[7:], second[6:]

    async def message(self) -> Any:
        """The next message."""
        name, data = await self.event()
        assert name == "message"
        return json.loads(data)

    async def post(self, message: Any, **options: Any) -> httpx2.Response:
        """Send a message; the answer of HTTP."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        headers = {"content-type": "application/json", **options.pop("headers", {})}
        return await self._http.post(self.endpoint, content=body, headers=headers, **options)

    async def send(self, message: Any) -> None:
        """Send a message, which must be taken."""
        answer = await self.post(message)
        assert (answer.status_code, answer.content) == (202, b""), answer.content

    async def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a request; its answer, which is the next message."""
        await self.send(message)
        answer: dict[str, Any] = await self.message()
        assert answer["id"] == message["id"], answer
        return answer

    async def begin(self, revision: str = "2025-11-25", **capabilities: Any) -> dict[str, Any]:
        """Open the session; what the server says of itself."""
        answer = await self.ask(initialize(revision, **capabilities))
        await self.send(tell("notifications/initialized"))
        result: dict[str, Any] = answer["result"]
        return result


@asynccontextmanager
async def open_pair(way: Way, site: Site, http: httpx2.AsyncClient, path: str = "/sse") -> AsyncIterator[Pair]:
    """Open a stream; at the end of the block the client closes it."""
    stream = _Stream2(await site.h2()) if way.http2 else _Stream1(await site.h1())
    try:
        with trio.fail_after(30):
            status, fields = await stream.open(path)
        assert (status, fields["content-type"]) == (200, "text/event-stream")
        assert "mcp-session-id" not in fields
        pair = Pair(http, stream)
        name, data = await pair.event()
        assert name == "endpoint"
        assert "/" not in data
        pair.endpoint = urljoin(path, data)
        yield pair
    finally:
        await stream.aclose()


async def post_alone(
    http: httpx2.AsyncClient, message: Any, revision: str | None = None, headers: Mapping[str, str] | None = None
) -> httpx2.Response:
    """POST a message to the endpoint itself."""
    fields = {"content-type": "application/json", "accept": "application/json, text/event-stream", **(headers or {})}
    if revision is not None:
        fields["mcp-protocol-version"] = revision
    return await http.post("/mcp", content=json.dumps(message).encode(), headers=fields)


async def until(reached: Callable[[], bool]) -> None:
    """Wait until something is so."""
    with trio.fail_after(30):
        while not reached():
            await trio.sleep(0.002)
