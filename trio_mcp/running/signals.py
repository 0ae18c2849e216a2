"""Signals, as other programs expect them to be treated.

A signal that is ignored when the program starts stays ignored: whoever started it wants it so (`nohup`, a job in the
background of a script). And a child that is forked without a new program (`multiprocessing`) has the handlers that were
there before ours. Otherwise it does not die of SIGTERM, and a signal to the child is heard by its parent, since the two
share the descriptor that wakes the event loop.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

__all__ = ["EndSignals"]

_ENDS: Final = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class EndSignals:
    """The signals that ask this process to end, without those that are ignored.

    Made before the event loop runs, so that it knows the handlers that were there before the loop's own.
    """

    def __init__(self) -> None:
        found = {number: signal.getsignal(number) for number in _ENDS}
        # None is a handler that was not set from Python, which could not be put back.
        self._original: dict[int, Any] = {
            number: handler for number, handler in found.items() if handler not in (signal.SIG_IGN, None)
        }

    def __contains__(self, number: int) -> bool:
        return number in self._original

    @contextmanager
    def heard(self, handler: Callable[[], object], *, once: bool) -> Iterator[None]:
        """Call the handler on these signals, in the main thread, between two of its instructions.

        Args:
            handler: What to do. Nothing that waits, and nothing that takes a lock.
            once: Whether the second signal finds the handlers from before again: whoever is in a hurry is heard.
        """
        before: dict[int, Any] = {}

        def restore() -> None:
            for number, was in before.items():
                signal.signal(number, was)

        def hear(number: int, frame: object) -> None:
            if once:
                restore()
            handler()

        for number in self._original:
            before[number] = signal.signal(number, hear)
        try:
            with _forgotten_by_children(self._original):
                yield
        finally:
            restore()


_taken: list[dict[int, Any]] = []
"""For each block of `heard` what a forked child gets back. Handlers belong to the process, and so does this."""
_mask = threading.local()
_hooked: list[bool] = []


@contextmanager
def _forgotten_by_children(original: dict[int, Any]) -> Iterator[None]:
    if not _hooked and hasattr(os, "register_at_fork"):
        # What is registered here stays for good, so it is registered once.
        os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)
        _hooked.append(True)
    _taken.append(original)
    try:
        yield
    finally:
        if _taken:
            _taken.pop()


def _before_fork() -> None:
    """Until the child has its handlers, a signal waits: `multiprocessing` may end a worker as soon as it is there."""
    if _taken:
        _mask.was = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)


def _after_fork() -> None:
    was = _mask.__dict__.pop("was", None)
    if was is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, was)


def _in_child() -> None:
    if _taken:
        signal.set_wakeup_fd(-1)
        for number, handler in _taken[0].items():
            signal.signal(number, handler)
        _taken.clear()
    _after_fork()
