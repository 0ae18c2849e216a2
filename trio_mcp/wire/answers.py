"""How an answer of HTTP/1.1 is written: methods that give bytes, in the only order that they can have.

    state     respond   start     chunk     end
    NOTHING   DONE      STREAM    -         -
    STREAM    -         -         STREAM    DONE
    DONE      -         -         -         -

`-` is a `LocalProtocolError`: bytes that a client could not tell from the next answer must not go out.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from http import HTTPStatus
from typing import Final

from .heads import Request

__all__ = ["Answer", "AnswerState", "LocalProtocolError"]

_REASONS: Final = {status.value: status.phrase.encode() for status in HTTPStatus}
_NO_BODY: Final = frozenset({204, 304})


class LocalProtocolError(Exception):
    """This end was about to write what would break the framing: a mistake of ours, never of the peer."""


class AnswerState(Enum):
    """How much of an answer was written."""

    NOTHING = "nothing"
    STREAM = "stream"
    DONE = "done"


# Plain names: the look-up on the class costs more than the comparison.
_NOTHING, _STREAM, _DONE = AnswerState.NOTHING, AnswerState.STREAM, AnswerState.DONE


class Answer:
    """The answer to one request.

    Attributes:
        request: What is answered.
        keep_alive: Whether another one may follow on the connection. May be set to False until the head is written.
        state: How much was written.
    """

    __slots__ = ("keep_alive", "request", "state")

    def __init__(self, request: Request) -> None:
        self.request: Request = request
        self.keep_alive: bool = request.keep_alive
        self.state: AnswerState = _NOTHING

    def respond(
        self, status: int, date: bytes, content_type: bytes, body: bytes, fields: Iterable[tuple[bytes, bytes]] = ()
    ) -> bytes:
        """A whole answer. One without a body has no content type.

        Raises:
            LocalProtocolError: something was written already, or the answer is none that can be framed.
        """
        if status in _NO_BODY and body:
            raise LocalProtocolError(f"an answer with status {status} has no body")
        lines = b"content-type: " + content_type + b"\r\n" if body else b""
        if status not in _NO_BODY:
            lines += b"content-length: %d\r\n" % len(body)
        head = self._head(status, date, lines, fields)
        self.state = _DONE
        return head if self.request.method == "HEAD" else head + body

    def start(self, status: int, date: bytes, fields: Iterable[tuple[bytes, bytes]]) -> bytes:
        """The head of an answer that comes in pieces. In HTTP/1.0 the end of the connection is its end.

        Raises:
            LocalProtocolError: something was written already, or the answer is none that can be framed.
        """
        if status in _NO_BODY:
            raise LocalProtocolError(f"an answer with status {status} has no body")
        if self.request.http10:
            self.keep_alive = False
        head = self._head(status, date, b"" if self.request.http10 else b"transfer-encoding: chunked\r\n", fields)
        self.state = _STREAM
        return head

    def _head(self, status: int, date: bytes, lines: bytes, fields: Iterable[tuple[bytes, bytes]]) -> bytes:
        if self.state is not _NOTHING:
            raise LocalProtocolError("the head of this answer was written already")
        reason = _REASONS.get(status)
        if reason is None or status < 200:
            raise LocalProtocolError(f"{status} is no status of an answer")
        for name, value in fields:
            line = b"%b: %b\r\n" % (name, value)
            if line.count(b"\n") != 1 or line.count(b"\r") != 1 or b"\0" in line:
                raise LocalProtocolError(f"the header field {name!r} holds what would end it")
            lines += line
        if not self.keep_alive:
            lines += b"connection: close\r\n"
        elif self.request.http10:
            lines += b"connection: keep-alive\r\n"
        return b"HTTP/1.1 %d %b\r\ndate: %b\r\n%b\r\n" % (status, reason, date, lines)

    def chunk(self, data: bytes) -> bytes:
        """A piece of it. An empty piece is no bytes, since an empty chunk is the end.

        Raises:
            LocalProtocolError: it was not started, or has ended.
        """
        if self.state is not _STREAM:
            raise LocalProtocolError("no answer in pieces is under way")
        if not data or self.request.method == "HEAD":
            return b""
        return data if self.request.http10 else b"%x\r\n%b\r\n" % (len(data), data)

    def end(self) -> bytes:
        """The end of it.

        Raises:
            LocalProtocolError: it was not started, or has ended.
        """
        if self.state is not _STREAM:
            raise LocalProtocolError("no answer in pieces is under way")
        self.state = _DONE
        return b"" if self.request.http10 or self.request.method == "HEAD" else b"0\r\n\r\n"
