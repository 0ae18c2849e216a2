"""The client's side of HTTP with SSE (2024-11-05, basic/transports): one stream for all that the server says, and POSTs to an
address that it names first. What goes over it are the same lines as elsewhere, so a `LineChannel` reads them."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, cast

import httpx2
import trio

from ..errors import HttpError, InvalidResponse, MCPError, RequestTimeout
from ..limits import Limits
from ..protocol.envelope import BadMessage, Request, parse_message
from ..protocol.jsontext import shorten
from ..protocol.sse import Event, EventTooLarge, SSEParser
from .http_channel import FIXED, HttpChannel, each_chunk
from .http_url import shown_url
from .line_channel import LineChannel
from .link import Link

__all__ = ["open_pair"]

logger: logging.Logger = logging.getLogger("trio_mcp.client")

_WAITING: Final = 64
"""Messages that wait to be sent."""


class PairChannel(LineChannel):
    """Requests over the pair. Made by `open_pair`."""

    @property
    def reconnects(self) -> bool:
        return False

    def unsent(self, message: bytes, error: MCPError) -> None:
        """A message did not reach the server: the call that waits for its answer must not wait for ever."""
        try:
            sent = parse_message(message, self._limits)
        except BadMessage:
            return
        if isinstance(sent, Request):
            self._settle(sent.id, error=error)


class _PairHttp(HttpChannel):
    """Requests that are no calls."""

    async def stream(self) -> httpx2.Response | None:
        """The event stream at the URL; None where it is none."""
        headers = {"accept": "text/event-stream", "accept-encoding": "identity"}
        response = await self._send("GET", self._full_url, b"", headers, "GET")
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if response.status_code == 200 and kind == "text/event-stream":
            return response
        await response.aclose()
        return None

    def beside(self, uri: str) -> str:
        """An address that the server has named.

        Raises:
            InvalidResponse: it is of another origin: what was meant for one, tokens among it, is not for another.
        """
        try:
            base, target = httpx2.URL(self._full_url), httpx2.URL(self._full_url).join(uri)
        except httpx2.InvalidURL:
            raise InvalidResponse(f"{self._url} names an address that is none: {shorten(uri)}") from None
        if (target.scheme, target.host, target.port) != (base.scheme, base.host, base.port):
            raise InvalidResponse(f"{self._url} names an address of another origin: {shown_url(str(target))}")
        return str(target)

    async def send_to(self, url: str, message: bytes) -> None:
        """POST a message.

        Raises:
            HttpError: the server refuses it.
            ConnectionClosed: it cannot be reached.
            RequestTimeout: it does not answer; the messages behind this one must not wait for ever.
        """
        with trio.move_on_after(self._limits.client_timeout):
            response = await self._send("a message", url, message, dict(FIXED))
            await response.aclose()
            if response.status_code >= 400:
                raise HttpError(
                    f"{shown_url(url)} answered {response.status_code} to a message of this client",
                    url=url,
                    status=response.status_code,
                )
            return
        raise RequestTimeout(f"{shown_url(url)}: no answer to a message within {self._limits.client_timeout:g} s")


class _PairLink:
    """What a `LineChannel` needs of a link, over the pair."""

    def __init__(self, http: _PairHttp, limits: Limits) -> None:
        self._http = http
        self._limits = limits
        self._in: deque[bytes] = deque()
        self._out: deque[bytes] = deque()
        self._news = trio.lowlevel.ParkingLot()
        self._work = trio.lowlevel.ParkingLot()
        self._over = False
        self.endpoint: str | None = None
        self.fault: str | None = None
        self.found = trio.Event()

    # -- as a link

    @property
    def full(self) -> bool:
        return len(self._out) >= _WAITING

    async def wait_room(self) -> None:
        """Wait until there is room."""
        while self.full and not self._over:
            await self._news.park()

    def post(self, message: bytes, *, now: bool = False) -> None:
        """Queue one message."""
        self._out.append(message)
        self._work.unpark_all()

    async def receive(self) -> list[bytes]:
        """The next messages; empty at the end."""
        while not self._in and not self._over:
            await self._news.park()
        lines = [*self._in]
        self._in.clear()
        return lines

    # -- its tasks

    async def read(self, response: httpx2.Response) -> None:
        """Read the stream to its end."""
        parser = SSEParser(self._limits.answer_bytes)

        def take(chunk: bytes) -> bool:
            try:
                for event in parser.feed(chunk):
                    self._event(event)
            except EventTooLarge as exc:
                raise InvalidResponse(f"{self._http.peer}: {exc}") from None
            return False

        try:
            await each_chunk(response, take)
        except InvalidResponse as exc:
            logger.warning("%s", exc)
        finally:
            self._over = True
            self.found.set()
            self._news.unpark_all()

    def _event(self, event: Event) -> None:
        if event.event == "endpoint":
            if self.endpoint is None:
                try:
                    self.endpoint = self._http.beside(event.data.decode(errors="replace").strip())
                except InvalidResponse as exc:
                    self.fault = str(exc)
                self.found.set()
        elif event.event == "message" and event.data:
            self._in.append(event.data)
            self._news.unpark_all()

    async def write(self, unsent: Callable[[bytes, MCPError], None]) -> None:
        """Send what is posted, one after the other; what does not arrive is told to `unsent`."""
        while True:
            while not self._out:
                await self._work.park()
            message = self._out.popleft()
            self._news.unpark_all()
            assert self.endpoint is not None
            try:
                await self._http.send_to(self.endpoint, message)
            except MCPError as exc:
                logger.warning("%s", exc)
                unsent(message, exc)


@asynccontextmanager
async def open_pair(channel: HttpChannel, limits: Limits, timeout: float) -> AsyncIterator[PairChannel | None]:
    """The pair at the URL of a channel; None where there is none.

    Args:
        channel: By its connections.
        limits: Bounds.
        timeout: Seconds for the stream to begin.

    Raises:
        InvalidResponse: it names an address of another origin, or none.
    """
    http = channel.again(_PairHttp)
    response: httpx2.Response | None = None
    try:
        with trio.move_on_after(timeout):
            response = await http.stream()
    except MCPError as exc:
        # What was said to the questions before says more.
        logger.info("%s", exc)
    if response is None:
        yield None
        return
    try:
        link = _PairLink(http, limits)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(link.read, response)
            with trio.move_on_after(timeout):
                await link.found.wait()
            if link.endpoint is None:
                nursery.cancel_scope.cancel()
                raise InvalidResponse(f"{http.peer}: {link.fault or 'its event stream names no address for messages'}")
            pair = PairChannel(cast(Link, link), http.peer, limits)
            nursery.start_soon(_read, pair)
            nursery.start_soon(link.write, pair.unsent)
            try:
                yield pair
            finally:
                pair.close("the client was closed")
                nursery.cancel_scope.cancel()
    finally:
        with trio.move_on_after(limits.child_reap, shield=True):
            await response.aclose()


async def _read(pair: PairChannel) -> None:
    await pair.read()
    pair.close(f"{pair.peer} closed the connection")
