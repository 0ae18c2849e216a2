"""The server's side of stdio: two file descriptors that belong to the protocol alone.

While a server runs on stdio, nothing else may reach the real standard output (basic/transports/stdio). So the descriptors
are moved, not the Python objects: 1 becomes a copy of 2, and `print`, `os.write(1, …)`, log handlers and child processes
all end up on standard error; 0 becomes the null device, so that a child process cannot eat a request.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from ..errors import MCPError
from ..limits import Limits
from .link import Link

__all__ = ["StandardStreams", "check_standard_streams", "flush_output", "open_stdio"]


def _own_copy(fd: int, flags: int) -> int:
    """A descriptor for the same file that is ours alone.

    It will be made non-blocking, and that is a property of what `dup` shares. A terminal is shared with standard error
    and with the shell, so it is opened anew.
    """
    if os.isatty(fd):
        try:
            return os.open(os.ttyname(fd), flags | os.O_NOCTTY)
        except OSError:
            pass
    return os.dup(fd)


def check_standard_streams() -> None:
    """Python leaves them None when the descriptor is closed. By now it may be somebody else's: it must not be moved.

    Raises:
        MCPError: one of them is.
    """
    for missing, name in ((sys.__stdin__ is None, "input"), (sys.__stdout__ is None, "output")):
        if missing:
            raise MCPError(f"standard {name} is closed; a server on stdio needs it")


class StandardStreams:
    """The real standard input and output, on descriptors of their own; from now on the standard ones lead elsewhere.

    What has been printed and not written yet goes elsewhere, too.

    Args:
        returned: Whether they are to be put back at the end.

    Attributes:
        source: What was standard input.
        sink: What was standard output.
        link_fds: Tells what their numbers are by now, when a link owns them; negative after it has closed them.

    Raises:
        MCPError: they are closed.
    """

    def __init__(self, *, returned: bool) -> None:
        check_standard_streams()
        self._saved: tuple[int, int] | None = None
        self.link_fds: Callable[[], tuple[int, int]] | None = None
        null = os.open(os.devnull, os.O_RDWR)
        try:
            self.source: int = _own_copy(0, os.O_RDONLY)
            self.sink: int = _own_copy(1, os.O_WRONLY)
            if returned:
                self._saved = os.dup(0), os.dup(1)
            os.dup2(null, 0)
            os.dup2(_errors_or(null), 1)
        except OSError as exc:
            raise MCPError(f"standard input and output cannot be used: {exc}") from exc
        finally:
            os.close(null)
        flush_output()

    def abandon(self) -> None:
        """In a forked child: hold them no longer, so that whoever is at their other end sees the end of this process."""
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (self.source, self.sink) if self.link_fds is None else self.link_fds():
            if fd >= 0:
                os.dup2(null, fd, inheritable=False)
        os.close(null)

    def give_back(self) -> None:
        """Put the standard streams back where they were."""
        if self._saved is None:
            return
        flush_output()
        for fd, saved in enumerate(self._saved):
            os.dup2(saved, fd)
            os.close(saved)
        self._saved = None


def _errors_or(null: int) -> int:
    """Where text goes that must not be among the messages. If standard error was closed, 2 is somebody else's number."""
    if sys.__stderr__ is None:
        return null
    try:
        os.fstat(2)
    except OSError:
        os.dup2(null, 2)
    return 2


def flush_output() -> None:
    """Write what Python still holds of standard output."""
    if sys.stdout is not None:
        try:
            sys.stdout.flush()
        except (OSError, ValueError):
            # Nobody reads it, or it was closed.
            pass


@asynccontextmanager
async def open_stdio(limits: Limits, streams: StandardStreams | None = None) -> AsyncIterator[Link]:
    """Take over standard input and output of this process; give them back at the end.

    Args:
        limits: Bounds of the link.
        streams: Those that were taken already, in a process that has no other use for them. They are not given back.

    Raises:
        MCPError: they are closed, or the platform has no non-blocking pipes.
    """
    if not hasattr(trio.lowlevel, "FdStream"):
        raise MCPError("serving on stdio needs a POSIX system; on Windows serve over HTTP")
    taken = streams or StandardStreams(returned=True)
    try:
        receive, send = trio.lowlevel.FdStream(taken.source), trio.lowlevel.FdStream(taken.sink)
        taken.link_fds = lambda: (receive.fileno(), send.fileno())
        link = Link(receive, send, limits, fd=taken.sink)
        try:
            yield link
        finally:
            with trio.move_on_after(limits.drain_timeout, shield=True):
                await link.aclose()
    finally:
        taken.give_back()
