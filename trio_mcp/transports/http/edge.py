"""The edge: accepting connections, telling what they speak, containing what goes wrong, and the drain."""

from __future__ import annotations

import errno
import importlib
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import trio

from ...errors import MCPError
from ...protocol.http import is_loopback
from ...scopes.groups import unwrapped
from ..progress import Progressing
from .endpoint import HttpEndpoint, check_allowed, check_path, check_ways
from .h1 import H1Connection
from .listeners import Bound, check_bind, open_listeners

__all__ = [
    "HttpEndpoint",
    "HttpServer",
    "check_allowed",
    "check_bind",
    "check_path",
    "check_ways",
    "open_listeners",
    "serve_listeners",
    "tls_context",
]

logger: logging.Logger = logging.getLogger("trio_mcp.server.http")

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_FULL: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


@dataclass(frozen=True, slots=True)
class HttpServer:
    """What is bound.

    Attributes:
        urls: Where the endpoint is, with the real ports: `http://127.0.0.1:8000/mcp`, or `unix:/path` for a socket file.
    """

    urls: tuple[str, ...]


class _Connection(Protocol):
    def drain(self) -> None:
        """Finish what is being answered and close."""

    async def wait_sent(self) -> None:
        """Wait until what was answered is written, or the peer is gone."""

    def abandon(self) -> None:
        """End what is being answered, and write nothing more: the descriptor is about to be closed."""


class _Opening:
    """A connection before its first request: nothing is lost when it ends."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()

    def drain(self) -> None:
        self.scope.cancel()

    async def wait_sent(self) -> None:
        await trio.lowlevel.checkpoint()

    def abandon(self) -> None:
        self.scope.cancel()


def tls_context(certfile: str, keyfile: str | None) -> ssl.SSLContext:
    """A TLS context for a server: HTTP/2 and HTTP/1.1 by ALPN, TLS 1.2 and later.

    Raises:
        MCPError: the files cannot be read or do not belong together.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2", "http/1.1"])
    try:
        context.load_cert_chain(certfile, keyfile)
    except (OSError, ssl.SSLError) as exc:
        raise MCPError(f"the certificate {certfile} cannot be used: {exc}") from exc
    return context


class _Edge:
    def __init__(self, endpoint: HttpEndpoint, bound: Bound, context: ssl.SSLContext | None) -> None:
        self._endpoint = endpoint
        # Whatever is bound, what came over a loopback address may come from a page in a browser on this machine.
        self._local_endpoint = endpoint.at("127.0.0.1")
        self._limits = endpoint.limits
        self._tls = context
        self._slots = trio.Semaphore(bound.connections)
        self._live: set[_Connection] = set()
        self._streams: set[trio.SocketStream] = set()
        self._draining = False

    async def accept(self, listener: trio.SocketListener, nursery: trio.Nursery) -> None:
        """Accept for ever: when somebody is there a slot, then the connection. A listener without clients holds no slot."""
        # The same descriptor, as an object that says at once when nobody is there.
        source = socket.socket(fileno=listener.socket.fileno())
        source.setblocking(False)
        try:
            while True:
                await trio.lowlevel.wait_readable(listener.socket)
                await self._slots.acquire()
                try:
                    accepted, _ = source.accept()
                    stream = trio.SocketStream(trio.socket.from_stdlib_socket(accepted))
                except OSError as exc:
                    # Nobody is there: the client has left again, or another process that shares the socket was faster.
                    self._slots.release()
                    if exc.errno in _FULL:
                        logger.error("cannot accept a connection: %s", exc)
                        await trio.sleep(0.1)
                    continue
                nursery.start_soon(self._contained, stream)
        finally:
            source.detach()

    async def _contained(self, stream: trio.SocketStream) -> None:
        """One connection. Whatever goes wrong in it ends here."""
        self._streams.add(stream)
        try:
            await self._connection(stream)
        except Exception:
            logger.exception("an HTTP connection failed")
        finally:
            self._streams.discard(stream)
            try:
                with trio.move_on_after(self._limits.write_stall, shield=True):
                    await trio.aclose_forcefully(stream)
            finally:
                self._slots.release()

    async def _connection(self, socket_stream: trio.SocketStream) -> None:
        endpoint = self._endpoint_for(socket_stream)
        if self._tls is None:
            first = await self._opening(self._first_bytes, socket_stream) or b""
            if first.startswith(_PREFACE):
                await self._http2(socket_stream, endpoint, first)
            elif first:
                connection = H1Connection(socket_stream, endpoint, first, fd=socket_stream.socket.fileno())
                first = b""
                await self._run(connection)
            return
        below = Progressing(socket_stream, self._limits.write_stall)
        stream = trio.SSLStream(below, self._tls, server_side=True, https_compatible=True)
        if not await self._opening(self._handshake, stream):
            return
        if stream.selected_alpn_protocol() == "h2":
            first = await self._opening(self._first_bytes, stream) or b""
            # Anything else is a connection error (RFC 9113, section 3.4).
            if first.startswith(_PREFACE):
                await self._http2(stream, endpoint, first)
        else:
            await self._run(H1Connection(stream, endpoint))

    def _endpoint_for(self, stream: trio.SocketStream) -> HttpEndpoint:
        name = stream.socket.getsockname()
        return self._local_endpoint if isinstance(name, tuple) and is_loopback(name[0]) else self._endpoint

    async def _opening(self, step: Callable[[Any], Awaitable[Any]], stream: Any) -> Any:
        """A step before the first request, which a drain cuts short."""
        opening = _Opening()
        self._live.add(opening)
        try:
            with opening.scope:
                if self._draining:
                    opening.drain()
                return await step(stream)
        finally:
            self._live.discard(opening)
        return None

    async def _handshake(self, stream: Any) -> bool:
        try:
            with trio.fail_after(self._limits.head_timeout):
                await stream.do_handshake()
        except (trio.BrokenResourceError, trio.TooSlowError):
            return False
        return True

    async def _first_bytes(self, stream: Any) -> bytes:
        """Enough to tell HTTP/2 from HTTP/1.1; empty when nothing comes."""
        data = b""
        with trio.move_on_after(self._limits.idle_timeout) as scope:
            try:
                while len(data) < len(_PREFACE) and _PREFACE.startswith(data):
                    more = await stream.receive_some(self._limits.read_chunk)
                    if not more:
                        break
                    if not data:
                        scope.deadline = trio.current_time() + self._limits.head_timeout
                    data += more
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return b""
        return b"" if scope.cancelled_caught else data

    async def _http2(self, stream: Any, endpoint: HttpEndpoint, first: bytes) -> None:
        # Loaded by the first connection that needs it.
        module = importlib.import_module(".h2", __package__)
        connection = module.H2Connection(stream, endpoint, first)
        await self._run(connection)

    async def _run(self, connection: Any) -> None:
        self._live.add(connection)
        try:
            if self._draining:
                connection.drain()
            await connection.run()
        finally:
            self._live.discard(connection)

    def drain(self) -> None:
        """Let every connection finish what it answers."""
        self._draining = True
        self._endpoint.drain()
        for connection in list(self._live):
            connection.drain()

    async def give_up(self) -> None:
        """The time is over: answer what still runs with an error that says so, and let that out."""
        self._endpoint.give_up()
        with trio.move_on_after(self._limits.drain_timeout):
            async with trio.open_nursery() as nursery:
                for connection in list(self._live):
                    nursery.start_soon(connection.wait_sent)

    def close(self) -> None:
        """End what is left, in one step. Whatever cleans up behind a shield finds nothing to write to."""
        for connection in list(self._live):
            connection.abandon()
        for stream in list(self._streams):
            stream.socket.close()


async def serve_listeners(
    bound: Bound,
    make: Callable[[str], HttpEndpoint],
    context: ssl.SSLContext | None,
    task_status: trio.TaskStatus[HttpServer],
) -> None:
    """Serve until cancelled; then no more is accepted, and requests get `limits.drain_timeout` to finish.

    Args:
        bound: Where.
        make: Makes the endpoint for an address.
        context: Of TLS, or None.
        task_status: Started with what is served.
    """
    elsewhere = [address for address in bound.addresses if not is_loopback(address)]
    address = next(iter(elsewhere or bound.addresses), "")
    endpoint = make(address)
    limits = endpoint.limits
    edge = _Edge(endpoint, bound, context)
    with unwrapped():
        async with trio.open_nursery() as outer:
            with trio.CancelScope(shield=True) as life:
                accepting, patience = trio.CancelScope(), trio.CancelScope()

                def end() -> None:
                    # Sync, so it works in a task that is being cancelled: from here on the shield has a bound.
                    accepting.cancel()
                    edge.drain()
                    patience.deadline = min(patience.deadline, trio.current_time() + limits.drain_timeout)

                async def await_cancel() -> None:
                    try:
                        await trio.sleep_forever()
                    finally:
                        end()

                async def expire() -> None:
                    with patience:
                        await trio.sleep_forever()
                    await edge.give_up()
                    edge.close()
                    life.cancel()

                outer.start_soon(await_cancel)
                async with trio.open_nursery() as waiting:
                    waiting.start_soon(expire)
                    async with trio.open_nursery() as connections:
                        with accepting:
                            async with trio.open_nursery() as listening:
                                for listener in bound.listeners:
                                    listening.start_soon(edge.accept, listener, connections)
                                task_status.started(HttpServer(tuple(bound.urls)))
                        # The listeners close now, so that a new client is refused and not left waiting.
                        for listener in bound.listeners:
                            await listener.aclose()
                    waiting.cancel_scope.cancel()
            outer.cancel_scope.cancel()
