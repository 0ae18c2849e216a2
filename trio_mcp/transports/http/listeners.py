"""What is listened on: addresses in text, sockets of TCP, socket files, sockets that were inherited."""

from __future__ import annotations

import errno
import fcntl
import importlib
import logging
import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import trio

from ...errors import MCPError
from ...limits import Limits

__all__ = ["Bound", "check_bind", "open_listeners"]

logger: logging.Logger = logging.getLogger("trio_mcp.server.http")

_TURN: Final = 1.0
"""Seconds to wait for another process that starts or ends a server in the same folder, which takes it milliseconds."""


class Bound:
    """The listeners, how their addresses are called, and how many connections there is room for."""

    def __init__(
        self, listeners: list[trio.SocketListener], addresses: list[str], urls: list[str], connections: int
    ) -> None:
        self.listeners: list[trio.SocketListener] = listeners
        self.connections: int = connections
        self.addresses: list[str] = addresses
        self.urls: list[str] = urls


@asynccontextmanager
async def open_listeners(bind: str, path: str, secure: bool, limits: Limits) -> AsyncIterator[Bound]:
    """Bind `HOST:PORT`, `unix:PATH` or `fd:NUMBER`; close, and remove the socket file, at the end.

    Raises:
        ValueError: the text is none of these.
        MCPError: it cannot be bound; the text says why.
    """
    check_bind(bind)
    scheme = "https" if secure else "http"
    remove: str | None = None
    identity: tuple[int, int] | None = None
    backlog = limits.connections
    connections = _room(limits)
    try:
        if bind.startswith("unix:"):
            remove = bind.removeprefix("unix:")
            async with _alone_in(os.path.dirname(remove)):
                listeners = [_unix_listener(remove, backlog)]
                identity = _identity(remove)
            bound = Bound(listeners, [], [f"unix:{remove}"], connections)
        elif bind.startswith("fd:"):
            listeners = [_inherited(int(bind[3:]))]
            bound = Bound(listeners, *_names(listeners, scheme, path), connections)
        else:
            host, port = _split(bind)
            listeners = await trio.open_tcp_listeners(port, host=host or None, backlog=backlog)
            bound = Bound(listeners, *_names(listeners, scheme, path), connections)
    except OSError as exc:
        raise MCPError(f"cannot listen on {bind}: {exc.strerror or exc}") from exc
    try:
        yield bound
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 3 * _TURN):
            for listener in bound.listeners:
                await listener.aclose()
            if remove is not None and identity is not None:
                async with _alone_in(os.path.dirname(remove)):
                    _remove(remove, identity)


def _room(limits: Limits) -> int:
    """How many connections there are to be: `limits.connections`, or what the system leaves room for.

    Each is an open file, and so is what tools open. The usual soft limit of 1,024 is raised as far as needed and allowed.
    """
    try:
        resource = importlib.import_module("resource")
    except ImportError:
        return limits.connections
    try:
        here = len(os.listdir("/dev/fd"))
    except OSError:
        here = 32
    wanted = here + limits.connections + limits.spare_files
    soft: int
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft != unlimited and soft < wanted:
        more = wanted if hard == unlimited else min(wanted, hard)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
            soft = more
        except (OSError, ValueError):
            pass
    if soft == unlimited or soft >= wanted:
        return limits.connections
    free = max(2, soft - here)
    room: int = max(free - limits.spare_files, free // 2)
    logger.warning(
        "%d connections at once instead of %d: this process may have %d open files", room, limits.connections, soft
    )
    return room


def _remove(path: str, identity: tuple[int, int]) -> None:
    # A successor may have put its own file there.
    if _identity(path) == identity:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _inherited(number: int) -> trio.SocketListener:
    sock = socket.socket(fileno=number)
    try:
        return trio.SocketListener(trio.socket.from_stdlib_socket(sock))
    except ValueError:
        sock.close()
        raise OSError(errno.EINVAL, "the socket does not listen") from None


def check_bind(bind: str) -> None:
    """Check the text of an address.

    Raises:
        ValueError: it is none; the text says what was expected.
    """
    kind, _, rest = bind.partition(":")
    if kind == "unix":
        if not rest:
            raise ValueError(f"{bind!r} is no address: the path is missing; expected unix:PATH")
    elif kind == "fd":
        if not rest.isdecimal():
            raise ValueError(f"{bind!r} is no address: expected fd:NUMBER, as in fd:3")
    else:
        _split(bind)


def _split(bind: str) -> tuple[str, int]:
    host, colon, port = bind.rpartition(":")
    if "/" in bind:
        raise ValueError(
            f"{bind!r} is no address: expected HOST:PORT, as in 127.0.0.1:8000, without a scheme or a path"
        )
    if not colon or not port.isdecimal() or not port.isascii():
        raise ValueError(f"{bind!r} is no address: expected HOST:PORT, unix:PATH or fd:NUMBER")
    if int(port) > 65_535:
        raise ValueError(f"{bind!r} is no address: expected HOST:PORT with a port up to 65535")
    return host.strip("[]"), int(port)


def _unix_listener(path: str, backlog: int) -> trio.SocketListener:
    """Call it alone in the folder: between `bind` and `listen` a socket looks like one that was left over."""
    if os.path.exists(path):
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            # Connecting to it is refused as well, so that says nothing.
            raise OSError(errno.EEXIST, "there is a file that is no socket")
        # A socket that nobody listens on is left over from a process that is gone.
        with socket.socket(socket.AF_UNIX) as probe:
            # A process that is busy lets a connection wait, and this must not.
            probe.setblocking(False)
            try:
                probe.connect(path)
            except ConnectionRefusedError:
                os.unlink(path)
            except FileNotFoundError:
                pass
            except BlockingIOError:
                raise OSError(errno.EADDRINUSE, "another process listens there") from None
            except PermissionError:
                reason = "there is a socket of another user, and whether somebody listens there cannot be asked"
                raise OSError(errno.EACCES, reason) from None
            except OSError as exc:
                if exc.errno != errno.EPROTOTYPE:
                    raise
                raise OSError(errno.EADDRINUSE, "there is a socket of another kind (datagrams)") from None
            else:
                raise OSError(errno.EADDRINUSE, "another process listens there")
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.bind(path)
        sock.listen(backlog)
        return trio.SocketListener(trio.socket.from_stdlib_socket(sock))
    except BaseException:
        sock.close()
        raise


@asynccontextmanager
async def _alone_in(folder: str) -> AsyncIterator[None]:
    """The only server that starts or ends in this folder. A lock of the system's: it leaves no file, and ends with its process.

    Where there is no such lock it is done without. So it is when somebody keeps it: that is no server which starts.
    """
    try:
        fd = os.open(folder or ".", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        # What is to be done there says why.
        yield
        return
    try:
        with trio.move_on_after(_TURN):
            while True:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    await trio.sleep(0.01)
                    continue
                except OSError:
                    pass
                break
        yield
    finally:
        os.close(fd)


def _names(listeners: list[trio.SocketListener], scheme: str, path: str) -> tuple[list[str], list[str]]:
    addresses, urls = [], []
    for listener in listeners:
        name = listener.socket.getsockname()
        if not isinstance(name, tuple):
            urls.append(f"unix:{name}")
            continue
        addresses.append(name[0])
        host = f"[{name[0]}]" if ":" in name[0] else name[0]
        urls.append(f"{scheme}://{host}:{name[1]}{path}")
    return addresses, urls
