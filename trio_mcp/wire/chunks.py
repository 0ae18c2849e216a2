"""How a body in chunks is read (RFC 9112, section 7.1): strictly, and with a bound on all that is not the body."""

from __future__ import annotations

import re
from typing import Final

from ..protocol.http import Refusal
from .heads import Refused, read_field, too_long

__all__ = ["ChunkDecoder"]

_SIZE_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,16})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?\r\n")
_PLAIN: Final = 18  # the longest such line without an extension
_MALFORMED: Final = Refusal(400, "Bad request: the chunks of the body are malformed")
# Whoever joins trailers with the head reads another request (RFC 9110, section 6.5.1).
_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})

# What comes next; a positive number is what is left of a chunk.
_SIZE: Final = 0
_LINE_END: Final = -1
_TRAILERS: Final = -2


class ChunkDecoder:
    """One body while it arrives. Extensions and trailers are dropped.

    Args:
        most: The longest body.
        extra: The most bytes of chunk extensions and trailers.

    Attributes:
        done: Whether its end was read.
    """

    __slots__ = ("_extra", "_left", "_most", "_part", "_spent", "done")

    def __init__(self, most: int, extra: int) -> None:
        self._most = most
        self._extra = extra
        self._spent = 0  # of what extensions and trailers may have
        self._left = _SIZE
        self._part = 0  # bytes of a line that has not come whole
        self.done: bool = False

    def decode(self, data: bytes | bytearray, pos: int, body: bytearray) -> int:
        """Move what is there of the body.

        Args:
            data: What came; what was not read of it the last time comes again at the beginning.
            pos: Where it begins.
            body: Where the body goes.

        Returns:
            How far it was read.

        Raises:
            Refused: this is no body, or too much of one.
        """
        left, end = self._left, len(data)
        match = _SIZE_LINE.match
        while pos < end:
            if left > 0:
                stop = pos + left
                if stop > end:
                    body += data[pos:]
                    left = stop - end
                    pos = end
                    break
                body += data[pos:stop]
                pos = stop
                left = _LINE_END
            elif left == _LINE_END:
                if data.startswith(b"\r\n", pos):
                    pos += 2
                    left = _SIZE
                elif data[pos] != 13 or pos + 1 < end:
                    raise Refused(_MALFORMED)
                else:
                    break
            elif left == _SIZE:
                found = None if self._part else match(data, pos)
                stop = self._line(data, pos, _PLAIN) if found is None else found.end()
                if not stop:
                    break
                if stop - pos > _PLAIN:
                    self._spend(stop - pos)
                found = found or match(data, pos)
                if found is None:
                    raise Refused(_MALFORMED)
                left = int(found[1], 16)
                if len(body) + left > self._most:
                    raise Refused(too_long(self._most))
                pos = stop
                if not left:
                    left = _TRAILERS
            elif data.startswith(b"\r\n", pos):
                self.done = True
                return pos + 2
            else:
                stop = self._line(data, pos, 1)
                if not stop:
                    break
                self._spend(stop - pos)
                if not data.endswith(b"\r\n", pos, stop):
                    raise Refused(_MALFORMED)
                if read_field(bytes(data[pos : stop - 2]))[0] in _FRAMING:
                    raise Refused(_MALFORMED)
                pos = stop
        self._left = left
        return pos

    def _line(self, data: bytes | bytearray, pos: int, free: int) -> int:
        """Where the line ends that begins there; 0 when it has not come whole. Up to `free` bytes cost nothing."""
        end = data.find(b"\n", pos + self._part) + 1
        if end:
            self._part = 0
        else:
            self._part = part = len(data) - pos
            if part > free:
                self._check(self._spent + part)
        return end

    def _spend(self, size: int) -> None:
        self._spent += size
        self._check(self._spent)

    def _check(self, spent: int) -> None:
        if spent > self._extra:
            raise Refused(Refusal(431, f"Chunk extensions and trailers too large: the limit is {self._extra} bytes"))
