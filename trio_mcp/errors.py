"""Every public exception.

Two questions sort them: whose fault it is, and what the caller can do. The JSON-RPC code and the HTTP status stand on
the class, so that no table has to repeat them.

- `ProtocolError` and its leaves travel as JSON-RPC errors. A handler may raise one; a client raises what it received.
- `ToolError` travels as text for the model. A handler raises it; a client raises it only when asked to.
- The others never travel: they are about this end (`RegistrationError`, `ConnectionClosed`, `RequestTimeout`, …).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

__all__ = [
    "ClientRefused",
    "ConnectionClosed",
    "HeaderMismatch",
    "HttpError",
    "InputNeeded",
    "InternalError",
    "InvalidParams",
    "InvalidRequest",
    "InvalidResponse",
    "LegacyServer",
    "MCPError",
    "MethodNotFound",
    "MissingClientCapability",
    "ParseError",
    "ProtocolError",
    "RegistrationError",
    "RequestTimeout",
    "ResourceNotFound",
    "ServerBusy",
    "TaskCancelled",
    "TimedOut",
    "ToolError",
    "UnsupportedVersion",
    "UrlElicitationRequired",
]


class MCPError(Exception):
    """The root of every exception that `trio_mcp` raises by itself."""


class ToolError(MCPError):
    """An error that the model is meant to read.

    Raised in a tool, the text goes out as written, in a result with `isError` (tools, section Error Handling). Raised in
    a resource or a prompt it becomes the message of a -32603 error. `Client.call_tool(..., raise_on_error=True)` raises
    it with the text that the server sent.
    """


class ClientRefused(ToolError):
    """The client of a session answered a question with an error: its user said no, or it cannot do this. A tool that does not
    catch it fails with this text.

    Args:
        message: What the client said, and to what.
        code: The code of its error.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code: int = code


class ProtocolError(MCPError):
    """A JSON-RPC error, received from the peer or to be sent to it.

    Args:
        message: One line for a person.
        data: Any JSON value; sent as `error.data`.
        code: Only for codes that have no class here.

    Attributes:
        code: The JSON-RPC error code (basic/index, section Error Codes).
        http_status: The HTTP status that carries it.
        retry_after: Seconds for a `Retry-After` header, or None.
    """

    code: int = -32603
    http_status: ClassVar[int] = 500

    def __init__(self, message: str, data: Any = None, *, code: int | None = None) -> None:
        super().__init__(message)
        self.message: str = message
        self.data: Any = data
        self.retry_after: float | None = None
        if code is not None:
            self.code = code

    def to_wire(self) -> dict[str, Any]:
        """The `error` member of a response."""
        error: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.data is not None:
            error["data"] = self.data
        return error

    @staticmethod
    def from_wire(error: dict[str, Any]) -> ProtocolError:
        """The exception for a received `error` member: the class of its code, or `ProtocolError` itself."""
        code = error["code"]
        data = error.get("data")
        # Before 2026-07-28 it had a code of its own (server/resources, section Error Handling).
        if code == -32002 or (code == InvalidParams.code and isinstance(data, dict) and set(data) == {"uri"}):
            uri = data.get("uri") if isinstance(data, dict) else None
            return ResourceNotFound(uri if isinstance(uri, str) else None, error["message"])
        cls = _BY_CODE.get(code, ProtocolError)
        return cls(error["message"], data, code=code)

    def __str__(self) -> str:
        return f"{self.message} (code {self.code})"


class ParseError(ProtocolError):
    """The bytes are not JSON text that we accept (-32700)."""

    code = -32700
    http_status = 400


class InvalidRequest(ProtocolError):
    """JSON, but not a JSON-RPC message that this protocol knows (-32600)."""

    code = -32600
    http_status = 400


class MethodNotFound(ProtocolError):
    """No such method in this revision, or the server did not declare its capability (-32601)."""

    code = -32601
    http_status = 404


class InvalidParams(ProtocolError):
    """The method is known, its `params` or what they name is not (-32602)."""

    code = -32602
    http_status = 400


class ResourceNotFound(InvalidParams):
    """No resource has this URI (-32602 with `data.uri`; resources, section Error Handling).

    A handler of a template raises it for values that name nothing.

    Args:
        uri: Which; without it the one that was asked for.
        message: Something better to say than "Resource not found".

    Attributes:
        uri: As given.
        given: The message, as given.
    """

    def __init__(self, uri: str | None = None, message: str | None = None) -> None:
        self.uri: str | None = uri
        self.given: str | None = message
        text = message or ("Resource not found" if uri is None else f"Resource not found: {uri}")
        super().__init__(text, None if uri is None else {"uri": uri})


class InternalError(ProtocolError):
    """The server failed (-32603). The text never holds an exception's own text, unless the server exposes errors."""

    code = -32603
    http_status = 500


class HeaderMismatch(ProtocolError):
    """A header does not say what the body says (-32020)."""

    code = -32020
    http_status = 400


class MissingClientCapability(ProtocolError):
    """The request needs a capability that the client did not declare (-32021, `data.requiredCapabilities`)."""

    code = -32021
    http_status = 400


class UnsupportedVersion(ProtocolError):
    """The protocol version is not one of `data.supported` (-32022; basic/versioning)."""

    code = -32022
    http_status = 400


class ServerBusy(ProtocolError):
    """All places are taken and the queue is full. Try again after `retry_after` seconds.

    The code lies outside the range that JSON-RPC reserves, as basic/index asks of codes that the specification does not
    define; it repeats the HTTP status.
    """

    code = 503
    http_status = 503

    def __init__(self, message: str, data: Any = None, *, code: int | None = None) -> None:
        super().__init__(message, data, code=code)
        seconds = data.get("retryAfter") if isinstance(data, dict) else None
        # As it came from a server: an integer may be too large for a float.
        if isinstance(seconds, int | float) and 0 <= seconds < 1e9:
            self.retry_after: float | None = float(seconds)


class UrlElicitationRequired(ProtocolError):
    """Pages that the user has to visit before the request can be tried again (-32042; 2025-11-25, client/elicitation).

    Only revision 2025-11-25 has it; in any other a tool fails with these addresses in its text. `ctx.elicit_url` asks in every
    revision, and waits.

    Args:
        pages: What to visit: objects with `url`, `message` and `elicitationId`.
        message: For people.
    """

    code = -32042
    http_status = 400

    def __init__(self, pages: Sequence[Mapping[str, str]], message: str = "Visit these pages first") -> None:
        for page in pages:
            missing = [name for name in ("url", "message", "elicitationId") if not isinstance(page.get(name), str)]
            if missing:
                raise ValueError(
                    f"UrlElicitationRequired: a page needs {', '.join(missing)} as text, got {dict(page)!r}"
                )
        self.pages: list[dict[str, str]] = [{**page, "mode": "url"} for page in pages]
        super().__init__(message, {"elicitations": self.pages})


class TimedOut(ProtocolError):
    """The server gave up the request at its deadline."""

    code = 504
    http_status = 504


class RegistrationError(MCPError):
    """A tool, resource or prompt cannot be registered. The text names the function and the parameter."""


class ConnectionClosed(MCPError):
    """The connection ended; every call that was under way failed with this, and each later one will.

    Attributes:
        exit_status: The exit status of the server process (negative: the signal that ended it), or None.
    """

    def __init__(self, message: str, *, exit_status: int | None = None) -> None:
        super().__init__(message)
        self.exit_status: int | None = exit_status


class RequestTimeout(MCPError):
    """No answer within the client's own timeout. The server was told to stop the request."""


class InputNeeded(MCPError):
    """The server needs input to go on, and this client has no callback that could give it.

    Attributes:
        requests: What it asks for, by key, as the protocol has it.
        state: To be sent back with the answers, or None.
    """

    def __init__(self, message: str, *, requests: dict[str, Any], state: str | None) -> None:
        super().__init__(message)
        self.requests = requests
        self.state = state


class TaskCancelled(MCPError):
    """The task was cancelled, so it has no result."""


class InvalidResponse(MCPError):
    """The server answered with something that is not a valid result of the method."""


class HttpError(MCPError):
    """The server's HTTP answer holds no message of the protocol: a proxy's page, a redirect away, a wrong path.

    Attributes:
        url: What was asked.
        status: The HTTP status.
    """

    def __init__(self, message: str, *, url: str, status: int) -> None:
        super().__init__(message)
        self.url: str = url
        self.status: int = status


class LegacyServer(MCPError):
    """The server speaks only revisions with an `initialize` handshake, which this client does not."""


_BY_CODE: dict[int, type[ProtocolError]] = {
    cls.code: cls
    for cls in (
        ParseError,
        InvalidRequest,
        MethodNotFound,
        InvalidParams,
        InternalError,
        HeaderMismatch,
        MissingClientCapability,
        UnsupportedVersion,
        ServerBusy,
        TimedOut,
    )
}
