"""The `_meta` of a request: what must be there, what may be, and what each refusal says."""

from __future__ import annotations

from typing import Any

import pytest

from trio_mcp.errors import InvalidParams
from trio_mcp.limits import Limits
from trio_mcp.protocol.meta import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    LOG_LEVELS,
    PROTOCOL_VERSION,
    RequestMeta,
    request_meta,
)
from trio_mcp.protocol.revisions import LATEST

LEAST: dict[str, Any] = {PROTOCOL_VERSION: LATEST, CLIENT_CAPABILITIES: {}}
CLIENT = {"name": "c", "version": "1"}


def refused(meta: Any) -> str:
    with pytest.raises(InvalidParams) as caught:
        RequestMeta.from_params({"_meta": meta})
    return caught.value.message


def test_the_least() -> None:
    meta = RequestMeta.from_params({"_meta": LEAST, "name": "x"})
    assert (meta.protocol_version, meta.client_capabilities) == (LATEST, {})
    assert (meta.client_info, meta.log_level, meta.progress_token) == (None, None, None)
    assert meta.raw is LEAST
    assert meta.trace_context == {}


def test_everything() -> None:
    raw = request_meta(
        CLIENT, {"sampling": {}}, LATEST, progress_token=0, log_level="warning", extra={"traceparent": "00-1", "x/y": 1}
    )
    assert raw == {
        "traceparent": "00-1",
        "x/y": 1,
        PROTOCOL_VERSION: LATEST,
        CLIENT_INFO: CLIENT,
        CLIENT_CAPABILITIES: {"sampling": {}},
        "progressToken": 0,
        LOG_LEVEL: "warning",
    }
    meta = RequestMeta.from_params({"_meta": raw})
    assert (meta.protocol_version, meta.client_capabilities) == (LATEST, {"sampling": {}})
    assert (meta.client_info, meta.log_level, meta.progress_token) == (CLIENT, "warning", 0)
    assert meta.raw is raw


def test_what_is_not_given_is_not_sent_and_extras_cannot_lie() -> None:
    extra = {PROTOCOL_VERSION: "x", CLIENT_INFO: "x", CLIENT_CAPABILITIES: "x"}
    meta = request_meta(CLIENT, {}, LATEST, extra=extra)
    assert meta == {PROTOCOL_VERSION: LATEST, CLIENT_INFO: CLIENT, CLIENT_CAPABILITIES: {}}
    # The caller's own object is left alone.
    assert extra == {PROTOCOL_VERSION: "x", CLIENT_INFO: "x", CLIENT_CAPABILITIES: "x"}


def test_the_keys_are_those_of_the_specification() -> None:
    assert (PROTOCOL_VERSION, CLIENT_INFO, CLIENT_CAPABILITIES, LOG_LEVEL) == (
        "io.modelcontextprotocol/protocolVersion",
        "io.modelcontextprotocol/clientInfo",
        "io.modelcontextprotocol/clientCapabilities",
        "io.modelcontextprotocol/logLevel",
    )


def test_log_levels_rise() -> None:
    assert sorted(LOG_LEVELS, key=lambda name: LOG_LEVELS[name]) == [
        *("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"),
    ]


@pytest.mark.parametrize("name", list(LOG_LEVELS))
def test_each_log_level_is_read(name: str) -> None:
    assert RequestMeta.from_params({"_meta": {**LEAST, LOG_LEVEL: name}}).log_level == name


NEEDS = f"Invalid params: _meta must be an object with {PROTOCOL_VERSION} and {CLIENT_CAPABILITIES}, got "
OLDER = "; a client of a revision before 2026-07-28 opens a session with initialize first"


@pytest.mark.parametrize(("meta", "got"), [([], "[]"), ("x", '"x"'), (1, "1"), (False, "false")])
def test_meta_is_an_object(meta: Any, got: str) -> None:
    assert refused(meta) == NEEDS + got + OLDER


def test_meta_is_required() -> None:
    with pytest.raises(InvalidParams) as caught:
        RequestMeta.from_params({})
    assert caught.value.message == NEEDS + "nothing" + OLDER


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (PROTOCOL_VERSION, 20260728, "a string, got 20260728"),
        (PROTOCOL_VERSION, None, "a string, got null"),
        (CLIENT_CAPABILITIES, [], "an object, got []"),
        (CLIENT_CAPABILITIES, None, "an object, got null"),
        (CLIENT_INFO, None, "an object with a name and a version, got null"),
        (CLIENT_INFO, {"name": "c"}, 'an object with a name and a version, got {"name":"c"}'),
        (CLIENT_INFO, {"version": "1"}, 'an object with a name and a version, got {"version":"1"}'),
        (
            CLIENT_INFO,
            {"name": "c", "version": 1},
            'an object with a name and a version, got {"name":"c","version":1}',
        ),
        (LOG_LEVEL, "loud", f'one of {", ".join(LOG_LEVELS)}, got "loud"'),
        (LOG_LEVEL, "INFO", f'one of {", ".join(LOG_LEVELS)}, got "INFO"'),
        (LOG_LEVEL, None, f"one of {', '.join(LOG_LEVELS)}, got null"),
        (LOG_LEVEL, ["info"], f'one of {", ".join(LOG_LEVELS)}, got ["info"]'),
        ("progressToken", None, "a string of at most 256 bytes or a 64-bit integer, got null"),
        ("progressToken", 1.5, "a string of at most 256 bytes or a 64-bit integer, got 1.5"),
        ("progressToken", True, "a string of at most 256 bytes or a 64-bit integer, got true"),
        ("progressToken", 2**63, f"a string of at most 256 bytes or a 64-bit integer, got {2**63}"),
    ],
)
def test_wrong_fields_are_named(key: str, value: Any, expected: str) -> None:
    assert refused({**LEAST, key: value}) == f"Invalid params: _meta[{key!r}] must be {expected}"


@pytest.mark.parametrize(("key", "kind"), [(PROTOCOL_VERSION, "a string"), (CLIENT_CAPABILITIES, "an object")])
def test_missing_fields_are_named(key: str, kind: str) -> None:
    meta = {name: value for name, value in LEAST.items() if name != key}
    assert refused(meta) == f"Invalid params: _meta[{key!r}] must be {kind}, got nothing"


@pytest.mark.parametrize("token", [0, "0", "", -1, 9007199254740993, "é" * 128])
def test_a_progress_token_keeps_value_and_type(token: str | int) -> None:
    read = RequestMeta.from_params({"_meta": {**LEAST, "progressToken": token}}).progress_token
    assert (read, type(read)) == (token, type(token))


def test_a_progress_token_has_a_size() -> None:
    limits = Limits(id_bytes=3)
    assert RequestMeta.from_params({"_meta": {**LEAST, "progressToken": "éa"}}, limits).progress_token == "éa"
    with pytest.raises(InvalidParams):
        RequestMeta.from_params({"_meta": {**LEAST, "progressToken": "éé"}}, limits)


def test_trace_context_takes_its_three_keys_and_only_text() -> None:
    raw = {**LEAST, "traceparent": "00-ab", "tracestate": 1, "baggage": "k=v", "trace": "no"}
    assert RequestMeta.from_params({"_meta": raw}).trace_context == {"traceparent": "00-ab", "baggage": "k=v"}
