"""What is done to httpcore2's HTTP/2 in the client. That leaving a response resets its stream is in `tests/net/test_http.py`."""

from __future__ import annotations

from typing import Any

import httpcore2
import httpcore2._async.http2 as http2
import pytest
import trio
from trio.testing import MockClock

from trio_mcp.transports import http2_reset


class Wire:
    """The network under a connection; `before` runs in the middle of each write."""

    def __init__(self, before: Any) -> None:
        self._before = before
        self.written = b""

    async def write(self, data: bytes, timeout: float | None = None) -> None:
        await self._before()
        self.written += data


def connection(wire: Wire) -> Any:
    http2_reset.install()
    made: Any = http2.AsyncHTTP2Connection(httpcore2.Origin(b"https", b"localhost", 443), wire)  # type: ignore[arg-type]
    made._h2_state.initiate_connection()
    return made


async def test_a_call_that_is_cancelled_while_it_writes_takes_no_frames_of_others_with_it() -> None:
    scope = trio.CancelScope()

    async def cancelled_now() -> None:
        scope.cancel()
        await trio.lowlevel.checkpoint()

    wire = Wire(cancelled_now)
    with scope:
        await connection(wire)._write_outgoing_data(httpcore2.Request("GET", "https://localhost/"))
        await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert wire.written.startswith(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")


async def test_a_server_that_takes_nothing_ends_the_connection(autojump_clock: MockClock) -> None:
    made = connection(Wire(trio.sleep_forever))
    with pytest.raises(httpcore2.WriteTimeout, match="took nothing for 5 s"):
        await made._write_outgoing_data(httpcore2.Request("GET", "https://localhost/"))
    assert made._connection_error
