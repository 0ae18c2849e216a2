"""A standard stream that nobody reads holds nobody up.

A program that starts a server may ignore its standard error (basic/transports/stdio). A pipe holds 64 KiB of it, and the next
write waits for ever: a log line on the event loop, a `print` in a tool, the words of a child process. So the descriptor leads
into a pipe of our own, and a thread carries what comes out of it to the real stream for as long as that takes it. What does
not fit is dropped, and a line says how much.

The price: what is written in the last moment before the process is killed, or ends itself with `os._exit`, may still be in
our pipe, and is lost. The traceback of a crash is written past the pipe (`OwnProcess`).
"""

from __future__ import annotations

import os
import select
import socket
import stat
import threading
from collections.abc import Callable
from typing import Final

__all__ = ["Relay", "can_stall"]

_HELD: Final = 1_048_576
"""Bytes held for a reader that is slow at the moment: more than a healthy one is ever behind."""
_CHUNK: Final = 65_536
"""Bytes taken at once: all that a pipe holds."""


def can_stall(fd: int) -> bool:
    """Whether writes to a descriptor can wait for a reader: a pipe or a socket. A file takes all; a terminal has a user."""
    try:
        mode = os.fstat(fd).st_mode
    except OSError:
        return False
    if not hasattr(select, "poll"):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _writer(fd: int) -> tuple[int, Callable[[bytes], int]]:
    """Another descriptor of the same file, and a function that writes to it without ever waiting.

    Not by a flag of the descriptor, which whoever shares it would have as well.
    """
    if stat.S_ISSOCK(os.fstat(fd).st_mode):
        peer = socket.socket(fileno=os.dup(fd))
        return peer.fileno(), lambda data: peer.send(data, socket.MSG_DONTWAIT)
    try:
        own = os.open(f"/dev/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        own = os.dup(fd)
    return own, lambda data: os.write(own, data)


class Relay:
    """A descriptor of this process, from now on the entrance of a pipe whose other end is carried on by a thread.

    Args:
        fd: The descriptor. It must be one that `can_stall`.
        name: How it is called in the line that says how much was dropped.
    """

    def __init__(self, fd: int, name: str) -> None:
        self._fd = fd
        self._name = name
        self.real: int = os.dup(fd)
        self._own, self._write = _writer(fd)
        self._source, entrance = os.pipe()
        os.dup2(entrance, fd)
        os.close(entrance)
        self._bell, self._rope = os.pipe()
        self._flushed: list[threading.Event] = []
        self._held = bytearray()
        self._dropped = 0
        self._gone = False
        threading.Thread(target=self._carry, name=f"relay of {name}", daemon=True).start()

    def flush(self, seconds: float) -> bool:
        """Wait until all that was written is where it belongs, or was dropped. False when that took too long."""
        done = threading.Event()
        self._flushed.append(done)
        os.write(self._rope, b".")
        return done.wait(seconds)

    def release(self, seconds: float) -> None:
        """Give the real stream its place back, for what is said after this; or the null device, if nobody reads it."""
        if self.flush(seconds):
            os.dup2(self.real, self._fd)
            return
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self._fd)
        os.close(null)

    def abandon(self) -> None:
        """In a forked child: its parent carries what it writes. When the parent has gone, nobody does, and writing fails.

        The real stream is let go, so that its reader sees its end.
        """
        for fd in (self._source, self._bell, self._rope, self.real, self._own):
            os.dup2(self._fd, fd, inheritable=False)

    # -- the thread

    def _carry(self) -> None:
        poller = select.poll()
        poller.register(self._source, select.POLLIN)
        poller.register(self._bell, select.POLLIN)
        poller.register(self.real, 0)
        rung = 0
        while True:
            if not self._gone:
                poller.modify(self.real, select.POLLOUT if self._held else 0)
            ready = dict(poller.poll())
            found = ready.get(self.real, 0)
            if found & ~select.POLLOUT or (found and not self._give()):
                # The reader has gone, which is no reason to make anybody wait or fail.
                poller.unregister(self.real)
                self._gone, self._dropped = True, 0
                self._held.clear()
            if self._source in ready:
                data = os.read(self._source, _CHUNK)
                if not data:
                    # The descriptor leads elsewhere by now, and nobody else has it: that would be told again and again.
                    poller.unregister(self._source)
                self._take(data)
            elif self._bell in ready:
                os.read(self._bell, 1)
                rung += 1
            while rung and not self._held and self._source not in ready:
                rung -= 1
                self._flushed.pop(0).set()

    def _take(self, data: bytes) -> None:
        if self._gone:
            return
        room = 0 if self._dropped else _HELD - len(self._held)
        self._held += data[:room]
        self._dropped += len(data) - len(data[:room])

    def _give(self) -> bool:
        """Write something; False when nobody will ever take it."""
        try:
            # A pipe that is writable takes as much as this at once.
            done = self._write(bytes(self._held[: select.PIPE_BUF]))
        except BlockingIOError:
            return True
        except OSError:
            return False
        del self._held[:done]
        if not self._held and self._dropped:
            self._held += f"\n[{self._dropped} bytes of {self._name} were dropped: nobody read it]\n".encode()
            self._dropped = 0
        return True
