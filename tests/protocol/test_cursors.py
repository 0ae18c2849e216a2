"""Cursors of paginated lists: whatever the registry does in between, nothing comes twice and nothing is left out."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_mcp import InvalidParams, Server, open_client
from trio_mcp.protocol.cursors import page_after

METHODS = ["tools/list", "resources/list", "resources/templates/list", "prompts/list"]
KEYS = st.lists(st.text(max_size=12), unique=True, max_size=25)


@given(st.sampled_from(METHODS), KEYS, st.integers(1, 30))
def test_a_walk_yields_each_item_once_and_in_order(method: str, keys: list[str], size: int) -> None:
    walked: list[str] = []
    cursor: str | None = None
    for _ in range(len(keys) + 1):
        start, end, cursor = page_after(method, cursor, keys, size)
        page = keys[start:end]
        walked += page
        # A page is full, or the last one; and there is no empty page behind a full one.
        assert len(page) == (size if cursor is not None else len(keys) % size or min(size, len(keys)))
        if cursor is None:
            break
    assert cursor is None
    assert walked == keys


@st.composite
def changes(draw: st.DrawFn, keys: list[str], fresh: list[str]) -> list[str]:
    """The registry a moment later: some items are gone, new ones stand anywhere, the rest keeps its order."""
    kept = [key for key in keys if draw(st.integers(0, 4))]
    for _ in range(draw(st.integers(0, 3))):
        if fresh:
            kept.insert(draw(st.integers(0, len(kept))), fresh.pop())
    return kept


@given(st.data(), st.integers(1, 20), st.integers(1, 5))
def test_a_walk_goes_on_across_changes_or_is_refused(data: st.DataObject, count: int, size: int) -> None:
    keys = [f"k{number}" for number in range(count)]
    fresh = [f"new{number}" for number in range(20)]
    lasting, walked = list(keys), list[str]()
    start, end, cursor = page_after("tools/list", None, keys, size)
    walked += keys[start:end]
    while cursor is not None:
        last = walked[-1]
        keys = data.draw(changes(keys, fresh))
        lasting = [key for key in lasting if key in keys]
        if last not in keys:
            with pytest.raises(InvalidParams, match="no longer valid; start again"):
                page_after("tools/list", cursor, keys, size)
            return
        start, end, cursor = page_after("tools/list", cursor, keys, size)
        assert start == keys.index(last) + 1
        assert end == min(start + size, len(keys))
        walked += keys[start:end]
    assert len(set(walked)) == len(walked)
    assert [key for key in walked if key in lasting] == lasting


@given(st.sampled_from(METHODS), KEYS.filter(lambda keys: len(keys) > 1), st.data())
def test_a_cursor_of_another_list_is_refused(method: str, keys: list[str], data: st.DataObject) -> None:
    cursor = page_after(method, None, keys, data.draw(st.integers(1, len(keys) - 1)))[2]
    assert cursor is not None
    for other in METHODS:
        if other != method:
            with pytest.raises(InvalidParams, match="was not given out for this list"):
                page_after(other, cursor, keys, 3)


def as_cursor(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["tools/list", "a", "b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=6,
)
# Text of any kind, lone surrogates too; what looks like a cursor; and cursors that were tampered with.
FORGED = st.one_of(
    st.text(st.characters(), max_size=40),
    st.text("ABCabc019-_+/= \n", max_size=40),
    st.binary(max_size=40).map(as_cursor),
    JSON.map(lambda value: as_cursor(json.dumps(value).encode())),
    st.tuples(st.just("tools/list"), JSON).map(lambda value: as_cursor(json.dumps(value).encode())),
    st.integers(1, 5_000).map(lambda depth: as_cursor(b"[" * depth)),
    st.integers(1, 5_000).map(lambda depth: as_cursor(b"[" * depth + b"]" * depth)),
)


def stands_for(cursor: str) -> Any:
    """What a cursor says, with other tools than the code under test; None when it says nothing."""
    try:
        padded = cursor.encode("ascii").translate(bytes.maketrans(b"-_", b"+/")) + b"=" * (-len(cursor) % 4)
        return json.loads(base64.b64decode(padded, validate=True))
    except (ValueError, RecursionError):
        return None


@given(FORGED, st.integers(1, 4))
def test_no_text_does_more_than_be_refused(cursor: str, size: int) -> None:
    keys = ["a", "b", "c", ""]
    try:
        start, end, _ = page_after("tools/list", cursor, keys, size)
    except InvalidParams as exc:
        assert exc.code == -32602
        assert stands_for(cursor) not in [["tools/list", key] for key in keys]
        assert len(exc.message) < 250
    else:
        assert stands_for(cursor) == ["tools/list", keys[start - 1]]
        assert (start, end) == (start, min(start + size, 4))


@given(st.integers(0, 2**32), st.text(st.characters(codec="ascii"), min_size=1, max_size=1), st.integers(1, 3))
def test_a_cursor_that_was_edited_leads_nowhere_else(at: int, char: str, size: int) -> None:
    keys = [f"tool-{number}" for number in range(9)]
    cursor = page_after("tools/list", None, keys, size)[2]
    assert cursor is not None
    at %= len(cursor)
    edited = cursor[:at] + char + cursor[at + 1 :]
    try:
        start, _, _ = page_after("tools/list", edited, keys, size)
    except InvalidParams:
        return
    assert stands_for(edited) == ["tools/list", keys[start - 1]]


@given(
    st.dictionaries(
        st.sampled_from(METHODS), st.sets(st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True), max_size=9)
    ),
    st.integers(1, 10),
)
async def test_any_server_is_walked_whole(names: dict[str, set[str]], size: int) -> None:
    server = Server("lists", page_size=size)
    expected: dict[str, list[str]] = {method: sorted(names.get(method, ())) for method in METHODS}
    for name in expected["tools/list"]:
        server.tool(lambda: None, name=name)
    for name in expected["prompts/list"]:
        server.prompt(name=name)(lambda: "")
    for name in expected["resources/list"]:
        server.resource(f"a:{name}", name=name)(lambda: "")
    for name in expected["resources/templates/list"]:
        server.resource(f"b:{name}/{{x}}", name=name)(lambda x: "")
    async with open_client(server) as client:
        if expected["tools/list"]:
            assert [item.name for item in await client.list_tools()] == expected["tools/list"]
        if expected["prompts/list"]:
            assert [item.name for item in await client.list_prompts()] == expected["prompts/list"]
        if expected["resources/list"]:
            assert [item.name for item in await client.list_resources()] == expected["resources/list"]
        if expected["resources/templates/list"]:
            found = [item.name for item in await client.list_resource_templates()]
            assert found == expected["resources/templates/list"]
