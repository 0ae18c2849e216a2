"""The messages that the load sends, as bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

__all__ = [
    "ACK",
    "DATA",
    "END_STREAM",
    "GOAWAY",
    "HEADERS",
    "PING",
    "RST_STREAM",
    "SETTINGS",
    "TEXT",
    "WINDOW_UPDATE",
    "CallTemplate",
    "PostTemplate",
    "cancelled",
    "delete",
    "frame_start",
    "hello",
    "initialized",
    "post",
    "request",
]

PROTOCOL_VERSION: Final = "2026-07-28"
LEGACY: Final = "2025-11-25"
"""The revision with sessions that is measured."""
TEXT: Final = "the quick brown fox jumps over it"
"""What `echo` gets and must give back."""

_META: Final = {
    "io.modelcontextprotocol/protocolVersion": PROTOCOL_VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "benchmarks", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def _text(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


def _line(message: dict[str, Any]) -> bytes:
    return _text(message) + b"\n"


def request(id: int, method: str, params: dict[str, Any] | None = None, *, legacy: bool = False) -> bytes:
    """A request as one line, with the `_meta` that every request needs; in a session none does."""
    meta = {} if legacy else {"_meta": _META}
    return _line({"jsonrpc": "2.0", "id": id, "method": method, "params": {**(params or {}), **meta}})


def hello(id: int) -> bytes:
    """`initialize`, as one line."""
    params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "benchmarks", "version": "1"}}
    return request(id, "initialize", params, legacy=True)


def initialized() -> bytes:
    """`notifications/initialized`, as one line."""
    return _line({"jsonrpc": "2.0", "method": "notifications/initialized"})


def cancelled(id: int) -> bytes:
    """`notifications/cancelled` for a request, as one line."""
    return _line({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})


class CallTemplate:
    """One tool call, ready but for its id: so that the load's own work per call is small."""

    def __init__(self, tool: str, arguments: dict[str, Any], *, legacy: bool = False) -> None:
        mark = 987_654_321
        line = request(mark, "tools/call", {"name": tool, "arguments": arguments}, legacy=legacy)
        self._head, self._tail = line.split(b"%d" % mark)

    def line(self, id: int) -> bytes:
        """The call with this id, as one line."""
        return b"%b%d%b" % (self._head, id, self._tail)


_POST: Final = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


def _in_session(session: str) -> dict[str, str]:
    return {"MCP-Protocol-Version": LEGACY, "Mcp-Session-Id": session}


def _http_head(verb: str, port: int, fields: Mapping[str, str]) -> bytes:
    lines = [f"{verb} /mcp HTTP/1.1", f"Host: 127.0.0.1:{port}", *(f"{k}: {v}" for k, v in fields.items())]
    return "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n"


def post(port: int, line: bytes, session: str | None = None) -> bytes:
    """One line as a POST, in a session or without."""
    fields = {**_POST, "Content-Length": str(len(line))}
    return _http_head("POST", port, fields if session is None else {**fields, **_in_session(session)}) + line


def delete(port: int, session: str) -> bytes:
    """`DELETE` of a session."""
    return _http_head("DELETE", port, _in_session(session))


class PostTemplate:
    """One request over HTTP, ready but for its id, which has nine digits: the length of the body is written already.

    Args:
        method: The method of the protocol.
        params: Its parameters.
        token: Whether to ask for progress.
        session: The id of the session that it belongs to, in the revisions that have some.
    """

    def __init__(
        self, method: str, params: dict[str, Any] | None = None, *, token: bool = False, session: str | None = None
    ) -> None:
        mark = 987_654_321
        meta = {} if session is not None else _META
        if token:
            meta = {**meta, "progressToken": "p"}
        whole = {**(params or {}), "_meta": meta} if meta else params or {}
        body = _text({"jsonrpc": "2.0", "id": mark, "method": method, "params": whole})
        self._length = len(body)
        self._fields = {**_POST, "Content-Length": str(len(body))}
        if session is not None:
            self._fields |= _in_session(session)
        else:
            self._fields |= {"MCP-Protocol-Version": PROTOCOL_VERSION, "Mcp-Method": method}
            if params and "name" in params:
                self._fields["Mcp-Name"] = params["name"]
        self._head, self._tail = body.split(b"%d" % mark)

    def to(self, port: int) -> Callable[[int], bytes]:
        """The request to a server at this port, as a function of a number: its id is 100,000,000 + that."""
        head = _http_head("POST", port, self._fields) + self._head
        tail = self._tail
        return lambda number: b"%b%d%b" % (head, 100_000_000 + number, tail)

    def frames(self, port: int) -> Callable[[int, int], bytes]:
        """The same over HTTP/2, as a function of the number and of the stream: one HEADERS and one DATA frame."""
        # Fields 3 and 6 of the static table (:method POST, :scheme http), then literals that nobody has to remember.
        block = b"\x83\x86" + _literal(b"\x04", "/mcp") + _literal(b"\x01", f"127.0.0.1:{port}")
        for name, value in self._fields.items():
            block += _literal(_literal(b"\x00", name.lower()), value)
        start, between = frame_start(len(block), HEADERS, END_HEADERS), frame_start(self._length, DATA, END_STREAM)
        head, tail = self._head, self._tail

        def frames(number: int, stream: int) -> bytes:
            on = stream.to_bytes(4)
            return b"%b%b%b%b%b%b%d%b" % (start, on, block, between, on, head, 100_000_000 + number, tail)

        return frames


DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4


def frame_start(length: int, kind: int, flags: int = 0) -> bytes:
    """The first five bytes of an HTTP/2 frame (RFC 9113, section 4.1); the number of the stream comes next."""
    return length.to_bytes(3) + bytes((kind, flags))


def _literal(before: bytes, text: str) -> bytes:
    """A string of HPACK (RFC 7541, section 5.2) without Huffman coding, behind what says whose it is."""
    assert len(text) < 127
    return before + bytes((len(text),)) + text.encode()
