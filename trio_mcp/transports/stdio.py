"""The server's side of stdio: two file descriptors that belong to the protocol alone.

While a server runs on stdio, nothing else may reach the real standard output (basic/transports/stdio). So the descriptors
are moved, not the Python objects: 1 becomes a copy of 2, and `print`, `os.write(1, …)`, log handlers and child processes
all end up on standard error; 0 becomes the null device, so that a child process cannot eat a request.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import trio

from ..errors import MCPError
from ..limits import Limits
from .link import Link

__all__ = ["open_stdio"]


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


@contextmanager
def _private_descriptors() -> Iterator[tuple[int, int]]:
    """The real standard input and output, on descriptors of their own; the standard ones point elsewhere meanwhile."""
    # Python leaves these None when the descriptor is closed. By now it may be somebody else's: it must not be moved.
    for missing, name in ((sys.__stdin__ is None, "input"), (sys.__stdout__ is None, "output")):
        if missing:
            raise MCPError(f"standard {name} is closed; a server on stdio needs it")
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    null = os.open(os.devnull, os.O_RDWR)
    try:
        try:
            os.fstat(2)
        except OSError:
            os.dup2(null, 2)
        saved_in, saved_out = os.dup(0), os.dup(1)
    except OSError as exc:
        os.close(null)
        raise MCPError(f"standard input and output cannot be used: {exc}") from exc
    source, sink = _own_copy(0, os.O_RDONLY), _own_copy(1, os.O_WRONLY)
    try:
        os.dup2(null, 0)
        os.dup2(2, 1)
        yield source, sink
    finally:
        if sys.stdout is not None:
            sys.stdout.flush()
        os.dup2(saved_in, 0)
        os.dup2(saved_out, 1)
        for fd in (saved_in, saved_out, null):
            os.close(fd)


@asynccontextmanager
async def open_stdio(limits: Limits) -> AsyncIterator[Link]:
    """Take over standard input and output of this process; give them back at the end.

    Raises:
        MCPError: they are closed, or the platform has no non-blocking pipes.
    """
    if not hasattr(trio.lowlevel, "FdStream"):
        raise MCPError("serving on stdio needs a POSIX system; on Windows serve over HTTP")
    with _private_descriptors() as (source, sink):
        receive, send = trio.lowlevel.FdStream(source), trio.lowlevel.FdStream(sink)
        link = Link(receive, send, limits, fd=sink)
        try:
            yield link
        finally:
            with trio.move_on_after(limits.drain_timeout, shield=True):
                await link.aclose()
