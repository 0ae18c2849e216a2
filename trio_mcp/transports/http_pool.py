"""The connections of a client: made, shared, and left when they end.

httpcore2 gives the pool, through its public interface; the connections are ours (`http1_client`, `http2_client`). Nothing is
changed for other users of httpx2 in the process.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Final, NamedTuple

import httpcore2
import httpx2
import trio

from .http1_client import Http1Connection
from .http2_client import Http2Connection
from .http_environment import Proxy
from .http_wire import BODY, AnswerBody, Wire, connect_reason

__all__ = ["ClientTransport", "Way"]

_KEPT: Final = 20
"""Connections that are kept without a request."""
_KEPT_FOR: Final = 5.0
"""Seconds that they are kept."""
_HEAD_BYTES: Final = 65_536


class Way(NamedTuple):
    """How connections are made.

    Attributes:
        tls: How certificates are checked, for `https`; or None.
        proxy: What they go through, or None.
        proxy_tls: How the certificate of the proxy is checked, or None.
        http2: Whether HTTP/2 may be spoken, over TLS.
        uds: A unix socket, or None.
        connections: Most at once.
        connect_timeout: Seconds to make one.
        write_timeout: Seconds for a request to go out.
    """

    tls: ssl.SSLContext | None
    proxy: Proxy | None
    proxy_tls: ssl.SSLContext | None
    http2: bool
    uds: str | None
    connections: int
    connect_timeout: float
    write_timeout: float


class ClientTransport(httpx2.AsyncBaseTransport):
    """Sends requests over connections of its own.

    Args:
        nursery: Where the tasks of connections run; they have ended after `aclose`.
        way: How connections are made.
    """

    def __init__(self, nursery: trio.Nursery, way: Way) -> None:
        self._pool = _Pool(nursery, way)

    @property
    def note(self) -> str:
        """What may explain that there is no answer."""
        return self._pool.missing

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        answer = await self._pool.handle_async_request(
            httpcore2.Request(
                request.method,
                httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        return httpx2.Response(
            answer.status, headers=answer.headers, stream=_Stream(answer), extensions=answer.extensions
        )

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._pool.aclose()


class _Stream(httpx2.AsyncByteStream):
    def __init__(self, answer: httpcore2.Response) -> None:
        self._answer = answer

    def __aiter__(self) -> AsyncIterator[bytes]:
        body: AnswerBody = self._answer.extensions[BODY]
        return body

    async def aclose(self) -> None:
        await self._answer.aclose()


class _Pool(httpcore2.AsyncConnectionPool):
    def __init__(self, nursery: trio.Nursery, way: Way) -> None:
        super().__init__(max_connections=way.connections, max_keepalive_connections=_KEPT)
        self._nursery = nursery
        self._way = way
        self.closed = False
        self.missing = ""

    def create_connection(self, origin: httpcore2.Origin) -> httpcore2.AsyncConnectionInterface:
        return _Connection(self, self._nursery, self._way, origin)

    async def aclose(self) -> None:
        self.closed = True
        await super().aclose()


class _Connection(httpcore2.AsyncConnectionInterface):
    """A connection that is made by its first request, and then is what the server speaks."""

    def __init__(self, pool: _Pool, nursery: trio.Nursery, way: Way, origin: httpcore2.Origin) -> None:
        self._pool = pool
        self._nursery = nursery
        self._way = way
        self._origin = origin
        self._made: Http1Connection | Http2Connection | None = None
        self._making = trio.Lock()
        self._failed = False

    async def handle_async_request(self, request: httpcore2.Request) -> httpcore2.Response:
        if self._made is None:
            async with self._making:
                if self._failed:
                    raise httpcore2.ConnectionNotAvailable
                if self._made is None:
                    try:
                        self._made = await self._make()
                    except BaseException:
                        self._failed = True
                        raise
        return await self._made.handle_async_request(request)

    async def _make(self) -> Http1Connection | Http2Connection:
        wire: Wire | None = None
        agreed: str | None = None
        # Somebody may lose patience before this does.
        self._pool.missing = f"there is no connection to {self._where} yet"
        try:
            with trio.move_on_after(self._way.connect_timeout) as patience:
                wire = await self._connect()
                agreed = await self._prepare(wire)
            if patience.cancelled_caught:
                raise httpx2.ConnectTimeout(
                    f"cannot connect to {self._where}: timed out after {self._way.connect_timeout:g} s"
                )
            assert wire is not None
            if self._pool.closed:
                raise httpx2.ConnectError("the client was closed")
            self._pool.missing = ""
        except BaseException:
            if wire is not None:
                wire.close()
            raise
        if agreed == "h2":
            made = Http2Connection(self._origin, wire, idle=_KEPT_FOR)
            made.start(self._nursery)
            return made
        forwards = self._way.proxy is not None and self._origin.scheme != b"https"
        return Http1Connection(
            self._origin,
            wire,
            idle=_KEPT_FOR,
            write_timeout=self._way.write_timeout,
            proxy_headers=self._login() if forwards else None,
        )

    async def _connect(self) -> Wire:
        way = self._way
        try:
            if way.uds is not None:
                return Wire(await trio.open_unix_socket(way.uds))
            host, port = (way.proxy.host, way.proxy.port) if way.proxy else (self._host, self._origin.port)
            return Wire(await trio.open_tcp_stream(host, port))
        except (OSError, ValueError) as exc:
            raise httpx2.ConnectError(f"cannot connect to {self._where}: {connect_reason(exc)}") from exc

    @property
    def _where(self) -> str:
        way = self._way
        if way.uds is not None:
            return f"the socket {way.uds}"
        host, port = (way.proxy.host, way.proxy.port) if way.proxy else (self._host, self._origin.port)
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def _prepare(self, wire: Wire) -> str | None:
        """Everything between a socket and HTTP; returns the protocol that TLS agreed on."""
        way = self._way
        if way.proxy is not None and way.proxy_tls is not None:
            await wire.start_tls(way.proxy_tls, way.proxy.host, ["http/1.1"])
        if self._origin.scheme != b"https":
            return None
        if way.proxy is not None:
            await self._tunnel(wire)
        assert way.tls is not None
        return await wire.start_tls(way.tls, self._host, ["h2", "http/1.1"] if way.http2 else ["http/1.1"])

    async def _tunnel(self, wire: Wire) -> None:
        """Ask the proxy for a connection to the server (RFC 9110, section 9.3.6)."""
        host = b"[%b]" % self._origin.host if b":" in self._origin.host else self._origin.host
        where = b"%b:%d" % (host, self._origin.port)
        lines = [b"CONNECT %b HTTP/1.1" % where, b"Host: %b" % where]
        lines += [b"%b: %b" % field for field in self._login()]
        await wire.send(b"\r\n".join(lines) + b"\r\n\r\n")
        head = b""
        while True:
            while b"\r\n\r\n" not in head:
                data = await wire.receive()
                head += data
                if not data or len(head) > _HEAD_BYTES:
                    raise httpx2.ProxyError("the proxy did not answer")
            found = re.match(rb"HTTP/1\.[01] ([1-9][0-9][0-9])(?: ([^\r\n]*))?\r\n", head)
            if found is None:
                raise httpx2.ProxyError("the proxy does not speak HTTP/1.1")
            _, _, head = head.partition(b"\r\n\r\n")
            if found[1][:1] == b"1":
                continue
            if found[1][:1] != b"2":
                said = f"{found[1].decode()} {(found[2] or b'').decode('latin-1')[:80]}".strip()
                raise httpx2.ProxyError(f"the proxy refused with {said}")
            if head:
                raise httpx2.ProxyError("the proxy sent something before the server could")
            return

    def _login(self) -> list[tuple[bytes, bytes]]:
        proxy = self._way.proxy
        return [(b"Proxy-Authorization", proxy.authorization)] if proxy and proxy.authorization else []

    @property
    def _host(self) -> str:
        return self._origin.host.decode("ascii")

    # -- what the pool asks

    async def aclose(self) -> None:
        if self._made is not None:
            await self._made.aclose()

    def can_handle_request(self, origin: httpcore2.Origin) -> bool:
        return origin == self._origin

    def can_multiplex(self) -> bool:
        return self._made is not None and self._made.can_multiplex()

    def is_available(self) -> bool:
        if self._made is None:
            # Others may wait for it: it may turn out to take them all.
            return self._way.http2 and self._origin.scheme == b"https" and not self._failed
        return self._made.is_available()

    def has_expired(self) -> bool:
        return self._failed if self._made is None else self._made.has_expired()

    def is_idle(self) -> bool:
        return self._failed if self._made is None else self._made.is_idle()

    def is_closed(self) -> bool:
        return self._failed if self._made is None else self._made.is_closed()

    def is_connected(self) -> bool:
        return self._made is not None and not self._made.is_closed()

    def info(self) -> str:
        return "connecting" if self._made is None else self._made.info()
