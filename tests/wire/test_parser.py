"""What httptools would let pass in another version: here, with all its leniencies."""

from __future__ import annotations

import pytest

from trio_mcp.protocol.http import Refusal
from trio_mcp.wire.http1 import Complete, Connection, Event

from .helpers import LIMITS, feed

LENIENT = dict.fromkeys(
    [
        "lenient_headers",
        "lenient_chunked_length",
        "lenient_keep_alive",
        "lenient_transfer_encoding",
        "lenient_data_after_close",
        "lenient_optional_lf_after_cr",
        "lenient_optional_cr_before_lf",
        "lenient_optional_crlf_after_chunk",
        "lenient_spaces_after_chunk_size",
    ],
    True,
)
POST = b"POST /mcp HTTP/1.1\r\nHost: a\r\n"
SMUGGLED = POST + b"X: smuggled\r\n\r\n"


def read(data: bytes) -> list[Event]:
    connection = Connection(LIMITS)
    assert connection._parser is not None
    connection._parser._parser.set_dangerous_leniencies(**LENIENT)
    return feed(connection, data)


@pytest.mark.parametrize(
    "data",
    [
        b"POST /mcp HTTP/1.1\nHost: a\n\n",
        b"POST  /mcp HTTP/1.1\r\nHost: a\r\n\r\n",
        POST + b"\n",
        POST + b"a: b\nc: d\r\n\r\n",
        POST + b"a: b\rc: d\r\n\r\n",
        POST + b"a: b\r\n c\r\n\r\n",
        POST + b"a: \x01\r\n\r\n",
        POST + b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 5\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nTransfer-Encoding: gzip\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\n0\n\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\na: b\n\n",
    ],
)
def test_nothing_is_smuggled_in_however_lenient_it_is(data: bytes) -> None:
    events = read(data + SMUGGLED)
    refusal = events[-1].request.refusal
    assert isinstance(refusal, Refusal)
    assert refusal.status == 400
    assert [event for event in events if isinstance(event, Complete)] == []
