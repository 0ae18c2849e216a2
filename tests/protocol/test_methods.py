"""The method table: its rows, and what it says about wrong `params`."""

from __future__ import annotations

from typing import Any

import fastjsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_mcp.errors import InvalidParams
from trio_mcp.protocol.methods import METHODS, NOTIFICATIONS
from trio_mcp.protocol.revisions import Era

EVERY = {**METHODS, **NOTIFICATIONS}
MODERN, BOTH, LEGACY = {Era.MODERN}, {Era.MODERN, Era.LEGACY}, {Era.LEGACY}


@pytest.mark.parametrize(
    ("name", "capability", "mirror", "eras"),
    [
        ("server/discover", None, None, MODERN),
        ("tools/list", "tools", None, BOTH),
        ("tools/call", "tools", "name", BOTH),
        ("resources/list", "resources", None, BOTH),
        ("resources/templates/list", "resources", None, BOTH),
        ("resources/read", "resources", "uri", BOTH),
        ("prompts/list", "prompts", None, BOTH),
        ("prompts/get", "prompts", "name", BOTH),
        ("notifications/cancelled", None, None, BOTH),
        ("notifications/initialized", None, None, LEGACY),
    ],
)
def test_a_row(name: str, capability: str | None, mirror: str | None, eras: set[Era]) -> None:
    row = EVERY[name]
    assert (row.name, row.capability, row.mirror, set(row.eras)) == (name, capability, mirror, eras)


def test_a_notification_is_no_request() -> None:
    assert METHODS.keys() & NOTIFICATIONS.keys() == set()
    assert all(name.startswith("notifications/") for name in NOTIFICATIONS)
    assert not any(name.startswith("notifications/") for name in METHODS)


def test_what_is_mirrored_into_a_header_is_required() -> None:
    assert [row.name for row in METHODS.values() if row.mirror and row.mirror not in row.schema["required"]] == []


GOOD: list[tuple[str, dict[str, Any]]] = [
    ("server/discover", {}),
    ("tools/list", {}),
    ("tools/list", {"cursor": ""}),
    ("tools/call", {"name": "a"}),
    ("tools/call", {"name": "a", "arguments": {"x": [None]}}),
    ("tools/call", {"name": "a", "arguments": None}),
    ("tools/call", {"name": "a", "inputResponses": {"k": {"action": "accept"}}, "requestState": "s"}),
    ("resources/read", {"uri": "a:b"}),
    ("prompts/get", {"name": "a", "arguments": {"x": "1"}}),
    ("prompts/get", {"name": "a", "arguments": None}),
    ("notifications/cancelled", {"requestId": 1}),
    ("notifications/cancelled", {"requestId": "1", "reason": "done"}),
]


@pytest.mark.parametrize(("name", "params"), GOOD)
def test_right_params(name: str, params: dict[str, Any]) -> None:
    before = repr(params)
    EVERY[name].check(params)
    # Other members, `_meta` among them, are not the table's business.
    EVERY[name].check({**params, "_meta": 1, "vendor": [1]})
    assert repr(params) == before


@pytest.mark.parametrize(
    ("name", "params", "why"),
    [
        ("tools/list", {"cursor": 1}, "cursor must be string, got 1"),
        ("tools/list", {"cursor": None}, "cursor must be string, got null"),
        ("tools/call", {}, "missing name"),
        ("tools/call", {"name": None}, "name must be string, got null"),
        ("tools/call", {"name": "a", "arguments": []}, "arguments must be object or null, got []"),
        ("tools/call", {"name": "a", "arguments": '{"x":1}'}, 'arguments must be object or null, got "{\\"x\\":1}"'),
        ("tools/call", {"name": "a", "inputResponses": []}, "inputResponses must be object, got []"),
        ("tools/call", {"name": "a", "inputResponses": {"k": 1}}, "inputResponses.k must be object, got 1"),
        ("tools/call", {"name": "a", "requestState": {}}, "requestState must be string, got {}"),
        ("resources/read", {}, "missing uri"),
        ("resources/read", {"uri": ["a"]}, 'uri must be string, got ["a"]'),
        ("prompts/get", {"arguments": {}}, "missing name"),
        ("prompts/get", {"name": "a", "arguments": {"x": 1}}, "arguments.x must be string, got 1"),
        ("notifications/cancelled", {}, "missing requestId"),
        ("notifications/cancelled", {"requestId": 1.5}, "requestId must be string or integer, got 1.5"),
        ("notifications/cancelled", {"requestId": True}, "requestId must be string or integer, got true"),
        ("notifications/cancelled", {"requestId": None}, "requestId must be string or integer, got null"),
    ],
)
def test_wrong_params(name: str, params: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        EVERY[name].check(params)
    assert caught.value.to_wire() == {"code": -32602, "message": f"Invalid params for {name}: {why}"}


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(0, 1), st.floats(), st.text(max_size=2), st.lists(st.none(), max_size=1)
)
MEMBERS = st.one_of(VALUES, st.dictionaries(st.sampled_from(["name", "type", "uri"]), VALUES, max_size=2))


@given(st.data())
def test_what_passes_is_what_the_schema_of_the_row_takes(data: st.DataObject) -> None:
    row = data.draw(st.sampled_from(sorted(EVERY.items())))[1]
    params = data.draw(st.dictionaries(st.sampled_from([*row.schema["properties"], "other"]), MEMBERS))
    try:
        fastjsonschema.validate(row.schema, params)
        takes = True
    except fastjsonschema.JsonSchemaValueException:
        takes = False
    try:
        row.check(params)
        passes = True
    except InvalidParams:
        passes = False
    assert passes == takes


def test_a_long_wrong_value_is_shortened() -> None:
    with pytest.raises(InvalidParams) as caught:
        METHODS["resources/read"].check({"uri": ["a" * 1000]})
    assert caught.value.message == f'Invalid params for resources/read: uri must be string, got ["{"a" * 77}…'


def test_a_name_is_never_a_template_of_the_checker() -> None:
    # The checker fills braces in its own messages; a peer's text with braces must come through as it is.
    with pytest.raises(InvalidParams) as caught:
        METHODS["prompts/get"].check({"name": "a", "arguments": {"{data}{x!r}": "{y}", "{0}": 1}})
    assert caught.value.message == "Invalid params for prompts/get: arguments.{0} must be string, got 1"
