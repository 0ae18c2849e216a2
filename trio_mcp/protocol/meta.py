"""The `_meta` of a request: who asks, in which revision, with which abilities (basic/index, section `_meta`)."""

from __future__ import annotations

from typing import Any, Final

from ..errors import InvalidParams
from ..limits import DEFAULT, Limits
from .envelope import RequestId, is_request_id
from .jsontext import shorten

__all__ = [
    "CLIENT_CAPABILITIES",
    "CLIENT_INFO",
    "LOG_LEVEL",
    "LOG_LEVELS",
    "PROTOCOL_VERSION",
    "SERVER_INFO",
    "SUBSCRIPTION_ID",
    "RequestMeta",
    "declared_settings",
    "request_meta",
]

PROTOCOL_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
CLIENT_INFO: Final = "io.modelcontextprotocol/clientInfo"
CLIENT_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"

LOG_LEVELS: Final[dict[str, int]] = {
    name: rank
    for rank, name in enumerate(("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"))
}
"""Severity by name, the least severe first (server/utilities/logging, section Log Levels)."""

_TRACE_KEYS: Final = ("traceparent", "tracestate", "baggage")


class RequestMeta:
    """What one request says about itself.

    Attributes:
        protocol_version: The revision of this request.
        client_capabilities: As sent, an object.
        client_info: As sent (self-reported, not verified), or None.
        log_level: The least severe level that the client wants to see, or None: then nothing may be sent.
        progress_token: Where to send progress, or None: then nothing may be sent.
        raw: The whole `_meta` object.
    """

    __slots__ = ("client_capabilities", "client_info", "log_level", "progress_token", "protocol_version", "raw")

    def __init__(
        self,
        protocol_version: str,
        client_capabilities: dict[str, Any],
        client_info: dict[str, Any] | None = None,
        log_level: str | None = None,
        progress_token: RequestId | None = None,
        raw: dict[str, Any] | None = None,
    ) -> None:
        self.protocol_version: str = protocol_version
        self.client_capabilities: dict[str, Any] = client_capabilities
        self.client_info: dict[str, Any] | None = client_info
        self.log_level: str | None = log_level
        self.progress_token: RequestId | None = progress_token
        self.raw: dict[str, Any] = raw if raw is not None else {}

    @property
    def trace_context(self) -> dict[str, str]:
        """The W3C trace context keys that were sent as text: `traceparent`, `tracestate`, `baggage`."""
        return {key: self.raw[key] for key in _TRACE_KEYS if isinstance(self.raw.get(key), str)}

    @staticmethod
    def from_params(params: dict[str, Any], limits: Limits = DEFAULT) -> RequestMeta:
        """Read the `_meta` of a modern request.

        Raises:
            InvalidParams: a required field is missing or a field has the wrong shape; the message names it.
        """
        meta = params.get("_meta")
        if type(meta) is not dict:
            got = "nothing" if meta is None else shorten(meta)
            raise InvalidParams(
                f"Invalid params: _meta must be an object with {PROTOCOL_VERSION} and {CLIENT_CAPABILITIES}, got {got}; "
                "a client of a revision before 2026-07-28 opens a session with initialize first"
            )
        version = meta.get(PROTOCOL_VERSION)
        if type(version) is not str:
            raise _bad(meta, PROTOCOL_VERSION, "a string")
        capabilities = meta.get(CLIENT_CAPABILITIES)
        if type(capabilities) is not dict:
            raise _bad(meta, CLIENT_CAPABILITIES, "an object")
        client = meta.get(CLIENT_INFO)
        if CLIENT_INFO in meta and not (
            type(client) is dict and type(client.get("name")) is str and type(client.get("version")) is str
        ):
            raise _bad(meta, CLIENT_INFO, "an object with a name and a version")
        level = meta.get(LOG_LEVEL)
        if LOG_LEVEL in meta and not (type(level) is str and level in LOG_LEVELS):
            raise _bad(meta, LOG_LEVEL, f"one of {', '.join(LOG_LEVELS)}")
        token = meta.get("progressToken")
        if "progressToken" in meta and not is_request_id(token, limits):
            raise _bad(meta, "progressToken", f"a string of at most {limits.id_bytes} bytes or a 64-bit integer")
        return RequestMeta(version, capabilities, client, level, token, meta)


def _bad(meta: dict[str, Any], key: str, expected: str) -> InvalidParams:
    got = shorten(meta[key]) if key in meta else "nothing"
    return InvalidParams(f"Invalid params: _meta[{key!r}] must be {expected}, got {got}")


def declared_settings(client_capabilities: dict[str, Any], identifier: str) -> dict[str, Any] | None:
    """The settings with which a client declared an extension on a request, or None."""
    extensions = client_capabilities.get("extensions")
    settings = extensions.get(identifier) if type(extensions) is dict else None
    return settings if type(settings) is dict else None


def request_meta(
    client_info: dict[str, Any],
    capabilities: dict[str, Any],
    version: str,
    *,
    progress_token: RequestId | None = None,
    log_level: str | None = None,
    extra: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The `_meta` object that a client sends with a modern request."""
    meta: dict[str, Any] = dict(extra) if extra else {}
    meta[PROTOCOL_VERSION] = version
    meta[CLIENT_INFO] = client_info
    meta[CLIENT_CAPABILITIES] = capabilities
    if progress_token is not None:
        meta["progressToken"] = progress_token
    if log_level is not None:
        meta[LOG_LEVEL] = log_level
    return meta
