"""The client's side of Streamable HTTP: one POST a request (basic/transports/streamable-http).

Leaving a call closes its response stream, which is what cancels the work on the server.
"""

from __future__ import annotations

import importlib
import itertools
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

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

__all__ = ["HttpChannel", "open_http_channel"]

logger: logging.Logger = logging.getLogger("trio_mcp.client")

_FIXED: Final = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    # An event stream must not wait in a compressor.
    "accept-encoding": "identity",
}
_REDIRECTS: Final = frozenset({307, 308})
_MOST_REDIRECTS: Final = 3
_LINGER: Final = 0.25
"""Seconds for a server to end a stream whose answer has come; most do so in the same packet."""


class HttpChannel(Channel):
    """Requests to one URL.

    Args:
        http: Sends them; whoever made it closes it.
        url: The MCP endpoint.
        limits: Bounds.
    """

    def __init__(self, http: httpx2.AsyncClient, url: str, limits: Limits) -> None:
        self._http = http
        self._url = url
        self._limits = limits
        self._reading = replace(limits, message_bytes=limits.answer_bytes)
        self._ids = itertools.count(1)
        self._closed = False
        self._note = ""
        # The parameters that go into headers, by tool.
        self._mirrored: dict[str, tuple[HeaderParam, ...]] = {}

    @property
    def peer(self) -> str:
        return self._url

    @property
    def note(self) -> str:
        return self._note

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
        headers = {**_FIXED, **mirror_headers(method, params, params["_meta"][PROTOCOL_VERSION])}
        if method == "tools/call" and (mirrored := self._mirrored.get(params["name"])):
            headers.update(param_headers(mirrored, params.get("arguments")))
        try:
            return await self._post(id, method, body, headers, listener)
        except httpx2.HTTPError as exc:
            raise ConnectionClosed(f"{method}: {self._url}: {_reason(exc)}") from exc

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
        url = self._url
        for _ in range(_MOST_REDIRECTS + 1):
            async with self._http.stream("POST", url, content=body, headers=headers) as response:
                if response.status_code not in _REDIRECTS:
                    return await self._answer(id, method, response, listener)
                url = self._redirected(url, response)
        raise HttpError(f"{self._url} redirects more than {_MOST_REDIRECTS} times", url=self._url, status=308)

    def _redirected(self, url: str, response: httpx2.Response) -> str:
        before, target = httpx2.URL(url), httpx2.URL(url).join(response.headers.get("location", ""))
        origin = (before.scheme, before.host, before.port)
        if (target.scheme, target.host, target.port) != origin:
            # What was meant for one origin, tokens among it, is not for another.
            raise HttpError(
                f"{url} redirects to another origin ({target}), which is not followed",
                url=url,
                status=response.status_code,
            )
        return str(target)

    async def _answer(
        self, id: RequestId, method: str, response: httpx2.Response, listener: Listener
    ) -> dict[str, Any]:
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "text/event-stream" and response.status_code == 200:
            return await self._events(id, method, response, listener)
        raw = await self._body(response)
        status = response.status_code
        if kind == "application/json" and raw:
            message: Any = None
            try:
                message = parse_message(raw, self._reading)
            except BadMessage as exc:
                if status < 300:
                    raise InvalidResponse(f"{method}: {self._url} answered {status} with bad JSON-RPC: {exc}") from None
            if isinstance(message, ErrorResponse) and not self._for_call(id, message.id, status):
                # About the HTTP request, not the call: a host that is not served, a form that is not taken.
                raise HttpError(
                    f"{method}: {self._url} answered {status}: {message.error['message']}", url=self._url, status=status
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
        raise HttpError(
            f"{method}: {self._url} answered {status} {response.reason_phrase}: {shown}", url=self._url, status=status
        )

    async def _body(self, response: httpx2.Response) -> bytes:
        parts: list[bytes] = []
        size = 0

        async def take(chunk: bytes) -> bool:
            nonlocal size
            size += len(chunk)
            if size > self._limits.answer_bytes:
                raise InvalidResponse(f"the answer of {self._url} is over {self._limits.answer_bytes} bytes")
            parts.append(chunk)
            return False

        await _each_chunk(response, take)
        return b"".join(parts)

    async def _events(
        self, id: RequestId, method: str, response: httpx2.Response, listener: Listener
    ) -> dict[str, Any]:
        parser = SSEParser(self._limits.answer_bytes)
        results: list[dict[str, Any]] = []

        async def take(chunk: bytes) -> bool:
            try:
                events = parser.feed(chunk)
            except EventTooLarge as exc:
                raise InvalidResponse(f"{method}: {self._url}: {exc}") from None
            for event in events:
                if event.event != "message" or not event.data or results:
                    continue
                result = await self._event(id, event.data, listener)
                if result is not None:
                    results.append(result)
            return bool(results)

        await _each_chunk(response, take)
        if results:
            return results[0]
        note = f"; {self._note}" if self._note else ""
        raise ConnectionClosed(f"{method}: {self._url} ended the stream without an answer{note}")

    async def _event(self, id: RequestId, data: bytes, listener: Listener) -> dict[str, Any] | None:
        try:
            message = parse_message(data, self._reading)
        except BadMessage as exc:
            self._odd(f"an event that is no message: {shorten(data.decode(errors='replace'))} ({exc})")
            return None
        if isinstance(message, Notification):
            target = message.params.get("requestId") if message.method == CANCELLED else None
            if listener.changes is not None and target == id and type(target) is type(id):
                # A server may end a stream that listens in this way, and nothing else (basic/patterns/cancellation).
                logger.info("%s ended a stream of changes: %s", self._url, shorten(message.params.get("reason")))
                return {}
            await listener.tell(message)
            return None
        result = self._result(id, message)
        if result is None:
            self._odd(f"a message that is not for this request: {shorten(data.decode(errors='replace'))}")
        return result

    def _result(self, id: RequestId, message: Any) -> dict[str, Any] | None:
        """The result, if the message is the answer; an error is raised."""
        if isinstance(message, Response) and message.id == id and type(message.id) is type(id):
            return message.result
        # An error without an id answers the only request there is on this POST.
        if isinstance(message, ErrorResponse) and message.id in (id, None):
            raise ProtocolError.from_wire(message.error)
        return None

    @staticmethod
    def _for_call(id: RequestId, named: RequestId | None, status: int) -> bool:
        """Whether an error is meant for the call, as far as its id and the status tell."""
        return status < 300 or named == id or (named is None and status in (400, 404))

    def _odd(self, text: str) -> None:
        self._note = f"the server sent {text}"
        logger.warning("%s sent %s", self._url, text)


async def _each_chunk(response: httpx2.Response, take: Callable[[bytes], Awaitable[bool]]) -> None:
    """Give each piece of a body to `take`, until it says that it has what it wants.

    The stack of generators under a response unwinds cleanly only from its end or from its innermost read. So whatever ends
    this early, an error of `take` included, is carried past it, and the read is cancelled.
    """
    failed: BaseException | None = None
    with trio.CancelScope() as scope:
        async for chunk in response.aiter_bytes():
            if failed is not None or scope.deadline < math.inf:
                continue
            try:
                if await take(chunk):
                    # To the end of the stream, if that is near: then the connection can be used again.
                    scope.deadline = trio.current_time() + _LINGER
            except BaseException as exc:
                failed = exc
                scope.cancel()
    if failed is not None:
        raise failed


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
    """
    if http is not None:
        channel = HttpChannel(http, url, limits)
        try:
            yield channel
        finally:
            channel.close()
        return
    pool = httpx2.Limits(max_connections=limits.connections, max_keepalive_connections=20)
    if http2:
        importlib.import_module(".http2_reset", __package__).install()
    # Whoever calls has a deadline; reading waits for as long as the server works.
    timeout = httpx2.Timeout(None, connect=limits.connect_timeout, write=limits.client_timeout)
    transport = httpx2.AsyncHTTPTransport(http2=http2, uds=uds, verify=verify, limits=pool) if uds else None
    async with httpx2.AsyncClient(
        headers=dict(headers or {}), http2=http2, verify=verify, limits=pool, timeout=timeout, transport=transport
    ) as client:
        channel = HttpChannel(client, url, limits)
        try:
            yield channel
        finally:
            channel.close()
