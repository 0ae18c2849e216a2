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
    "subscriptions/listen": "SubscriptionsListenResult",
}
# Those of which the schema defines the result alone, and not the whole response.
_NO_RESPONSE: Final = frozenset({"subscriptions/listen"})
# The requests that may be answered with questions instead.
_ASKING: Final = frozenset({"tools/call", "resources/read", "prompts/get"})
ALL_METHODS: Final = frozenset(_RESULTS) - {"subscriptions/listen"} | {
    "notifications/progress",
    "notifications/cancelled",
}
"""What a conversation of these tests consists of."""
HTTP_METHODS: Final = ALL_METHODS - {"notifications/cancelled"}
"""The same over HTTP, where the end of the response stream is the cancellation."""

_SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"
_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
# What is only told to those who listen, and the member of the filter that asks for it.
_CHANGES: Final = {
    "notifications/tools/list_changed": "toolsListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
    "notifications/resources/updated": "resourceSubscriptions",
}
# What a server may ask for, and the capability of the client that allows it.
_QUESTIONS: Final = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}

_ERRORS: Final = {
    -32600: "InvalidRequestError",
    -32601: "MethodNotFoundError",
    -32602: "InvalidParamsError",
    -32603: "InternalError",
    -32700: "ParseError",
}
# The same for the whole response.
_ERROR_RESPONSES: Final = {
    -32020: "HeaderMismatchError",
    -32021: "MissingRequiredClientCapabilityError",
    -32022: "UnsupportedProtocolVersionError",
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


def results(messages: list[Message], kind: str) -> list[Any]:
    """All results of this type, in order."""
    bodies = [message.body for message in messages if message.sender == "server"]
    return [body["result"] for body in bodies if "result" in body and body["result"]["resultType"] == kind]


def changes(messages: list[Message]) -> list[Any]:
    """What the server told the listener: the method of each notification and the resource it is about, in order."""
    bodies = [message.body for message in messages if message.sender == "server"]
    return [[body["method"], body["params"].get("uri")] for body in bodies if "method" in body]


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
    """Follows one connection: which requests are open, which were called off, and who listens to what."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._requests: dict[Any, Any] = {}
        self._tokens: dict[Any, Any] = {}
        self._ended: dict[Any, str] = {}
        self._agreed: dict[Any, Any] = {}

    def open(self) -> list[Any]:
        """The ids that still wait for an answer."""
        return [key for key in self._requests if key not in self._ended]

    def wrong(self, message: Message) -> list[str]:
        """What is wrong with the next message."""
        if message.closed:
            for key in self.open():
                self._ended[key] = "cancelled"
            return []
        try:
            body = message.body
        except ValueError:
            return ["not JSON"]
        errors = self._schema.errors("JSONRPCMessage", body)
        if not isinstance(body, dict):
            return errors
        if message.sender == "client":
            return errors + (self._request(body) if "id" in body else self._client_notification(body))
        return errors + (self._server_notification(body) if "method" in body else self._answer(body))

    def _request(self, body: Any) -> list[str]:
        key = body["id"]
        meta = _member(body, "params", "_meta")
        out = self._schema.errors("JSONRPCRequest", body) + self._schema.errors("ClientRequest", body)
        if key in self._requests:
            out.append("the id was used before")
        if meta.get("io.modelcontextprotocol/protocolVersion") != REVISION:
            out.append(f"not of revision {REVISION}")
        self._requests[key] = body
        if "progressToken" in meta:
            self._tokens[meta["progressToken"]] = key
        return out

    def _client_notification(self, body: Any) -> list[str]:
        out = self._schema.errors("JSONRPCNotification", body) + self._schema.errors("ClientNotification", body)
        key = _member(body, "params").get("requestId")
        if key not in self._requests:
            out.append("cancels a request that was never made")
        self._ended.setdefault(key, "cancelled")
        return out

    def _server_notification(self, body: Any) -> list[str]:
        out = self._schema.errors("JSONRPCNotification", body) + self._schema.errors("ServerNotification", body)
        if body["method"] == "notifications/progress":
            key = self._tokens.get(_member(body, "params").get("progressToken"))
            if key is None:
                out.append("progress that nobody asked for")
            elif key in self._ended:
                out.append(f"progress of a request that was {self._ended[key]}")
        elif body["method"] == "notifications/cancelled":
            key = _member(body, "params").get("requestId")
            if self._requests.get(key, {}).get("method") != "subscriptions/listen":
                out.append("cancels what is no subscription")
            self._ended.setdefault(key, "cancelled")
        elif body["method"] == _ACKNOWLEDGED or body["method"] in _CHANGES:
            out += self._told(body)
        return out

    def _told(self, body: Any) -> list[str]:
        """What is wrong with a message of a listen stream."""
        key = _member(body, "params", "_meta").get(_SUBSCRIPTION_ID)
        request = self._requests.get(key, {})
        if request.get("method") != "subscriptions/listen":
            return ["belongs to a subscription that was never made"]
        if key in self._ended:
            return [f"belongs to a subscription that was {self._ended[key]}"]
        if body["method"] == _ACKNOWLEDGED:
            agreed = _member(body, "params", "notifications")
            if key in self._agreed:
                return ["the subscription was acknowledged before"]
            self._agreed[key] = agreed
            asked = _member(request, "params", "notifications")
            return ["acknowledges more than was asked for"] if _exceeds(agreed, asked) else []
        if key not in self._agreed:
            return ["the subscription was not acknowledged"]
        # The resource may be a part of the one that was asked for, so its name says nothing.
        return [] if self._agreed[key].get(_CHANGES[body["method"]]) else ["tells what was not acknowledged"]

    def _answer(self, body: Any) -> list[str]:
        key = body.get("id")
        if key not in self._requests:
            return ["answers a request that was never made"]
        if key in self._ended:
            return [f"answers a request that was {self._ended[key]}"]
        self._ended[key] = "answered"
        if "error" in body:
            return self._schema.errors("JSONRPCErrorResponse", body) + self._error(body)
        request = self._requests[key]
        result = _member(body, "result")
        out = self._schema.errors("JSONRPCResultResponse", body)
        if request["method"] not in _RESULTS:
            return [*out, f"these tests do not know the result of {request['method']}"]
        name = _RESULTS[request["method"]]
        if request["method"] not in _NO_RESPONSE:
            out += self._schema.errors(f"{name}Response", body)
        if request["method"] in _ASKING and result.get("resultType") == "input_required":
            return out + self._schema.errors("InputRequiredResult", result) + _question(request, result)
        out += self._schema.errors(name, result)
        if result.get("resultType") != "complete":
            out.append("not complete")
        if request["method"] == "subscriptions/listen":
            out += self._end_of_stream(key, result)
        return out

    def _error(self, body: Any) -> list[str]:
        code = _member(body, "error").get("code")
        if code in _ERROR_RESPONSES:
            return self._schema.errors(_ERROR_RESPONSES[code], body)
        return self._schema.errors(_ERRORS[code], body["error"]) if code in _ERRORS else ["unknown error code"]

    def _end_of_stream(self, key: Any, result: Any) -> list[str]:
        """What is wrong with the result that ends a listen stream."""
        out: list[str] = []
        if key not in self._agreed:
            out.append("the subscription was not acknowledged")
        if _member(result, "_meta").get(_SUBSCRIPTION_ID) != key:
            out.append("ends another subscription than it answers")
        return out


def _member(value: Any, *names: str) -> Any:
    """A member of a member; an empty object where there is no object. Whether there must be one, the schema says."""
    for name in names:
        value = value.get(name)
        if not isinstance(value, dict):
            return {}
    return value


def _exceeds(agreed: Any, asked: Any) -> bool:
    """Whether a filter that was acknowledged is wider than the one that was asked for."""
    uris = agreed.get("resourceSubscriptions", [])
    return not {*uris} <= {*asked.get("resourceSubscriptions", [])} or any(
        agreed.get(name) and not asked.get(name) for name in _CHANGES.values()
    )


def _question(request: Any, result: Any) -> list[str]:
    """What the schema does not say of a result that asks (basic/patterns/mrtr, Server Requirements)."""
    if "inputRequests" not in result and "requestState" not in result:
        return ["asks for nothing"]
    able = _member(request, "params", "_meta", "io.modelcontextprotocol/clientCapabilities")
    methods = [_member(result, "inputRequests", key).get("method") for key in _member(result, "inputRequests")]
    return [
        f"asks with {method}, which the client cannot answer"
        for method in methods
        if _QUESTIONS.get(method) not in able
    ]
