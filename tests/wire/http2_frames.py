"""A client of HTTP/2 made of single frames, for the tests of the server's half."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import hpack

from trio_mcp.limits import DEFAULT, Limits
from trio_mcp.wire.http2 import Http2
from trio_mcp.wire.http2_library import PREFACE

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY_FLAG = 1, 1, 4, 8, 32
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR, _, STREAM_CLOSED, FRAME_SIZE_ERROR = range(7)
REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, CONNECT_ERROR, ENHANCE_YOUR_CALM = range(7, 12)

Fields = list[tuple[bytes, bytes]]

GET: Fields = [(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/mcp"), (b":authority", b"localhost")]
POST: Fields = [(b":method", b"POST"), *GET[1:]]


def frame(kind: int, flags: int, stream: int, payload: bytes = b"", *, length: int | None = None) -> bytes:
    size = len(payload) if length is None else length
    return size.to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def block(fields: Fields) -> bytes:
    """Fields without the use of a table, so that blocks do not depend on each other."""
    out = b""
    for name, value in fields:
        assert len(name) < 127 and len(value) < 127
        out += b"\x00" + bytes((len(name),)) + name + bytes((len(value),)) + value
    return out


def head(stream: int, fields: Fields = POST, *, end: bool = False) -> bytes:
    return frame(HEADERS, END_HEADERS | (END_STREAM if end else 0), stream, block(fields))


def settings(*pairs: tuple[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(n.to_bytes(2, "big") + v.to_bytes(4, "big") for n, v in pairs))


def update(stream: int, size: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, size.to_bytes(4, "big"))


def rst(stream: int, code: int = CANCEL) -> bytes:
    return frame(RST_STREAM, 0, stream, code.to_bytes(4, "big"))


START = PREFACE + settings()


def server(start: bytes = START, **limits: Any) -> Http2:
    """The server's half, behind the start of a client, with what it says at first taken."""
    one = Http2(replace(DEFAULT, **limits) if limits else Limits(), 0.0)
    assert one.receive(start, 0.0) == []
    one.take(0.0)
    return one


def frames(data: bytes) -> list[tuple[int, int, int, bytes]]:
    """Type, flags, stream and payload of each frame."""
    out = []
    while data:
        size = int.from_bytes(data[:3], "big")
        assert len(data) >= 9 + size
        out.append((data[3], data[4], int.from_bytes(data[5:9], "big"), data[9 : 9 + size]))
        data = data[9 + size :]
    return out


def said(data: bytes) -> list[tuple[str, int]]:
    """The errors in what the server sent: ("GOAWAY", code) and ("RST 1", code)."""
    out = []
    for kind, _, stream, payload in frames(data):
        if kind == GOAWAY:
            out.append(("GOAWAY", int.from_bytes(payload[4:8], "big")))
        elif kind == RST_STREAM:
            out.append((f"RST {stream}", int.from_bytes(payload, "big")))
    return out


def fields_of(payload: bytes) -> Fields:
    return [(bytes(name), bytes(value)) for name, value in hpack.Decoder().decode(payload, raw=True)]
