"""The bytes under a connection of the client, plain or over TLS."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import httpcore2
import httpx2
import trio

__all__ = ["BODY", "SAFE", "AnswerBody", "Wire", "connect_reason", "reason_of", "request_body"]

BODY: Final = "trio_mcp.body"
"""In the extensions of an answer: its body, without the generators that the pool puts around it."""
SAFE: Final = "trio_mcp.safe"
"""In the extensions of a request: that it only reads, so that it may be sent again even where it may have been run."""

_READ: Final = 65_536
_NO_TLS: Final = frozenset(
    {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"}
)
"""What OpenSSL says of bytes that are no TLS, by version and by what they look like."""


def reason_of(exc: BaseException) -> str:
    """What an error of the network has to say; what TLS has to say is in a cause of a cause."""
    found: BaseException | None = exc
    while found is not None:
        if isinstance(found, ssl.SSLCertVerificationError):
            return f"certificate verify failed: {found.verify_message}"
        if str(found):
            return str(found)
        found = found.__cause__ or found.__context__
    return type(exc).__name__


def connect_reason(exc: BaseException) -> str:
    """Why there is no connection: what each address that was tried has said."""
    return ", ".join(dict.fromkeys(_connect_word(each) for each in _innermost(exc)))


def _innermost(exc: BaseException) -> Iterator[BaseException]:
    if isinstance(exc, BaseExceptionGroup):
        for each in exc.exceptions:
            yield from _innermost(each)
    elif isinstance(exc.__cause__, OSError | BaseExceptionGroup):
        yield from _innermost(exc.__cause__)
    else:
        yield exc


def _connect_word(exc: BaseException) -> str:
    if isinstance(exc, socket.gaierror) and exc.errno in (socket.EAI_NONAME, socket.EAI_NODATA):
        return "no such host"
    if isinstance(exc, TimeoutError):
        return "timed out"
    if isinstance(exc, OSError) and exc.errno and exc.errno > 0:
        return os.strerror(exc.errno).lower()  # trio puts the address before it
    strerror = exc.strerror if isinstance(exc, OSError) else None
    return strerror.lower() if strerror else reason_of(exc)


def _tls_reason(exc: BaseException) -> str:
    """Why there is no TLS, and what else the other side may speak."""
    found: BaseException | None = exc
    while found is not None:
        if isinstance(found, ssl.SSLError) and not isinstance(found, ssl.SSLCertVerificationError):
            reason = found.reason or ""
            if reason in _NO_TLS:
                return "what answers does not speak TLS; if it speaks plain HTTP, its URL begins with http://"
            if reason == "UNEXPECTED_EOF_WHILE_READING":
                return "the connection was closed in the handshake; if the server speaks plain HTTP, its URL begins with http://"
        found = found.__cause__ or found.__context__
    return reason_of(exc)


class _Tolerant(trio.abc.Stream):
    """A socket under TLS whose end is heard by reading.

    When a write fails, trio's TLS gives up the reading side as well, and with it an answer that has come already. So here
    a write never fails; it only notes that nothing goes out any more.
    """

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self.broken = False
        self.patience = trio.CancelScope()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        if self.broken:
            await trio.lowlevel.checkpoint()
            return
        with trio.CancelScope(deadline=self.patience.deadline) as self.patience:
            try:
                await self._stream.send_all(data)
            except trio.BrokenResourceError:
                self.broken = True
        if self.patience.cancelled_caught:
            self.broken = True

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self._stream.receive_some(max_bytes)

    async def aclose(self) -> None:
        await self._stream.aclose()


class Wire:
    """Sends and receives; errors are those of httpx2.

    Args:
        stream: A connected socket; closed with this.

    Attributes:
        closed: Whether it was closed.
    """

    def __init__(self, stream: trio.SocketStream) -> None:
        self._socket = stream.socket
        self._tolerant = _Tolerant(stream)
        self._stream: trio.abc.Stream = self._tolerant
        self.closed: bool = False

    async def start_tls(self, context: ssl.SSLContext, host: str, protocols: list[str]) -> str | None:
        """Speak TLS from here on; returns the protocol that was agreed on.

        Raises:
            httpx2.ConnectError: the handshake failed.
        """
        context.set_alpn_protocols(protocols)
        # It may stand on TLS already: to a proxy that is spoken to over it.
        tls = trio.SSLStream(self._stream, context, server_hostname=host, https_compatible=True)
        try:
            await tls.do_handshake()
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError, ValueError) as exc:
            raise httpx2.ConnectError(f"TLS: {_tls_reason(exc)}") from exc
        self._stream = tls
        agreed: str | None = tls.selected_alpn_protocol()
        return agreed

    @property
    def broken(self) -> bool:
        """Whether a write has failed: not all of what was to be sent has left."""
        return self._tolerant.broken

    async def send(self, data: bytes) -> None:
        """Send; that it failed is told by `broken`, and by what is received."""
        try:
            await self._stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._tolerant.broken = True

    def send_until(self, deadline: float) -> None:
        """Give up what is being sent at that time, and count it as broken; nothing else is touched by it."""
        self._tolerant.patience.deadline = deadline

    async def receive(self) -> bytes:
        """The next bytes; none at the end.

        Raises:
            httpx2.ReadError: the connection broke.
        """
        try:
            return bytes(await self._stream.receive_some(_READ))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
            raise httpx2.ReadError(f"the connection broke: {reason_of(exc)}") from exc

    def readable(self) -> bool:
        """Whether there is something to be received, the end included."""
        return self._socket.is_readable()

    def close(self) -> None:
        """Close at once, without a word: whoever waits in it hears of it."""
        self.closed = True
        self._socket.close()


class AnswerBody:
    """The body of an answer. Not a generator: one that is left before its end has to be looked after.

    Args:
        take: Gives the next piece, none at the end.
        leave: Says that nothing more is wanted.
    """

    def __init__(self, take: Callable[[], Awaitable[bytes]], leave: Callable[[], None]) -> None:
        self._take = take
        self._leave = leave

    def __aiter__(self) -> AnswerBody:
        return self

    async def __anext__(self) -> bytes:
        if chunk := await self._take():
            return chunk
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self._leave()
        await trio.lowlevel.checkpoint_if_cancelled()


async def request_body(request: httpcore2.Request) -> bytes:
    """The whole body of a request; it can be read again for another attempt."""
    return b"".join([part async for part in request.stream])  # type: ignore[union-attr]
