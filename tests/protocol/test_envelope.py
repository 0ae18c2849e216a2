"""Envelopes: which JSON is a message, and that an id comes back as it went."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_mcp.errors import InvalidParams, InvalidRequest, MCPError, ParseError, ProtocolError, ServerBusy
from trio_mcp.limits import Limits
from trio_mcp.protocol.envelope import (
    BadMessage,
    ErrorResponse,
    Notification,
    Request,
    Response,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
    is_request_id,
    parse_message,
    parse_value,
)
from trio_mcp.protocol.jsontext import dumps

IDS = st.integers(-(2**63), 2**63 - 1) | st.text(st.characters(exclude_categories=["Cs"]), max_size=64)
GOOD_IDS: list[str | int] = [
    "1",
    1,
    "01",
    "",
    -5,
    0,
    9007199254740993,
    2**63 - 1,
    -(2**63),
    "null",
    "a" * 256,
    "é" * 128,
    "😀" * 64,
    "\x00",
]
BAD_IDS: list[Any] = [
    None,
    1.5,
    1.0,
    True,
    False,
    [],
    {},
    [1],
    "a" * 257,
    "é" * 128 + "a",
    "é" * 129,
    "😀" * 65,
    2**63,
    -(2**63) - 1,
    2**64,
    10**30,
]


def refused(value: Any) -> tuple[type[MCPError], str, str | int | None]:
    with pytest.raises(BadMessage) as caught:
        parse_value(value)
    assert str(caught.value) == caught.value.error.message
    return type(caught.value.error), caught.value.error.message, caught.value.id


@pytest.mark.parametrize("id", GOOD_IDS)
def test_an_id_comes_back_with_value_and_type(id: str | int) -> None:
    assert is_request_id(id)
    read = parse_message(encode_request(id, "ping", {}))
    assert isinstance(read, Request)
    assert (read.id, type(read.id)) == (id, type(id))
    raw = encode_result(id, b'{"a":1}')
    assert json.loads(raw) == {"jsonrpc": "2.0", "id": id, "result": {"a": 1}}
    answer = parse_message(raw)
    assert isinstance(answer, Response)
    assert (answer.id, type(answer.id), answer.result) == (id, type(id), {"a": 1})
    failure = parse_message(encode_error(id, InvalidRequest("no")))
    assert isinstance(failure, ErrorResponse)
    assert (failure.id, type(failure.id), failure.error) == (id, type(id), {"code": -32600, "message": "no"})


@given(IDS)
def test_any_id_comes_back(id: str | int) -> None:
    read = parse_message(encode_request(id, "m", {"a": [1]}))
    assert isinstance(read, Request)
    assert (read.id, type(read.id), read.method, read.params) == (id, type(id), "m", {"a": [1]})
    answer = parse_message(encode_result(id, b"{}"))
    assert isinstance(answer, Response)
    assert (answer.id, type(answer.id)) == (id, type(id))


@pytest.mark.parametrize("id", BAD_IDS, ids=lambda id: repr(id)[:20])
def test_a_wrong_id_is_an_error_and_not_a_notification(id: Any) -> None:
    assert is_request_id(id) is False
    shown = dumps(id).decode()
    shown = shown if len(shown) <= 80 else shown[:79] + "…"
    why = f"Invalid request: id must be a string of at most 256 bytes or a 64-bit integer, got {shown}"
    # One that is only out of bounds is echoed, since whoever sent it waits for that.
    echoed = id if type(id) in (int, str) else None
    assert refused({"jsonrpc": "2.0", "id": id, "method": "ping"}) == (InvalidRequest, why, echoed)
    assert refused({"jsonrpc": "2.0", "id": id, "result": {}}) == (InvalidRequest, why, echoed)


@pytest.mark.parametrize("id", ["a" * 4_097, "é" * 2_049, 10**1_000], ids=["text", "bytes", "digits"])
def test_an_id_far_out_of_bounds_is_not_echoed(id: Any) -> None:
    assert refused({"jsonrpc": "2.0", "id": id, "method": "ping"})[2] is None


def test_the_size_of_an_id_is_a_limit() -> None:
    limits = Limits(id_bytes=4)
    assert is_request_id("éé", limits)
    assert not is_request_id("ééa", limits)
    with pytest.raises(BadMessage) as caught:
        parse_message(b'{"jsonrpc":"2.0","id":"abcde","method":"m"}', limits)
    assert caught.value.error.message == (
        'Invalid request: id must be a string of at most 4 bytes or a 64-bit integer, got "abcde"'
    )


def test_a_request() -> None:
    read = parse_message(b'{"jsonrpc":"2.0","id":"7","method":"tools/call","params":{"name":"add"},"extra":1}')
    assert isinstance(read, Request)
    assert (read.id, read.method, read.params) == ("7", "tools/call", {"name": "add"})
    assert repr(read) == "<Request '7' tools/call>"


def test_a_notification() -> None:
    read = parse_message(b'{"jsonrpc":"2.0","method":"notifications/x","params":{"a":null}}')
    assert isinstance(read, Notification)
    assert (read.method, read.params) == ("notifications/x", {"a": None})
    assert repr(read) == "<Notification notifications/x>"


@pytest.mark.parametrize("params", [b"", b',"params":null', b',"params":{}'])
def test_params_may_be_left_out(params: bytes) -> None:
    request = parse_message(b'{"jsonrpc":"2.0","id":1,"method":"m"' + params + b"}")
    notice = parse_message(b'{"jsonrpc":"2.0","method":"m"' + params + b"}")
    assert isinstance(request, Request) and isinstance(notice, Notification)
    assert request.params == notice.params == {}


@pytest.mark.parametrize(("params", "shown"), [([], "[]"), ([1], "[1]"), ("a", '"a"'), (0, "0"), (False, "false")])
def test_params_must_be_an_object(params: Any, shown: str) -> None:
    why = f"Invalid params: params must be an object, got {shown}"
    assert refused({"jsonrpc": "2.0", "id": 3, "method": "m", "params": params}) == (InvalidParams, why, 3)


def test_an_error_response() -> None:
    read = parse_message(b'{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no","data":[1]}}')
    assert isinstance(read, ErrorResponse)
    assert (read.id, read.error) == (1, {"code": -1, "message": "no", "data": [1]})


@pytest.mark.parametrize("id", ["", '"id":null,'])
def test_an_error_response_may_lack_an_id(id: str) -> None:
    read = parse_message(f'{{"jsonrpc":"2.0",{id}"error":{{"code":-1,"message":"no"}}}}'.encode())
    assert isinstance(read, ErrorResponse)
    assert (read.id, read.error) == (None, {"code": -1, "message": "no"})


@pytest.mark.parametrize("version", [{}, {"jsonrpc": "1.0"}, {"jsonrpc": 2.0}, {"jsonrpc": None}, {"jsonrpc": ["2.0"]}])
@pytest.mark.parametrize(
    ("body", "id"),
    [
        ({"id": 1, "method": "m"}, 1),
        ({"method": "m"}, None),
        ({"id": "a", "result": {}}, "a"),
        ({"id": 1, "error": {"code": 1, "message": "m"}}, 1),
        ({"error": {"code": 1, "message": "m"}}, None),
        # The same as the line before, in the spelling of JSON-RPC.
        ({"id": None, "error": {"code": 1, "message": "m"}}, None),
    ],
)
def test_every_message_names_its_version(version: dict[str, Any], body: dict[str, Any], id: str | int | None) -> None:
    shown = dumps(version["jsonrpc"]).decode() if version else "nothing"
    why = f'Invalid request: jsonrpc must be "2.0", got {shown}'
    assert refused({**version, **body}) == (InvalidRequest, why, id)


@pytest.mark.parametrize(("method", "shown"), [("", '""'), (1, "1"), (None, "null"), (["m"], '["m"]')])
def test_a_method_is_text(method: Any, shown: str) -> None:
    why = f"Invalid request: method must be a string, got {shown}"
    assert refused({"jsonrpc": "2.0", "id": 1, "method": method}) == (InvalidRequest, why, 1)


BOTH = "Invalid request: a message has either a method or a result, not both"
NEITHER = "Invalid request: expected a method, or a result or an error object"
RESULT = "Invalid response: a result must be an object and must have an id"
ERROR = "Invalid response: an error must have an integer code and a message"


@pytest.mark.parametrize(
    ("value", "why", "id"),
    [
        ({"id": 1, "method": "m", "result": {}}, BOTH, 1),
        ({"id": 1, "method": "m", "error": {"code": 1, "message": ""}}, BOTH, 1),
        ({"id": 1}, NEITHER, 1),
        ({}, NEITHER, None),
        ({"id": 1, "result": {}, "error": {"code": 1, "message": ""}}, NEITHER, 1),
        ({"id": 1, "error": None}, NEITHER, 1),
        ({"id": 1, "error": "x"}, NEITHER, 1),
        ({"id": 1, "result": []}, RESULT, 1),
        ({"id": 1, "result": None}, RESULT, 1),
        ({"result": {}}, RESULT, None),
        ({"id": 1, "error": {}}, ERROR, 1),
        ({"id": 1, "error": {"code": 1}}, ERROR, 1),
        ({"id": 1, "error": {"code": "1", "message": ""}}, ERROR, 1),
        ({"id": 1, "error": {"code": 1.0, "message": ""}}, ERROR, 1),
        ({"id": 1, "error": {"code": True, "message": ""}}, ERROR, 1),
        ({"id": 1, "error": {"code": 1, "message": None}}, ERROR, 1),
    ],
)
def test_what_is_not_a_message(value: dict[str, Any], why: str, id: str | int | None) -> None:
    assert refused({"jsonrpc": "2.0", **value}) == (InvalidRequest, why, id)


@pytest.mark.parametrize(("value", "shown"), [(None, "null"), (1, "1"), ("a", '"a"'), (True, "true"), (1.5, "1.5")])
def test_a_message_is_an_object(value: Any, shown: str) -> None:
    assert refused(value) == (InvalidRequest, f"Invalid request: expected a JSON object, got {shown}", None)


@pytest.mark.parametrize("value", [[], [{"jsonrpc": "2.0", "id": 1, "method": "m"}]])
def test_batches_are_refused(value: Any) -> None:
    why = "Invalid request: batches are not part of this protocol, send one message"
    assert refused(value) == (InvalidRequest, why, None)


def test_text_that_is_no_json_is_a_parse_error() -> None:
    with pytest.raises(BadMessage) as caught:
        parse_message(b'{"jsonrpc":"2.0","id":1,')
    assert type(caught.value.error) is ParseError
    assert caught.value.id is None


def test_a_message_over_the_limit_is_refused() -> None:
    raw = b'{"jsonrpc":"2.0","id":1,"method":"m"}'
    assert isinstance(parse_message(raw, Limits(message_bytes=len(raw))), Request)
    with pytest.raises(BadMessage) as caught:
        parse_message(raw, Limits(message_bytes=len(raw) - 1))
    assert type(caught.value.error) is InvalidRequest
    assert caught.value.error.message == f"Message too long: {len(raw)} bytes, the limit is {len(raw) - 1}"


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
NEARLY = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | JUNK,
        "id": IDS | JUNK,
        "method": st.just("m") | JUNK,
        "params": st.just({"a": 1}) | JUNK,
        "result": st.just({}) | JUNK,
        "error": st.just({"code": 1, "message": "m"}) | JUNK,
    },
)


@given(NEARLY | JUNK)
def test_any_value_is_a_message_or_a_reasoned_refusal(value: Any) -> None:
    try:
        read = parse_value(value)
    except BadMessage as exc:
        # The answer is itself a message, and it can be written: the id in it is one.
        assert exc.id is None or (is_request_id(exc.id) and exc.id == value["id"])
        answer = parse_message(encode_error(exc.id, exc.error))
        assert isinstance(answer, ErrorResponse)
        assert answer.id == exc.id
        return
    assert value["jsonrpc"] == "2.0"
    if isinstance(read, Request | Notification):
        assert read.method == value["method"] != ""
        assert "result" not in value and "error" not in value
        assert isinstance(read, Request) == ("id" in value)
    else:
        assert "method" not in value
        assert isinstance(read, Response) == ("result" in value)
        assert isinstance(read, ErrorResponse) == ("error" in value)


def test_writing() -> None:
    assert encode_request(1, "m", {"a": 2}) == b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":2}}'
    assert encode_notification("m", {}) == b'{"jsonrpc":"2.0","method":"m","params":{}}'
    assert encode_result('"', b"{}") == b'{"jsonrpc":"2.0","id":"\\"","result":{}}'
    assert json.loads(encode_error("a", ProtocolError("no", {"k": 1}, code=-5))) == {
        "jsonrpc": "2.0",
        "id": "a",
        "error": {"code": -5, "message": "no", "data": {"k": 1}},
    }


def test_an_error_without_an_id_has_no_id_member() -> None:
    assert json.loads(encode_error(None, ParseError("Parse error"))) == {
        "jsonrpc": "2.0",
        "error": {"code": -32700, "message": "Parse error"},
    }


def test_an_error_is_read_back_as_its_class() -> None:
    read = parse_message(encode_error(1, ServerBusy("busy", {"retryAfter": 2})))
    assert isinstance(read, ErrorResponse)
    error = ProtocolError.from_wire(read.error)
    assert type(error) is ServerBusy
    assert (error.code, error.message, error.data, error.retry_after) == (503, "busy", {"retryAfter": 2}, 2.0)
    other = ProtocolError.from_wire({"code": -7, "message": "m"})
    assert (type(other), other.code, other.message, other.data) == (ProtocolError, -7, "m", None)
