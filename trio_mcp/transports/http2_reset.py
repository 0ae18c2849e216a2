"""HTTP/2 for the client: leaving a response resets its stream, and requests overlap.

That is what cancels the work on the server (basic/transports/streamable-http, section Cancellation), and httpcore2 leaves it
out: it forgets the stream and lets the server go on. Its private names stay in this module; `tests/net/test_http.py` notices
when the reset is not sent.
"""

from __future__ import annotations

from typing import Any, Final

import h2.errors
import h2.events
import h2.exceptions
import httpcore2
import httpcore2._async.http2 as http2
import trio
from h2.settings import ChangedSetting, SettingCodes

__all__ = ["install"]

_PATIENCE: Final = 1.0
"""Seconds for a reset to go out."""
_STALL: Final = 5.0
"""Seconds for one write, of at most a frame of each stream."""
_closed: Any = http2.AsyncHTTP2Connection._response_closed


async def _response_closed(self: Any, stream_id: int) -> None:
    if stream_id in self._events:
        try:
            stream = self._h2_state.streams.get(stream_id)
            if stream is not None and not stream.closed:
                # While a scope is being cancelled: what is sent here is the cancellation.
                with trio.move_on_after(_PATIENCE, shield=True):
                    async with self._write_lock:
                        self._h2_state.reset_stream(stream_id, h2.errors.ErrorCodes.CANCEL)
                        await self._network_stream.write(self._h2_state.data_to_send(), _PATIENCE)
        except (h2.exceptions.ProtocolError, OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the connection is gone, and with it the stream
    await _closed(self, stream_id)


_written: Any = http2.AsyncHTTP2Connection._write_outgoing_data


async def _write_outgoing_data(self: Any, request: Any) -> None:
    # What is taken out to be written belongs to every stream of the connection. If the call that happens to write it is
    # cancelled in between, the others wait for ever for answers to requests that were never sent.
    with trio.move_on_after(_STALL, shield=True) as patience:
        await _written(self, request)
    if patience.cancelled_caught:
        self._write_exception = httpcore2.WriteTimeout(f"the server took nothing for {_STALL:g} s")
        self._connection_error = True
        raise self._write_exception


_settled: Any = http2.AsyncHTTP2Connection._receive_remote_settings_change


async def _receive_remote_settings_change(self: Any, event: h2.events.RemoteSettingsChanged) -> None:
    if "streams_known" not in self.__dict__:
        # The first settings of the server. One that does not say how many streams it takes takes any number (RFC 9113,
        # section 6.5.2); httpcore2 would make one request at a time on the connection, and all others wait behind it.
        self.__dict__["streams_known"] = True
        key, most = SettingCodes.MAX_CONCURRENT_STREAMS, self._h2_state.local_settings.max_concurrent_streams
        event.changed_settings.setdefault(key, ChangedSetting(key, None, most))
    await _settled(self, event)


def install() -> None:
    """Have httpcore2 reset streams that are left, write whole frames, and make several requests at once."""
    http2.AsyncHTTP2Connection._write_outgoing_data = _write_outgoing_data  # type: ignore[method-assign]
    http2.AsyncHTTP2Connection._receive_remote_settings_change = (  # type: ignore[method-assign]
        _receive_remote_settings_change
    )
    http2.AsyncHTTP2Connection._response_closed = _response_closed  # type: ignore[method-assign]
