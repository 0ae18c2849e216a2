"""Which request heads of HTTP/1.1 are answered.

httptools parses; the rules here stand on top, on the whole head and on the fields that httptools found in it. They are
stricter than the RFC allows a server to be, since whatever another one on the way may read as something else is refused: folded
lines, a CR or LF alone, control characters, blanks before a colon, two lengths. What httptools refuses itself depends on its
version, so nothing of that is left to it alone.
"""

from __future__ import annotations

import re
from typing import Any, Final

from ..protocol.http import Refusal
from .budget import BodyBudget

__all__ = ["CHUNKED", "MALFORMED", "Refused", "Request", "read_head", "too_long"]

CHUNKED: Final = -1
"""The length of a body that comes in chunks."""

_TOKEN: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# A line ends with CR LF, and neither comes alone in one; none goes on in the next one (RFC 9112, sections 2.2 and 5).
_HEAD: Final = re.compile(
    rb"([A-Z-]++) ([\x21-\x7e]++) HTTP/([0-9]\.[0-9])\r\n"
    rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]++:[\t\x20-\x7e\x80-\xff]*+\r\n)*+\r\n"
)
_ABSOLUTE: Final = re.compile(rb"[Hh][Tt][Tt][Pp][Ss]?://([^/?#@]*)([^?#]*).*")

MALFORMED: Final = Refusal(400, "Bad request: this is no request of HTTP/1.1")


class Refused(Exception):
    """The bytes are no request that is answered here."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal)
        self.refusal: Refusal = refusal


def too_long(most: int) -> Refusal:
    """What a body is refused for that has, or announces, more bytes."""
    return Refusal(413, f"Message too long: the limit is {most} bytes")


class Request:
    """One request: its head, and later its body.

    Attributes:
        method: The verb.
        target: The request target, as it came.
        path: The path, without the query; of an absolute target, too. Empty when the target has none.
        headers: Fields by lower-case name; those that came several times are joined by `, `.
        length: The length of the body; `CHUNKED` when it comes in chunks.
        http10: HTTP/1.0: no chunks, and the connection ends unless the client asked for more.
        keep_alive: Whether another request may follow.
        expects: Whether the client waits for "100 Continue".
        body: The body, once it is complete.
        refusal: Why it is refused, if it is.
        verdict: Anything that whoever judged it wants to keep.
        size: How many bytes its head and its body have.
        taken: How many bytes of a budget its body has.
    """

    __slots__ = (
        "_budget",
        "body",
        "expects",
        "headers",
        "http10",
        "keep_alive",
        "length",
        "method",
        "path",
        "refusal",
        "size",
        "taken",
        "target",
        "verdict",
    )

    def __init__(
        self,
        method: str = "",
        target: bytes = b"",
        path: str = "",
        headers: dict[bytes, bytes] | None = None,
        size: int = 0,
    ) -> None:
        self.method: str = method
        self.target: bytes = target
        self.path: str = path
        self.headers: dict[bytes, bytes] = {} if headers is None else headers
        self.length: int = 0
        self.http10: bool = False
        self.keep_alive: bool = True
        self.expects: bool = False
        self.body: bytes = b""
        self.refusal: Refusal | None = None
        self.verdict: Any = None
        self.size: int = size
        self._budget: BodyBudget | None = None
        self.taken: int = 0

    def take(self, budget: BodyBudget, size: int) -> bool:
        """Take bytes of a budget for the body; False when it has not as many left."""
        if not budget.take(size):
            return False
        self._budget = budget
        self.taken += size
        return True

    def release(self) -> None:
        """Give back what the body took, once it is held no more. Harmless when repeated."""
        taken = self.taken
        if taken and self._budget is not None:
            self.taken = 0
            self._budget.give_back(taken)


def read_head(head: bytes, headers: dict[bytes, bytes], hosts: bool) -> Request:
    """Judge a head.

    Args:
        head: All its bytes.
        headers: Its fields; they belong to the request then.
        hosts: Whether more than one of them is Host.

    Raises:
        Refused: it is none that could be answered.
    """
    found = _HEAD.fullmatch(head)
    if found is None:
        raise Refused(MALFORMED)
    verb, target, version = found.groups()
    path = target
    if not target.startswith(b"/"):
        absolute = _ABSOLUTE.fullmatch(target)
        path = b"" if absolute is None else absolute[2] or b"/"
    method = verb.decode("ascii")
    request = Request(method, target, path.partition(b"?")[0].decode("latin-1"), headers, len(head))
    # What makes a request another one for somebody else: for whom it is, how its body is framed, what follows it.
    http10 = False
    if version != b"1.1":
        if version != b"1.0":
            raise Refused(Refusal(505, "HTTP version not supported: this is HTTP/1.1"))
        request.http10 = http10 = True
        request.keep_alive = False
    if method == "CONNECT":
        raise Refused(Refusal(400, "Bad request: no tunnels"))
    if hosts or (b"host" not in headers and not http10):
        raise Refused(Refusal(400, "Bad request: HTTP/1.1 requires one Host header, and no more"))
    if not target.startswith(b"/"):
        _take_authority(target, headers)
    if b"transfer-encoding" in headers:
        request.length = _coded(headers, http10)
    elif b"content-length" in headers:
        length = headers[b"content-length"]
        # Longer numbers have a meaning, but no body of ours.
        if not length.isdigit() or len(length) > 18:
            raise Refused(Refusal(400, "Bad request: Content-Length is no number"))
        request.length = int(length)
    if b"connection" in headers:
        request.keep_alive = _kept(headers[b"connection"].lower(), http10)
    if b"expect" in headers and not http10:
        request.expects = headers[b"expect"].lower() == b"100-continue"
    return request


def _take_authority(target: bytes, headers: dict[bytes, bytes]) -> None:
    """The authority of an absolute target counts, not the header (RFC 9112, section 3.2.2)."""
    found = _ABSOLUTE.fullmatch(target)
    if found is not None:
        if found[2] and not found[2].startswith(b"/"):
            raise Refused(Refusal(400, "Bad request: no user names in a target"))
        headers[b"host"] = found[1]
    elif b"://" in target:
        raise Refused(Refusal(400, "Bad request: only http and https"))


def _kept(connection: bytes, http10: bool) -> bool:
    """Whether another request may follow (RFC 9112, section 9.3)."""
    if connection == b"keep-alive":
        return True
    options = [option.strip(b" \t") for option in connection.split(b",")]
    return b"close" not in options and (not http10 or b"keep-alive" in options)


def _coded(headers: dict[bytes, bytes], http10: bool) -> int:
    """Read how a body is coded (RFC 9112, sections 6.1 and 6.3)."""
    if http10 or b"content-length" in headers:
        raise Refused(Refusal(400, "Bad request: Transfer-Encoding in HTTP/1.0, or beside a Content-Length"))
    codings = [coding.strip(b" \t") for coding in headers[b"transfer-encoding"].lower().split(b",")]
    if codings == [b"chunked"]:
        return CHUNKED
    if codings[-1] == b"chunked" and codings.count(b"chunked") == 1 and all(map(_TOKEN.fullmatch, codings)):
        raise Refused(Refusal(501, "Not implemented: no transfer coding but chunked"))
    raise Refused(Refusal(400, "Bad request: nobody can tell where a body with this Transfer-Encoding ends"))
