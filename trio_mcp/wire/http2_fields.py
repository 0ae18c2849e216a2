"""Header fields of HTTP/2: what a request must look like (RFC 9113, section 8), and how an answer is encoded (RFC 7541)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

__all__ = ["Fields", "Malformed", "RequestHead", "check_request", "encode_head"]

Fields = list[tuple[bytes, bytes]]

_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_METHOD: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_CONTROLS: Final = bytes((*range(9), *range(10, 32), 127))
_BLANK: Final = (b" ", b"\t")
_BAD_PATH: Final = re.compile(rb"[\x00-\x20\x7f-\xff]")
_PSEUDO: Final = frozenset({b":method", b":scheme", b":authority", b":path"})
_CONNECTION: Final = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"})
_LENGTH_DIGITS: Final = 18
_KNOWN_MOST: Final = 64
_KNOWN_BYTES: Final = 256


class Malformed(ValueError):
    """A request that breaks the rules of HTTP; its stream is reset, and the others go on."""


class RequestHead(NamedTuple):
    """The head of a request that follows the rules.

    Attributes:
        method: The verb.
        path: The target, with the query.
        headers: Fields by lower-case name; `host` is the authority.
        length: What `content-length` promises, if there is one.
        size: Bytes of the field section, as SETTINGS_MAX_HEADER_LIST_SIZE counts them.
    """

    method: str
    path: str
    headers: dict[bytes, bytes]
    length: int | None
    size: int


def check_request(fields: Iterable[tuple[bytes, bytes]], known: set[tuple[bytes, bytes]]) -> RequestHead:
    """Judge the fields of a request.

    Args:
        fields: Names and values in their order.
        known: Plain fields that were found to be right before. A client repeats most of them.

    Raises:
        Malformed: they break a rule; the text says which.
    """
    pseudo: dict[bytes, bytes] = {}
    headers: dict[bytes, bytes] = {}
    size = 0
    for field in fields:
        name, value = field
        size += len(name) + len(value) + 32
        if name[:1] == b":":
            if headers:
                raise Malformed("a pseudo field after the others")
            if name not in _PSEUDO or name in pseudo:
                raise Malformed("a pseudo field that is unknown or repeated")
            pseudo[name] = value
            continue
        if field not in known:
            _check_field(name, value)
            if len(known) < _KNOWN_MOST and len(name) + len(value) <= _KNOWN_BYTES:
                known.add((name, value))
        before = headers.get(name)
        if before is None:
            headers[name] = value
        elif name == b"host":
            raise Malformed("more than one host")
        elif name == b"content-length":
            if before != value:
                raise Malformed("two lengths")
        else:
            headers[name] = before + (b"; " if name == b"cookie" else b", ") + value
    method, path = pseudo.get(b":method", b""), pseudo.get(b":path", b"")
    _check_pseudo(pseudo, method, path)
    authority = pseudo.get(b":authority")
    if authority is not None:
        host = headers.get(b"host")
        if host is not None and host.lower() != authority.lower():
            raise Malformed("host is not the authority")
        headers[b"host"] = authority
    elif b"host" not in headers:
        raise Malformed("no authority and no host")
    digits = headers.get(b"content-length")
    if digits is not None and not (digits.isdigit() and len(digits) <= _LENGTH_DIGITS):
        raise Malformed("content-length is no number")
    length = None if digits is None else int(digits)
    return RequestHead(method.decode("ascii"), path.decode("ascii"), headers, length, size)


def _check_field(name: bytes, value: bytes) -> None:
    if not _NAME.fullmatch(name):
        raise Malformed("a field name that is none")
    # One byte of a head can stand for kilobytes of a field, so this must cost nothing: a pattern takes a hundred times as long.
    if len(value.translate(None, _CONTROLS)) != len(value) or value[:1] in _BLANK or value[-1:] in _BLANK:
        raise Malformed("a field value with what may not be in it")
    if name in _CONNECTION or (name == b"te" and value.lower() != b"trailers"):
        raise Malformed("a field of the connection, which HTTP/2 does not have")


def _check_pseudo(pseudo: dict[bytes, bytes], method: bytes, path: bytes) -> None:
    if not _METHOD.fullmatch(method):
        raise Malformed("no method")
    if method == b"CONNECT":
        raise Malformed("no tunnels")
    if b":scheme" not in pseudo:
        raise Malformed("no scheme")
    if _BAD_PATH.search(path) or not (path[:1] == b"/" or (path == b"*" and method == b"OPTIONS")):
        raise Malformed("no path")
    authority = pseudo.get(b":authority", b"-")
    if not authority or b"@" in authority or _BAD_PATH.search(authority):
        raise Malformed("an authority that is none")


# -- answers

_INDEXED: Final = {200: 8, 204: 9, 206: 10, 304: 11, 400: 12, 404: 13, 500: 14}
_NAMES: Final = {
    b"access-control-allow-origin": 20,
    b"allow": 22,
    b"cache-control": 24,
    b"content-length": 28,
    b"content-type": 31,
    b"date": 33,
    b"retry-after": 53,
    b"vary": 59,
    b"www-authenticate": 61,
}


def _integer(value: int, bits: int, first: int) -> bytes:
    most = (1 << bits) - 1
    if value < most:
        return bytes((first | value,))
    out = bytearray((first | most,))
    value -= most
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(name: bytes, value: bytes) -> bytes:
    """A literal that no table remembers: nothing has to be kept in step with the peer, and no secret can be guessed by size."""
    index = _NAMES.get(name)
    start = _integer(index, 4, 0) if index is not None else b"\x00" + _integer(len(name), 7, 0) + name
    return start + _integer(len(value), 7, 0) + value


_constant = lru_cache(maxsize=64)(_field)
_VARYING: Final = frozenset({b"date", b"content-length"})


@lru_cache(maxsize=64)
def _status(status: int) -> bytes:
    index = _INDEXED.get(status)
    return bytes((0x80 | index,)) if index is not None else b"\x08\x03%d" % status


def encode_head(status: int, fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The header block of an answer."""
    out = _status(status)
    for name, value in fields:
        out += _field(name, value) if name in _VARYING or len(value) > _KNOWN_BYTES else _constant(name, value)
    return out
