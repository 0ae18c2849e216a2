"""Writing to a descriptor, for as long as the peer takes anything at all.

A write that waits says little: the kernel wakes the writer when a good part of its buffer is free again, which takes a slow
reader many seconds. So before a peer counts as gone, the kernel is asked how much of what it holds has left meanwhile.
"""

from __future__ import annotations

import array
import fcntl
import math
import os
import termios
from collections.abc import Callable
from typing import Final

import trio

__all__ = ["Progressing", "send_all"]

_TURN: Final = 65_536
"""Bytes between two turns of the scheduler: a peer that reads as fast as we write must not hold up everybody else."""
_PIECE: Final = 16_384
"""Bytes of one write to a stream that says nothing of its progress: a peer that takes less in the time is gone."""


def _held(fd: int) -> int | None:
    """Bytes that the kernel holds for the peer; None where it does not say."""
    count = array.array("i", [0])
    # A socket answers the first, a pipe the second.
    for question in (termios.TIOCOUTQ, termios.FIONREAD):
        try:
            fcntl.ioctl(fd, question, count)
        except OSError:
            continue
        return count[0]
    return None


def _number(stream: object, fd: int) -> Callable[[], int]:
    """What says the descriptor under a stream; a negative number once that is closed, since `fd` may be another file's then."""
    number: Callable[[], int] | None = getattr(getattr(stream, "socket", stream), "fileno", None)
    return number or (lambda: fd)


def _still(number: Callable[[], int]) -> int:
    fd = number()
    if fd < 0:
        raise trio.ClosedResourceError("this stream was closed by another task")
    return fd


async def _wait_writable(number: Callable[[], int], stall: float) -> None:
    fd = _still(number)
    held = _held(fd)
    while True:
        with trio.move_on_after(stall):
            await trio.lowlevel.wait_writable(fd)
            return
        fd = _still(number)
        before, held = held, _held(fd)
        if before is None or held is None or held >= before:
            raise trio.BrokenResourceError(f"the peer has taken nothing for {stall:g} s")


def _ignored(count: int) -> None:
    pass


async def send_all(
    stream: trio.abc.SendStream,
    data: bytes,
    stall: float,
    *,
    fd: int | None = None,
    wrote: Callable[[int], object] = _ignored,
) -> None:
    """Send everything, for as long as the peer takes anything.

    Args:
        stream: Where it goes. Over TLS the transport is to be a `Progressing`. With `fd` it says whether that is still its own.
        data: Any bytes.
        stall: Seconds that the peer may take nothing.
        fd: The non-blocking descriptor under the stream, if it is a plain one; no other task writes to it meanwhile.
        wrote: Told how many bytes have gone, each time that some have.

    Raises:
        trio.BrokenResourceError: the peer is gone, or takes nothing.
        trio.ClosedResourceError: the stream was closed meanwhile.
    """
    if fd is not None:
        await _write_all(_number(stream, fd), data, stall, wrote)
        return
    limit = math.inf if isinstance(getattr(stream, "transport_stream", None), Progressing) else stall
    with memoryview(data) as view:
        for start in range(0, len(data), _PIECE):
            piece = view[start : start + _PIECE]
            with trio.move_on_after(limit) as patience:
                await stream.send_all(piece)
            if patience.cancelled_caught:
                raise trio.BrokenResourceError(f"the peer has not taken {len(piece)} bytes in {stall:g} s")
            wrote(len(piece))


async def _write_all(
    number: Callable[[], int],
    data: bytes | bytearray | memoryview,
    stall: float,
    wrote: Callable[[int], object] = _ignored,
) -> None:
    """The same for a descriptor. Checkpoints only when it waits, or when there is much; after each the number is asked anew."""
    with memoryview(data) as view:
        done = 0
        while done < len(view):
            try:
                count = os.write(_still(number), view[done : done + _TURN])
            except BlockingIOError:
                await _wait_writable(number, stall)
                continue
            except OSError as exc:
                raise trio.BrokenResourceError(f"the peer is gone: {exc.strerror}") from exc
            done += count
            wrote(count)
            if done < len(view):
                await trio.lowlevel.checkpoint()


class Progressing(trio.abc.HalfCloseableStream):
    """A socket whose peer may be slow but not still: what TLS writes through.

    Args:
        stream: The socket; closed with this.
        stall: Seconds that the peer may take nothing.
    """

    def __init__(self, stream: trio.SocketStream, stall: float) -> None:
        self._stream = stream
        self._stall = stall
        self.socket: trio.socket.SocketType = stream.socket

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """As of the socket."""
        return bytes(await self._stream.receive_some(max_bytes))

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Write everything.

        Raises:
            trio.BrokenResourceError: the peer is gone, or takes nothing.
        """
        await trio.lowlevel.checkpoint()
        await _write_all(self.socket.fileno, data, self._stall)

    async def wait_send_all_might_not_block(self) -> None:
        """As of the socket."""
        await self._stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        """As of the socket."""
        await self._stream.send_eof()

    async def aclose(self) -> None:
        """Close the socket."""
        await self._stream.aclose()
