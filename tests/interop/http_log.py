"""What goes over HTTP, written down in the form of `tap.py`: one JSON object a line.

`tap` is one HTTP connection, or one stream of it: with HTTP/2 each request is alone on its stream. A line with
`"closed": true` says that the client closed it, which calls off what is still unanswered there.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2

__all__ = ["Body", "HttpLog", "RecordingTransport"]


class HttpLog:
    """A log file, opened for appending: several processes may write to one."""

    def __init__(self, path: Path | str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._count = itertools.count(1)

    def new_tap(self) -> int:
        """A number for a connection that no other process gives."""
        return os.getpid() * 1_000_000 + next(self._count)

    def write(self, tap: int, sender: str, message: bytes) -> None:
        """Write down a message."""
        self._write(tap, sender, {"line": message.decode(errors="backslashreplace")})

    def close_tap(self, tap: int) -> None:
        """Write down that the client closed a connection or a stream."""
        self._write(tap, "client", {"line": "", "closed": True})

    def _write(self, tap: int, sender: str, more: dict[str, Any]) -> None:
        entry = {"sender": sender, "ns": time.monotonic_ns(), "tap": tap, **more}
        os.write(self._file, json.dumps(entry).encode() + b"\n")


class Body:
    """Cuts the body of a response into messages, by its media type; other media have none.

    This is written again, and not taken from `trio_mcp`, because that is what is tested.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind.partition(";")[0].strip().lower()
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Take more of the body; the messages that it completes."""
        self._rest += data
        if self._kind != "text/event-stream":
            return []
        *events, self._rest = self._rest.replace(b"\r\n", b"\n").split(b"\n\n")
        return [data for event in events if (data := self._data(event))]

    def end(self) -> list[bytes]:
        """The body is complete: the message of a plain answer."""
        return [self._rest] if self._kind == "application/json" and self._rest else []

    @staticmethod
    def _data(event: bytes) -> bytes:
        lines = (line.removeprefix(b"data:") for line in event.split(b"\n") if line.startswith(b"data:"))
        return b"\n".join(line.removeprefix(b" ") for line in lines)


class RecordingTransport(httpx2.AsyncBaseTransport):
    """Sends requests as another transport does, and writes down what goes both ways.

    Args:
        inner: Does the work.
        log: Where to write.
        version: The version of HTTP that every answer must have come in.
    """

    def __init__(self, inner: httpx2.AsyncBaseTransport, log: HttpLog, version: str) -> None:
        self._inner = inner
        self._log = log
        self._version = version

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        tap = self._log.new_tap()
        self._log.write(tap, "client", await request.aread())
        response = await self._inner.handle_async_request(request)
        assert response.http_version == self._version, response.http_version
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        body = Body(response.headers.get("content-type", ""))
        response.stream = _RecordingStream(response.stream, body, self._log, tap)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _RecordingStream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, body: Body, log: HttpLog, tap: int) -> None:
        self._inner = inner
        self._body = body
        self._log = log
        self._tap = tap

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            self._note(self._body.feed(chunk))
            yield chunk
        self._note(self._body.end())

    def _note(self, messages: list[bytes]) -> None:
        for message in messages:
            self._log.write(self._tap, "server", message)

    async def aclose(self) -> None:
        self._log.close_tap(self._tap)
        await self._inner.aclose()
