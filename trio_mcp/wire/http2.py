"""HTTP/2 (RFC 9113), the server's half of one connection. What waits to be sent is in `http2_answers`.

The `h2` library reads frames, keeps the states of streams, the windows and the field tables. In front of it stands a reader of
frames that counts and bounds what it does not, and that keeps away from it what would make it end the connection although one
stream alone is wrong, or although the connection may go on:

| frame | what is done here |
| --- | --- |
| GOAWAY, in both directions | never told to `h2`, which lets nothing be sent behind it |
| PRIORITY, unknown types | checked, counted and dropped |
| SETTINGS | unknown ones are dropped, `h2` would keep them |
| HEADERS | the fields are judged here; `h2` is told of none, and of no bound for streams: one too many is refused alone |
| trailers that do not end the stream, WINDOW_UPDATE of 0 | that stream is reset |
"""

from __future__ import annotations

from typing import Final

import h2.errors
import h2.events
import h2.exceptions
import hpack
import hyperframe.exceptions

from ..limits import Limits
from .http2_answers import DATA_FRAME, Answers, encode_frame, encode_goaway, encode_setting
from .http2_events import Body, Ended, Event, Fatal, GoneAway, Head, Reset
from .http2_fields import Malformed, check_request
from .http2_leftovers import Leftovers
from .http2_library import CONTINUE, PREFACE, Connection

__all__ = ["PREFACE", "Http2"]

_DATA: Final = 0
_HEADERS: Final = 1
_PRIORITY: Final = 2
_RST_STREAM: Final = 3
_SETTINGS: Final = 4
_PUSH_PROMISE: Final = 5
_PING: Final = 6
_GOAWAY: Final = 7
_WINDOW_UPDATE: Final = 8
_CONTINUATION: Final = 9
_END_STREAM: Final = 1
_ACK: Final = 1
_END_HEADERS: Final = 4
_FRAME_MOST: Final = 16_384
"""The longest frame that is read: what every peer may send, and no setting of ours allows more."""
_SMALL: Final = 64
"""A piece of a body that is shorter costs more to read than it brings."""
_UPDATES_A_FRAME: Final = 16
"""Window updates that a client may send for a frame of data: it may take that in pieces of 1 KiB."""
_SETTINGS_KNOWN: Final = range(1, 7)
_Code: Final = h2.errors.ErrorCodes
_FOREIGN: Final = (h2.exceptions.H2Error, hpack.HPACKError, hyperframe.exceptions.HyperframeError)


class _Broken(Exception):
    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class _Stream:
    __slots__ = ("body_ended", "length", "received", "refused")

    def __init__(self, length: int | None, body_ended: bool) -> None:
        self.length = length
        self.received = 0
        self.body_ended = body_ended
        self.refused = False  # its body


class Http2:
    """The server's half of one connection.

    Args:
        limits: Bounds.
        now: The time.

    Attributes:
        streams: How many are open.
        answers: What waits to be sent.
        closed: Nothing is read any more.
        settled: Whether the client has sent its preface and its first settings.
        in_head: Whether a head has begun and not ended.
        behind: Whether frames have come that wait for the next `receive`.
    """

    def __init__(self, limits: Limits, now: float) -> None:
        self._limits = limits
        self._h2 = Connection(limits)
        settings = ((3, limits.h2_streams), (6, limits.head_bytes))
        self.answers: Answers = Answers(self._h2, limits)
        self._out = self.answers.out
        self._out += encode_frame(_SETTINGS, 0, 0, b"".join(encode_setting(*setting) for setting in settings))
        self._buffer = b""
        self._started = False
        self._events: list[Event] = []
        self._streams: dict[int, _Stream] = {}
        self._leftovers = Leftovers(limits.h2_streams, 4 * limits.message_bytes)
        self._known: set[tuple[bytes, bytes]] = set()
        self._counts: dict[str, int] = {}
        self._period = self._now = now
        self._block = self._block_size = self._block_frames = 0
        self._bad_trailers = False
        self._last = 0
        self._most: int | None = None
        self._told = False
        self.settled: bool = False
        self.closed: bool = False
        self.behind: bool = False

    @property
    def streams(self) -> int:
        return len(self._streams)

    @property
    def in_head(self) -> bool:
        return self._block != 0

    # -- reading

    def receive(self, data: bytes, now: float, most: int = 65_536) -> list[Event]:
        """Read bytes of the client.

        Args:
            data: Any bytes.
            now: The time.
            most: Frames to read now; what is behind them waits.

        Returns:
            What they mean, in their order. Nothing comes behind `Fatal`.
        """
        events, self._events = self._events, []
        if self.closed:
            return events
        self._events = events
        self._now = now
        if now - self._period >= self._limits.h2_period:
            self._period = now
            # Data that was sent may be taken, and its window be opened again, much later.
            credit = min(0, self._counts.get("window updates", 0))
            self._counts.clear()
            self._counts["window updates"] = credit
        buffer = self._buffer + data if self._buffer else data
        try:
            at = self._begin(buffer)
            while self._started and most and len(buffer) - at >= 9:
                length = int.from_bytes(buffer[at : at + 3], "big")
                if length > _FRAME_MOST:
                    raise _Broken(_Code.FRAME_SIZE_ERROR, "a frame that is too long")
                end = at + 9 + length
                if len(buffer) < end:
                    break
                self._receive_frame(buffer[at:end], length)
                at, most = end, most - 1
            self._buffer, self.behind = buffer[at:], not most
            self._collect()
        except _Broken as exc:
            self._fail(exc.code, exc.reason)
        except _FOREIGN as exc:
            self._fail(int(getattr(exc, "error_code", _Code.PROTOCOL_ERROR)), str(exc))
        self._events = []
        return events

    def _begin(self, buffer: bytes) -> int:
        """Where the frames begin, behind the preface."""
        if self._started:
            return 0
        if not PREFACE.startswith(buffer[: len(PREFACE)]):
            raise _Broken(_Code.PROTOCOL_ERROR, "no preface")
        self._started = len(buffer) >= len(PREFACE)
        return len(PREFACE) if self._started else 0

    def _collect(self) -> None:
        self.answers.collect()
        if len(self._out) > self._limits.h2_control:
            raise _Broken(_Code.ENHANCE_YOUR_CALM, "answers that are not read")

    def _fail(self, code: int, reason: str) -> None:
        self._h2.clear_outbound_data_buffer()
        self._out += encode_goaway(self._last, code)
        self._events.append(Fatal(code, reason))
        self._end()

    def _end(self) -> None:
        self.closed, self.behind = True, False
        self._buffer = b""
        self._streams.clear()
        self.answers.clear()
        self._block = 0

    def _count(self, kind: str, most: int) -> None:
        count = self._counts[kind] = self._counts.get(kind, 0) + 1
        if count > most:
            raise _Broken(_Code.ENHANCE_YOUR_CALM, f"too many {kind}")

    def _receive_frame(self, frame: bytes, length: int) -> None:
        kind, flags, stream = frame[3], frame[4], int.from_bytes(frame[5:9], "big") & 0x7FFF_FFFF
        if not self.settled:
            if kind != _SETTINGS or flags & _ACK:
                raise _Broken(_Code.PROTOCOL_ERROR, "the first frame is no SETTINGS")
            self.settled = True
        if (kind == _CONTINUATION) != (self._block != 0):
            raise _Broken(_Code.PROTOCOL_ERROR, "a head is interrupted, or continued where there is none")
        if kind == _DATA:
            self._receive_data(frame, length, flags)
        elif kind in (_HEADERS, _CONTINUATION):
            self._receive_fields(frame, length, kind, flags, stream)
        elif kind == _WINDOW_UPDATE:
            self._receive_window(frame, length, stream)
        elif kind == _RST_STREAM:
            self._count("resets", self._limits.h2_resets)
            if stream > self._last:
                raise _Broken(_Code.PROTOCOL_ERROR, "RST_STREAM on an idle stream")
            self._hear(*self._h2.receive_data(frame))
        elif kind == _SETTINGS:
            self._receive_settings(frame, length, flags, stream)
        elif kind == _PING:
            self._count("pings", self._limits.h2_pings)
            self._hear(*self._h2.receive_data(frame))
        elif kind == _PRIORITY:
            self._receive_priority(frame, length, stream)
        elif kind == _GOAWAY:
            self._receiveencode_goaway(frame, length, stream)
        elif kind == _PUSH_PROMISE:
            raise _Broken(_Code.PROTOCOL_ERROR, "a client does not push")
        else:
            self._count("empty frames", self._limits.h2_empty)

    def _receive_data(self, frame: bytes, length: int, flags: int) -> None:
        if not flags & _END_STREAM:
            if not length:
                self._count("empty frames", self._limits.h2_empty)
            elif length < _SMALL:
                self._count("small frames", self._limits.h2_small)
        for event in self._h2.receive_data(frame):
            if isinstance(event, h2.events.DataReceived):
                self._take_data(event.stream_id, event.data or b"", event.flow_controlled_length or 0)
            elif isinstance(event, h2.events.StreamEnded):
                self._body_ended(event.stream_id)
            else:
                self._hear(event)

    def _take_data(self, stream: int, data: bytes, size: int) -> None:
        one = self._streams.get(stream)
        if one is None or one.refused:
            if size and (one is not None or self._leftovers.drop(stream, size)):
                # It is dropped, and so is what follows.
                self._h2.acknowledge_received_data(size, stream)
            elif size:
                # It counts for the window of the connection.
                self._h2.increment_flow_control_window(size)
                self._give_up(self._leftovers.end(stream))
            return
        one.received += len(data)
        if one.length is not None and one.received > one.length:
            if size:
                self._h2.increment_flow_control_window(size)
            self._fault(stream, _Code.PROTOCOL_ERROR)
        elif size:
            self._events.append(Body(stream, data, size))

    def _body_ended(self, stream: int | None) -> None:
        assert stream is not None
        self._leftovers.end(stream)
        one = self._streams.get(stream)
        if one is None:
            return
        one.body_ended = True
        if one.length is not None and one.received != one.length and not one.refused:
            self._fault(stream, _Code.PROTOCOL_ERROR)
        else:
            self._events.append(Ended(stream))

    def _receive_fields(self, frame: bytes, length: int, kind: int, flags: int, stream: int) -> None:
        if kind == _HEADERS:
            self._block, self._block_size, self._block_frames = stream, 0, 0
            one = self._streams.get(stream)
            self._bad_trailers = one is not None and not one.body_ended and not flags & _END_STREAM
            if self._bad_trailers:
                frame = frame[:4] + bytes((flags | _END_STREAM,)) + frame[5:]
        else:
            self._block_frames += 1
        self._block_size += length
        if self._block_size > self._limits.head_bytes or self._block_frames > self._limits.h2_fragments:
            raise _Broken(_Code.ENHANCE_YOUR_CALM, "a head that is too long")
        if flags & _END_HEADERS:
            self._block = 0
        for event in self._h2.receive_data(frame):
            if isinstance(event, h2.events.RequestReceived):
                self._last = stream
                self._request(stream, event.stream_ended is not None)
            elif isinstance(event, h2.events.TrailersReceived):
                # Nobody wants what they say.
                if self._bad_trailers or any(name[:1] == b":" for name, _ in self._h2.fields):
                    self._fault(stream, _Code.PROTOCOL_ERROR)
                else:
                    self._body_ended(stream)
            else:
                self._hear(event)

    def _request(self, stream: int, ended: bool) -> None:
        draining = self._most is not None and stream > self._most
        if draining or len(self._streams) >= self._limits.h2_streams:
            if not draining:
                # While the end is near, a client that nobody has told sends what it always does; the bytes are bounded.
                self._count("resets", self._limits.h2_resets)
            self._h2.reset_stream(stream, _Code.REFUSED_STREAM)
            return
        try:
            request = check_request(self._h2.fields, self._known)
            if ended and request.length:
                raise Malformed("a length and no body")
        except Malformed:
            self._count("resets", self._limits.h2_resets)
            self._h2.reset_stream(stream, _Code.PROTOCOL_ERROR)
            return
        self._streams[stream] = _Stream(request.length, ended)
        self.answers.open(stream)
        self._events.append(Head(stream, request, ended))

    def _fault(self, stream: int, code: int) -> None:
        """Reset a stream that broke a rule."""
        self._count("resets", self._limits.h2_resets)
        self.reset(stream, code)
        self._events.append(Reset(stream, code))

    def _receive_window(self, frame: bytes, length: int, stream: int) -> None:
        self._count("window updates", self._limits.h2_updates)
        if length == 4 and stream and not int.from_bytes(frame[9:13], "big") & 0x7FFF_FFFF:
            if stream > self._last:
                raise _Broken(_Code.PROTOCOL_ERROR, "WINDOW_UPDATE on an idle stream")
            if stream in self._streams:
                self._fault(stream, _Code.PROTOCOL_ERROR)
            return
        self._hear(*self._h2.receive_data(frame))

    def _receive_settings(self, frame: bytes, length: int, flags: int, stream: int) -> None:
        self._count("settings", self._limits.h2_settings)
        if flags & _ACK and length:
            raise _Broken(_Code.FRAME_SIZE_ERROR, "an acknowledgement with a payload")
        if stream or length % 6 or flags & _ACK:
            self._h2.receive_data(frame)  # to be judged
            return
        known = [
            frame[at : at + 6]
            for at in range(9, 9 + length, 6)
            if int.from_bytes(frame[at : at + 2], "big") in _SETTINGS_KNOWN
        ]
        self._hear(*self._h2.receive_data(encode_frame(_SETTINGS, 0, 0, b"".join(known))))

    def _receive_priority(self, frame: bytes, length: int, stream: int) -> None:
        self._count("priorities", self._limits.h2_priorities)
        if not stream:
            raise _Broken(_Code.PROTOCOL_ERROR, "PRIORITY of no stream")
        if length == 5 and int.from_bytes(frame[9:13], "big") & 0x7FFF_FFFF != stream:
            return
        code = _Code.PROTOCOL_ERROR if length == 5 else _Code.FRAME_SIZE_ERROR
        if stream > self._last:
            raise _Broken(code, "a PRIORITY that is wrong")
        if stream in self._streams:
            self._fault(stream, code)

    def _receiveencode_goaway(self, frame: bytes, length: int, stream: int) -> None:
        if stream or length < 8:
            raise _Broken(_Code.PROTOCOL_ERROR if stream else _Code.FRAME_SIZE_ERROR, "a GOAWAY that is wrong")
        self._count("GOAWAY", self._limits.h2_settings)
        self._events.append(GoneAway(int.from_bytes(frame[13:17], "big")))

    def _hear(self, *events: h2.events.Event) -> None:
        """Frames that say something of a stream that is open, or of the connection."""
        for event in events:
            if isinstance(event, h2.events.StreamReset):
                if event.remote_reset is False:
                    self._count("resets", self._limits.h2_resets)
                self._leftovers.end(event.stream_id)
                if event.stream_id in self._streams:
                    self._drop(event.stream_id)
                    self._events.append(Reset(event.stream_id, int(event.error_code or 0)))
            elif isinstance(event, h2.events.WindowUpdated):
                self.answers.window_changed(event.stream_id or 0)
            elif isinstance(event, h2.events.RemoteSettingsChanged):
                self.answers.windows_changed()
            elif isinstance(event, h2.events.PingAckReceived):
                self.answers.heard(event.ping_data or b"", self._now)

    # -- bodies

    def open_window(self, stream: int, size: int) -> None:
        """A piece of a body was taken."""
        if not self.closed:
            self._h2.acknowledge_received_data(size, stream)
            self.answers.collect()

    def refuse_body(self, stream: int, size: int = 0) -> None:
        """Nothing more of a body is taken; with what was not taken of the last piece."""
        one = self._streams.get(stream)
        if one is not None:
            one.refused = True
        if size and not self.closed:
            self._h2.acknowledge_received_data(size, stream)
            self.answers.collect()

    # -- answering

    def send_head(self, stream: int, block: bytes, *, end: bool = False) -> None:
        """Send the head of an answer, as `encode_head` makes it."""
        if stream not in self._streams:
            return
        self._h2.send_block(stream, block, end)
        self.answers.collect()
        if end:
            self._finish(stream)

    def send_continue(self, stream: int) -> None:
        """Tell a client that waits for it to send its body."""
        if stream in self._streams:
            self._h2.send_block(stream, CONTINUE, False)
            self.answers.collect()

    def send_data(self, stream: int, data: bytes, *, end: bool = False) -> None:
        """Queue bytes of an answer."""
        self.answers.send(stream, data, end)

    def reset(self, stream: int, code: int) -> None:
        """Give a stream up; what waits for it is dropped."""
        if stream in self._streams:
            self._drop(stream)
            self._h2.reset_stream(stream, code)
            self.answers.collect()

    def _drop(self, stream: int) -> _Stream:
        self.answers.drop(stream)
        return self._streams.pop(stream)

    def _finish(self, stream: int) -> None:
        """Our half has ended; a body that still comes is dropped for a moment."""
        if not self._drop(stream).body_ended:
            self._give_up(self._leftovers.add(stream, self._now))

    def _give_up(self, stream: int | None) -> None:
        if stream is not None:
            self._h2.reset_stream(stream, _Code.NO_ERROR)
            self.answers.collect()

    def due(self) -> float:
        """When `look` is to be called."""
        return min(self.answers.due(), self._leftovers.due())

    def drain(self) -> None:
        """Take no more streams; those that are open go on, and GOAWAY follows the last of them.

        A client that is told before may not take what comes behind: one that uses `h2` is such.
        """
        if self._most is None:
            self._most = self._last

    def leave(self) -> None:
        """Say that the connection ends now."""
        if not self.closed and not self._told:
            self._told = True
            self._out += encode_goaway(self._last if self._most is None else self._most, _Code.NO_ERROR)

    def take(self, now: float, most: int = 4 * DATA_FRAME) -> bytes:
        """The next bytes to send, about so many."""
        self._now = now
        before = self.answers.frames
        for stream in self.answers.take(most, now):
            self._finish(stream)
        if self.answers.frames != before:
            count = self._counts.get("window updates", 0)
            self._counts["window updates"] = count - _UPDATES_A_FRAME * (self.answers.frames - before)
        if self._most is not None and not self._streams:
            self.leave()
        out = bytes(self._out)
        self._out.clear()
        return out

    def look(self, now: float) -> list[Event]:
        """Judge windows that stay shut, and give up what was answered long enough ago."""
        if self.closed:
            return []
        for stream in self._leftovers.overdue(now):
            self._give_up(stream)
        events: list[Event] = []
        self._events = events
        if self.answers.stalled(now):
            self._fail(_Code.NO_ERROR, "the client does not read")
        for stream in self.answers.look(now):
            self.reset(stream, _Code.CANCEL)
            events.append(Reset(stream, _Code.CANCEL))
        self._events = []
        return events
