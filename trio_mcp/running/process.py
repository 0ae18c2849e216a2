"""A process that belongs to one server: `Server.run`, and the command `serve`."""

from __future__ import annotations

import atexit
import faulthandler
import logging
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import trio

from ..errors import MCPError
from ..scopes.groups import unwrapped
from ..server.declare.server import Server
from ..transports.stdio import StandardStreams, check_standard_streams, flush_output
from .failure import explained
from .relay import Relay, can_stall
from .signals import EndSignals
from .watchdog import Watchdog

__all__ = ["OwnProcess", "run_alone"]

logger: logging.Logger = logging.getLogger("trio_mcp.server")

_LAST_WORDS: Final = 1.0
"""Seconds that the last words may take to be written."""


class OwnProcess:
    """This process, taken over for good: made before anything of the server's is loaded, if that can be.

    Nothing that is written to standard error, or over HTTP to standard output, waits for its reader from now on.

    Args:
        stdio: Whether standard input and output carry the messages. Nothing else is read or written there from now on, not
            even at the very end of the process.

    Attributes:
        streams: The real standard input and output, with `stdio`.

    Raises:
        MCPError: standard input or output is closed, with `stdio`.
    """

    def __init__(self, *, stdio: bool = False) -> None:
        if stdio:
            check_standard_streams()
        self._relays: dict[int, Relay] = {}
        self._pid = os.getpid()
        for fd, stream, name in ((1, sys.__stdout__, "standard output"), (2, sys.__stderr__, "standard error")):
            if stream is not None and can_stall(fd) and not (stdio and fd == 1):
                self._relays[fd] = Relay(fd, name)
        self._stdio = stdio
        atexit.register(self._release)
        if 2 in self._relays:
            # Past the pipe: a process that crashes has no threads any more.
            faulthandler.enable(self._relays[2].real)
        # Standard output leads where standard error leads, so that has its place by now.
        self.streams: StandardStreams | None = StandardStreams(returned=False) if stdio else None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def say(self, text: str) -> None:
        """Write to standard error, waiting a bounded time."""
        # In a thread: standard error may be a terminal that was stopped.
        writer = threading.Thread(target=_write_error, args=(text,), daemon=True)
        writer.start()
        writer.join(_LAST_WORDS)
        if 2 in self._relays:
            self._relays[2].flush(_LAST_WORDS)

    def give_up(self, text: str) -> None:
        """End the process at once, and say why."""
        self.say(text)
        os._exit(1)

    def _release(self) -> None:
        if os.getpid() != self._pid:
            return
        flush_output()
        if sys.stderr is not None:
            sys.stderr.flush()
        # The threads of the relays end with Python, which may still have something to say.
        until = time.monotonic() + _LAST_WORDS
        for relay in self._relays.values():
            relay.release(max(0.0, until - time.monotonic()))
        if self._stdio and sys.__stderr__ is not None:
            os.dup2(2, 1)

    def _forked(self) -> None:
        """A child that goes on without us must not hold our streams: their readers wait for the end."""
        for relay in self._relays.values():
            relay.abandon()
        self._relays = {}
        if self.streams is not None:
            self.streams.abandon()


def _write_error(text: str) -> None:
    if sys.__stderr__ is not None:
        os.write(2, text.encode())


def run_alone(
    server: Server[Any],
    serve: Callable[[OwnProcess, Callable[[], None]], Awaitable[None]],
    take: Callable[[], OwnProcess],
    beside: float = 0.0,
) -> int:
    """Serve in a trio run of its own, until it ends by itself or by a signal. Returns the exit status.

    Args:
        server: What is served.
        serve: Serves; gets the process, and what to call when the end begins.
        take: Takes the process over.
        beside: Seconds that something beside the server may take to end, before it.
    """
    try:
        own = take()
    except MCPError as exc:
        print(f"{server.name}: {exc}", file=sys.stderr)  # noqa: T201 - the program is ending, and this is why
        return 1
    signals = EndSignals()
    watchdog = Watchdog(server, signals, own.give_up, None if own.streams is None else own.streams.source, beside)
    try:
        trio.run(_until_signal, signals, watchdog, lambda: serve(own, watchdog.begin))
    except KeyboardInterrupt:
        pass
    except Exception as exc:
        text = explained(exc)
        if text is None and not isinstance(exc, MCPError | ValueError):
            raise
        if text is None:
            text = str(exc)
        elif logger.isEnabledFor(logging.DEBUG):
            logger.debug("the server failed", exc_info=exc)
        else:
            text += "\n(the log at level debug has the whole traceback)"
        own.say(f"{server.name}: {text}\n")
        return 1
    finally:
        watchdog.run_over()
    return 0


async def _until_signal(signals: EndSignals, watchdog: Watchdog, serve: Callable[[], Awaitable[None]]) -> None:
    token = trio.lowlevel.current_trio_token()
    with unwrapped(), trio.CancelScope() as serving:

        def end() -> None:
            token.run_sync_soon(serving.cancel, idempotent=True)

        with watchdog.hearing(), signals.heard(end, once=True):
            await serve()
