"""The client's side of a connection of newline-delimited messages."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

import trio

from ..client.channel import Channel, Hears, Listener
from ..errors import ConnectionClosed, InvalidResponse, ProtocolError
from ..limits import Limits
from ..protocol.envelope import (
    BadMessage,
    ErrorResponse,
    Notification,
    RequestId,
    Response,
    encode_notification,
    encode_request,
    is_request_id,
    parse_message,
)
from ..protocol.framing import TOO_LONG
from ..protocol.jsontext import shorten
from ..protocol.listening import CANCELLED, SUBSCRIPTION_ID
from .link import Link

__all__ = ["LineChannel", "writing"]

logger: logging.Logger = logging.getLogger("trio_mcp.client")

# The id of an answer, where servers write it: at the front, or at the end.
_ID: Final = re.compile(rb'\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,18})\s*,')
_LAST_ID: Final = re.compile(rb',\s*"id"\s*:\s*(\d{1,18})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')
_ENDS: Final = 256
"""Bytes at either end of a line in which the id is looked for."""


class LineChannel(Channel):
    """Requests over one link. `read` must run in a task; it ends with the connection.

    Args:
        link: The messages; whoever opened it closes it.
        peer: What is at the other end.
        limits: Bounds.
    """

    def __init__(self, link: Link, peer: str, limits: Limits) -> None:
        self._link = link
        self._peer = peer
        self._limits = limits
        self._reading = replace(limits, message_bytes=limits.answer_bytes)
        self._last = 0
        self._pending: dict[RequestId, Listener] = {}
        self._closed: ConnectionClosed | None = None
        self._note = ""
        # In a session the server may ask and tell by itself.
        self._hears: Hears | None = None

    @property
    def peer(self) -> str:
        return self._peer

    @property
    def note(self) -> str:
        return self._note

    # -- calling

    async def call(self, method: str, params: dict[str, Any], listener: Listener) -> dict[str, Any]:
        self._check_open()
        id = self._last = self._last + 1
        if listener.progress is not None:
            params.setdefault("_meta", {})["progressToken"] = id
        message = encode_request(id, method, params, self._limits)
        # Room first: a call that is left while it waits for a slow server was never sent.
        await self._link.wait_room()
        self._check_open()
        self._pending[id] = listener
        try:
            self._link.post(message, now=True)
            return await listener.wait()
        finally:
            # Still there: nobody answered, so the caller has left. That is what cancels the work over there.
            if self._pending.pop(id, None) is not None and method != "initialize":
                self._link.post(
                    encode_notification(CANCELLED, {"requestId": id, "reason": "the caller left"}), now=True
                )

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        """Tell the server something (in a session)."""
        await self.respond(encode_notification(method, params))

    async def respond(self, message: bytes) -> None:
        """Answer a question of the server (in a session)."""
        self._check_open()
        await self._link.wait_room()
        self._link.post(message, now=True)

    def begin(self, hears: Hears, revision: str) -> None:
        """A session has begun: from now on the server may ask and tell by itself."""
        self._hears = hears

    async def listen(self) -> None:
        """What belongs to no call comes on the same way."""
        await trio.lowlevel.checkpoint()

    async def end(self) -> None:
        """A session ends with its connection."""
        await trio.lowlevel.checkpoint()

    def _check_open(self) -> None:
        if self._closed is not None:
            raise ConnectionClosed(str(self._closed), exit_status=self._closed.exit_status)

    # -- reading

    async def read(self) -> None:
        """Hand messages to the calls that wait for them, to the end of the connection."""
        while lines := await self._link.receive():
            for line in lines:
                if line is TOO_LONG:
                    only = next(iter(self._pending)) if len(self._pending) == 1 else None
                    self._unreadable(f"the server wrote a line over {self._limits.answer_bytes} bytes", only)
                    continue
                self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            message = parse_message(line, self._reading)
        except BadMessage as exc:
            shown = shorten(line.decode(errors="replace"))
            id = exc.id if exc.id is not None else _id_in(line)
            self._unreadable(f"the server wrote a line that is no message: {shown} ({exc})", id)
            return
        if isinstance(message, Response):
            self._settle(message.id, result=message.result)
        elif isinstance(message, ErrorResponse):
            error = ProtocolError.from_wire(message.error)
            if message.id is None:
                # It could not read our message, so it does not know whose error this is.
                self._odd(f"the server could not read a message: {error}")
                if len(self._pending) == 1:
                    self._settle(next(iter(self._pending)), error=error)
            else:
                self._settle(message.id, error=error)
        elif isinstance(message, Notification):
            self._notified(message)
        elif self._hears is not None:
            self._hears.asked(message)
        else:
            self._odd(f"the server sent a request ({message.method}), which this revision does not allow")

    def _unreadable(self, text: str, id: RequestId | None) -> None:
        """A line that holds no message. If it was meant to be an answer, the call that it is for must not wait for ever."""
        self._odd(text)
        if id is not None and id in self._pending:
            self._settle(id, error=InvalidResponse(f"the answer of {self._peer} cannot be read: {text}"))

    def _settle(self, id: RequestId, *, result: dict[str, Any] | None = None, error: Exception | None = None) -> None:
        pending = self._pending.pop(id, None)
        if pending is not None:
            pending.settle(result=result, error=error)
        elif type(id) is int and 0 < id <= self._last:
            # The caller has left, and the answer was on its way; or it is the second one.
            logger.debug("%s: an answer to request %s, which has ended", self._peer, id)
        else:
            text = f"the server answered a request with the id {shorten(id)}, which was not sent"
            number = int(id) if type(id) is str and re.fullmatch("[0-9]{1,18}", id) else None
            # The right number of the wrong type is an answer that cannot come any more.
            self._unreadable(text, number)

    def _notified(self, message: Notification) -> None:
        params = message.params
        if message.method == "notifications/progress":
            pending = self._find(params.get("progressToken"))
            if pending is not None and pending.changes is None:
                pending.post(message)
        elif message.method == "notifications/message":
            for pending in self._pending.values():
                if pending.changes is None:
                    pending.post(message)
        elif message.method == CANCELLED:
            id: Any = params.get("requestId")
            pending = self._find(id)
            # A server may end a stream that listens in this way, and nothing else (basic/patterns/cancellation).
            if pending is not None and pending.changes is not None:
                logger.info("%s ended a stream of changes: %s", self._peer, shorten(params.get("reason")))
                self._settle(id, result={})
            elif self._hears is not None:
                self._hears.told(message)
        elif self._hears is not None:
            self._hears.told(message)
        else:
            meta = params.get("_meta")
            pending = self._find(meta.get(SUBSCRIPTION_ID)) if type(meta) is dict else None
            if pending is not None and pending.changes is not None:
                pending.post(message)

    def _find(self, id: Any) -> Listener | None:
        return self._pending.get(id) if is_request_id(id) else None

    def _odd(self, text: str) -> None:
        self._note = text
        logger.warning("%s: %s", self._peer, text)

    # -- ending

    def close(self, reason: str, exit_status: int | None = None) -> None:
        """Fail every pending call, and each later one, with `ConnectionClosed`."""
        if self._closed is None:
            self._closed = ConnectionClosed(reason, exit_status=exit_status)
        for id in list(self._pending):
            self._settle(id, error=ConnectionClosed(str(self._closed), exit_status=self._closed.exit_status))


def _id_in(line: bytes) -> int | None:
    """The id in a line that cannot be read, if it stands where servers write it."""
    found = _ID.match(line[:_ENDS]) or _LAST_ID.search(line[-_ENDS:])
    return int(found[1]) if found else None


@asynccontextmanager
async def writing(link: Link, nursery: trio.Nursery, limits: Limits) -> AsyncIterator[None]:
    """Write what is posted to a link while the block lasts, and after it what was posted last.

    A cancelled call posts its cancellation while everything is being cancelled, and that message is what stops the work at
    the other end. So the writer is shielded from what ends the block, and has `limits.child_reap` seconds after it.
    """
    shield = trio.CancelScope(shield=True)

    async def write() -> None:
        with shield:
            await link.write_loop()

    nursery.start_soon(write)
    try:
        yield
    finally:
        with trio.move_on_after(limits.child_reap, shield=True):
            await link.wait_flushed()
        shield.cancel()
