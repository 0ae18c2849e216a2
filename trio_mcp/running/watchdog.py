"""The end of a process has a bound, whatever a handler does.

A handler may block the event loop, or shield itself from cancellation, so what ends the process cannot be a task. It is a
thread, which hears of the end by itself: a byte that the system's signal handler writes, or the hang-up of the input. It asks
then who is in the way, gives each its time, and says whom it did not wait for any longer.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import trio

from ..server.declare.server import Server
from .signals import EndSignals

__all__ = ["Watchdog"]

# What is written to the thread, besides the numbers of signals.
_END: Final = 201
_ALIVE: Final = 202
_RUN_OVER: Final = 203

_CAN_WAIT: Final = hasattr(select, "poll")
"""Not on Windows, where an end has no bound."""
_HANGUP: Final = getattr(select, "POLLRDHUP", 0)
_ASK: Final = 0.5
"""Between two questions to the event loop whether it still runs, while the input has ended and the loop has not said so.
Also the longest sleep while something is being waited for: a stop of the process is known as exactly as that."""


class Watchdog:
    """Ends the process when something keeps it from ending. It has a thread, which a forked child has not.

    Args:
        server: The server.
        signals: The signals that mean the end.
        give_up: Called with the reason; ends the process.
        source: The descriptor of the input, if its end means the end.
        beside: Seconds that something beside the server may take to end, after the requests.
    """

    def __init__(
        self,
        server: Server[Any],
        signals: EndSignals,
        give_up: Callable[[str], None],
        source: int | None,
        beside: float = 0.0,
    ) -> None:
        self._server = server
        self._signals = signals
        self._give_up = give_up
        self._source = source
        limits = server.limits
        # Requests have the time of the drain twice: theirs, and that of what is still to be written.
        self._requests = 2 * limits.drain_timeout + 1.0 + beside
        self._tasks = limits.drain_timeout + limits.task_settle
        self._lifespan = limits.lifespan_timeout + 1.0
        self._exit = limits.exit_timeout
        self._began: float | None = None
        self._over: float | None = None
        self._asked: float | None = None
        self._answered: float = 0.0
        # Since when the server is in its stage, and how long the process has been stopped since.
        self._stopped_in: tuple[float, float] = (0.0, 0.0)
        self._token: trio.lowlevel.TrioToken | None = None
        self._bell, self._rope = os.pipe()
        os.set_blocking(self._rope, False)
        if _CAN_WAIT:
            threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    # -- called from the event loop

    @contextmanager
    def hearing(self) -> Iterator[None]:
        """Inside this block signals and the end of the input are heard, also while the event loop is blocked."""
        self._token = trio.lowlevel.current_trio_token()
        if not _CAN_WAIT:
            yield
            return
        # trio's own is told by this thread: it wants to be woken, and by whom is the same to it.
        before = signal.set_wakeup_fd(self._rope, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)

    def begin(self) -> None:
        """The end has begun."""
        self._tell(_END)

    def run_over(self) -> None:
        """The event loop has ended; what is left is the process."""
        self._tell(_RUN_OVER)

    def _tell(self, what: int) -> None:
        try:
            os.write(self._rope, bytes((what,)))
        except BlockingIOError:
            # Thousands of signals have come since it looked: it is awake.
            pass

    # -- the thread

    def _watch(self) -> None:
        poller = select.poll()
        poller.register(self._bell, select.POLLIN)
        if self._source is not None:
            poller.register(self._source, _HANGUP)
        while True:
            until = self._next_look()
            begin, spent = time.monotonic(), time.process_time()
            timeout = None if until is None else min(_ASK, max(0.0, until - begin))
            heard = poller.poll(None if timeout is None else timeout * 1000)
            if timeout is not None:
                # Whoever computes for long and lets no other thread run has used that time; who is stopped has not.
                late = time.monotonic() - begin - timeout - (time.process_time() - spent)
                if late > 0:
                    self._give_back(begin + timeout, late)
            for fd, _ in heard:
                if fd == self._bell:
                    for what in os.read(self._bell, 4096):
                        self._hear(what)
                else:
                    # It would be reported again and again.
                    poller.unregister(fd)
                    self._answered = time.monotonic()
                    self._ask()
            until = self._next_look()
            if until is not None and time.monotonic() >= until:
                self._look()

    def _give_back(self, stopped: float, seconds: float) -> None:
        """The process was stopped (SIGSTOP, a frozen container): that time was nobody's.

        Args:
            stopped: When the stop had begun at the latest. What began before it gets the time back, once.
            seconds: How long it was.
        """
        if self._began is not None:
            self._began += seconds
        if self._over is not None:
            self._over += seconds
        if self._asked is not None:
            self._asked += seconds
        self._answered += seconds
        since = self._server.stage[1]
        if since <= stopped:
            self._stopped_in = (since, self._back(since) + seconds)

    def _back(self, since: float) -> float:
        return self._stopped_in[1] if self._stopped_in[0] == since else 0.0

    def _hear(self, what: int) -> None:
        now = time.monotonic()
        if what == _ALIVE:
            self._answered = now
        elif what == _RUN_OVER:
            self._over = now
        else:
            if what == _END or what in self._signals:
                self._began = self._began or now
            if what != _END:
                # The handlers in Python run in the main thread, which may be asleep in the event loop.
                self._call(lambda: None)

    def _next_look(self) -> float | None:
        if self._over is not None:
            return self._over + self._exit
        if self._began is not None:
            return self._due()[0]
        return None if self._asked is None else self._asked + _ASK

    def _due(self) -> tuple[float, str]:
        """Until when what is under way now may take, and who is to blame afterwards."""
        assert self._began is not None
        stage, since = self._server.stage
        if stage == "leaving":
            return since + self._back(since) + self._lifespan, f"the lifespan did not end within {self._lifespan:g} s"
        if stage == "entering":
            return (
                self._began + self._requests,
                f"the lifespan, which was starting, did not end within {self._requests:g} s",
            )
        if self._server.has_tasks():
            total = self._requests + self._tasks
            return self._began + total, f"a task did not end within {total:g} s (shielded, or blocking)"
        return (
            self._began + self._requests,
            f"a handler did not end within {self._requests:g} s (shielded, or blocking)",
        )

    def _look(self) -> None:
        now = time.monotonic()
        if self._over is not None:
            self._end(f"a thread or a child process did not end within {self._exit:g} s")
        elif self._began is not None:
            until, blame = self._due()
            # It may have gone on to the next thing since.
            if now >= until:
                self._end(blame)
        elif now >= self._answered + self._requests:
            self._end(f"a handler did not end within {self._requests:g} s (blocking the event loop)")
        else:
            self._ask()

    def _ask(self) -> None:
        self._asked = time.monotonic()
        self._call(lambda: self._tell(_ALIVE))

    def _call(self, what: Callable[[], object]) -> None:
        if self._token is not None:
            try:
                self._token.run_sync_soon(what)
            except trio.RunFinishedError:
                pass

    def _end(self, blame: str) -> None:
        self._give_up(f"{self._server.name}: {blame}; ending without it\n")
