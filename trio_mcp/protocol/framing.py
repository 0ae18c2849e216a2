"""Newline-delimited messages (basic/transports/stdio).

Lines end at byte 0A and nowhere else: U+2028 and its kin are text. A carriage return before it and a byte order mark at
the start of a line are dropped, blank lines are skipped. A line over the limit is thrown away while it arrives, and told as
soon as it is over it: its end may never come.
"""

from __future__ import annotations

from typing import Final

__all__ = ["TOO_LONG", "LineFramer"]


class _TooLong:
    """Stands in the list of lines where an over-long one was."""

    def __repr__(self) -> str:
        return "TOO_LONG"


TOO_LONG: Final = _TooLong()
_BOM: Final = b"\xef\xbb\xbf"


class LineFramer:
    """Cuts a byte stream into lines; holds at most `limit` bytes of an unfinished one."""

    __slots__ = ("_discarding", "_held", "_limit", "_parts")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts = bytearray()
        self._held = 0
        self._discarding = False

    def feed(self, data: bytes | bytearray) -> list[bytes | _TooLong]:
        """Take the next bytes; return the lines that they complete, without their line ends."""
        head, *rest = bytes(data).split(b"\n")
        lines: list[bytes | _TooLong] = []
        self._hold(head, lines)
        if not rest:
            return lines
        self._finish(lines)
        tail = rest.pop()
        for line in rest:
            self._add(lines, line)
        self._hold(tail, lines)
        return lines

    def end(self) -> list[bytes | _TooLong]:
        """The bytes ended: a last line without a line end counts."""
        lines: list[bytes | _TooLong] = []
        self._finish(lines)
        return lines

    def _hold(self, part: bytes, lines: list[bytes | _TooLong]) -> None:
        if self._discarding or not part:
            return
        self._held += len(part)
        if self._held > self._limit + len(_BOM) + 1:
            self._discarding = True
            self._parts = bytearray()
            lines.append(TOO_LONG)
            return
        self._parts += part

    def _finish(self, lines: list[bytes | _TooLong]) -> None:
        if self._parts:
            self._add(lines, bytes(self._parts))
        self._parts = bytearray()
        self._held = 0
        self._discarding = False

    def _add(self, lines: list[bytes | _TooLong], line: bytes) -> None:
        if line.startswith(_BOM):
            line = line[3:]
        if line.endswith(b"\r"):
            line = line[:-1]
        if len(line) > self._limit:
            lines.append(TOO_LONG)
        elif line and not line.isspace():
            lines.append(line)
