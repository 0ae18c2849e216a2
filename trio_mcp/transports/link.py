"""Newline-delimited messages over a byte stream, both ways (basic/transports/stdio).

Reading and writing never wait for each other: messages are posted to an outbox, which one writer task empties.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import trio

from ..limits import Limits
from ..protocol.framing import LineFramer
from .outbox import Outbox

__all__ = ["Link"]


class Link:
    """One byte stream of messages.

    The streams are closed by `aclose`. `write_loop` must run in a task for as long as anything is posted.

    Args:
        receive: Where messages come from.
        send: Where they go.
        limits: Bounds of a line and of the buffer.
        fd: The non-blocking file descriptor under `send`, if there is one: lets `post` write at once.
        longest: Longest line to receive; otherwise `limits.message_bytes`.
    """

    def __init__(
        self,
        receive: trio.abc.ReceiveStream,
        send: trio.abc.SendStream,
        limits: Limits,
        *,
        fd: int | None = None,
        longest: int | None = None,
    ) -> None:
        self._receive = receive
        self._send = send
        self._limits = limits
        self._framer = LineFramer(longest or limits.message_bytes)
        if fd is None and isinstance(send, trio.SocketStream):
            fd = send.socket.fileno()
        self._outbox = Outbox(send, limits, fd=fd)
        self._ended = False
        self._wake = trio.lowlevel.ParkingLot()

    # -- reading

    async def receive(self) -> Sequence[Any]:
        """The next lines: bytes, or `TOO_LONG` for one over the limit. Empty at the end of the stream."""
        while not self._ended:
            try:
                data = await self._receive.receive_some(self._limits.read_chunk)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                data = b""
            if not data:
                self._ended = True
                return self._framer.end()
            lines = self._framer.feed(data)
            if lines:
                return lines
        return ()

    # -- writing

    def post(self, message: bytes, *, now: bool = False) -> None:
        """Queue one message (without line end). Does not block, and does nothing once the peer is gone.

        Args:
            message: JSON text.
            now: Write at once if the writer is idle: saves a turn of the scheduler when nothing else is under way.
        """
        self._outbox.post(message + b"\n", now=now)
        if self._wake and (self._outbox.pending or self._outbox.broken):
            self._wake.unpark()

    @property
    def full(self) -> bool:
        """Whether so much waits for the peer that whoever produces more should wait too."""
        return self._outbox.full

    @property
    def broken(self) -> bool:
        """Whether the peer is known to be gone."""
        return self._outbox.broken

    @property
    def hung_up(self) -> bool:
        """Whether the peer has closed its end of what we write to."""
        return self._outbox.hung_up()

    async def wait_room(self) -> None:
        """Wait until the buffer is not full. Cancellable; checkpoints only when it waits."""
        await self._outbox.wait_room()

    async def wait_flushed(self) -> None:
        """Wait until everything that was posted is written, or the peer is gone."""
        await self._outbox.wait_flushed()

    async def write_loop(self) -> None:
        """Write what is posted; returns when the peer is gone. Once it was cancelled nothing may be posted any more."""
        while not self._outbox.broken:
            if self._outbox.pending:
                await self._outbox.drain()
            else:
                await self._wake.park()

    async def send_eof(self) -> None:
        """Close the sending half."""
        self._break()
        await self._send.aclose()

    async def aclose(self) -> None:
        """Close both halves."""
        self._break()
        try:
            await self._send.aclose()
        finally:
            await self._receive.aclose()

    def _break(self) -> None:
        self._outbox.break_off()
        self._wake.unpark_all()
