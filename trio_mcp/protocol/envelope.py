"""JSON-RPC envelopes: what one message is, and how an answer is written.

Single messages only: batches left the protocol with revision 2025-06-18. An id is a string of at most 256 bytes or an
integer of 64 bits; never null, never a boolean, never a fraction (basic/index, section Requests). A message with a wrong
id is an error, not a notification.
"""

from __future__ import annotations

from typing import Any, Final

from ..errors import InvalidParams, InvalidRequest, ProtocolError
from ..limits import DEFAULT, Limits
from .jsontext import check_written, dumps, find_unwritable, loads, readable, shorten

__all__ = [
    "BadMessage",
    "ErrorResponse",
    "Message",
    "Notification",
    "Request",
    "RequestId",
    "Response",
    "encode_error",
    "encode_notification",
    "encode_request",
    "encode_result",
    "is_request_id",
    "parse_message",
    "parse_value",
]

RequestId = str | int

_INT_MIN: Final = -(2**63)
_INT_MAX: Final = 2**63 - 1
_ECHOED: Final = 4_096
"""Bytes of the longest id that is echoed in a refusal."""
_DIGITS: Final = 1_000
"""Digits of such an integer."""


class Request:
    """A request: `params` is `{}` when it was left out."""

    __slots__ = ("id", "method", "params")

    def __init__(self, id: RequestId, method: str, params: dict[str, Any]) -> None:
        self.id: RequestId = id
        self.method: str = method
        self.params: dict[str, Any] = params

    def __repr__(self) -> str:
        return f"<Request {self.id!r} {self.method}>"


class Notification:
    """A notification: `params` is `{}` when it was left out."""

    __slots__ = ("method", "params")

    def __init__(self, method: str, params: dict[str, Any]) -> None:
        self.method: str = method
        self.params: dict[str, Any] = params

    def __repr__(self) -> str:
        return f"<Notification {self.method}>"


class Response:
    """A successful response."""

    __slots__ = ("id", "result")

    def __init__(self, id: RequestId, result: dict[str, Any]) -> None:
        self.id: RequestId = id
        self.result: dict[str, Any] = result


class ErrorResponse:
    """An error response; `id` is None when the peer could not read ours."""

    __slots__ = ("error", "id")

    def __init__(self, id: RequestId | None, error: dict[str, Any]) -> None:
        self.id: RequestId | None = id
        self.error: dict[str, Any] = error


Message = Request | Notification | Response | ErrorResponse


class BadMessage(Exception):
    """A message that is not one. Carries the answer: `error`, and the `id` to send it with, if it could be read.

    Attributes:
        error: What is wrong.
        id: Of the message.
        response: Whether it was meant as a response: its id is one of whoever reads it, and no error is sent under that.
    """

    def __init__(self, error: ProtocolError, id: RequestId | None = None, *, response: bool = False) -> None:
        super().__init__(error.message)
        self.error: ProtocolError = error
        self.id: RequestId | None = id
        self.response: bool = response

    @property
    def reply_id(self) -> RequestId | None:
        """The id under which the error is sent."""
        return None if self.response else self.id


def is_request_id(value: object, limits: Limits = DEFAULT) -> bool:
    """Whether a value may be a request id or a progress token."""
    if type(value) is int:
        return _INT_MIN <= value <= _INT_MAX
    return type(value) is str and len(value) <= limits.id_bytes and len(value.encode()) <= limits.id_bytes


def parse_message(raw: bytes, limits: Limits = DEFAULT) -> Message:
    """Read one message.

    Raises:
        BadMessage: with the error to answer, and the id when it was readable.
    """
    try:
        value = loads(raw, limits)
    except ProtocolError as exc:
        raise BadMessage(exc) from None
    return parse_value(value, limits)


def parse_value(value: Any, limits: Limits = DEFAULT) -> Message:
    """As `parse_message`, for JSON that was read already."""
    if type(value) is not dict:
        if type(value) is list:
            raise BadMessage(InvalidRequest("Invalid request: batches are not part of this protocol, send one message"))
        raise BadMessage(InvalidRequest(f"Invalid request: expected a JSON object, got {shorten(value)}"))
    id: RequestId | None = None
    if "id" in value:
        id = value["id"]
        # An error without an id may come with `"id": null`: JSON-RPC writes it so, and then it is no fault.
        nameless = id is None and "error" in value and "method" not in value
        if not nameless and not is_request_id(id, limits):
            raise BadMessage(
                InvalidRequest(
                    f"Invalid request: id must be a string of at most {limits.id_bytes} bytes or a 64-bit integer, "
                    f"got {shorten(id)}"
                ),
                _readable_id(id),
            )
    if value.get("jsonrpc") != "2.0":
        got = shorten(value["jsonrpc"]) if "jsonrpc" in value else "nothing"
        raise BadMessage(InvalidRequest(f'Invalid request: jsonrpc must be "2.0", got {got}'), id)
    if "method" not in value:
        return _response(value, id)
    method = value["method"]
    if type(method) is not str or not method:
        raise BadMessage(InvalidRequest(f"Invalid request: method must be a string, got {shorten(method)}"), id)
    if "result" in value or "error" in value:
        raise BadMessage(InvalidRequest("Invalid request: a message has either a method or a result, not both"), id)
    params = value.get("params")
    if params is None:
        params = {}
    elif type(params) is not dict:
        if id is None:
            # A notification is never answered, so there is nobody to tell; its receiver finds what it needs missing.
            return Notification(method, {})
        raise BadMessage(InvalidParams(f"Invalid params: params must be an object, got {shorten(params)}"), id)
    if id is None:
        return Notification(method, params)
    return Request(id, method, params)


def _readable_id(id: Any) -> RequestId | None:
    """An id that is out of bounds, to be answered with it: whoever sent it waits for that."""
    if type(id) is str:
        return (
            id
            if len(id) <= _ECHOED and len(id.encode(errors="replace")) <= _ECHOED and find_unwritable(id) is None
            else None
        )
    return id if type(id) is int and abs(id) < 10**_DIGITS else None


def _response(value: dict[str, Any], id: RequestId | None) -> Message:
    if "result" in value and "error" not in value:
        result = value["result"]
        if id is None or type(result) is not dict:
            raise _bad_response("Invalid response: a result must be an object and must have an id", id)
        return Response(id, result)
    error = value.get("error")
    if "result" in value or type(error) is not dict:
        text = "Invalid request: expected a method, or a result or an error object"
        raise BadMessage(InvalidRequest(text), id, response="result" in value or "error" in value)
    if type(error.get("code")) is not int or type(error.get("message")) is not str:
        raise _bad_response("Invalid response: an error must have an integer code and a message", id)
    return ErrorResponse(id, error)


def _bad_response(text: str, id: RequestId | None) -> BadMessage:
    return BadMessage(InvalidRequest(text), id, response=True)


def encode_request(id: RequestId, method: str, params: dict[str, Any], limits: Limits = DEFAULT) -> bytes:
    """A request, without a line end.

    Raises:
        ValueError: it is larger than `limits.message_bytes`, nested deeper than `limits.json_depth`, or not JSON.
    """
    message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
    raw = dumps(message)
    bad = check_written(raw, message, limits.json_depth, limits.message_bytes)
    if bad:
        raise ValueError(f"{method}: the request is too large: {bad} (see Limits)")
    return raw


def encode_notification(method: str, params: dict[str, Any]) -> bytes:
    """A notification, without a line end. A lone surrogate in its text is no reason to fail the work that it tells of."""
    try:
        return dumps({"jsonrpc": "2.0", "method": method, "params": params})
    except ValueError:
        return dumps({"jsonrpc": "2.0", "method": method, "params": readable(params)})


def encode_result(id: RequestId, result: bytes) -> bytes:
    """A response around a result that is JSON text already."""
    name = b"%d" % id if type(id) is int else dumps(id)
    return b'{"jsonrpc":"2.0","id":' + name + b',"result":' + result + b"}"


def encode_error(id: RequestId | None, error: ProtocolError) -> bytes:
    """An error response. Without an id the member is left out, as the schema of the revision has it."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "error": error.to_wire()}
    if id is not None:
        message["id"] = id
    return dumps(message)
