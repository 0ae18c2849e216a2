"""HTTP/2 for the client: leaving a response resets its stream.

That is what cancels the work on the server (basic/transports/streamable-http, section Cancellation), and httpcore2 leaves it
out: it forgets the stream and lets the server go on. Its private names stay in this module; `tests/net/test_http.py` notices
when the reset is not sent.
"""

from __future__ import annotations

from typing import Any, Final

import h2.errors
import h2.exceptions
import httpcore2._async.http2 as http2
import trio

__all__ = ["install"]

_PATIENCE: Final = 1.0
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


def install() -> None:
    """Have httpcore2 reset streams that are left."""
    http2.AsyncHTTP2Connection._response_closed = _response_closed  # type: ignore[method-assign]
