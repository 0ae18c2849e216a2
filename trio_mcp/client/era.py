"""What an answer to server/discover that is no result tells of the era of a server (basic/versioning)."""

from __future__ import annotations

from typing import Final

from ..errors import (
    HttpError,
    InvalidParams,
    InvalidRequest,
    LegacyServer,
    MCPError,
    MethodNotFound,
    ProtocolError,
    UnsupportedVersion,
)
from ..protocol.revisions import LATEST

__all__ = ["era_error"]

_RESERVED: Final = range(-32_768, -31_999)
"""The codes of JSON-RPC itself and of what is built on it; others are an application's."""


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
