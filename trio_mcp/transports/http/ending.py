"""What is under way on all connections of an endpoint, for the time when it ends; and when to try again."""

from __future__ import annotations

import math
from typing import Protocol

from ...errors import TimedOut
from ...protocol.envelope import encode_error
from ...scopes.call import ENDING, Call
from .exchange import HttpFields

__all__ = ["Ends", "Lasting", "Running", "retry_after"]


class Ends(Protocol):
    """What only waits: a call that lasts, or a stream."""

    def end(self) -> None:
        """The server ends."""


class Running:
    """All calls that are under way, over all connections."""

    def __init__(self) -> None:
        self._calls: dict[Call, None] = {}
        self._ended = False

    def add(self, call: Call) -> None:
        self._calls[call] = None
        if self._ended:
            _give_up(call)

    def remove(self, call: Call) -> None:
        del self._calls[call]

    def give_up(self) -> None:
        self._ended = True
        for call in list(self._calls):
            _give_up(call)


def _give_up(call: Call) -> None:
    if call.open:
        call.status = TimedOut.http_status
        call.give_up(encode_error(call.id, TimedOut(ENDING)))


class Lasting:
    """Calls that only wait, over all connections."""

    def __init__(self) -> None:
        self._calls: dict[Ends, None] = {}
        self._ended = False

    def add(self, call: Ends) -> None:
        self._calls[call] = None
        if self._ended:
            call.end()

    def remove(self, call: Ends) -> None:
        del self._calls[call]

    def end(self) -> None:
        self._ended = True
        for call in self._calls:
            call.end()


def retry_after(seconds: float | None) -> HttpFields:
    """The field that says when to try again: whole seconds, and not at once."""
    return () if seconds is None or not math.isfinite(seconds) else ((b"retry-after", b"%d" % max(1, round(seconds))),)
