"""Newline-delimited messages over a byte stream, both ways (basic/transports/stdio).

Reading and writing never wait for each other. Whoever has a message posts it, which never blocks; one writer task takes
all that was posted and writes it in one go. Whoever produces many messages waits for room between them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import trio

from ..limits import Limits
from ..protocol.framing import LineFramer

__all__ = ["Link"]


class Link:
    """One byte stream of messages.

    The streams are closed by `aclose`. `write_loop` must run in a task for as long as anything is posted.

    Args:
        receive: Where messages come from.
        send: Where they go.
        limits: Bounds of a line and of the buffer.
        fd: The non-blocking file descriptor under `send`, if there is one: lets `post` write at once.
    """

    def __init__(
        self,
        receive: trio.abc.ReceiveStream,
        send: trio.abc.SendStream,
        limits: Limits,
        *,
        fd: int | None = None,
    ) -> None:
        self._receive = receive
        self._send = send
        self._limits = limits
        self._fd = fd
        self._framer = LineFramer(limits.message_bytes)
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._writing = False
        self._ended = False
        self._wake = trio.lowlevel.ParkingLot()
        self._room = trio.lowlevel.ParkingLot()
        self.broken = False
        """Whether the peer stopped taking what is written."""

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
        if self.broken:
            return
        self._out.append(message)
        self._out.append(b"\n")
        self._out_bytes += len(message) + 1
        if self._writing:
            return
        if now and self._fd is not None:
            self._write_now(self._fd)
        if self._out and self._wake:
            self._wake.unpark()

    def _write_now(self, fd: int) -> None:
        data = b"".join(self._out)
        try:
            done = os.write(fd, data)
        except BlockingIOError:
            return
        except OSError:
            self._break()
            return
        self._out.clear()
        self._out_bytes = len(data) - done
        if self._out_bytes:
            self._out.append(data[done:])

    @property
    def full(self) -> bool:
        """Whether more than `limits.write_buffer` bytes wait for the peer."""
        return self._out_bytes > self._limits.write_buffer

    async def wait_room(self) -> None:
        """Wait until the buffer is not full. Cancellable; checkpoints only when it waits."""
        while self.full and not self.broken:
            await self._room.park()

    async def wait_flushed(self) -> None:
        """Wait until everything that was posted is written, or the peer is gone."""
        while (self._out or self._writing) and not self.broken:
            await self._room.park()

    async def write_loop(self) -> None:
        """Write what is posted; returns when the peer is gone. Once it was cancelled nothing may be posted any more."""
        while not self.broken:
            if not self._out:
                await self._wake.park()
                continue
            data = b"".join(self._out)
            self._out.clear()
            self._writing = True
            try:
                await self._send.send_all(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
                self._break()
            finally:
                self._writing = False
                self._out_bytes -= len(data)
                self._room.unpark_all()

    def _break(self) -> None:
        self.broken = True
        self._out.clear()
        self._out_bytes = 0
        self._room.unpark_all()
        self._wake.unpark_all()

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
