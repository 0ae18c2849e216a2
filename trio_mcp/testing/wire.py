"""A peer that speaks bytes: to send a server exactly what a test wants to, and see exactly what comes back.

Everything runs in memory, so it works under `trio.testing.MockClock` in virtual time.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from ..protocol.framing import LineFramer
from ..protocol.meta import request_meta
from ..protocol.revisions import LATEST
from ..scopes.groups import unwrapped
from ..server.declare.server import Server
from ..server.serve.engine import Engine, open_engine
from ..transports.lines import serve_lines
from ..transports.link import Link
from ..transports.memory import memory_streams

__all__ = ["RawPeer", "modern_meta", "open_raw", "request"]


def modern_meta(**extra: Any) -> dict[str, Any]:
    """The `_meta` of a modern request; `extra` adds members, for instance `progressToken=1`."""
    return request_meta({"name": "test", "version": "1"}, {}, LATEST, extra=extra)


def request(id: Any, method: str, *, meta: dict[str, Any] | None = None, **params: Any) -> dict[str, Any]:
    """A request as a dict.

    Args:
        id: Its id; anything, also what is not allowed.
        method: Its method.
        meta: More members for `_meta`.
        params: Its parameters.
    """
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, "_meta": modern_meta(**(meta or {}))}}


class RawPeer:
    """The other end of a server's connection.

    Attributes:
        serving: The cancel scope around the serving of this connection.
        ended: Set when the server has left the connection.
    """

    def __init__(self, receive: trio.abc.ReceiveStream, send: trio.abc.SendStream) -> None:
        self._receive = receive
        self._send = send
        self._framer = LineFramer(1 << 30)
        self._lines: list[bytes] = []
        self.serving: trio.CancelScope = trio.CancelScope()
        self.ended: trio.Event = trio.Event()

    async def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are."""
        await self._send.send_all(data)

    async def send(self, *messages: Any) -> None:
        """Send JSON values, each as a line, in one piece."""
        await self.send_bytes(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    async def cancel(self, id: Any, **params: Any) -> None:
        """Send `notifications/cancelled`."""
        await self.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id, **params}})

    async def receive_line(self) -> bytes | None:
        """The next line; None at the end."""
        while not self._lines:
            data = await self._receive.receive_some()
            if not data:
                return None
            self._lines += [line for line in self._framer.feed(data) if isinstance(line, bytes)]
        return self._lines.pop(0)

    async def receive(self) -> Any:
        """The next message, decoded.

        Raises:
            EOFError: the server closed the connection.
        """
        line = await self.receive_line()
        if line is None:
            raise EOFError("the server closed the connection")
        return json.loads(line)

    async def receive_all(self) -> list[Any]:
        """All messages to the end of the connection."""
        out: list[Any] = []
        while (line := await self.receive_line()) is not None:
            out.append(json.loads(line))
        return out

    async def nothing_for(self, seconds: float) -> bool:
        """Whether the server stays silent for so long (in virtual time this takes none)."""
        with trio.move_on_after(seconds):
            line = await self.receive_line()
            if line is not None:
                self._lines.insert(0, line)
            return False
        return True

    async def close_input(self) -> None:
        """End what the server reads."""
        await self._send.aclose()

    async def vanish(self) -> None:
        """Close both directions at once."""
        await self._send.aclose()
        await self._receive.aclose()


@asynccontextmanager
async def open_raw(server: Server[Any] | Engine, *, pipe: int = 65_536) -> AsyncIterator[RawPeer]:
    """Serve a server in memory and give the other end of the connection.

    Args:
        server: A server, which is opened, or one that is open.
        pipe: Bytes that each direction holds.
    """
    if isinstance(server, Server):
        async with open_engine(server) as engine, open_raw(engine, pipe=pipe) as opened:
            yield opened
        return
    ours, theirs = memory_streams(pipe)
    peer = RawPeer(*ours)

    async def serve() -> None:
        try:
            with peer.serving:
                await serve_lines(server, Link(*theirs, server.limits))
        finally:
            peer.ended.set()

    with unwrapped():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            try:
                yield peer
            finally:
                nursery.cancel_scope.cancel()
