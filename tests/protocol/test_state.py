"""Sealed request state."""

from __future__ import annotations

import base64
import secrets
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_mcp.errors import InvalidParams
from trio_mcp.protocol.state import binding, open_state, seal_state

KEY, OTHER = b"k" * 32, b"o" * 32
PARAMS = {"name": "book", "arguments": {"day": "Monday", "people": 2}}
BOUND = binding("s", "", "tools/call", PARAMS, "name")
NOW = 1_000_000.0


def seal(payload: dict[str, Any], *, key: bytes = KEY, expires: float = NOW + 60, bound: bytes = BOUND) -> str:
    return seal_state(payload, key, secrets.token_bytes(12), expires, bound)


@given(st.dictionaries(st.text(), st.one_of(st.text(), st.integers(-(2**63), 2**63 - 1), st.booleans(), st.none())))
def test_what_is_sealed_is_found_again_and_cannot_be_read(payload: dict[str, Any]) -> None:
    state = seal(payload)
    assert open_state(state, [KEY], NOW, BOUND) == payload
    raw = base64.urlsafe_b64decode(state + "=" * (-len(state) % 4))
    for value in payload.values():
        if isinstance(value, str) and len(value.encode()) > 8:
            assert value.encode() not in raw


def test_any_changed_bit_is_refused() -> None:
    state = seal({"user": "x"})
    raw = base64.urlsafe_b64decode(state + "=" * (-len(state) % 4))
    for at in range(len(raw)):
        changed = bytearray(raw)
        changed[at] ^= 1
        text = base64.urlsafe_b64encode(bytes(changed)).decode().rstrip("=")
        with pytest.raises(InvalidParams, match="requestState was changed"):
            open_state(text, [KEY], NOW, BOUND)


@pytest.mark.parametrize("state", ["", "!", "é", "AQ", "A" * 5, "A" * 400, seal({})[:-4], seal({}) + "AAAA"])
def test_text_that_was_never_a_state_is_refused(state: str) -> None:
    with pytest.raises(InvalidParams, match="requestState"):
        open_state(state, [KEY], NOW, BOUND)


def test_it_expires() -> None:
    state = seal({"user": 1}, expires=NOW + 60)
    assert open_state(state, [KEY], NOW + 59.9, BOUND) == {"user": 1}
    for late in (60, 61, 10**6):
        with pytest.raises(InvalidParams, match="expired"):
            open_state(state, [KEY], NOW + late, BOUND)


@pytest.mark.parametrize(
    ("audience", "principal", "method", "params"),
    [
        ("other", "", "tools/call", PARAMS),
        ("s", "somebody", "tools/call", PARAMS),
        ("s", "", "prompts/get", PARAMS),
        ("s", "", "tools/call", {**PARAMS, "name": "cancel"}),
        ("s", "", "tools/call", {**PARAMS, "arguments": {"day": "Monday", "people": 3}}),
        ("s", "", "tools/call", {"name": "book"}),
    ],
)
def test_it_is_bound_to_server_caller_method_and_parameters(
    audience: str, principal: str, method: str, params: dict[str, Any]
) -> None:
    with pytest.raises(InvalidParams, match="not of this request, caller and server"):
        open_state(seal({}), [KEY], NOW, binding(audience, principal, method, params, "name"))


def test_the_order_of_arguments_and_what_the_retry_adds_do_not_matter() -> None:
    again = {
        "arguments": {"people": 2, "day": "Monday"},
        "name": "book",
        "inputResponses": {"a": {}},
        "requestState": "x",
        "_meta": {"progressToken": 3},
    }
    assert binding("s", "", "tools/call", again, "name") == BOUND


def test_keys_rotate() -> None:
    old = seal({"user": 1}, key=OTHER)
    assert open_state(old, [KEY, OTHER], NOW, BOUND) == {"user": 1}
    with pytest.raises(InvalidParams, match="requestState was changed"):
        open_state(old, [KEY], NOW, BOUND)
