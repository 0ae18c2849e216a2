"""The edge: accepting connections, telling what they speak, containing what goes wrong, and the drain."""

from __future__ import annotations

import errno
import importlib
import logging
import os
import socket
import ssl
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol

import trio

from ...errors import MCPError
from ...limits import Limits
from ...protocol.http import is_loopback
from ...scopes.groups import unwrapped
from ...server.engine import Engine
from ..progress import Progressing
from .endpoint import HttpEndpoint, check_path
from .h1 import H1Connection

__all__ = ["HttpServer", "check_path", "open_listeners", "serve_listeners", "tls_context"]

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

    def abandon(self) -> None:
        """End what is being answered, and write nothing more: the descriptor is about to be closed."""


class _Opening:
    """A connection before its first request: nothing is lost when it ends."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()

    def drain(self) -> None:
        self.scope.cancel()

    def abandon(self) -> None:
        self.scope.cancel()


class _Bound:
    """The listeners, how their addresses are called, and how many connections there is room for."""

    def __init__(
        self, listeners: list[trio.SocketListener], addresses: list[str], urls: list[str], connections: int
    ) -> None:
        self.listeners: list[trio.SocketListener] = listeners
        self.connections: int = connections
        self.addresses: list[str] = addresses
        self.urls: list[str] = urls


@asynccontextmanager
async def open_listeners(bind: str, path: str, secure: bool, limits: Limits) -> AsyncIterator[_Bound]:
    """Bind `HOST:PORT`, `unix:PATH` or `fd:NUMBER`; close, and remove the socket file, at the end.

    Raises:
        ValueError: the text is none of these.
        MCPError: it cannot be bound; the text says why.
    """
    scheme = "https" if secure else "http"
    remove: str | None = None
    identity: tuple[int, int] | None = None
    backlog = limits.connections
    connections = _room(limits)
    try:
        if bind.startswith("unix:"):
            remove = bind.removeprefix("unix:")
            if not remove:
                raise ValueError(f"{bind!r} is no address: the path is missing")
            listeners = [_unix_listener(remove, backlog)]
            identity = _identity(remove)
            bound = _Bound(listeners, [], [f"unix:{remove}"], connections)
        elif bind.startswith("fd:"):
            listeners = [_inherited(int(bind[3:]))]
            bound = _Bound(listeners, *_names(listeners, scheme, path), connections)
        else:
            host, port = _split(bind)
            listeners = await trio.open_tcp_listeners(port, host=host or None, backlog=backlog)
            bound = _Bound(listeners, *_names(listeners, scheme, path), connections)
    except OSError as exc:
        raise MCPError(f"cannot listen on {bind}: {exc.strerror or exc}") from exc
    try:
        yield bound
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
            for listener in bound.listeners:
                await listener.aclose()
        # A successor may have put its own file there.
        if remove is not None and identity is not None and _identity(remove) == identity:
            try:
                os.unlink(remove)
            except FileNotFoundError:
                pass


def _room(limits: Limits) -> int:
    """How many connections there are to be: `limits.connections`, or what the system leaves room for.

    Each is an open file, and so is what tools open. The usual soft limit of 1,024 is raised as far as needed and allowed.
    """
    try:
        resource = importlib.import_module("resource")
    except ImportError:
        return limits.connections
    try:
        here = len(os.listdir("/dev/fd"))
    except OSError:
        here = 32
    wanted = here + limits.connections + limits.spare_files
    soft: int
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft != unlimited and soft < wanted:
        more = wanted if hard == unlimited else min(wanted, hard)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
            soft = more
        except (OSError, ValueError):
            pass
    if soft == unlimited or soft >= wanted:
        return limits.connections
    free = max(2, soft - here)
    room: int = max(free - limits.spare_files, free // 2)
    logger.warning(
        "%d connections at once instead of %d: this process may have %d open files", room, limits.connections, soft
    )
    return room


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _inherited(number: int) -> trio.SocketListener:
    sock = socket.socket(fileno=number)
    try:
        return trio.SocketListener(trio.socket.from_stdlib_socket(sock))
    except ValueError:
        sock.close()
        raise OSError(errno.EINVAL, "the socket does not listen") from None


def _split(bind: str) -> tuple[str, int]:
    host, colon, port = bind.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f"{bind!r} is no address: expected HOST:PORT, unix:PATH or fd:NUMBER")
    return host.strip("[]"), int(port)


def _unix_listener(path: str, backlog: int) -> trio.SocketListener:
    if os.path.exists(path):
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            # Connecting to it is refused as well, so that says nothing.
            raise OSError(errno.EEXIST, "there is a file that is no socket")
        # A socket that nobody listens on is left over from a process that is gone.
        with socket.socket(socket.AF_UNIX) as probe:
            # A process that is busy lets a connection wait, and this must not.
            probe.setblocking(False)
            try:
                probe.connect(path)
            except ConnectionRefusedError:
                os.unlink(path)
            except BlockingIOError:
                raise OSError(errno.EADDRINUSE, "another process listens there") from None
            except OSError as exc:
                raise OSError(exc.errno, "there is a file that is no socket") from None
            else:
                raise OSError(errno.EADDRINUSE, "another process listens there")
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.bind(path)
        sock.listen(backlog)
        return trio.SocketListener(trio.socket.from_stdlib_socket(sock))
    except BaseException:
        sock.close()
        raise


def _names(listeners: list[trio.SocketListener], scheme: str, path: str) -> tuple[list[str], list[str]]:
    addresses, urls = [], []
    for listener in listeners:
        name = listener.socket.getsockname()
        if not isinstance(name, tuple):
            urls.append(f"unix:{name}")
            continue
        addresses.append(name[0])
        host = f"[{name[0]}]" if ":" in name[0] else name[0]
        urls.append(f"{scheme}://{host}:{name[1]}{path}")
    return addresses, urls


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
    def __init__(self, endpoint: HttpEndpoint, bound: _Bound, context: ssl.SSLContext | None) -> None:
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
        """Accept for ever: a slot first, then a connection."""
        while True:
            await self._slots.acquire()
            try:
                stream = await listener.accept()
            except BaseException as exc:
                self._slots.release()
                if not isinstance(exc, OSError):
                    raise
                if exc.errno in _FULL:
                    logger.error("cannot accept a connection: %s", exc)
                    await trio.sleep(0.1)
                continue
            nursery.start_soon(self._contained, stream)

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

    def give_up(self) -> None:
        """The time is over: end what is left, in one step. Whatever cleans up behind a shield finds nothing to write to."""
        for connection in list(self._live):
            connection.abandon()
        for stream in list(self._streams):
            stream.socket.close()


async def serve_listeners(
    engine: Engine,
    bound: _Bound,
    path: str,
    context: ssl.SSLContext | None,
    allowed_hosts: list[str] | None,
    allowed_origins: list[str] | None,
    task_status: trio.TaskStatus[HttpServer],
) -> None:
    """Serve until cancelled; then no more is accepted, and requests get `limits.drain_timeout` to finish."""
    limits = engine.limits
    elsewhere = [address for address in bound.addresses if not is_loopback(address)]
    address = next(iter(elsewhere or bound.addresses), "")
    endpoint = HttpEndpoint(
        engine, path=path, allowed_hosts=allowed_hosts, allowed_origins=allowed_origins, address=address
    )
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
                    edge.give_up()
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
