"""A byte stream inside the process, with the bounds of a pipe."""

from __future__ import annotations

import trio

__all__ = ["memory_pipe", "memory_streams"]


class _Pipe:
    def __init__(self, size: int) -> None:
        self.size: int = size
        self.data = bytearray()
        self.sender_closed = False
        self.receiver_closed = False
        self.changed = trio.lowlevel.ParkingLot()


class _Sender(trio.abc.SendStream):
    def __init__(self, pipe: _Pipe) -> None:
        self._pipe = pipe

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        pipe = self._pipe
        view = memoryview(data)
        while view:
            await self.wait_send_all_might_not_block()
            if pipe.sender_closed:
                raise trio.ClosedResourceError
            if pipe.receiver_closed:
                raise trio.BrokenResourceError("the other end was closed")
            room = pipe.size - len(pipe.data)
            pipe.data += view[:room]
            view = view[room:]
            pipe.changed.unpark_all()

    async def wait_send_all_might_not_block(self) -> None:
        pipe = self._pipe
        while len(pipe.data) >= pipe.size and not pipe.receiver_closed and not pipe.sender_closed:
            await pipe.changed.park()

    async def aclose(self) -> None:
        self._pipe.sender_closed = True
        self._pipe.changed.unpark_all()
        await trio.lowlevel.checkpoint()


class _Receiver(trio.abc.ReceiveStream):
    def __init__(self, pipe: _Pipe) -> None:
        self._pipe = pipe

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        pipe = self._pipe
        while not pipe.data:
            if pipe.receiver_closed:
                raise trio.ClosedResourceError
            if pipe.sender_closed:
                return b""
            await pipe.changed.park()
        data = bytes(pipe.data[:max_bytes])
        del pipe.data[: len(data)]
        pipe.changed.unpark_all()
        return data

    async def aclose(self) -> None:
        self._pipe.receiver_closed = True
        self._pipe.changed.unpark_all()
        await trio.lowlevel.checkpoint()


def memory_pipe(size: int) -> tuple[trio.abc.SendStream, trio.abc.ReceiveStream]:
    """One direction: what the first takes, the second gives. At most `size` bytes are in between."""
    pipe = _Pipe(size)
    return _Sender(pipe), _Receiver(pipe)


Streams = tuple[trio.abc.ReceiveStream, trio.abc.SendStream]


def memory_streams(size: int) -> tuple[Streams, Streams]:
    """Both directions: the receiving and the sending end of the one peer, and those of the other."""
    there, from_there = memory_pipe(size)
    back, from_back = memory_pipe(size)
    return (from_back, there), (from_there, back)
