"""HTTP rules of the MCP endpoint (basic/transports/streamable-http), as functions of a request head.

Nothing here reads or writes: a head gives a verdict, a body and its head give an error or none.
"""

from __future__ import annotations

import base64
import binascii
import functools
import ipaddress
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ..errors import HeaderMismatch
from .envelope import Request
from .jsontext import shorten
from .meta import PROTOCOL_VERSION
from .methods import METHODS

__all__ = [
    "NO_DELETE",
    "POST_ONLY",
    "WITH_SESSIONS",
    "Accepts",
    "HostPolicy",
    "Refusal",
    "check_head",
    "check_mirror",
    "decode_value",
    "encode_value",
    "host_policy",
    "is_loopback",
    "mirror_headers",
    "parse_accept",
    "preflight",
    "shared_with",
]

Headers = Mapping[bytes, bytes]
"""Header fields by lower-case name; fields that came several times are joined by `, `."""


class Refusal(NamedTuple):
    """Why a request is refused, before it is run.

    Attributes:
        status: The status of the answer.
        reason: One line for a person.
        allow: The value of an `Allow` field.
        retry_after: Seconds for a `Retry-After` field.
    """

    status: int
    reason: str
    allow: str | None = None
    retry_after: float | None = None


class Accepts(NamedTuple):
    """In which forms a client takes an answer, of a head that was accepted.

    Attributes:
        json: One JSON document.
        sse: An event stream.
        pair: Of a request to the pair of 2024-11-05: the session that it names, if any. None at the endpoint.
    """

    json: bool
    sse: bool
    pair: str | None = None


class HostPolicy(NamedTuple):
    """Which hosts and origins may call.

    Attributes:
        hosts: Host names (lower case, without port) that a `Host` header may name; None lets every host pass.
        origins: Origins (`https://app.example`) that may call besides those of the hosts above.
        loopback: Whether the endpoint is bound to a loopback address only.
    """

    hosts: frozenset[str] | None
    origins: frozenset[str]
    loopback: bool


_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def host_policy(
    addresses: list[str] | None, hosts: list[str] | None = None, origins: list[str] | None = None
) -> HostPolicy:
    """The policy for an endpoint, or for one connection: guarded on loopback, or where hosts are listed.

    Args:
        addresses: The addresses that it is bound to, or the one that a connection came over; empty for sockets that only this
            machine can reach; None where nobody knows, and only listed hosts pass.
        hosts: `allowed_hosts`: names that a `Host` header may have. They replace the rule for loopback.
        origins: `allowed_origins`: origins of web pages that may call.
    """
    loopback = addresses is not None and all(is_loopback(address) for address in addresses)
    allowed: frozenset[str] | None
    if hosts is not None or addresses is None:
        allowed = frozenset(_host_name(host) for host in hosts or ())
    else:
        allowed = _LOOPBACK if loopback and addresses else None
    return HostPolicy(allowed, frozenset(origin.rstrip("/").lower() for origin in origins or ()), loopback)


def is_loopback(address: str) -> bool:
    """Whether an address is one of this machine alone; an IPv4 address inside IPv6 counts as itself."""
    try:
        found = ipaddress.ip_address(address)
        mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
        return (mapped or found).is_loopback
    except ValueError:
        return address == "localhost"


def _host_name(host: str) -> str:
    """A host without its port and brackets, in lower case; empty when it is malformed (RFC 3986, section 3.2.2)."""
    text = host.strip().lower()
    found = _HOST.fullmatch(text)
    if found is not None:
        return found[1] or found[2]
    # As a setting an IPv6 address may come without brackets.
    return text if ":" in text and _is_address(text) else ""


_HOST: Final = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._~-]+))(?::[0-9]{1,5})?", re.ASCII)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


POST_ONLY: Final = ("POST",)
WITH_SESSIONS: Final = ("GET", "POST", "DELETE")
"""The verbs of an endpoint that has sessions (2025-11-25, basic/transports)."""
NO_DELETE: Final = ("GET", "POST")
"""The same where clients cannot end their sessions."""


def check_head(
    method: str, headers: Headers, policy: HostPolicy, verbs: tuple[str, ...] = POST_ONLY
) -> Refusal | Accepts:
    """Judge a request to the endpoint by its head.

    Args:
        method: The verb.
        headers: Its fields.
        policy: Who may call.
        verbs: Which verbs there are.

    Returns:
        A refusal (403, 405, 406, 415), or how the client takes an answer.
    """
    get = headers.get
    return _verdict(method, get(b"host"), get(b"origin"), get(b"content-type"), get(b"accept"), policy, verbs)


# Heads of one client are alike, so the answer is nearly always known. Bounded, and the bytes in it are those of heads.
@functools.lru_cache(maxsize=256)
def _verdict(
    method: str,
    host: bytes | None,
    origin: bytes | None,
    content_type: bytes | None,
    accept: bytes | None,
    policy: HostPolicy,
    verbs: tuple[str, ...],
) -> Refusal | Accepts:
    refused = _check_host(host, policy) or _check_origin(origin, host, policy)
    if refused is not None:
        return refused
    if method not in verbs:
        how = "messages are POSTed, one each" if "POST" in verbs else "a stream is opened with GET here"
        return Refusal(405, f"Method {method} not allowed: {how}", allow=", ".join(verbs))
    if method == "DELETE":
        return Accepts(True, True)
    if method == "GET":
        if not parse_accept(accept).sse:
            return Refusal(406, "Not acceptable: Accept must list text/event-stream")
        return Accepts(False, True)
    kind = (content_type or b"").partition(b";")[0].strip().lower()
    if kind != b"application/json":
        got = kind.decode("latin-1") or "nothing"
        return Refusal(415, f"Unsupported media type: Content-Type must be application/json, got {got[:80]}")
    accepts = parse_accept(accept)
    if not (accepts.json or accepts.sse):
        return Refusal(406, "Not acceptable: Accept must list application/json and text/event-stream")
    return accepts


_PAGE_HEADERS: Final = frozenset(
    {
        "accept",
        "authorization",
        "content-type",
        "last-event-id",
        "mcp-method",
        "mcp-name",
        "mcp-protocol-version",
        "mcp-session-id",
        "traceparent",
        "tracestate",
    }
)


def preflight(asked: bytes, verbs: tuple[str, ...] = POST_ONLY) -> tuple[tuple[bytes, bytes], ...]:
    """What a page is told that asks before it calls (Fetch, section CORS-preflight request).

    Args:
        asked: The headers that it wants to send; those of the protocol are allowed, `Mcp-Param-*` by any name.
        verbs: The verbs that there are.
    """
    names = {name.strip().lower() for name in asked.decode("latin-1").split(",")}
    allowed = sorted(
        name for name in names if name in _PAGE_HEADERS or re.fullmatch(r"mcp-param-[!#-'*+.^-z|~-]+", name)
    )
    return (
        (b"access-control-allow-methods", ", ".join(verbs).encode()),
        (b"access-control-allow-headers", ", ".join(allowed).encode()),
        (b"access-control-max-age", b"600"),
    )


def shared_with(origin: bytes) -> tuple[tuple[bytes, bytes], ...]:
    """The fields that let the script of a page read an answer."""
    return (
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", b"mcp-session-id, retry-after, www-authenticate"),
        (b"vary", b"origin"),
    )


def _check_host(host: bytes | None, policy: HostPolicy) -> Refusal | None:
    if policy.hosts is None:
        return None
    text = (host or b"").decode("latin-1")
    # A header has no address without brackets.
    name = _host_name(text) if _HOST.fullmatch(text.strip().lower()) else ""
    if name in policy.hosts:
        return None
    return Refusal(403, f"Forbidden: host {text[:80]!r} is not served here (setting: allowed_hosts)")


def _check_origin(origin: bytes | None, host: bytes | None, policy: HostPolicy) -> Refusal | None:
    if origin is None:
        return None
    text = origin.decode("latin-1").strip().lower()
    scheme, separator, rest = text.partition("://")
    if separator and scheme in ("http", "https"):
        if text in policy.origins:
            return None
        name = _host_name(rest)
        if policy.hosts is not None:
            if name in policy.hosts:
                return None
        elif _is_address(name) and host is not None and rest == host.decode("latin-1").strip().lower():
            # The page and the endpoint are one origin. A name would say little: whoever owns one can let it lead here.
            return None
    return Refusal(403, f"Forbidden: origin {text[:80]!r} may not call this server (setting: allowed_origins)")


_MEDIA: Final = re.compile(r"\s*([!#$%&'*+.^_`|~0-9A-Za-z-]+)/([!#$%&'*+.^_`|~0-9A-Za-z-]+)\s*(?:;(.*))?", re.DOTALL)


def parse_accept(value: bytes | None) -> Accepts:
    """Which of our two forms an `Accept` header takes (RFC 9110, section 12.5.1): wildcards and q-values count.

    The most specific range decides. Without the header everything is acceptable.
    """
    if value is None:
        return Accepts(True, True)
    weights: dict[str, float] = {}
    for item in value.decode("latin-1").split(","):
        found = _MEDIA.fullmatch(item)
        if found is not None:
            weights[f"{found[1]}/{found[2]}".lower()] = _quality(found[3] or "")
    return Accepts(_weight(weights, "application", "json") > 0, _weight(weights, "text", "event-stream") > 0)


def _quality(parameters: str) -> float:
    for parameter in parameters.split(";"):
        name, _, text = parameter.partition("=")
        if name.strip().lower() == "q":
            try:
                quality = float(text.strip())
            except ValueError:
                return 0.0
            return quality if 0.0 <= quality <= 1.0 else 0.0
    return 1.0


def _weight(weights: Mapping[str, float], kind: str, subtype: str) -> float:
    for name in (f"{kind}/{subtype}", f"{kind}/*", "*/*"):
        if name in weights:
            return weights[name]
    return 0.0


# -- mirrored headers

_SAFE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?")
_SENTINEL: Final = re.compile(r"=\?base64\?(.*)\?=", re.DOTALL)


def encode_value(value: str) -> str:
    """A value for `Mcp-Name` or `Mcp-Param-*`: as it is, or in the Base64 sentinel (section Value Encoding)."""
    if _SAFE.fullmatch(value) and not _looks_encoded(value):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


def _looks_encoded(text: str) -> bool:
    return text.startswith("=?base64?") and text.endswith("?=")


# Names come again and again.
@functools.lru_cache(maxsize=256)
def decode_value(value: bytes) -> str | None:
    """The value in such a header; None when it holds what no header may hold, or bad Base64."""
    try:
        text = value.decode("ascii")
    except UnicodeDecodeError:
        return None
    if not _looks_encoded(text):
        return text if text == "" or _SAFE.fullmatch(text) else None
    found = _SENTINEL.fullmatch(text)
    if found is None:
        return None
    try:
        return base64.b64decode(found[1], validate=True).decode()
    except (binascii.Error, ValueError):
        return None


def mirror_headers(method: str, params: Mapping[str, Any], version: str) -> dict[str, str]:
    """The headers that a client sends with a request (section Request Metadata)."""
    headers = {"MCP-Protocol-Version": version, "Mcp-Method": method}
    row = METHODS.get(method)
    if row is not None and row.mirror is not None and isinstance(params.get(row.mirror), str):
        headers["Mcp-Name"] = encode_value(params[row.mirror])
    return headers


def check_mirror(headers: Headers, request: Request) -> None:
    """Check the headers of a modern request against its body (section Server Validation).

    Raises:
        HeaderMismatch: one is missing, malformed, or says something else.
    """
    meta = request.params.get("_meta")
    version = meta.get(PROTOCOL_VERSION) if type(meta) is dict else None
    if type(version) is str:
        _compare(headers, b"mcp-protocol-version", "MCP-Protocol-Version", version)
    _compare(headers, b"mcp-method", "Mcp-Method", request.method)
    row = METHODS.get(request.method)
    if row is None or row.mirror is None:
        return
    name = request.params.get(row.mirror)
    if type(name) is not str:
        return  # the parameters are wrong, and that is said with more words
    raw = headers.get(b"mcp-name")
    if raw is None:
        raise HeaderMismatch(f"Header mismatch: Mcp-Name is missing, the body has {shorten(name)}")
    value = decode_value(raw)
    if value is None:
        raise HeaderMismatch("Header mismatch: Mcp-Name holds characters that no header may hold, or bad Base64")
    if value != name:
        raise HeaderMismatch(f"Header mismatch: Mcp-Name is {shorten(value)}, the body has {shorten(name)}")


def _compare(headers: Headers, key: bytes, title: str, body: str) -> None:
    raw = headers.get(key)
    if raw is None:
        raise HeaderMismatch(f"Header mismatch: {title} is missing, the body has {shorten(body)}")
    if raw != body.encode(errors="replace"):
        raise HeaderMismatch(
            f"Header mismatch: {title} is {shorten(raw.decode('latin-1'))}, the body has {shorten(body)}"
        )
