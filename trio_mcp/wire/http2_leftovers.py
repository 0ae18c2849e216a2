"""Bodies that still come on streams of HTTP/2 whose answer is complete.

A server may reset such a stream at once (RFC 9113, section 8.1), but there are clients that then take the reset for the
answer. So what comes is taken and dropped for a moment, as HTTP/1.1 reads on before it closes.
"""

from __future__ import annotations

import math
from typing import Final

__all__ = ["Leftovers"]

_SECONDS: Final = 1.0
"""How long. A client that has read the answer ends its body, or resets the stream, at once."""


class Leftovers:
    """The streams of one connection whose bodies are dropped.

    Args:
        streams: How many at once; with one more the oldest is given up.
        size: The most bytes of one that are dropped.
    """

    __slots__ = ("_size", "_streams", "_until")

    def __init__(self, streams: int, size: int) -> None:
        self._streams: Final = streams
        self._size: Final = size
        # Until when, and what was dropped; the oldest first.
        self._until: dict[int, tuple[float, int]] = {}

    def due(self) -> float:
        """When the oldest is to be given up."""
        return next(iter(self._until.values()))[0] if self._until else math.inf

    def add(self, stream: int, now: float) -> int | None:
        """The answer on a stream is complete, and its body is not. Returns a stream to be given up for it."""
        oldest = self.end(next(iter(self._until))) if len(self._until) >= self._streams else None
        self._until[stream] = now + _SECONDS, 0
        return oldest

    def drop(self, stream: int, size: int) -> bool:
        """Drop a piece; whether more of this stream is to be taken."""
        until, dropped = self._until.get(stream, (0.0, self._size))
        if dropped + size > self._size:
            return False
        self._until[stream] = until, dropped + size
        return True

    def end(self, stream: int) -> int | None:
        """It has ended, or is given up. Returns the stream, if it was one of these."""
        return stream if self._until.pop(stream, None) is not None else None

    def overdue(self, now: float) -> list[int]:
        """Give up those whose time is over."""
        streams = [stream for stream, (until, _) in self._until.items() if until <= now]
        for stream in streams:
            del self._until[stream]
        return streams
