"""An HTTP/2 connection of the client, on h2: a task that reads, a task that writes, and a stream for each call.

What httpcore2's leaves out, and calls depend on:

- A stream that is left is reset, which is what cancels the work on the server (basic/transports/streamable-http, section
  Cancellation).
- GOAWAY ends a connection in order (RFC 9113, section 6.8): streams up to the last one that it names are answered, those
  above it were not looked at and go to another connection. h2 takes GOAWAY for the end, so it is kept from it.
- Somebody reads while nobody calls, so a connection that the server has closed takes no call.
- An answer that is whole counts, whatever happens to its stream and its connection afterwards.
- Frames of one call are not lost when another one is cancelled while it writes: only the writer writes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from functools import partial
from typing import Final

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings
import httpcore2
import httpx2
import trio

from .http2_stream import Stream, code_name, not_taken
from .http_wire import BODY, SAFE, AnswerBody, Wire, request_body

__all__ = ["Http2Connection"]

_PATIENCE: Final = 1.0
"""Seconds for the last frames to go out."""
_STALL: Final = 5.0
"""Seconds for one piece of `_PIECE` bytes to go out."""
_PIECE: Final = 16_384
_OUT: Final = 65_536
"""Bytes of frames that wait to be written, before bodies wait as well."""
_FORCED: Final = 131_072
"""Bytes of them that the server has made us say (answers to pings, and the like): one that does not read those is left."""
_WINDOW: Final = 1_048_576
"""Bytes of an answer that are received before they are taken, a stream."""
_CONNECTION_WINDOW: Final = 16_777_216
_STREAMS: Final = 100
"""Streams at once on a connection that has not said how many it takes."""
_TINY: Final = 16
"""Bytes of a data frame that are worth its cost (a frame costs as much as 1,000 bytes)."""
_TINY_MOST: Final = 10_000
"""Frames that may be smaller, a connection."""
_GOAWAY: Final = 7
_LEFT_OUT: Final = frozenset(
    {b"host", b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}
)


class Http2Connection(httpcore2.AsyncConnectionInterface):
    """One connection; `start` comes first.

    Args:
        origin: What it leads to.
        wire: Its bytes; closed with it.
        idle: Seconds that it is kept without a request, or None.
    """

    def __init__(self, origin: httpcore2.Origin, wire: Wire, *, idle: float | None) -> None:
        self._origin = origin
        self._wire = wire
        self._idle = idle
        self._h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=True, header_encoding=None, validate_inbound_headers=False)
        )
        self._h2.local_settings = h2.settings.Settings(
            client=True,
            initial_values={
                h2.settings.SettingCodes.ENABLE_PUSH: 0,
                h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW,
                h2.settings.SettingCodes.MAX_HEADER_LIST_SIZE: 65_536,
            },
        )
        self._streams: dict[int, Stream] = {}
        self._in = bytearray()
        self._out = bytearray()
        self._writing = trio.Lock()
        self._has_out = trio.Event()
        self._changed = trio.Event()
        self._settled = False
        self._last: float = math.inf  # the last stream that the server answers
        self._why = ""  # what it said about that
        self._dead: httpx2.TransportError | None = None
        self._served = 0
        self._owed = 0
        self._frames = 0
        self._bytes = 0
        self._expires: float | None = None
        self._posted = 0
        self._forced = 0
        self._gone = 0  # of what was posted, this much has surely left
        self._scopes: list[trio.CancelScope] = []

    def start(self, nursery: trio.Nursery) -> None:
        """Begin; the tasks end with the connection.

        Args:
            nursery: Where they run.
        """
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(_CONNECTION_WINDOW - 65_535)
        self._post()
        self._rest()
        nursery.start_soon(self._read)
        nursery.start_soon(self._write)

    # -- a request

    async def handle_async_request(self, request: httpcore2.Request) -> httpcore2.Response:
        body = await request_body(request)
        stream = await self._open(request, body)
        try:
            await self._send_body(stream, memoryview(body))
            while not stream.status and not stream.over:
                await stream.change()
            if stream.refused:
                raise not_taken(request, "the server refused the request twice, without having looked at it")
            if not stream.status:
                if request.extensions.get(SAFE) and self._dead is not None:
                    raise not_taken(request, str(self._dead))
                raise stream.error or httpx2.RemoteProtocolError("the server ended the stream without an answer")
        except BaseException:
            self._leave(stream)
            raise
        answer = AnswerBody(partial(self.next, stream), partial(self.leave, stream))
        return httpcore2.Response(
            stream.status,
            headers=stream.fields,
            content=answer,
            extensions={"http_version": b"HTTP/2", BODY: answer, "stream_id": stream.id},
        )

    async def _open(self, request: httpcore2.Request, body: bytes) -> Stream:
        await trio.lowlevel.checkpoint_if_cancelled()
        while self._usable() and not self._settled and self._streams:
            # How many at once the server has not said yet. The first request does not wait for that.
            await self._changed.wait()
        if not self.is_available():
            if self._served or self._streams:
                raise httpcore2.ConnectionNotAvailable
            raise not_taken(request, str(self._dead or "the server takes no request on new connections"))
        headers = [
            (b":method", request.method),
            (b":authority", next((value for key, value in request.headers if key.lower() == b"host"), b"")),
            (b":scheme", request.url.scheme),
            (b":path", request.url.target),
        ]
        headers += [(name.lower(), value) for name, value in request.headers if name.lower() not in _LEFT_OUT]
        try:
            stream = Stream(self._h2.get_next_available_stream_id())
            self._h2.send_headers(stream.id, headers, end_stream=not body)
        except h2.exceptions.NoAvailableStreamIDError:
            self._last = 0
            raise httpcore2.ConnectionNotAvailable from None
        except h2.exceptions.ProtocolError as exc:
            # Its text may hold a header.
            raise httpx2.LocalProtocolError(f"the request cannot be sent: {type(exc).__name__}") from None
        self._streams[stream.id] = stream
        self._expires = None
        self._post()
        self._sent(stream, not body)
        return stream

    async def _send_body(self, stream: Stream, body: memoryview) -> None:
        # An answer that comes early ends it: the server does not want the rest.
        while body and not stream.over:
            try:
                room = min(self._h2.local_flow_control_window(stream.id), self._h2.max_outbound_frame_size)
                if room <= 0 or len(self._out) >= _OUT:
                    await stream.change()
                    continue
                self._h2.send_data(stream.id, body[:room].tobytes(), end_stream=len(body) <= room)
            except h2.exceptions.ProtocolError as exc:
                stream.fail(httpx2.RemoteProtocolError(f"the stream broke: {type(exc).__name__}"))
                return
            body = body[room:]
            self._post()
            self._sent(stream, not body)

    def _sent(self, stream: Stream, whole: bool) -> None:
        if whole:
            stream.sent, stream.sent_at = True, self._posted

    async def next(self, stream: Stream) -> bytes:
        """The next piece of the body of an answer; none at its end."""
        while not stream.body and not stream.over:
            await stream.change()
        if not stream.body and not stream.ended:
            raise stream.error or httpx2.RemoteProtocolError("the server gave up the stream")
        chunk = bytes(stream.body)
        stream.body.clear()
        if stream.owed >= _WINDOW // 4 and not stream.over and self._dead is None:
            self._h2.increment_flow_control_window(stream.owed, stream.id)
            stream.owed = 0
            self._post()
        return chunk

    def leave(self, stream: Stream) -> None:
        """The answer is not needed any more. The server is told, unless it has said everything."""
        if stream.id in self._streams:
            self._served += 1
        self._leave(stream)

    def _leave(self, stream: Stream) -> None:
        if self._streams.pop(stream.id, None) is None:
            return
        if self._dead is None and not stream.refused and not (stream.sent and stream.ended):
            try:
                self._h2.reset_stream(stream.id, h2.errors.ErrorCodes.CANCEL)
                self._post()
            except h2.exceptions.ProtocolError:
                pass  # it is closed on both sides
        self._wake()
        self._rest()

    def _rest(self) -> None:
        if self._idle is not None and not self._streams:
            self._expires = time.monotonic() + self._idle

    # -- what comes

    async def _read(self) -> None:
        with self._task():
            try:
                while data := await self._wire.receive():
                    for frame in self._cut(data):
                        self._take(frame)
                    self._forced += self._post()
                    if self._forced > _FORCED:
                        self._end(httpx2.WriteError("the server does not read what it makes the client say"))
                self._end(httpx2.RemoteProtocolError(f"the server closed the connection{self._why}"))
            except httpx2.TransportError as exc:
                self._end(exc)
            except Exception as exc:
                # Whatever h2 and hpack make of a peer that does not keep to the protocol; the texts hold numbers and names.
                self._post()
                await self._drain()
                self._end(
                    httpx2.RemoteProtocolError(f"the server does not keep to HTTP/2: {type(exc).__name__}: {exc}")
                )
            finally:
                self._end(httpx2.ReadError("the client was closed"))

    def _cut(self, data: bytes) -> Iterator[bytes]:
        """Whole frames, one by one: what a bad one makes of the connection does not touch those before it."""
        self._in += data
        at, most = 0, self._h2.max_inbound_frame_size
        while len(self._in) - at >= 9:
            length = int.from_bytes(self._in[at : at + 3], "big")
            if length > most:
                raise httpx2.RemoteProtocolError(f"the server does not speak HTTP/2: a frame of {length} bytes")
            if len(self._in) - at < 9 + length:
                break
            yield bytes(self._in[at : at + 9 + length])
            at += 9 + length
        del self._in[:at]

    def _take(self, frame: bytes) -> None:
        if frame[3] == _GOAWAY and len(frame) >= 17:
            self._go_away(int.from_bytes(frame[9:13], "big") & 0x7FFFFFFF, int.from_bytes(frame[13:17], "big"))
            return
        for event in self._h2.receive_data(frame):
            self._hear(event)

    def _go_away(self, last: int, code: int) -> None:
        self._last = min(self._last, last)
        self._why = f" ({code_name(code)})" if code else self._why
        error = httpx2.RemoteProtocolError(f"the server ended the connection ({code_name(code)})")
        for stream in list(self._streams.values()):
            if stream.id > self._last:
                stream.fail(error, refused=True)
        self._wake()

    def _hear(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.RemoteSettingsChanged | h2.events.WindowUpdated):
            self._settled = self._settled or isinstance(event, h2.events.RemoteSettingsChanged)
            self._wake()
            return
        stream = self._streams.get(getattr(event, "stream_id", None) or 0)
        if isinstance(event, h2.events.DataReceived):
            self._count(event.flow_controlled_length or 0)
        if stream is None or stream.over:
            return
        if isinstance(event, h2.events.ResponseReceived):
            stream.begin(event.headers or [])
        elif isinstance(event, h2.events.DataReceived):
            stream.body += event.data or b""
            stream.got += len(event.data or b"")
            stream.owed += event.flow_controlled_length or 0
        elif isinstance(event, h2.events.StreamEnded):
            stream.ended = True
        elif isinstance(event, h2.events.StreamReset):
            code = int(event.error_code or 0)
            stream.sent = True  # nothing more goes out on it
            stream.fail(
                httpx2.RemoteProtocolError(f"the server reset the stream ({code_name(code)})"),
                refused=code == h2.errors.ErrorCodes.REFUSED_STREAM,
            )
        stream.wake()

    def _count(self, size: int) -> None:
        self._frames += 1
        self._bytes += size
        if self._frames > _TINY_MOST + self._bytes // _TINY:
            raise httpx2.RemoteProtocolError("the server sends an answer in too small pieces")
        # The connection has room whether or not somebody takes the answer; each stream has its own.
        self._owed += size
        if self._owed >= _CONNECTION_WINDOW // 4:
            self._h2.increment_flow_control_window(self._owed)
            self._owed = 0

    # -- what goes

    def _task(self) -> trio.CancelScope:
        scope = trio.CancelScope()
        self._scopes.append(scope)
        if self._dead is not None:
            scope.cancel()
        return scope

    def _post(self) -> int:
        data = self._h2.data_to_send()
        self._out += data
        self._posted += len(data)
        if self._out:
            self._has_out.set()
        return len(data)

    async def _write(self) -> None:
        with self._task():
            while self._dead is None:
                await self._has_out.wait()
                self._has_out = trio.Event()
                await self._drain()
                if self._wire.broken:
                    self._give_up_unsent()
                    # What has come is still read, to the end, which is near.
                    await trio.sleep(_PATIENCE)
                    self._end(httpx2.WriteError("the connection broke"))

    def _give_up_unsent(self) -> None:
        """Requests that have not left as a whole cannot have been run, so they may go to another connection.

        A piece is at most one record of TLS, which is read as a whole or not at all.
        """
        for stream in list(self._streams.values()):
            if stream.sent_at > self._gone:
                stream.fail(httpx2.WriteError("the connection broke while the request was sent"), refused=True)
        self._wake()

    async def _drain(self) -> None:
        async with self._writing:
            while self._out and self._dead is None and not self._wire.broken:
                piece = bytes(self._out[:_PIECE])
                del self._out[:_PIECE]
                # What has been taken out belongs to all streams, so it goes out even if the client is being cancelled.
                with trio.move_on_after(_STALL, shield=True) as patience:
                    await self._wire.send(piece)
                if patience.cancelled_caught:
                    self._end(httpx2.WriteTimeout(f"the server took nothing for {_STALL:g} s"))
                elif not self._wire.broken:
                    self._gone += len(piece)
                    self._forced = min(self._forced, len(self._out))
                    if len(self._out) < _OUT:
                        self._wake()

    def _end(self, error: httpx2.TransportError) -> None:
        if self._dead is not None:
            return
        self._dead = error
        for stream in list(self._streams.values()):
            stream.fail(error)
        self._wire.close()
        self._has_out.set()
        for scope in self._scopes:
            scope.cancel()
        self._wake()

    def _wake(self) -> None:
        """Something has changed that many may wait for: room, settings, the end."""
        self._changed.set()
        self._changed = trio.Event()
        for stream in self._streams.values():
            stream.wake()

    # -- what the pool asks

    def _usable(self) -> bool:
        return self._dead is None and self._last == math.inf and not self._wire.broken

    async def aclose(self) -> None:
        if self._dead is None:
            try:
                self._h2.close_connection()
                self._post()
            except h2.exceptions.ProtocolError:
                pass
            with trio.move_on_after(_PATIENCE, shield=True):
                await self._drain()
        self._end(httpx2.ReadError("the client was closed"))
        await trio.lowlevel.checkpoint_if_cancelled()

    def can_handle_request(self, origin: httpcore2.Origin) -> bool:
        return origin == self._origin

    def can_multiplex(self) -> bool:
        return True

    def is_available(self) -> bool:
        # Where the server takes no more at once, another connection may.
        most = min(_STREAMS, self._h2.remote_settings.max_concurrent_streams)
        return self._usable() and (not self._settled or len(self._streams) < most)

    def has_expired(self) -> bool:
        # After GOAWAY it is kept for the streams that are answered yet.
        return not self._streams and (
            self._last < math.inf or (self._expires is not None and time.monotonic() > self._expires)
        )

    def is_idle(self) -> bool:
        return not self._streams

    def is_closed(self) -> bool:
        return self._dead is not None

    def info(self) -> str:
        return f"HTTP/2, {self._served} requests"
