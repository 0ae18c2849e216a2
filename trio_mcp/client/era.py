"""What an answer to server/discover that is no result tells of the era of a server (basic/versioning)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..errors import (
    ConnectionClosed,
    HttpError,
    InvalidParams,
    InvalidRequest,
    InvalidResponse,
    LegacyServer,
    MCPError,
    MethodNotFound,
    ProtocolError,
    RequestTimeout,
    UnsupportedVersion,
)
from ..protocol.content import optional
from ..protocol.meta import SERVER_INFO
from ..protocol.results import require
from ..protocol.revisions import LATEST, LEGACY

__all__ = ["described", "era_error", "may_be_legacy"]

_RESERVED: Final = range(-32_768, -31_999)
"""The codes of JSON-RPC itself and of what is built on it; others are an application's."""


_NEVER_LEGACY: Final = frozenset({401, 403, 407, 429, 503})
"""Statuses that say nothing of the era: who calls, from where, how often."""
_MODERN_CODES: Final = frozenset({-32_020, -32_021, -32_022, 429, 503, 504})
"""Codes that only servers of the modern era have, and those of a server that is busy."""


def may_be_legacy(exc: MCPError) -> bool:
    """Whether an answer to `server/discover` may be that of an older server: no single code tells."""
    if isinstance(exc, UnsupportedVersion):
        supported = exc.data.get("supported") if isinstance(exc.data, dict) else None
        return isinstance(supported, list) and any(revision in LEGACY for revision in supported)
    if isinstance(exc, HttpError):
        return exc.status not in _NEVER_LEGACY
    if isinstance(exc, ProtocolError):
        return exc.code not in _MODERN_CODES
    return isinstance(exc, LegacyServer | InvalidResponse | ConnectionClosed | RequestTimeout)


def described(result: Mapping[str, Any], peer: str) -> tuple[dict[str, Any], dict[str, Any], str | None]:
    """What a result of `server/discover` tells of a server: its name, what it can do, how it wants to be used.

    Raises:
        LegacyServer: it speaks older revisions only.
        UnsupportedVersion: it speaks others, which this client does not know.
        InvalidResponse: it is no such result.
    """
    result = dict(result)
    versions = require(result, "supportedVersions", list, "server/discover")
    if LATEST not in versions:
        spoken = ", ".join(map(str, versions)) or "no revision"
        if any(version in LEGACY for version in versions):
            raise LegacyServer(f"{peer} speaks {spoken}, not {LATEST}")
        raise UnsupportedVersion(f"{peer} speaks {spoken}; this client speaks {', '.join((LATEST, *LEGACY))}")
    capabilities = require(result, "capabilities", dict, "server/discover")
    info = (optional(result, "_meta", dict) or {}).get(SERVER_INFO)
    return info if isinstance(info, dict) else {}, capabilities, optional(result, "instructions", str)


def era_error(exc: MCPError, peer: str) -> MCPError:
    """The error to raise instead; the same when it says nothing of the era.

    Args:
        exc: What came.
        peer: Of whom.
    """
    if isinstance(exc, UnsupportedVersion):
        supported = exc.data.get("supported") if isinstance(exc.data, dict) else None
        return UnsupportedVersion(f"{peer} speaks {supported or 'other revisions'}, not {LATEST}", exc.data)
    if isinstance(exc, MethodNotFound | InvalidParams | InvalidRequest):
        return LegacyServer(f"{peer} does not know server/discover, so it speaks only revisions before {LATEST}: {exc}")
    # Before their handshake, servers of the old era refuse a request with any code. One that has a class has a meaning.
    if type(exc) is ProtocolError and exc.code in _RESERVED:
        return LegacyServer(f"{peer} refused server/discover; it may speak only revisions before {LATEST}: {exc}")
    if isinstance(exc, HttpError) and exc.status in (400, 404, 405):
        return HttpError(
            f"{exc}; a server of revisions before {LATEST} may answer so, too", url=exc.url, status=exc.status
        )
    return exc
