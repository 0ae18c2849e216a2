"""The messages that the load sends, as bytes."""

from __future__ import annotations

import json
from typing import Any, Final

__all__ = ["TEXT", "CallTemplate", "cancelled", "request"]

PROTOCOL_VERSION: Final = "2026-07-28"
TEXT: Final = "the quick brown fox jumps over it"
"""What `echo` gets and must give back."""

_META: Final = {
    "io.modelcontextprotocol/protocolVersion": PROTOCOL_VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "benchmarks", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


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
