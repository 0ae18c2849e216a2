"""HTTP/2, one connection, by Hypercorn's protocol code, contained.

Hypercorn parses HTTP/2 and calls the endpoint through ASGI. It is given one connection at a time: a stream that bounds what
it does not, a context of its own, and a nursery whose errors end at the edge. Hypercorn's private names (`TCPServer`,
`WorkerContext`, `ASGIWrapper`, `protocol.h2.StreamBuffer`) are used in this module only, and `tests/net/test_h2.py` holds them
to what is expected of them.
"""

from __future__ import annotations

import logging
from typing import Any, Final

import h2.errors
import h2.events
import h2.exceptions
import hypercorn.events as connection_events
import hypercorn.protocol as hypercorn_protocol
import hypercorn.protocol.events as hypercorn_events
import hypercorn.protocol.h2 as hypercorn_h2
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import EventWrapper, WorkerContext

from .asgi import HttpApp
from .endpoint import Endpoint

__all__ = ["H2Connection"]

logger: logging.Logger = logging.getLogger("trio_mcp.server.http")

_LOW_WATER: Final = 16_384


class _Buffer(hypercorn_h2.StreamBuffer):
    """The buffer of one HTTP/2 stream, with back-pressure that works.

    Hypercorn wakes a waiting writer whenever little was taken out, so one whose peer never opens its window is never
    held back. What counts is what remains.
    """

    async def pop(self, max_length: int) -> bytes:
        length = min(len(self.buffer), max_length)
        data = bytes(self.buffer[:length])
        del self.buffer[:length]
        if len(self.buffer) < _LOW_WATER:
            await self._paused.set()
        if not self.buffer:
            await self._is_empty.set()
        return data


hypercorn_h2.StreamBuffer = _Buffer  # type: ignore[misc]


class _Protocol(hypercorn_h2.H2Protocol):
    """Hypercorn's HTTP/2 without the inputs that it does not survive."""

    async def _handle_events(self, events: list[h2.events.Event]) -> None:
        at = 0
        for index, event in enumerate(events):
            # What holds for an event is known when those before it have been handled, which takes a while.
            if isinstance(event, h2.events.RequestReceived | h2.events.DataReceived | h2.events.PriorityUpdated):
                await super()._handle_events(events[at:index])
                at = index if self._takes(event) else index + 1
        await super()._handle_events(events[at:])

    def _takes(self, event: h2.events.Event) -> bool:
        """Whether Hypercorn can have an event; otherwise it is dealt with."""
        if isinstance(event, h2.events.RequestReceived):
            if not _sound(event.headers):
                return self._refuse(event.stream_id, h2.errors.ErrorCodes.PROTOCOL_ERROR)
            if self.context.terminated.is_set():
                # Hypercorn does the same, and does not survive a stream that its client has reset meanwhile.
                return self._refuse(event.stream_id, h2.errors.ErrorCodes.REFUSED_STREAM)
        elif isinstance(event, h2.events.DataReceived) and event.stream_id not in self.streams:
            # On its way when the answer was complete; it counts for the window of the connection.
            self.connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            return False
        # Priorities are deprecated (RFC 9113, section 5.3.2), and a tree that a client can fill.
        return not isinstance(event, h2.events.PriorityUpdated)

    def _refuse(self, stream_id: int, code: h2.errors.ErrorCodes) -> bool:
        try:
            self.connection.reset_stream(stream_id, code)
        except h2.exceptions.StreamClosedError:
            pass  # its client was quicker
        return False

    async def handle(self, event: connection_events.Event) -> None:
        await super().handle(event)
        if isinstance(event, connection_events.Closed):
            # Nobody empties these any more, and an answer may wait for it.
            for buffer in list(self.stream_buffers.values()):
                await buffer.close()

    async def stream_send(self, event: hypercorn_events.Event) -> None:
        if self.closed and not isinstance(event, hypercorn_events.StreamClosed):
            return
        if isinstance(event, hypercorn_events.StreamClosed):
            # Closing the connection before the end of the last stream is written would cut its answer off.
            buffer = self.stream_buffers.get(event.stream_id)
            while not self.closed and buffer is not None and self.stream_buffers.get(event.stream_id) is buffer:
                if not buffer.complete:
                    break
                await trio.sleep(0.001)
        await super().stream_send(event)


def _sound(headers: list[tuple[bytes, bytes]]) -> bool:
    fields = dict(headers)
    method, path = fields.get(b":method", b""), fields.get(b":path", b"")
    return bool(method) and bool(path) and method.isascii() and path.isascii() and method.upper() != b"CONNECT"


hypercorn_protocol.H2Protocol = _Protocol  # type: ignore[attr-defined]


def _config(endpoint: Endpoint) -> Config:
    limits = endpoint.limits
    config = Config()
    config.errorlog = None
    config.accesslog = None
    config.include_server_header = False
    config.keep_alive_timeout = limits.idle_timeout
    # At its default of 1,000 the request after it loses every answer that is under way.
    config.keep_alive_max_requests = 2**31 - 1
    config.h2_max_header_list_size = limits.head_bytes
    config.max_app_queue_size = 2
    return config


class _Guard(trio.abc.Stream):
    """The stream under Hypercorn: replays what was read, bounds a write that makes no progress, hears the end first.

    Hypercorn shields its writes from cancellation; the deadline in here is inside the shield, so it works.
    """

    def __init__(self, stream: Any, first: bytes, stall: float, at_end: Any) -> None:
        self._stream = stream
        self._first = first
        self._stall = stall
        self._at_end = at_end
        self.socket = getattr(stream, "socket", None) or stream.transport_stream.socket

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        if self._first:
            data, self._first = self._first, b""
            await trio.lowlevel.checkpoint()
            return data
        try:
            data = bytes(await self._stream.receive_some(max_bytes))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._at_end()
            raise
        if not data:
            self._at_end()
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        with trio.move_on_after(self._stall):
            try:
                await self._stream.send_all(data)
            except trio.BrokenResourceError:
                self._at_end()
                raise
            return
        self._at_end()
        raise trio.BrokenResourceError("the peer does not read")

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        if hasattr(self._stream, "send_eof"):
            await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Terminated(EventWrapper):
    """Hypercorn's "finish and close" button, to be pressed from sync code."""

    def press(self) -> None:
        self._event.set()


class H2Connection:
    """One HTTP/2 connection.

    Args:
        stream: The bytes; closed at the end of `run`.
        endpoint: Answers.
        first: What was read of it already.
    """

    def __init__(self, stream: Any, endpoint: Endpoint, first: bytes) -> None:
        self._stream = stream
        self._endpoint = endpoint
        self._first = first
        self._terminated = _Terminated()
        self._context = WorkerContext(None)
        self._context.terminated = self._terminated

    async def run(self) -> None:
        """Serve until either side ends. Errors of Hypercorn come out; the edge contains them."""
        guard = _Guard(self._stream, self._first, self._endpoint.limits.write_stall, self._terminated.press)
        app: Any = HttpApp.of(self._endpoint)
        stream: Any = guard
        # Hypercorn tells by the preface of the client that it is HTTP/2, with TLS as without.
        await TCPServer(ASGIWrapper(app), _config(self._endpoint), self._context, {}, stream)

    def drain(self) -> None:
        """Finish what is being answered and close; at once when nothing is."""
        self._terminated.press()

    def abandon(self) -> None:
        """The edge closes the socket, and Hypercorn hears that."""
        self._terminated.press()
