"""The Model Context Protocol for trio.

A request is a tree of trio tasks with one cancel scope around it: when the caller goes away, the work stops.

Serve with `Server`; call with `open_client`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .errors import (
    ConnectionClosed,
    HeaderMismatch,
    HttpError,
    InternalError,
    InvalidParams,
    InvalidRequest,
    InvalidResponse,
    LegacyServer,
    MCPError,
    MethodNotFound,
    MissingClientCapability,
    ParseError,
    ProtocolError,
    RegistrationError,
    RequestTimeout,
    ResourceNotFound,
    ServerBusy,
    TimedOut,
    ToolError,
    UnsupportedVersion,
)
from .limits import DEFAULT as DEFAULT_LIMITS
from .limits import Limits
from .protocol.content import (
    Audio,
    ContentBlock,
    EmbeddedResource,
    Image,
    ResourceContents,
    ResourceLink,
    Role,
    Text,
)
from .protocol.results import (
    CallToolResult,
    GetPromptResult,
    PromptMessage,
    ReadResourceResult,
)
from .serve import (
    OpenServer,
    Server,
    http_app,
    open_server,
    serve_http,
    serve_stdio,
    serve_stream,
)
from .server.context import Context

if TYPE_CHECKING:
    from .client import Client, PromptArgument, PromptInfo, ResourceInfo, ResourceTemplateInfo, ToolInfo
    from .connect import Target, connect_client, open_client
    from .transports.http.edge import HttpServer
    from .transports.process import StdioCommand

__all__ = [
    "DEFAULT_LIMITS",
    "Audio",
    "CallToolResult",
    "Client",
    "ConnectionClosed",
    "ContentBlock",
    "Context",
    "EmbeddedResource",
    "GetPromptResult",
    "HeaderMismatch",
    "HttpError",
    "HttpServer",
    "Image",
    "InternalError",
    "InvalidParams",
    "InvalidRequest",
    "InvalidResponse",
    "LegacyServer",
    "Limits",
    "MCPError",
    "MethodNotFound",
    "MissingClientCapability",
    "OpenServer",
    "ParseError",
    "PromptArgument",
    "PromptInfo",
    "PromptMessage",
    "ProtocolError",
    "ReadResourceResult",
    "RegistrationError",
    "RequestTimeout",
    "ResourceContents",
    "ResourceInfo",
    "ResourceLink",
    "ResourceNotFound",
    "ResourceTemplateInfo",
    "Role",
    "Server",
    "ServerBusy",
    "StdioCommand",
    "Target",
    "Text",
    "TimedOut",
    "ToolError",
    "ToolInfo",
    "UnsupportedVersion",
    "connect_client",
    "http_app",
    "open_client",
    "open_server",
    "serve_http",
    "serve_stdio",
    "serve_stream",
]

# A server does not need the client: its modules are loaded by whoever names one of these.
_LATE = {
    "Client": "client",
    "PromptArgument": "client",
    "PromptInfo": "client",
    "ResourceInfo": "client",
    "ResourceTemplateInfo": "client",
    "ToolInfo": "client",
    "Target": "connect",
    "connect_client": "connect",
    "open_client": "connect",
    "StdioCommand": "transports.process",
    "HttpServer": "transports.http.edge",
}


def __getattr__(name: str) -> Any:
    module = _LATE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{module}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATE})
