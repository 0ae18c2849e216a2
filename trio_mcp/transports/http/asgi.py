"""The endpoint behind plain ASGI, for any server that runs on trio.

One task calls `receive` from first to last, past the final `send`: an ASGI server says only there that the peer is gone.
Another sends what was posted. Both live in the request's nursery.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from typing import Any, Final

import trio

from ...errors import MCPError
from ...limits import Limits
from ...protocol.http import Accepts, Refusal
from ...protocol.revisions import Era
from ...server.declare.server import Server
from ...server.serve.engine import Engine, open_engine
from .endpoint import HttpEndpoint, check_allowed, check_path, check_ways
from .exchange import HttpExchange, HttpFields
from .sse_pair import pair_paths

__all__ = ["HttpApp"]

logger: logging.Logger = logging.getLogger("trio_mcp.server.http")

_PIECE: Final = 16_384
"""Bytes of one `http.response.body`: a peer that takes less in `write_stall` is as good as gone."""

_LINGER: Final = 0.5
"""Seconds for the rest of a body that is refused."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class HttpApp:
    """An ASGI application with the MCP endpoint in it. Made by `http_app`."""

    def __init__(
        self,
        server: Server[Any] | Engine,
        path: str,
        allowed_hosts: list[str] | None = None,
        allowed_origins: list[str] | None = None,
        *,
        sse: bool = False,
        simple: bool = False,
        no_delete: bool = False,
    ) -> None:
        check_path(path)
        check_allowed(allowed_hosts, allowed_origins)
        legacy = server.legacy if isinstance(server, Engine) else Era.LEGACY in server.eras
        check_ways(legacy, path, sse, simple, no_delete)
        self._server = server
        self._path = path
        self._hosts = allowed_hosts
        self._origins = allowed_origins
        self._sse = sse
        self._simple = simple
        self._no_delete = no_delete
        self._engine = server if isinstance(server, Engine) else None
        self._endpoint: HttpEndpoint | None = None
        self._endpoints: dict[str | None, HttpEndpoint] = {}

    def _endpoint_for(self, address: str | None) -> HttpEndpoint:
        """The endpoint, as it is guarded on this address of the host's; empty for a unix socket."""
        if self._engine is None:
            raise MCPError(
                "http_app(server) is not open: the program that mounts it must forward the ASGI lifespan to it, or open the "
                "server itself and mount http_app(running) inside 'async with open_server(server) as running'"
            )
        endpoint = self._endpoints.get(address)
        if endpoint is None:
            if self._endpoint is None:
                # Where the host does not say what its address is, only listed names pass.
                self._endpoint = HttpEndpoint(
                    self._engine,
                    path=self._path,
                    allowed_hosts=self._hosts,
                    allowed_origins=self._origins,
                    sse=self._sse,
                    simple=self._simple,
                    no_delete=self._no_delete,
                )
            endpoint = self._endpoints[address] = self._endpoint.at(address)
        return endpoint

    @property
    def paths(self) -> frozenset[str]:
        """The paths that it answers at."""
        base = self._path.rstrip("/")
        return frozenset({base or "/", f"{base}/", *(pair_paths(self._path) if self._sse else ())})

    def drain(self) -> None:
        """The end of the host begins: streams that listen end now, with their result.

        Hosts tell an application only when its requests have been cancelled, so a program that wants its clients to hear
        goodbye calls this first, for example from the `shutdown_trigger` that it gives to Hypercorn.
        """
        if self._endpoint is not None:
            self._endpoint.drain()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope: a request, or the lifespan of the server.

        Raises:
            RuntimeError: the host does not run on trio.
        """
        try:
            trio.lowlevel.current_task()
        except RuntimeError:
            raise RuntimeError(
                "http_app runs on trio: give it to a host that does, as in 'hypercorn -k trio module:app'"
            ) from None
        kind = scope["type"]
        if kind == "http":
            await self._request(scope, receive, send)
        elif kind == "lifespan":
            await self._lifespan(receive, send)
        elif kind == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        if isinstance(self._server, Engine):
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        started = False
        try:
            async with open_engine(self._server) as engine:
                self._engine = engine
                await send({"type": "lifespan.startup.complete"})
                started = True
                await receive()
        except Exception as exc:
            logger.exception("the lifespan of %r failed", self._server)
            await send(
                {"type": "lifespan.shutdown.failed" if started else "lifespan.startup.failed", "message": str(exc)}
            )
            return
        finally:
            self._engine = self._endpoint = None
            self._endpoints.clear()
        await send({"type": "lifespan.shutdown.complete"})

    async def _request(self, scope: Message, receive: Receive, send: Send) -> None:
        server = scope.get("server")
        endpoint = self._endpoint_for(None if server is None else server[0] if server[1] is not None else "")
        headers = _fields(scope["headers"])
        root = scope.get("root_path", "")
        path = scope["path"]
        query = scope.get("query_string", b"").decode("latin-1")
        verdict = endpoint.admit(scope["method"], path.removeprefix(root) if root else path, headers, query)
        body = b""
        if isinstance(verdict, Accepts):
            read = await _read_body(receive, endpoint)
            if read is None:
                return
            if isinstance(read, Refusal):
                verdict = read
            else:
                body = read
        confirms = scope.get("http_version", "1.1").startswith("1")
        exchange = _AsgiExchange(scope["method"], headers, body, endpoint.limits, confirms)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch, exchange, receive)
            nursery.start_soon(_tick, exchange, endpoint)
            nursery.start_soon(_answer, exchange, verdict, endpoint)
            nursery.start_soon(exchange.watch_sends)
            await exchange.send_all(send)
            nursery.cancel_scope.cancel()


async def _answer(exchange: _AsgiExchange, verdict: Refusal | Accepts, endpoint: HttpEndpoint) -> None:
    try:
        if isinstance(verdict, Refusal):
            endpoint.refuse(exchange, verdict)
        else:
            await endpoint.serve(exchange, verdict)
    finally:
        exchange.finish()


async def _watch(exchange: _AsgiExchange, receive: Receive) -> None:
    """Read to the end. `http.disconnect` may also mean that the answer is complete; the exchange knows."""
    while (await receive())["type"] != "http.disconnect":
        pass
    exchange.peer_gone()


async def _tick(exchange: _AsgiExchange, endpoint: HttpEndpoint) -> None:
    await trio.sleep(endpoint.limits.silence)
    while True:
        exchange.silent()
        await trio.sleep(endpoint.limits.keep_alive)


class _Gone(Exception):
    """The peer went away while its body arrived."""


async def _read_body(receive: Receive, endpoint: HttpEndpoint) -> bytes | Refusal | None:
    """The body; a refusal when it is too long or too slow; None when the peer went away."""
    more = True

    async def piece() -> bytes:
        nonlocal more
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _Gone
            more = message.get("more_body", False)
            data: bytes = message.get("body", b"")
            if data:
                return data
        return b""

    try:
        body = await endpoint.take_body(piece)
        if isinstance(body, Refusal) and body.status != 408:
            # A host may not bear an answer while the body arrives: what is on its way is read and dropped.
            with trio.move_on_after(_LINGER):
                while await piece():
                    pass
    except _Gone:
        return None
    return body


def _fields(raw: Any) -> dict[bytes, bytes]:
    out: dict[bytes, bytes] = {}
    for name, value in raw:
        known = out.get(name)
        out[name] = value if known is None else known + b", " + value
    return out


def _pieces(message: Message) -> Iterator[Message]:
    """A long body in parts, so that a peer that reads slowly can be told from one that does not read."""
    body = message.get("body", b"")
    if len(body) <= _PIECE:
        yield message
        return
    for start in range(0, len(body), _PIECE):
        more = message.get("more_body", False) or start + _PIECE < len(body)
        yield {"type": message["type"], "body": body[start : start + _PIECE], "more_body": more}


class _AsgiExchange(HttpExchange):
    """One ASGI request, and its answer: messages wait here until the sender takes them.

    A host of HTTP/2 takes everything at once and keeps it for a peer that may never read: nothing that it says tells how much
    has arrived. So there one exchange hands over no more than `limits.write_buffer` bytes of notices.
    """

    __slots__ = ("_changed", "_left", "_limit", "_lost", "_out", "_over", "_sending", "_sent", "_size", "_stall")

    def __init__(self, method: str, headers: dict[bytes, bytes], body: bytes, limits: Limits, confirms: bool) -> None:
        super().__init__(method, headers, body)
        self._left: float = math.inf if confirms else limits.write_buffer
        self._out: deque[Message] = deque()
        self._size = 0
        self._limit = limits.write_buffer
        self._stall = limits.write_stall
        self._over = False
        self._lost = False
        self._sending = False
        self._sent = 0
        self._changed = trio.lowlevel.ParkingLot()

    async def send_all(self, send: Send) -> None:
        """Send what is posted, to the end of the answer, or until the peer takes nothing for too long."""
        while self._out or not (self._over or self.gone):
            if not self._out:
                await self._changed.park()
                continue
            message = self._out.popleft()
            self._size -= len(message.get("body", b""))
            self._changed.unpark_all()
            for piece in _pieces(message):
                self._sending = True
                try:
                    with trio.move_on_after(self._stall) as patience:
                        await send(piece)
                except OSError:
                    # So a host may say that the peer is gone (ASGI 2.4).
                    self.peer_gone()
                    return
                self._sending = False
                self._sent += 1
                if patience.cancelled_caught:
                    self.peer_gone()
                    return

    async def watch_sends(self) -> None:
        """Give up a peer that takes nothing: a host may shield its `send`, and the place of the call must come back."""
        while True:
            sent = self._sent
            await trio.sleep(self._stall)
            if self._sending and self._sent == sent:
                self.peer_gone()

    def finish(self) -> None:
        """Nothing more is posted."""
        if self.streaming and not self.done and not self.gone:
            self.end_stream()  # an open answer would keep the client waiting
        self._over = True
        self._changed.unpark_all()

    def peer_gone(self) -> None:
        super().peer_gone()
        # Also behind a complete answer: what waits here for a peer that takes nothing makes nobody wait.
        self._lost = True
        self._changed.unpark_all()

    def _post(self, message: Message) -> None:
        self._out.append(message)
        self._size += len(message.get("body", b""))
        self._changed.unpark_all()

    def send_answer(self, status: int, content_type: bytes, fields: HttpFields, body: bytes) -> None:
        kind = ((b"content-type", content_type),) if content_type else ()
        headers = [(b"content-length", b"%d" % len(body)), *fields, *kind]
        self._post({"type": "http.response.start", "status": status, "headers": headers})
        self._post({"type": "http.response.body", "body": b"" if self.method == "HEAD" else body})

    def send_head(self, fields: HttpFields) -> None:
        self._post({"type": "http.response.start", "status": 200, "headers": list(fields)})

    def send_piece(self, data: bytes, last: bool) -> bool:
        if not last:
            if len(data) > self._left:
                return False
            self._left -= len(data)
        self._post({"type": "http.response.body", "body": data, "more_body": True})
        return True

    def send_end(self) -> None:
        self._post({"type": "http.response.body", "body": b"", "more_body": False})

    @property
    def full(self) -> bool:
        return self._size > self._limit and not self._lost

    async def wait_room(self) -> None:
        while self.full:
            await self._changed.park()
