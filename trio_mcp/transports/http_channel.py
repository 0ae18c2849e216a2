"""The client's side of Streamable HTTP: one POST a request (basic/transports/streamable-http).

Leaving a call closes its response stream, which is what cancels the work on the server.
"""

from __future__ import annotations

import codecs
import itertools
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final, TypeVar

import h2.exceptions
import httpx2
import trio

from ..client.channel import Channel, Listener
from ..errors import ConnectionClosed, HttpError, InvalidResponse, ProtocolError
from ..limits import Limits
from ..protocol.envelope import (
    BadMessage,
    ErrorResponse,
    Notification,
    RequestId,
    Response,
    encode_request,
    parse_message,
)
from ..protocol.http import mirror_headers
from ..protocol.jsontext import shorten
from ..protocol.listening import CANCELLED
from ..protocol.meta import PROTOCOL_VERSION
from ..protocol.param_headers import HeaderParam, InvalidHeader, header_params, param_headers
from ..protocol.sse import EventTooLarge, SSEParser
from ..scopes.groups import unwrapped
from .http_environment import Proxy, find_proxy, tls_context
from .http_place import Place, location_of
from .http_pool import ClientTransport, Way
from .http_url import UNIX_URL, check_headers, shown_url
from .http_wire import SAFE

__all__ = ["FIXED", "HttpChannel", "each_chunk", "open_http_channel"]

logger: logging.Logger = logging.getLogger("trio_mcp.client")

FIXED: Final = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    # An event stream must not wait in a compressor.
    "accept-encoding": "identity",
}
_READ_ONLY: Final = frozenset(
    {
        "server/discover",
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "prompts/list",
        "tasks/get",
    }
)
"""What may be asked twice when the connection ends before the answer, since no code of a handler runs for it."""
_REDIRECTS: Final = frozenset({307, 308})
_MOST_REDIRECTS: Final = 3
_LINGER: Final = 0.25
"""Seconds for a server to end a stream whose answer has come; most do so in the same packet."""


_BROKEN: Final = (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, h2.exceptions.H2Error)
"""What comes out of httpx2 when a peer or the way to it is at fault."""
_TEXTS: Final = (
    httpx2.NetworkError,
    httpx2.TimeoutException,
    httpx2.ProxyError,
    httpx2.RemoteProtocolError,
    httpx2.DecodingError,
)
"""Those that speak of the network and of what the server sent. The text of any other may hold a header or the URL."""


ChannelT = TypeVar("ChannelT", bound="HttpChannel")


class HttpChannel(Channel):
    """Requests to one URL.

    Args:
        http: Sends them; whoever made it closes it.
        url: The MCP endpoint.
        limits: Bounds.
        proxy: What they go through because the environment says so, or None.
        transport: Our own, if `http` was made here and speaks through it.
        uds: The unix socket that it is at, or None.
    """

    def __init__(
        self,
        http: httpx2.AsyncClient,
        url: str,
        limits: Limits,
        *,
        proxy: Proxy | None = None,
        transport: ClientTransport | None = None,
        uds: str | None = None,
    ) -> None:
        self._http = http
        self._full_url = url
        self._url = shown_url(url)
        if uds is not None:
            self._url = f"unix:{uds}" if self._url == UNIX_URL else f"{self._url} (at unix:{uds})"
        self._transport = transport
        self._proxy, self._uds = proxy, uds
        self._via = "" if proxy is None else f" (through {proxy})"
        self._limits = limits
        self._reading = replace(limits, message_bytes=limits.answer_bytes)
        self._ids = itertools.count(1)
        self._closed = False
        self._note = ""
        # The parameters that go into headers, by tool.
        self._mirrored: dict[str, tuple[HeaderParam, ...]] = {}

    def again(self, kind: type[ChannelT]) -> ChannelT:
        """Another channel to the same place, by the same connections; whoever opened this one closes them."""
        return kind(
            self._http, self._full_url, self._limits, proxy=self._proxy, transport=self._transport, uds=self._uds
        )

    @property
    def peer(self) -> str:
        return self._url

    @property
    def note(self) -> str:
        return self._note or ("" if self._transport is None else self._transport.note)

    @property
    def reconnects(self) -> bool:
        return not self._closed

    def close(self) -> None:
        """Refuse every later call."""
        self._closed = True

    async def call(self, method: str, params: dict[str, Any], listener: Listener) -> dict[str, Any]:
        if self._closed:
            raise ConnectionClosed(f"the client of {self._url} was closed")
        id = next(self._ids)
        if listener.progress is not None:
            params["_meta"]["progressToken"] = id
        body = encode_request(id, method, params, self._limits)
        headers = {**FIXED, **mirror_headers(method, params, params["_meta"][PROTOCOL_VERSION])}
        if method == "tools/call" and (mirrored := self._mirrored.get(params["name"])):
            headers.update(param_headers(mirrored, params.get("arguments")))
        return await self._post(id, method, body, headers, listener)

    def learn_tools(self, tools: list[Any]) -> list[Any]:
        """A tool whose `x-mcp-header` breaks the rules is left out (section Schema Extension)."""
        out: list[Any] = []
        for tool in tools:
            if isinstance(tool, dict) and isinstance(tool.get("inputSchema"), dict):
                try:
                    self._mirrored[str(tool.get("name"))] = header_params(tool["inputSchema"])
                except (InvalidHeader, RecursionError) as exc:
                    logger.warning("%s: the tool %s is left out: %s", self._url, shorten(tool.get("name")), exc)
                    continue
            out.append(tool)
        return out

    async def _post(
        self, id: RequestId, method: str, body: bytes, headers: dict[str, str], listener: Listener
    ) -> dict[str, Any]:
        url = self._full_url
        for _ in range(_MOST_REDIRECTS + 1):
            response = await self._send(method, url, body, headers)
            try:
                if response.status_code not in _REDIRECTS:
                    return await self._answer(id, method, response, listener)
                url = self._redirected(url, response)
            finally:
                await response.aclose()
        raise HttpError(f"{self._url} redirects more than {_MOST_REDIRECTS} times", url=self._full_url, status=308)

    async def _send(
        self, method: str, url: str, body: bytes, headers: dict[str, str], verb: str = "POST"
    ) -> httpx2.Response:
        try:
            if self._transport is not None:
                # httpx2 writes the URL of each request to its log, and what is sent need not be in there.
                place = Place.of(url)
                extensions = {"target": place.target, SAFE: method in _READ_ONLY or verb != "POST"}
                request = self._http.build_request(
                    verb, place.url, content=body, headers=headers, extensions=extensions
                )
            else:
                request = self._http.build_request(verb, url, content=body, headers=headers)
            return await self._http.send(request, stream=True)
        except Exception as exc:
            if self._transport is None and not isinstance(exc, _BROKEN):
                raise  # of a hook, or of a transport that somebody else has written
            raise self._lost(method, exc) from None

    def _lost(self, method: str, exc: Exception, note: str = "") -> ConnectionClosed:
        text = _reason(exc) if isinstance(exc, _TEXTS) else type(exc).__name__
        if self._transport is not None and isinstance(exc, httpx2.ConnectError | httpx2.ConnectTimeout):
            text = str(exc)  # in our words
        return ConnectionClosed(f"{method}: {self._url}: {text}{note}{self._via}")

    def _redirected(self, url: str, response: httpx2.Response) -> str:
        status = response.status_code
        target = location_of(url, response)
        if target is None:
            fault = "an address that cannot be used" if "location" in response.headers else "no address"
            raise HttpError(
                f"{self._url} answered {status}, a redirect with {fault}", url=self._full_url, status=status
            )
        before = httpx2.URL(url)
        if (target.scheme, target.host, target.port) != (before.scheme, before.host, before.port):
            # What was meant for one origin, tokens among it, is not for another.
            raise HttpError(
                f"{self._url} redirects to another origin ({shown_url(str(target))}), which is not followed",
                url=self._full_url,
                status=status,
            )
        return str(target)

    async def _answer(
        self, id: RequestId, method: str, response: httpx2.Response, listener: Listener
    ) -> dict[str, Any]:
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "text/event-stream" and response.status_code == 200:
            return await self._events(id, method, response, listener)
        raw, broken = await self._body(response)
        status = response.status_code
        if broken is not None and status < 300 and not self._whole(kind, raw):
            raise self._lost(method, broken) from None
        if kind == "application/json" and raw:
            message: Any = None
            try:
                message = parse_message(raw.removeprefix(codecs.BOM_UTF8), self._reading)
            except BadMessage as exc:
                if status < 300:
                    raise InvalidResponse(f"{method}: {self._url} answered {status} with bad JSON-RPC: {exc}") from None
            if isinstance(message, ErrorResponse) and not self._for_call(id, message.id, status):
                # About the HTTP request, not the call: a host that is not served, a form that is not taken.
                raise HttpError(
                    f"{method}: {self._url} answered {status}: {message.error['message']}{self._via}",
                    url=self._full_url,
                    status=status,
                )
            if message is not None:
                result = self._result(id, message)
                if result is not None:
                    return result
                raise InvalidResponse(f"{method}: {self._url} answered {status} with a message that is no answer to it")
        if status < 300:
            what = f"content of type {kind}" if raw else "nothing"
            raise InvalidResponse(f"{method}: {self._url} answered {status} with {what}, not with a message")
        shown = shorten(raw[:200].decode(errors="replace").strip())
        target = location_of(self._full_url, response) if status < 400 else None
        where = "" if target is None else f", which points to {shown_url(str(target))} and is not followed"
        raise HttpError(
            f"{method}: {self._url} answered {status} {response.reason_phrase}{where}: {shown}{self._via}",
            url=self._full_url,
            status=status,
        )

    def _whole(self, kind: str, raw: bytes) -> bool:
        """Whether a body that broke off is a whole message all the same."""
        try:
            return kind == "application/json" and parse_message(raw, self._reading) is not None
        except BadMessage:
            return False

    async def _body(self, response: httpx2.Response) -> tuple[bytes, Exception | None]:
        """What came, and what broke it off."""
        body = bytearray()

        def take(chunk: bytes) -> bool:
            if len(body) + len(chunk) > self._limits.answer_bytes:
                raise InvalidResponse(f"the answer of {self._url} is over {self._limits.answer_bytes} bytes")
            body.extend(chunk)
            return False

        broken = await each_chunk(response, take)
        return bytes(body), broken

    async def _events(
        self, id: RequestId, method: str, response: httpx2.Response, listener: Listener
    ) -> dict[str, Any]:
        if not listener.calls_back:
            await self._read_events(id, method, response, listener)
            return await listener.wait()
        failed: BaseException | None = None
        result: dict[str, Any] = {}
        # The callbacks run in this task, and what comes meanwhile is read in another one.
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read_events, id, method, response, listener)
            try:
                result = await listener.wait()
            except trio.Cancelled:
                raise
            except BaseException as exc:
                # Out of the nursery as itself, not in a group.
                failed = exc
                if not listener.settled:
                    nursery.cancel_scope.cancel()
        if failed is not None:
            raise failed
        return result

    async def _read_events(self, id: RequestId, method: str, response: httpx2.Response, listener: Listener) -> None:
        """Read a stream to its answer, which always comes: what ends it earlier is one."""
        parser = SSEParser(self._limits.answer_bytes)
        try:
            broken = await self._read_stream(id, method, response, listener, parser)
        except InvalidResponse as exc:
            listener.settle(error=exc)
            return
        self._broke_off(method, broken, listener)

    async def _read_stream(
        self, id: RequestId, method: str, response: httpx2.Response, listener: Listener, parser: SSEParser
    ) -> Exception | None:
        """Take the events of a stream until the answer is here. Returns what broke it off."""

        def take(chunk: bytes) -> bool:
            try:
                events = parser.feed(chunk)
            except EventTooLarge as exc:
                raise InvalidResponse(f"{method}: {self._url}: {exc}") from None
            for event in events:
                if event.event == "message" and event.data and not listener.settled:
                    self._event(id, event.data, listener)
            return listener.settled

        return await each_chunk(response, take)

    def _broke_off(self, method: str, broken: Exception | None, listener: Listener) -> None:
        # After the answer the connection may do what it wants.
        note = f"; {self._note}" if self._note else ""
        if broken is not None:
            listener.settle(error=self._lost(method, broken, note))
        else:
            text = f"{method}: {self._url} ended the stream without an answer{note}{self._via}"
            listener.settle(error=ConnectionClosed(text))

    def _event(self, id: RequestId, data: bytes, listener: Listener) -> None:
        try:
            message = parse_message(data, self._reading)
        except BadMessage as exc:
            self._odd(f"an event that is no message: {shorten(data.decode(errors='replace'))} ({exc})")
            return
        if isinstance(message, Notification):
            target = message.params.get("requestId") if message.method == CANCELLED else None
            if listener.changes is not None and target == id and type(target) is type(id):
                # A server may end a stream that listens in this way, and nothing else (basic/patterns/cancellation).
                logger.info("%s ended a stream of changes: %s", self._url, shorten(message.params.get("reason")))
                listener.settle(result={})
            else:
                listener.post(message)
            return
        try:
            result = self._result(id, message)
        except ProtocolError as exc:
            listener.settle(error=exc)
            return
        if result is not None:
            listener.settle(result=result)
        else:
            self._odd(f"a message that is not for this request: {shorten(data.decode(errors='replace'))}")

    def _result(self, id: RequestId, message: Any) -> dict[str, Any] | None:
        """The result, if the message is the answer; an error is raised."""
        if isinstance(message, Response) and message.id == id and type(message.id) is type(id):
            return message.result
        # An error without an id answers the only request there is on this POST.
        if isinstance(message, ErrorResponse) and message.id in (id, None):
            raise ProtocolError.from_wire(message.error)
        return None

    def _for_call(self, id: RequestId, named: RequestId | None, status: int) -> bool:
        """Whether an error is meant for the call, as far as its id and the status tell."""
        return status < 300 or named == id or (named is None and status in (400, 404))

    def _odd(self, text: str) -> None:
        self._note = f"the server sent {text}"
        logger.warning("%s sent %s", self._url, text)


async def each_chunk(response: httpx2.Response, take: Callable[[bytes], bool]) -> Exception | None:
    """Give each piece of a body to `take`, until it says that it has what it wants. Returns what broke the body off.

    The stack of generators under a response unwinds cleanly only from its end or from its innermost read. So whatever ends
    this early, an error of `take` included, is carried past it, and the read is cancelled.
    """
    failed: BaseException | None = None
    broken: Exception | None = None
    done = False
    with trio.CancelScope() as scope:
        try:
            async for chunk in response.aiter_bytes():
                if failed is not None or done:
                    continue
                try:
                    done = take(chunk)
                except BaseException as exc:
                    failed = exc
                    scope.cancel()
                if done:
                    # To the end of the stream, if that is near: then the connection can be used again. An error ends a
                    # stream as a result does, and to leave at once would cost the next call a connection.
                    scope.deadline = trio.current_time() + _LINGER
        except Exception as exc:
            broken = exc
    if failed is not None:
        raise failed
    return broken


def _reason(exc: BaseException) -> str:
    # What TLS has to say is in a cause of a cause.
    while not str(exc) and (exc.__cause__ or exc.__context__) is not None:
        exc = exc.__cause__ or exc.__context__  # type: ignore[assignment]
    return f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__


@asynccontextmanager
async def open_http_channel(
    url: str,
    limits: Limits,
    *,
    headers: Mapping[str, str] | None = None,
    http2: bool = False,
    uds: str | None = None,
    verify: Any = True,
    http: httpx2.AsyncClient | None = None,
) -> AsyncIterator[HttpChannel]:
    """A channel to a URL; connections are made by the first call.

    Args:
        url: The MCP endpoint.
        limits: Bounds.
        headers: Sent with every request.
        http2: Whether HTTP/2 may be spoken (over TLS).
        uds: A unix socket to connect to instead of the host of the URL.
        verify: As for httpx2: whether and how to check the certificate.
        http: A client of one's own, which stays open; then the arguments before it do not count.

    Raises:
        ValueError: the URL is none, or a header cannot be sent.
        ConnectionClosed: what the environment says about proxies or certificates cannot be used.
    """
    bad = ValueError(f"open_client: {shown_url(url)!r} is no URL of a server")
    try:
        place = Place.of(url)
        parsed = httpx2.URL(url)
    except (httpx2.InvalidURL, ValueError):
        raise bad from None
    if shown_url(url).endswith("://…") or (parsed.port or 0) > 65_535:
        raise bad
    if http is not None:
        channel = HttpChannel(http, url, limits)
        try:
            yield channel
        finally:
            channel.close()
        return
    fields = check_headers(headers or {})
    if place.login is not None and not any(name.lower() == "authorization" for name in fields):
        fields["authorization"] = place.login
    tls = parsed.scheme == "https"
    proxy = None
    if uds is None:
        proxy = find_proxy(parsed.scheme, parsed.host, parsed.port or (443 if tls else 80), os.environ)
    way = Way(
        tls=tls_context(verify) if tls else None,
        proxy=proxy,
        proxy_tls=tls_context(True) if proxy is not None and proxy.tls else None,
        http2=http2,
        uds=uds,
        connections=limits.connections,
        connect_timeout=limits.connect_timeout,
        write_timeout=limits.client_timeout,
    )
    with unwrapped():
        async with trio.open_nursery() as nursery:
            # Whoever calls has a deadline; an answer takes as long as the server works.
            transport = ClientTransport(nursery, way)
            async with httpx2.AsyncClient(headers=fields, transport=transport, timeout=None, trust_env=False) as client:
                channel = HttpChannel(client, url, limits, proxy=proxy, transport=transport, uds=uds)
                try:
                    yield channel
                finally:
                    channel.close()
            nursery.cancel_scope.cancel()
