"""The messages that the load sends, as bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

__all__ = ["TEXT", "CallTemplate", "PostTemplate", "cancelled", "request"]

PROTOCOL_VERSION: Final = "2026-07-28"
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


def request(id: int, method: str, params: dict[str, Any] | None = None) -> bytes:
    """A request as one line, with the `_meta` that every request needs."""
    return _line({"jsonrpc": "2.0", "id": id, "method": method, "params": {**(params or {}), "_meta": _META}})


def cancelled(id: int) -> bytes:
    """`notifications/cancelled` for a request, as one line."""
    return _line({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})


class CallTemplate:
    """One tool call, ready but for its id: so that the load's own work per call is small."""

    def __init__(self, tool: str, arguments: dict[str, Any]) -> None:
        mark = 987_654_321
        line = request(mark, "tools/call", {"name": tool, "arguments": arguments})
        self._head, self._tail = line.split(b"%d" % mark)

    def line(self, id: int) -> bytes:
        """The call with this id, as one line."""
        return b"%b%d%b" % (self._head, id, self._tail)


class PostTemplate:
    """One request over HTTP, ready but for its id, which has nine digits: the length of the body is written already.

    Args:
        method: The method of the protocol.
        params: Its parameters.
        token: Whether to ask for progress.
    """

    def __init__(self, method: str, params: dict[str, Any] | None = None, *, token: bool = False) -> None:
        mark = 987_654_321
        meta = {**_META, "progressToken": "p"} if token else _META
        body = _text({"jsonrpc": "2.0", "id": mark, "method": method, "params": {**(params or {}), "_meta": meta}})
        name = f"Mcp-Name: {params['name']}\r\n" if params and "name" in params else ""
        self._head = (
            "POST /mcp HTTP/1.1\r\n"
            "Host: 127.0.0.1:PORT\r\n"
            "Accept: application/json, text/event-stream\r\n"
            "Content-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n"
            f"MCP-Protocol-Version: {PROTOCOL_VERSION}\r\n"
            f"Mcp-Method: {method}\r\n"
            f"{name}\r\n"
        ).encode()
        head, self._tail = body.split(b"%d" % mark)
        self._head += head

    def to(self, port: int) -> Callable[[int], bytes]:
        """The request to a server at this port, as a function of a number: its id is 100,000,000 + that."""
        head, tail = self._head.replace(b":PORT\r\n", b":%d\r\n" % port, 1), self._tail
        return lambda number: b"%b%d%b" % (head, 100_000_000 + number, tail)
