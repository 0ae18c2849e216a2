"""Answers on an HTTP/2 connection, until they are sent.

A queue a stream. `take` cuts frames from them: streams in turn, a frame each, within the windows.

A window that stays shut says nothing yet: on a slow link much is on its way. So the client is asked (PING, which it answers when
it has read all that was sent before), and `write_stall` is counted from there. A client that does not answer has as long as
what it was sent takes over a link of `limits.slow_link`, and no longer than `limits.idle_timeout`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

import h2.connection

from ..limits import Limits

__all__ = ["DATA_FRAME", "Answers", "encode_frame", "encode_goaway", "encode_setting"]

DATA_FRAME: Final = 16_384
"""Longest frame of data: with longer ones a stream waits longer for its turn."""

_PING: Final = 6
_GOAWAY: Final = 7
_NEVER: Final = float("inf")


def encode_frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A whole frame."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def encode_setting(name: int, value: int) -> bytes:
    """One of the settings in a SETTINGS frame."""
    return name.to_bytes(2, "big") + value.to_bytes(4, "big")


def encode_goaway(last: int, code: int) -> bytes:
    """A GOAWAY frame."""
    return encode_frame(_GOAWAY, 0, 0, last.to_bytes(4, "big") + int(code).to_bytes(4, "big"))


class _Window:
    """A window that lets nothing through.

    Attributes:
        since: When it was found so.
        read: When the client had read all that was sent before, as far as that is known.
    """

    __slots__ = ("read", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.read = _NEVER


class _Answer:
    __slots__ = ("ending", "offset", "queue", "shut", "waiting")

    def __init__(self) -> None:
        self.queue: deque[bytes] = deque()
        self.offset = 0
        self.waiting = 0
        self.ending = False
        self.shut: _Window | None = None

    def cut(self, most: int) -> bytes:
        """Take so many bytes, or all."""
        first = self.queue[0]
        if self.offset == 0 and (len(first) == most or (len(first) < most and len(self.queue) == 1)):
            data = self.queue.popleft()
        else:
            parts, size = [], 0
            while self.queue and size < most:
                first = self.queue[0]
                part = first[self.offset : self.offset + most - size]
                parts.append(part)
                size += len(part)
                self.offset += len(part)
                if self.offset == len(first):
                    self.queue.popleft()
                    self.offset = 0
            data = b"".join(parts)
        self.waiting -= len(data)
        return data


class Answers:
    """What waits to be sent.

    Args:
        connection: The state of the connection.
        limits: Bounds.

    Attributes:
        out: What is sent before everything else.
        waiting: Bytes that wait, of all streams.
        frames: Frames of data that were sent.
    """

    def __init__(self, connection: h2.connection.H2Connection, limits: Limits) -> None:
        self._h2 = connection
        self._limits = limits
        self._answers: dict[int, _Answer] = {}
        self._ready: dict[int, _Answer] = {}
        self._shut: dict[int, _Answer] = {}
        self._held: _Window | None = None  # that of the connection
        self._sent = self._confirmed = 0
        self._asked: float | None = None
        self._asked_at = 0
        self._number = 0
        self.out: bytearray = bytearray()
        self.waiting: int = 0
        self.frames: int = 0

    def collect(self) -> None:
        """Fetch what the state machine has to say."""
        self.out += self._h2.data_to_send()

    @property
    def to_send(self) -> bool:
        """Whether `take` has something."""
        return bool(self.out) or (bool(self._ready) and self._held is None)

    def pending(self, stream: int) -> int:
        """Bytes of one answer that wait."""
        answer = self._answers.get(stream)
        return 0 if answer is None else answer.waiting

    @property
    def queues(self) -> int:
        """How many answers wait."""
        return len(self._ready) + len(self._shut)

    def open(self, stream: int) -> None:
        """A stream may be answered."""
        self._answers[stream] = _Answer()

    def drop(self, stream: int) -> None:
        """Forget what waits for a stream."""
        self.waiting -= self._answers.pop(stream).waiting
        self._ready.pop(stream, None)
        self._shut.pop(stream, None)
        self._relax()

    def clear(self) -> None:
        """Forget everything but what is sent first."""
        for stream in list(self._answers):
            self.drop(stream)

    def send(self, stream: int, data: bytes, end: bool) -> None:
        """Queue bytes of an answer."""
        answer = self._answers.get(stream)
        if answer is None or answer.ending:
            return
        if data:
            answer.queue.append(data)
            answer.waiting += len(data)
            self.waiting += len(data)
        answer.ending = end
        if (data or end) and stream not in self._shut:
            self._ready[stream] = answer

    def take(self, most: int, now: float) -> Iterator[int]:
        """Move frames to `out`, until it has about so many bytes; the streams that are complete, one by one."""
        connection = self._h2
        self.collect()
        while self._ready and len(self.out) < most:
            stream, answer = next(iter(self._ready.items()))
            data = b""
            if answer.queue:
                room = connection.outbound_flow_control_window
                own = connection.streams[stream].outbound_flow_control_window
                if own <= 0:
                    answer.shut = _Window(now)
                    self._shut[stream] = self._ready.pop(stream)
                    continue
                if room <= 0:
                    self._held = self._held or _Window(now)
                    return
                data = answer.cut(min(room, own, connection.max_outbound_frame_size, DATA_FRAME))
                self.waiting -= len(data)
            del self._ready[stream]
            last = answer.ending and not answer.queue
            connection.send_data(stream, data, end_stream=last)
            self.collect()
            self._sent += len(data)
            self.frames += 1
            if last:
                yield stream
            elif answer.queue:
                self._ready[stream] = answer  # behind the others

    # -- windows

    def window_changed(self, stream: int) -> None:
        """The window of a stream has changed; 0 is the connection."""
        if not stream:
            if self._h2.outbound_flow_control_window > 0:
                self._held = None
        elif stream in self._shut and self._h2.streams[stream].outbound_flow_control_window > 0:
            answer = self._ready[stream] = self._shut.pop(stream)
            answer.shut = None
        self._relax()

    def windows_changed(self) -> None:
        """Those of all streams have."""
        for stream in list(self._shut):
            self.window_changed(stream)

    def _relax(self) -> None:
        if not self._ready:
            self._held = None  # and nobody is kept from anything
        if not self._shut and self._held is None:
            self._asked = None

    def heard(self, data: bytes, now: float) -> None:
        """A PING was answered."""
        if self._asked is not None and data == self._probe():
            for window in self._windows():
                if window.since < self._asked:
                    window.read = min(window.read, now)
            self._confirmed = self._asked_at
            self._asked = None

    def _probe(self) -> bytes:
        return self._number.to_bytes(8, "big")

    def _windows(self) -> list[_Window]:
        """Those that let nothing through."""
        windows = [answer.shut for answer in self._shut.values() if answer.shut is not None]
        return windows if self._held is None else [*windows, self._held]

    def _end(self, window: _Window | None) -> float:
        """When a window counts as shut for ever: the client has read all, and gives no room."""
        return _NEVER if window is None else window.read + self._limits.write_stall * 0.75

    def _patience(self) -> float:
        """When a client that was asked and says nothing is gone."""
        if self._asked is None:
            return _NEVER
        way = min((self._asked_at - self._confirmed) / self._limits.slow_link, self._limits.idle_timeout)
        return self._asked + self._limits.write_stall * 0.75 + way

    def _ask(self) -> float:
        """When to ask."""
        new = [window.since for window in self._windows() if window.read == _NEVER]
        return min(new) + self._limits.write_stall / 4 if new and self._asked is None else _NEVER

    def due(self) -> float:
        """When to look at the windows again."""
        windows = self._windows()
        return min(self._patience(), self._ask(), *map(self._end, windows)) if windows else _NEVER

    def stalled(self, now: float) -> bool:
        """Whether the client is gone: it reads nothing, or gives the connection no room."""
        return now >= self._patience() or now >= self._end(self._held)

    def look(self, now: float) -> list[int]:
        """Judge windows that stay shut: the streams to give up."""
        lost = [stream for stream, answer in self._shut.items() if now >= self._end(answer.shut)]
        if now >= self._ask():
            self._number += 1
            self._asked, self._asked_at = now, self._sent
            self.out += encode_frame(_PING, 0, 0, self._probe())
        return lost
