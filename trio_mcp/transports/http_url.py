"""What a program gives for a server on the web, checked when the client is opened: the URL and the headers.

Both may hold secrets (a key in the query, a password before the host, a token in a header), so no text that is made here
repeats more than names, and of a URL the scheme, the host, the port and the path.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

__all__ = ["UNIX_URL", "check_headers", "shown_url"]

UNIX_URL: Final = "http://localhost/mcp"
"""The URL of a server that is named by its unix socket alone."""

_AUTHORITY: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^:@\[\]\\\s]*)(?::[0-9]*)?")
_SHOWN_PATH: Final = 200

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A field name (RFC 9110, section 5.6.2)."""
_VALUE: Final = re.compile(r"(?:[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?)?")
"""A field value (RFC 9110, section 5.5), without obs-text: which letter such a byte is nobody can say."""
_OURS: Final = frozenset(
    {
        "accept",
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "http2-settings",
        "keep-alive",
        "mcp-method",
        "mcp-name",
        "mcp-protocol-version",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""What a call says of itself, and what belongs to the connection."""


def shown_url(url: str) -> str:
    """A URL for a text that somebody may read: without user, password, query and fragment."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        if url.startswith("unix:"):
            return url
        named = re.match(r"[A-Za-z][A-Za-z0-9+.-]{0,19}:", url)
        return f"{named[0]}…" if named else "…"
    before = re.split(r"[?#]", rest, maxsplit=1)[0]
    authority, slash, path = before.partition("/")
    host = authority.rpartition("@")[2]
    if not _AUTHORITY.fullmatch(host) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
        # Where the host begins cannot be said, so any part of it may be a password.
        return f"{scheme if len(scheme) <= 10 else ''}://…"
    path = re.sub(r"[\x00-\x20\x7f-\x9f]", "?", path)
    return f"{scheme}://{host}{slash}{path if len(path) <= _SHOWN_PATH else path[:_SHOWN_PATH] + '…'}"


def check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers for every request, as they can be sent.

    Raises:
        ValueError: one cannot; the text names it and never repeats its value.
    """
    out: dict[str, str] = {}
    for name, value in headers.items():
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            # What follows the name in it may be the value.
            begin = _TOKEN.match(name) if isinstance(name, str) else None
            raise ValueError(
                f"open_client: a name in headers={{…}} is no name of a header (it begins with {begin[0] if begin else ''!r})"
            )
        key = name.lower()
        if key in _OURS or key.startswith("mcp-param-"):
            raise ValueError(f"open_client: the header {name!r} is set by the client itself")
        if not isinstance(value, str):
            raise ValueError(f"open_client: the header {name!r} must be a str, not {type(value).__name__}")
        if not _VALUE.fullmatch(value):
            raise ValueError(f"open_client: the header {name!r} {_fault(value)}")
        if key in {taken.lower() for taken in out}:
            raise ValueError(f"open_client: the header {name!r} is given twice")
        out[name] = value
    return out


def _fault(value: str) -> str:
    if _VALUE.fullmatch(value.strip()):
        return "begins or ends with white space (the end of a line in a file, perhaps)"
    return "holds a character that no header may hold: only printable ASCII may be sent"
