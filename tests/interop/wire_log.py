"""What went over the wire, as `tap.py` or `http_log.py` wrote it down, and whether it was right."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jsonschema_rs

REVISION: Final = "2026-07-28"

# For each request: the definition of its result and of the whole response.
_RESULTS: Final = {
    "server/discover": "DiscoverResult",
    "tools/list": "ListToolsResult",
    "tools/call": "CallToolResult",
    "resources/list": "ListResourcesResult",
    "resources/templates/list": "ListResourceTemplatesResult",
    "resources/read": "ReadResourceResult",
    "prompts/list": "ListPromptsResult",
    "prompts/get": "GetPromptResult",
}
# The requests that may be answered with questions instead.
_ASKING: Final = frozenset({"tools/call", "resources/read", "prompts/get"})
ALL_METHODS: Final = frozenset({*_RESULTS, "notifications/progress", "notifications/cancelled"})
"""What a conversation of these tests consists of."""
HTTP_METHODS: Final = ALL_METHODS - {"notifications/cancelled"}
"""The same over HTTP, where the end of the response stream is the cancellation."""

_ERRORS: Final = {
    -32600: "InvalidRequestError",
    -32601: "MethodNotFoundError",
    -32602: "InvalidParamsError",
    -32603: "InternalError",
    -32700: "ParseError",
}


@dataclass(frozen=True, slots=True)
class Message:
    """One line of the log.

    Attributes:
        sender: "client" or "server".
        ns: When, on the monotonic clock.
        tap: The connection.
        text: The line.
        closed: There is no line: the client closed the connection. This is only written down for HTTP.
    """

    sender: str
    ns: int
    tap: int
    text: str
    closed: bool = False

    @property
    def body(self) -> Any:
        """The message."""
        return json.loads(self.text)


def read_log(path: Path) -> list[Message]:
    """All messages, in the order of cause and effect."""
    entries = (json.loads(line) for line in path.read_text().splitlines())
    return [
        Message(entry["sender"], entry["ns"], entry["tap"], entry["line"], entry.get("closed", False))
        for entry in entries
    ]


def methods(messages: Iterable[Message]) -> set[str]:
    """The methods of everything that was asked and told."""
    return {message.body["method"] for message in messages if not message.closed and "method" in message.body}


class Schema:
    """The JSON Schema of the revision."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema
        self._validators: dict[str, Any] = {}

    def errors(self, definition: str, value: Any) -> list[str]:
        """What is wrong with a value of this definition."""
        validator = self._validators.get(definition)
        if validator is None:
            assert definition in self._schema["$defs"]
            validator = jsonschema_rs.validator_for(
                {**self._schema, "$ref": f"#/$defs/{definition}"}, validate_formats=True
            )
            self._validators[definition] = validator
        return [f"{definition}: {error.message}" for error in validator.iter_errors(value)]

    def problems(self, messages: Sequence[Message]) -> list[str]:
        """Everything that is wrong in a log: one line a thing; nothing when all is right."""
        out: list[str] = []
        for tap in dict.fromkeys(message.tap for message in messages):
            connection = _Connection(self)
            for message in messages:
                if message.tap == tap:
                    out += [f"{message.sender}: {text}: {message.text}" for text in connection.wrong(message)]
            out += [f"client: request {key} was not answered" for key in connection.open()]
        return out


class _Connection:
    """Follows one connection: which requests are open, which were called off."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._methods: dict[Any, str] = {}
        self._tokens: dict[Any, Any] = {}
        self._ended: dict[Any, str] = {}

    def open(self) -> list[Any]:
        """The ids that still wait for an answer."""
        return [key for key in self._methods if key not in self._ended]

    def wrong(self, message: Message) -> list[str]:
        """What is wrong with the next message."""
        if message.closed:
            for key in self.open():
                self._ended[key] = "cancelled"
            return []
        body = message.body
        errors = self._schema.errors("JSONRPCMessage", body)
        if message.sender == "client":
            return errors + (self._request(body) if "id" in body else self._client_notification(body))
        return errors + (self._server_notification(body) if "method" in body else self._answer(body))

    def _request(self, body: Any) -> list[str]:
        key = body["id"]
        meta = body["params"]["_meta"]
        out = self._schema.errors("JSONRPCRequest", body) + self._schema.errors("ClientRequest", body)
        if key in self._methods:
            out.append("the id was used before")
        if meta["io.modelcontextprotocol/protocolVersion"] != REVISION:
            out.append(f"not of revision {REVISION}")
        self._methods[key] = body["method"]
        if "progressToken" in meta:
            self._tokens[meta["progressToken"]] = key
        return out

    def _client_notification(self, body: Any) -> list[str]:
        out = self._schema.errors("JSONRPCNotification", body) + self._schema.errors("ClientNotification", body)
        key = body["params"]["requestId"]
        if key not in self._methods:
            out.append("cancels a request that was never made")
        self._ended.setdefault(key, "cancelled")
        return out

    def _server_notification(self, body: Any) -> list[str]:
        out = self._schema.errors("JSONRPCNotification", body) + self._schema.errors("ServerNotification", body)
        if body["method"] == "notifications/progress":
            key = self._tokens.get(body["params"]["progressToken"])
            if key is None:
                out.append("progress that nobody asked for")
            elif key in self._ended:
                out.append(f"progress of a request that was {self._ended[key]}")
        return out

    def _answer(self, body: Any) -> list[str]:
        key = body.get("id")
        if key not in self._methods:
            return ["answers a request that was never made"]
        if key in self._ended:
            return [f"answers a request that was {self._ended[key]}"]
        self._ended[key] = "answered"
        if "error" in body:
            out = self._schema.errors("JSONRPCErrorResponse", body)
            name = _ERRORS.get(body["error"]["code"])
            return out + (self._schema.errors(name, body["error"]) if name else ["unknown error code"])
        method = self._methods[key]
        name = _RESULTS[method]
        response = f"{name}Response"
        if method in _ASKING and body["result"].get("resultType") == "input_required":
            name = "InputRequiredResult"
        return (
            self._schema.errors("JSONRPCResultResponse", body)
            + self._schema.errors(response, body)
            + self._schema.errors(name, body["result"])
        )
