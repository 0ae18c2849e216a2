"""The Model Context Protocol for trio.

A request is a tree of trio tasks with one cancel scope around it: when the caller goes away, the work stops.

Serve with `Server`; call with `open_client`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .client import (
        Change,
        Changes,
        Client,
        PromptArgument,
        PromptInfo,
        RemoteTask,
        ResourceInfo,
        ResourceTemplateInfo,
        TaskState,
        ToolInfo,
    )
    from .connect import ClientOptions, ConnectedClient, Target, connect_client, open_client
    from .errors import (
        ClientRefused,
        ConnectionClosed,
        HeaderMismatch,
        HttpError,
        InputNeeded,
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
        TaskCancelled,
        TimedOut,
        ToolError,
        UnsupportedVersion,
        UrlElicitationRequired,
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
    from .protocol.results import CallToolResult, GetPromptResult, PromptMessage, ReadResourceResult
    from .protocol.tasks import Signal, Task
    from .serve import OpenServer, http_app, open_server, serve_http, serve_stdio, serve_stream
    from .server.ask.context import Context
    from .server.declare.completion import Completion
    from .server.declare.extensions import Extension, ExtensionResult
    from .server.declare.options import PromptOptions, ResourceOptions, ToolOptions
    from .server.declare.parameters import Header
    from .server.declare.server import Server
    from .server.peer.questions import (
        Elicited,
        InputRequired,
        Question,
        form_question,
        roots_question,
        sample_question,
        url_question,
    )
    from .server.peer.session import Session
    from .tasks.memory import MemoryTaskStore
    from .tasks.sqlite import SQLiteTaskStore
    from .tasks.store import TaskCount, TaskStore, TaskStoreError
    from .transports.http.edge import HttpServer
    from .transports.http.endpoint import HttpAccepted, HttpEndpoint, HttpRefusal
    from .transports.http.exchange import HttpExchange, HttpFields
    from .transports.process import StdioCommand

__all__ = [
    "DEFAULT_LIMITS",
    "Audio",
    "CallToolResult",
    "Change",
    "Changes",
    "Client",
    "ClientOptions",
    "ClientRefused",
    "Completion",
    "ConnectedClient",
    "ConnectionClosed",
    "ContentBlock",
    "Context",
    "Elicited",
    "EmbeddedResource",
    "Extension",
    "ExtensionResult",
    "GetPromptResult",
    "Header",
    "HeaderMismatch",
    "HttpAccepted",
    "HttpEndpoint",
    "HttpError",
    "HttpExchange",
    "HttpFields",
    "HttpRefusal",
    "HttpServer",
    "Image",
    "InputNeeded",
    "InputRequired",
    "InternalError",
    "InvalidParams",
    "InvalidRequest",
    "InvalidResponse",
    "LegacyServer",
    "Limits",
    "MCPError",
    "MemoryTaskStore",
    "MethodNotFound",
    "MissingClientCapability",
    "OpenServer",
    "ParseError",
    "PromptArgument",
    "PromptInfo",
    "PromptMessage",
    "PromptOptions",
    "ProtocolError",
    "Question",
    "ReadResourceResult",
    "RegistrationError",
    "RemoteTask",
    "RequestTimeout",
    "ResourceContents",
    "ResourceInfo",
    "ResourceLink",
    "ResourceNotFound",
    "ResourceOptions",
    "ResourceTemplateInfo",
    "Role",
    "SQLiteTaskStore",
    "Server",
    "ServerBusy",
    "Session",
    "Signal",
    "StdioCommand",
    "Target",
    "Task",
    "TaskCancelled",
    "TaskCount",
    "TaskState",
    "TaskStore",
    "TaskStoreError",
    "Text",
    "TimedOut",
    "ToolError",
    "ToolInfo",
    "ToolOptions",
    "UnsupportedVersion",
    "UrlElicitationRequired",
    "connect_client",
    "form_question",
    "http_app",
    "open_client",
    "open_server",
    "roots_question",
    "sample_question",
    "serve_http",
    "serve_stdio",
    "serve_stream",
    "url_question",
]

# Names are loaded when they are first used: a server does not need the client, and the command line is up before trio is.
_MODULES = {
    "ClientRefused": "errors",
    "UrlElicitationRequired": "errors",
    "Session": "server.peer.session",
    "ConnectionClosed": "errors",
    "HeaderMismatch": "errors",
    "HttpError": "errors",
    "InputNeeded": "errors",
    "InternalError": "errors",
    "InvalidParams": "errors",
    "InvalidRequest": "errors",
    "InvalidResponse": "errors",
    "LegacyServer": "errors",
    "MCPError": "errors",
    "MethodNotFound": "errors",
    "MissingClientCapability": "errors",
    "ParseError": "errors",
    "ProtocolError": "errors",
    "RegistrationError": "errors",
    "RequestTimeout": "errors",
    "ResourceNotFound": "errors",
    "ServerBusy": "errors",
    "TaskCancelled": "errors",
    "TimedOut": "errors",
    "ToolError": "errors",
    "UnsupportedVersion": "errors",
    "Limits": "limits",
    "Audio": "protocol.content",
    "ContentBlock": "protocol.content",
    "EmbeddedResource": "protocol.content",
    "Image": "protocol.content",
    "ResourceContents": "protocol.content",
    "ResourceLink": "protocol.content",
    "Role": "protocol.content",
    "Text": "protocol.content",
    "CallToolResult": "protocol.results",
    "GetPromptResult": "protocol.results",
    "PromptMessage": "protocol.results",
    "ReadResourceResult": "protocol.results",
    "OpenServer": "serve",
    "PromptOptions": "server.declare.options",
    "ResourceOptions": "server.declare.options",
    "ToolOptions": "server.declare.options",
    "Server": "server.declare.server",
    "http_app": "serve",
    "open_server": "serve",
    "serve_http": "serve",
    "serve_stdio": "serve",
    "serve_stream": "serve",
    "Completion": "server.declare.completion",
    "Context": "server.ask.context",
    "Extension": "server.declare.extensions",
    "ExtensionResult": "server.declare.extensions",
    "MemoryTaskStore": "tasks.memory",
    "SQLiteTaskStore": "tasks.sqlite",
    "TaskCount": "tasks.store",
    "TaskStore": "tasks.store",
    "TaskStoreError": "tasks.store",
    "Signal": "protocol.tasks",
    "Task": "protocol.tasks",
    "Elicited": "server.peer.questions",
    "InputRequired": "server.peer.questions",
    "Question": "server.peer.questions",
    "form_question": "server.peer.questions",
    "roots_question": "server.peer.questions",
    "sample_question": "server.peer.questions",
    "url_question": "server.peer.questions",
    "Header": "server.declare.parameters",
    "Change": "client",
    "Changes": "client",
    "Client": "client",
    "PromptArgument": "client",
    "PromptInfo": "client",
    "RemoteTask": "client",
    "TaskState": "client",
    "ResourceInfo": "client",
    "ResourceTemplateInfo": "client",
    "ToolInfo": "client",
    "Target": "connect",
    "ClientOptions": "connect",
    "ConnectedClient": "connect",
    "connect_client": "connect",
    "open_client": "connect",
    "HttpAccepted": "transports.http.endpoint",
    "HttpEndpoint": "transports.http.endpoint",
    "HttpExchange": "transports.http.exchange",
    "HttpFields": "transports.http.exchange",
    "HttpRefusal": "transports.http.endpoint",
    "HttpServer": "transports.http.edge",
    "StdioCommand": "transports.process",
}


def __getattr__(name: str) -> Any:
    if name == "DEFAULT_LIMITS":
        value = importlib.import_module(".limits", __name__).DEFAULT
    elif name in _MODULES:
        value = getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, "DEFAULT_LIMITS"})
