"""Sealed request state."""

from __future__ import annotations

import base64
import json
import secrets
import string
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


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(), JSON, max_size=5)


def exactly(value: Any) -> str:
    """To Python, 1 is 1.0 and True; to JSON it is neither."""
    return json.dumps(value, sort_keys=True)


def raw_of(state: str) -> bytes:
    return base64.urlsafe_b64decode(state + "=" * (-len(state) % 4))


def text_of(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


@given(OBJECTS)
def test_what_is_sealed_is_found_again_and_cannot_be_read(payload: dict[str, Any]) -> None:
    state = seal(payload)
    assert exactly(open_state(state, [KEY], NOW, BOUND)) == exactly(payload)
    for value in payload.values():
        if isinstance(value, str) and len(value.encode()) > 8:
            assert value.encode() not in raw_of(state)
    assert state != seal(payload)


def test_any_changed_bit_is_refused() -> None:
    """Every bit: of the version, the key's name, the nonce, what is sealed and the tag."""
    raw = raw_of(seal({"user": "x"}))
    for at in range(len(raw)):
        for bit in range(8):
            changed = bytearray(raw)
            changed[at] ^= 1 << bit
            with pytest.raises(InvalidParams, match="requestState was changed"):
                open_state(text_of(bytes(changed)), [KEY, OTHER], NOW, BOUND)


@given(OBJECTS, st.data())
def test_any_edit_is_refused(payload: dict[str, Any], data: st.DataObject) -> None:
    raw = raw_of(seal(payload))
    start = data.draw(st.integers(0, len(raw)))
    end = data.draw(st.integers(start, len(raw)))
    changed = raw[:start] + data.draw(st.binary(max_size=40)) + raw[end:]
    if changed != raw:
        with pytest.raises(InvalidParams, match="requestState"):
            open_state(text_of(changed), [KEY, OTHER], NOW, BOUND)


@given(OBJECTS, OBJECTS, st.integers(0, 80), st.integers(0, 80))
def test_two_states_cannot_be_made_into_a_third(
    mine: dict[str, Any], yours: dict[str, Any], first: int, second: int
) -> None:
    one, other = raw_of(seal(mine)), raw_of(seal(yours))
    spliced = one[:first] + other[second:]
    if spliced not in (one, other):
        with pytest.raises(InvalidParams):
            open_state(text_of(spliced), [KEY], NOW, BOUND)


@given(st.data())
def test_a_text_that_was_edited_opens_nothing_else(data: st.DataObject) -> None:
    state = seal({"user": "x"})
    at = data.draw(st.integers(0, len(state)))
    edited = state[:at] + data.draw(st.text(st.characters(), max_size=3)) + state[at + data.draw(st.integers(0, 3)) :]
    try:
        payload = open_state(edited, [KEY], NOW, BOUND)
    except InvalidParams:
        return
    # The same bytes, in another spelling of Base64.
    assert raw_of(edited) == raw_of(state)
    assert payload == {"user": "x"}


@given(st.text(st.characters(), max_size=120) | st.binary(max_size=120).map(text_of))
def test_no_text_does_more_than_be_refused(state: str) -> None:
    with pytest.raises(InvalidParams, match="requestState"):
        open_state(state, [KEY], NOW, BOUND)


# A sealed state is another one each time, so those made of one need names of their own.
CUT, LONGER = pytest.param(seal({})[:-4], id="cut"), pytest.param(seal({}) + "AAAA", id="longer")


@pytest.mark.parametrize("state", ["", "!", "é", "AQ", "A" * 5, "A" * 400, CUT, LONGER])
def test_text_that_was_never_a_state_is_refused(state: str) -> None:
    with pytest.raises(InvalidParams, match="requestState"):
        open_state(state, [KEY], NOW, BOUND)


def test_a_state_has_one_spelling() -> None:
    letters = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"
    states = [seal({"user": "x" * length}) for length in range(9)]
    # Where the length is no multiple of four, the last letter has bits that count for nothing.
    others = [state[:-1] + letters[letters.index(state[-1]) ^ 1] for state in states if len(state) % 4]
    # And one alphabet of Base64 has other letters for the last two values.
    others += [other for state in states if (other := state.replace("-", "+").replace("_", "/")) != state]
    assert len(others) > 6
    for other in others:
        with pytest.raises(InvalidParams, match="not one of this server"):
            open_state(other, [KEY], NOW, BOUND)


@given(st.integers(0, 2**43), st.integers(-3, 3) | st.integers(-(2**43), 2**43))
def test_it_expires_to_the_millisecond(expires: int, later: int) -> None:
    # Quarters are exact in binary, so what is compared here is the code and not the arithmetic.
    state = seal({"user": 1}, expires=expires / 4)
    now = (expires + later) / 4
    if later < 0:
        assert open_state(state, [KEY], now, BOUND) == {"user": 1}
    else:
        with pytest.raises(InvalidParams, match="expired"):
            open_state(state, [KEY], now, BOUND)


Bindable = tuple[str, str, str, dict[str, Any]]
REQUESTS: st.SearchStrategy[Bindable] = st.tuples(
    st.sampled_from(["", "s", "other"]) | st.text(),
    st.sampled_from(["", "s", "other"]) | st.text(),
    st.sampled_from(["tools/call", "prompts/get", "resources/read"]),
    st.fixed_dictionaries(
        {"name": st.sampled_from(["", "s", "tools/call"]) | st.text()},
        optional={
            "arguments": st.none() | OBJECTS,
            "_meta": st.just({"progressToken": 1}),
            "requestState": st.text(),
            "inputResponses": OBJECTS,
        },
    ),
)


@st.composite
def near(draw: st.DrawFn, request: Bindable) -> Bindable:
    """Another request that something could take for this one."""
    audience, principal, method, params = request
    arguments: dict[str, Any] = params.get("arguments") or {}
    both = audience + principal
    at = draw(st.integers(0, len(both)))
    first, *_ = [*arguments, "a"]
    requests: list[Bindable] = [
        request,
        (both[:at], both[at:], method, params),
        (principal, audience, method, params),
        (audience.swapcase(), principal, method, params),
        (audience, principal.swapcase(), method, params),
        (audience, principal, method, {**params, "name": params["name"].swapcase()}),
        (audience, principal, method, {**params, "name": params["name"] + " "}),
        (audience, principal, params["name"], {**params, "name": method}),
        (audience, principal, method, {**params, "arguments": {**arguments, first: None}}),
        (audience, principal, method, {**params, "arguments": {**arguments, first: [arguments.get(first)]}}),
        (audience, principal, method, {**params, "arguments": {k.swapcase(): v for k, v in arguments.items()}}),
        (audience, principal, method, {**params, "arguments": dict(reversed(arguments.items()))}),
        (audience, principal, method, {**params, "_meta": {}, "requestState": "x"}),
    ]
    return draw(st.sampled_from(requests))


@given(REQUESTS, st.data())
def test_a_state_is_of_one_request(mine: Bindable, data: st.DataObject) -> None:
    state = seal({"user": 1}, bound=binding(*mine, "name"))
    yours = data.draw(near(mine) | REQUESTS)
    if exactly(salient(yours)) == exactly(salient(mine)):
        assert open_state(state, [KEY], NOW, binding(*yours, "name")) == {"user": 1}
    else:
        with pytest.raises(InvalidParams, match="not of this request, caller and server"):
            open_state(state, [KEY], NOW, binding(*yours, "name"))


def salient(request: Bindable) -> dict[str, Any]:
    audience, principal, method, params = request
    return {
        "server": audience,
        "caller": principal,
        "method": method,
        "name": params["name"],
        "arguments": params.get("arguments") or {},
    }


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


@given(st.binary(min_size=32, max_size=32), st.lists(st.binary(min_size=32, max_size=32), max_size=4))
def test_only_a_key_of_the_ring_opens(key: bytes, ring: list[bytes]) -> None:
    state = seal({"user": 1}, key=key)
    assert open_state(state, [*ring, key], NOW, BOUND) == {"user": 1}
    for others in ([other for other in ring if other != key], [bytes(32)] if key != bytes(32) else []):
        with pytest.raises(InvalidParams, match="requestState was changed"):
            open_state(state, others, NOW, BOUND)
