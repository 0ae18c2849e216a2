"""Writing to a pipe whose reader is slow, and whose reader has stopped, in virtual time."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from trio_mcp import HttpEndpoint, Server, open_server
from trio_mcp.transports.http.h1 import H1Connection
from trio_mcp.transports.progress import Progressing, send_all


async def test_who_takes_less_than_wakes_the_writer_is_slow_and_who_takes_nothing_is_gone(
    autojump_clock: MockClock,
) -> None:
    receive, send = os.pipe()
    wrote: list[int] = []
    async with trio.lowlevel.FdStream(receive), trio.lowlevel.FdStream(send) as writer, trio.open_nursery() as nursery:

        async def read() -> None:
            # The kernel wakes the writer when a page is free, which takes four of these.
            for _ in range(18):
                await trio.sleep(3)
                os.read(receive, 1_024)

        nursery.start_soon(read)
        with pytest.raises(trio.BrokenResourceError, match="nothing for 5 s"):
            await send_all(writer, bytes(1_000_000), 5, fd=send, wrote=wrote.append)
    # The last two have woken nobody, and count.
    assert 54 + 5 <= trio.current_time() <= 54 + 10
    assert sum(wrote) >= 65_536 + 16_384


def what_is_in(read: int) -> bytes:
    try:
        return os.read(read, 65_536)
    except BlockingIOError:
        return b""


@pytest.mark.parametrize("kind", ["socket", "pipe"])
async def test_nothing_is_written_to_a_descriptor_that_was_closed_between_two_writes(kind: str) -> None:
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1_000_000)
    stream: trio.SocketStream | trio.lowlevel.FdStream
    if kind == "pipe":
        number = ours.detach()
        stream = trio.lowlevel.FdStream(number)
    else:
        number = ours.fileno()
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
    read, write = os.pipe2(os.O_NONBLOCK)

    def close_it(count: int) -> None:
        if isinstance(stream, trio.SocketStream):
            stream.socket.close()
        else:
            stream.close()
        os.dup2(write, number)

    with theirs:
        with pytest.raises(trio.ClosedResourceError):
            await send_all(stream, bytes(200_000), 5, fd=number, wrote=close_it)
        assert what_is_in(read) == b""
    for fd in (number, read, write):
        os.close(fd)


class _Before(trio.abc.Instrument):
    """Calls a function once, before the next step of a task: as another task does whose step comes first."""

    def __init__(self, name: str, fn: Callable[[], object]) -> None:
        self._name = name
        self._fn: Callable[[], object] | None = fn

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if self._name in task.name and self._fn is not None:
            fn, self._fn = self._fn, None
            fn()


@pytest.mark.parametrize("way", ["plain", "under TLS"])
async def test_a_writer_that_was_woken_does_not_write_to_a_descriptor_that_is_closed_before_its_turn(way: str) -> None:
    ours, theirs = socket.socketpair()
    number = ours.fileno()
    read, write = os.pipe2(os.O_NONBLOCK)
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
    theirs.setblocking(False)

    async def send() -> None:
        with pytest.raises(trio.ClosedResourceError):
            if way == "plain":
                await send_all(stream, bytes(10_000_000), 5, fd=number)
            else:
                await Progressing(stream, 5).send_all(bytes(10_000_000))

    def close_it() -> None:
        stream.socket.close()
        os.dup2(write, number)

    with theirs:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, name="the writer")
            await trio.testing.wait_all_tasks_blocked()
            trio.lowlevel.add_instrument(_Before("the writer", close_it))
            with pytest.raises(BlockingIOError):
                while theirs.recv(1_000_000):
                    pass
        assert what_is_in(read) == b""
    for fd in (number, read, write):
        os.close(fd)


async def test_a_reader_that_was_woken_does_not_read_a_descriptor_that_is_closed_before_its_turn() -> None:
    ours, theirs = socket.socketpair()
    number = ours.fileno()
    read, write = os.pipe2(os.O_NONBLOCK)
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))

    def close_it() -> None:
        # As the edge does when the time of the drain is over.
        connection.abandon()
        stream.socket.close()
        os.dup2(read, number)
        os.write(write, b"of another")

    with theirs:
        async with open_server(Server("s", version="1")) as running, trio.open_nursery() as nursery:
            connection = H1Connection(stream, HttpEndpoint(running), fd=number)
            nursery.start_soon(connection.run, name="the reader")
            await trio.testing.wait_all_tasks_blocked()
            trio.lowlevel.add_instrument(_Before("the reader", close_it))
            theirs.send(b"x")
        assert what_is_in(number) == b"of another"
    for fd in (number, read, write):
        os.close(fd)
