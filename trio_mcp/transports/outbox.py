"""What waits to be written to one byte stream.

Whoever has bytes posts them, which never blocks; a task takes all that was posted and writes it in one go. Whoever produces
much waits for room in between. With a file descriptor, a post may write at once and spare the task.
"""

from __future__ import annotations

import os
import select

import trio

from ..limits import Limits
from .progress import send_all

__all__ = ["Outbox"]


class Outbox:
    """The sending half of a connection.

    Args:
        send: Where bytes go; whoever opened it closes it, and breaks this off before.
        limits: The size of the buffer, and how long the peer may take nothing.
        fd: The non-blocking file descriptor under `send`, if there is one.

    Attributes:
        broken: Whether the peer stopped taking what is written.
    """

    __slots__ = ("_fd", "_limits", "_pending", "_room", "_send", "_size", "_writing", "broken")

    def __init__(self, send: trio.abc.SendStream, limits: Limits, *, fd: int | None = None) -> None:
        self._send = send
        self._limits = limits
        self._fd = fd
        self._pending: list[bytes] = []
        self._size = 0
        self._writing = False
        self._room = trio.lowlevel.ParkingLot()
        self.broken: bool = False

    @property
    def full(self) -> bool:
        """Whether more than `limits.write_buffer` bytes wait for the peer."""
        return self._size > self._limits.write_buffer

    @property
    def waiting(self) -> int:
        """How many bytes wait for the peer."""
        return self._size

    @property
    def pending(self) -> bool:
        """Whether something waits and no task is writing it."""
        return bool(self._pending) and not self._writing

    def post(self, data: bytes, *, now: bool) -> None:
        """Queue bytes. Does not block, and does nothing once the peer is gone.

        Args:
            data: Any bytes.
            now: Write at once if nothing else waits and there is a descriptor.
        """
        if self.broken:
            return
        if now and self._fd is not None and not self._pending and not self._writing:
            data = self._write_now(self._fd, data)
            if not data:
                return
        self._pending.append(data)
        self._size += len(data)

    def _write_now(self, fd: int, data: bytes) -> bytes:
        try:
            done = os.write(fd, data)
        except BlockingIOError:
            return data
        except OSError:
            self.break_off()
            return b""
        return data[done:] if done < len(data) else b""

    async def drain(self) -> None:
        """Write all that waits; one task at a time. Returns at once when another is at it."""
        while self._pending and not self._writing and not self.broken:
            data = b"".join(self._pending)
            self._pending.clear()
            self._writing = True
            written = False
            try:
                await send_all(self._send, data, self._limits.write_stall, fd=self._fd, wrote=self._wrote)
                written = True
            except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
                pass
            finally:
                self._writing = False
                if not written:
                    # How much of it went out is unknown, so nothing may follow it.
                    self.break_off()
                elif self._room:
                    self._room.unpark_all()

    def _wrote(self, count: int) -> None:
        if not self.broken:
            self._size -= count
            if self._room and not self.full:
                self._room.unpark_all()

    async def wait_room(self) -> None:
        """Wait until the buffer is not full, or the peer is gone. Cancellable; checkpoints only when it waits."""
        while self.full and not self.broken:
            await self._room.park()

    @property
    def flushed(self) -> bool:
        """Whether everything is written, or the peer is gone."""
        return self.broken or not (self._pending or self._writing)

    async def wait_flushed(self) -> None:
        """Wait until everything is written, or the peer is gone."""
        while not self.flushed:
            await self._room.park()

    def hung_up(self) -> bool:
        """Whether the reader at the other end of the descriptor is gone; False where that cannot be told."""
        if self.broken or self._fd is None:
            return self.broken
        poll = select.poll()
        poll.register(self._fd, 0)
        # A pipe without a reader has an error; a socket whose peer has closed both halves is hung up.
        gone = select.POLLERR | select.POLLHUP | select.POLLNVAL
        return any(events & gone for _, events in poll.poll(0))

    def break_off(self) -> None:
        """Give up: the peer is gone, and whoever waits need not. From now on nothing touches the descriptor."""
        self.broken = True
        self._fd = None
        self._pending.clear()
        self._size = 0
        self._room.unpark_all()
