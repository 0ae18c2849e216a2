"""httptools, as plain attributes: bytes are fed, and what its callbacks said can be read. Nobody else sees a callback.

llhttp, which is under it, stops only at the end of what it is fed. So whoever feeds it cuts: a piece may end in a message, but
no piece may go on behind its end. A callback that comes where none may come is an error, whatever version called it.
"""

from __future__ import annotations

from typing import Final

import httptools

from .heads import CHUNKED, MALFORMED, Refused

__all__ = ["BEGUN", "BODY", "DONE", "HEAD", "NOTHING", "Parser", "verb_of"]

NOTHING: Final = 0
BEGUN: Final = 1
HEAD: Final = 2
BODY: Final = 3
DONE: Final = 4

# Whoever joins trailers with the head reads another request (RFC 9110, section 6.5.1).
_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})


def verb_of(head: bytes) -> str:
    """The verb of a head whose first line came, and is one."""
    line, end, _ = head.partition(b"\r\n")
    parser = Parser()
    try:
        parser.feed(line + end)
        parser.feed(b"\r\n")
    except Refused:
        return ""
    return line.partition(b" ")[0].decode("ascii") if end and parser.stage == DONE else ""


class _Misplaced(Exception):
    """A callback where none may come."""


class Parser:
    """The messages of one connection, one after the other; each is told by `begin`.

    Attributes:
        headers: Fields of the head by lower-case name; those that came several times are joined by `, `.
        hosts: Whether more than one of them was Host.
        body: What came of the body: in one buffer, unless it came in one piece.
        chunks: How many chunks were begun.
        stage: How far the message is.
        upgrade: Whether the head offers another protocol. Then `reframe` must follow.
    """

    __slots__ = ("_fields", "_parser", "body", "chunks", "headers", "hosts", "stage", "upgrade")

    def __init__(self) -> None:
        self._renew()
        self.begin()

    def _renew(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        # Which versions are answered, and how, is decided on the whole head.
        self._parser.set_dangerous_leniencies(lenient_version=True)

    def begin(self) -> None:
        """What is fed next begins a message."""
        self.headers: dict[bytes, bytes] = {}
        self._fields = self.headers
        self.hosts: bool = False
        self.body: bytes | bytearray = b""
        self.chunks: int = 0
        self.stage: int = NOTHING
        self.upgrade: bool = False

    def feed(self, data: bytes | bytearray) -> None:
        """Parse a piece.

        Raises:
            Refused: it does not go on with a message, or goes on behind its end.
        """
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.upgrade = True
        except httptools.HttpParserError:
            raise Refused(MALFORMED) from None

    def expect_body(self) -> None:
        """What is fed next is the body of the message."""
        self.stage = BODY

    def take_body(self) -> bytes:
        """The body of a message that is complete. It is held no more."""
        body, self.body = bytes(self.body), b""
        return body

    def reframe(self, length: int) -> None:
        """Go on as if no other protocol had been offered: llhttp believes in it, and would skip the body."""
        self._renew()
        self.begin()
        framing = b"transfer-encoding: chunked" if length == CHUNKED else b"content-length: %d" % length
        self.feed(b"POST / HTTP/1.1\r\n" + framing + b"\r\n\r\n")

    # -- called by httptools

    def on_message_begin(self) -> None:
        if self.stage != NOTHING:
            raise _Misplaced
        self.stage = BEGUN

    def on_header(self, name: bytes, value: bytes) -> None:
        fields = self._fields
        name = name.lower()
        value = value.rstrip(b" \t")  # llhttp leaves it
        if name in fields:
            value = fields[name] + b", " + value
            if name == b"host":
                self.hosts = True
        fields[name] = value

    def on_headers_complete(self) -> None:
        self.stage = HEAD
        self._fields = {}  # of the trailers

    def on_body(self, data: bytes) -> None:
        if self.stage != BODY:
            raise _Misplaced
        body = self.body
        if not body:
            self.body = data
        else:
            if isinstance(body, bytes):
                body = self.body = bytearray(body)
            body += data

    def on_chunk_header(self) -> None:
        self.chunks += 1

    def on_message_complete(self) -> None:
        if self._fields and not _FRAMING.isdisjoint(self._fields):
            raise _Misplaced
        self.stage = DONE
