"""The client's side of Streamable HTTP in the revisions with sessions (2025-11-25 and older, basic/transports).

Leaving a call is told by a notification, since the end of a connection is not the end of a call there. A stream that breaks off
before the answer is taken up again where it was, if its events have ids.
"""

from __future__ import annotations

import logging
from typing import Any, Final

import httpx2
import trio

from ..client.channel import Hears, Listener, SessionLost
from ..errors import ConnectionClosed, HttpError, InvalidResponse, MCPError
from ..protocol.envelope import (
    BadMessage,
    Notification,
    Request,
    RequestId,
    encode_notification,
    encode_request,
    parse_message,
)
from ..protocol.jsontext import shorten
from ..protocol.listening import CANCELLED
from ..protocol.sse import EventTooLarge, SSEParser
from .http_channel import FIXED, HttpChannel, each_chunk

__all__ = ["HttpSession", "session_of"]

logger: logging.Logger = logging.getLogger("trio_mcp.client")

_WITH_HEADER: Final = "2025-06-18"
"""The first revision whose requests name it in a header."""
_OF_CALLS: Final = frozenset({"notifications/progress", "notifications/message"})
_RESUMES: Final = 5
"""How often a stream is taken up again without anything new on it."""
_PAUSE: Final = 1.0
"""Seconds until then, where the server does not say."""
_LONGEST_PAUSE: Final = 60.0


class HttpSession(HttpChannel):
    """A session with one URL. Made by `HttpChannel.again`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._id: str | None = None
        self._revision: str | None = None
        self._hears: Hears | None = None
        self._renewed = trio.Event()
        # Around the stream that belongs to no call.
        self._hearing = trio.CancelScope()

    # -- the session

    def begin(self, hears: Hears, revision: str) -> None:
        """The server has answered `initialize`."""
        self._hears, self._revision = hears, revision
        self._renewed.set()
        self._renewed = trio.Event()
        # What is heard by now is of the session before.
        self._hearing.cancel()

    def _headers(self) -> dict[str, str]:
        headers = dict(FIXED)
        if self._id is not None:
            headers["mcp-session-id"] = self._id
        if self._revision is not None and self._revision >= _WITH_HEADER:
            headers["mcp-protocol-version"] = self._revision
        return headers

    async def end(self) -> None:
        """Tell the server that the session is over; not every server wants to hear it."""
        self._closed = True
        if self._id is None:
            await trio.lowlevel.checkpoint()
            return
        try:
            response = await self._send("DELETE", self._full_url, b"", self._headers(), "DELETE")
            await response.aclose()
        except MCPError as exc:
            logger.info("the end of the session: %s", exc)

    # -- calls

    async def call(self, method: str, params: dict[str, Any], listener: Listener) -> dict[str, Any]:
        if self._closed:
            raise ConnectionClosed(f"the client of {self._url} was closed")
        first = method == "initialize"
        # The id of the session before holds until there is another one.
        headers = FIXED if first else self._headers()
        id = next(self._ids)
        if listener.progress is not None:
            params.setdefault("_meta", {})["progressToken"] = id
        body = encode_request(id, method, params, self._limits)
        ended = False
        try:
            result = await self._post(id, method, body, headers, listener)
            ended = True
            return result
        except MCPError:
            ended = True
            raise
        finally:
            if not ended and not first:
                with trio.move_on_after(self._limits.child_reap, shield=True):
                    await self.notify(CANCELLED, {"requestId": id, "reason": "the caller left"})

    async def _answer(
        self, id: RequestId, method: str, response: httpx2.Response, listener: Listener
    ) -> dict[str, Any]:
        if method == "initialize":
            result = await super()._answer(id, method, response, listener)
            self._id = response.headers.get("mcp-session-id")
            return result
        try:
            return await super()._answer(id, method, response, listener)
        except HttpError as exc:
            if self._id is not None and exc.status in (400, 404):
                # 404 is what the specification says; some servers say 400.
                raise SessionLost(exc) from None
            raise

    def _for_call(self, id: RequestId, named: RequestId | None, status: int) -> bool:
        # An error without an id is about the session.
        return status < 300 or named == id or (named is None and self._id is None and status in (400, 404))

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        """Tell the server something. What it answers to that changes nothing."""
        try:
            await self.respond(encode_notification(method, params))
        except MCPError as exc:
            logger.info("%s: %s", method, exc)

    async def respond(self, message: bytes) -> None:
        """Send a message that is not answered."""
        if self._closed:
            raise ConnectionClosed(f"the client of {self._url} was closed")
        response = await self._send("a message", self._full_url, message, self._headers())
        try:
            if response.status_code >= 400:
                raise HttpError(
                    f"{self._url} answered {response.status_code} to a message of this client",
                    url=self._full_url,
                    status=response.status_code,
                )
        finally:
            await response.aclose()

    # -- streams

    def _event(self, id: RequestId, data: bytes, listener: Listener) -> None:
        try:
            message = parse_message(data, self._reading)
        except BadMessage:
            super()._event(id, data, listener)
            return
        if isinstance(message, Request | Notification) and not self._heard(message):
            assert isinstance(message, Notification)
            listener.post(message)
        elif not isinstance(message, Request | Notification):
            super()._event(id, data, listener)

    def _heard(self, message: Request | Notification) -> bool:
        """Give a message to the session; False where it is for the call whose stream it came on."""
        hears = self._hears
        if isinstance(message, Request):
            if hears is not None:
                hears.asked(message)
            return True
        if message.method in _OF_CALLS:
            return False
        if hears is not None:
            hears.told(message)
        return True

    async def _read_events(self, id: RequestId, method: str, response: httpx2.Response, listener: Listener) -> None:
        parser = SSEParser(self._limits.answer_bytes)
        try:
            broken = await self._read_stream(id, method, response, listener, parser)
            idle = 0
            while not listener.settled and parser.last_id and idle < _RESUMES:
                last = parser.last_id
                await trio.sleep(_pause(parser))
                # A new stream begins at the beginning of a line.
                parser = SSEParser(self._limits.answer_bytes, parser)
                try:
                    resumed = await self._get(last)
                except ConnectionClosed as exc:
                    broken, idle = exc, idle + 1  # the server may be on its way back
                    continue
                try:
                    if _is_stream(resumed):
                        broken = await self._read_stream(id, method, resumed, listener, parser)
                    elif resumed.status_code < 500:
                        break
                finally:
                    await resumed.aclose()
                idle = idle + 1 if parser.last_id == last else 0
        except InvalidResponse as exc:
            listener.settle(error=exc)
            return
        if isinstance(broken, ConnectionClosed):
            listener.settle(error=broken)
        self._broke_off(method, broken, listener)

    async def _get(self, last: str | None) -> httpx2.Response:
        headers = {**self._headers(), "accept": "text/event-stream"}
        del headers["content-type"]
        if last is not None:
            headers["last-event-id"] = last
        return await self._send("GET", self._full_url, b"", headers, "GET")

    async def listen(self) -> None:
        """Hear what belongs to no call, on a stream of its own. Comes back where the server has none."""
        last: str | None = None
        misses = 0
        while not self._closed:
            renewed, parser = self._renewed, SSEParser(self._limits.answer_bytes)
            began = trio.current_time()
            status = 0
            with trio.CancelScope() as self._hearing:
                try:
                    response = await self._get(last)
                    try:
                        status = response.status_code
                        if _is_stream(response):
                            await self._read_standalone(response, parser)
                        elif status < 500 and (self._id is None or status not in (400, 404)):
                            return
                    finally:
                        await response.aclose()
                except (ConnectionClosed, InvalidResponse) as exc:
                    logger.info("the stream of %s for what belongs to no call broke off: %s", self._url, exc)
                    if not status and isinstance(exc, ConnectionClosed) and self._hears is not None:
                        self._hears.lost(exc)
            if renewed.is_set():
                last, misses = None, 0  # a new session has new ids
                continue
            if status in (400, 404):
                if last is None:
                    # The session is over; whoever calls next opens another one.
                    await renewed.wait()
                # Or it does not know that event any more.
                last = None
                continue
            last = parser.last_id or last
            misses = 0 if trio.current_time() - began > _pause(parser) else misses + 1
            await trio.sleep(min(_pause(parser) * 2 ** min(misses, 10), _LONGEST_PAUSE))

    async def _read_standalone(self, response: httpx2.Response, parser: SSEParser) -> None:
        def take(chunk: bytes) -> bool:
            try:
                events = parser.feed(chunk)
            except EventTooLarge as exc:
                raise InvalidResponse(f"{self._url}: {exc}") from None
            for event in events:
                if event.event == "message" and event.data:
                    self._standalone(event.data)
            return False

        await each_chunk(response, take)

    def _standalone(self, data: bytes) -> None:
        try:
            message = parse_message(data, self._reading)
        except BadMessage as exc:
            self._odd(f"an event that is no message: {shorten(data.decode(errors='replace'))} ({exc})")
            return
        if not isinstance(message, Request | Notification):
            self._odd(f"an answer that nobody waits for: {shorten(data.decode(errors='replace'))}")
        elif not self._heard(message) and self._hears is not None:
            assert isinstance(message, Notification)
            self._hears.told(message)


def session_of(channel: HttpChannel) -> HttpSession:
    """A session at the same place, by the same connections."""
    return channel.again(HttpSession)


def _is_stream(response: httpx2.Response) -> bool:
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return response.status_code == 200 and kind == "text/event-stream"


def _pause(parser: SSEParser) -> float:
    return _PAUSE if parser.retry is None else min(parser.retry / 1000, _LONGEST_PAUSE)
