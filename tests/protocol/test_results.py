"""Results: what a handler returns is what a client receives."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_mcp.errors import InvalidResponse
from trio_mcp.protocol.content import Image, ResourceContents, Text
from trio_mcp.protocol.results import (
    UNSET,
    CallToolResult,
    GetPromptResult,
    PromptMessage,
    ReadResourceResult,
    complete,
    require,
)

META = {"a/b": 1}


@pytest.mark.parametrize(
    ("result", "wire"),
    [
        (CallToolResult(), {"content": []}),
        (CallToolResult((Text("a"),)), {"content": [{"type": "text", "text": "a"}]}),
        # JSON null is a value; nothing is nothing.
        (CallToolResult((), None), {"content": [], "structuredContent": None}),
        (
            CallToolResult((Text("no"),), {"x": [1]}, True, META),
            {
                "content": [{"type": "text", "text": "no"}],
                "structuredContent": {"x": [1]},
                "isError": True,
                "_meta": META,
            },
        ),
    ],
)
def test_a_tool_result_and_back(result: CallToolResult, wire: dict[str, Any]) -> None:
    assert result.to_wire() == wire
    assert CallToolResult.from_wire(wire) == result


@given(st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.integers()))
def test_any_structured_content_comes_back(value: Any) -> None:
    read = CallToolResult.from_wire(CallToolResult((), value).to_wire())
    assert (read.structured_content, type(read.structured_content)) == (value, type(value))


def test_text_and_data_of_a_tool_result() -> None:
    mixed = CallToolResult((Text("a"), Image(b""), Text("b")))
    assert (mixed.text, mixed.data) == ("a\nb", "a\nb")
    assert CallToolResult((Image(b""),)).data is None
    assert CallToolResult((Text(""),)).data == ""
    assert CallToolResult((Text("1"),), 1).data == 1
    assert CallToolResult((Text("null"),), None).data is None
    assert repr(UNSET) == "UNSET"


@pytest.mark.parametrize(
    ("flag", "expected"), [(True, True), (False, False), (None, False), ("true", False), (1, False)]
)
def test_only_true_is_an_error(flag: Any, expected: bool) -> None:
    assert CallToolResult.from_wire({"content": [], "isError": flag}).is_error is expected


def test_two_results_do_not_share_their_meta() -> None:
    first, second = CallToolResult(), CallToolResult()
    first.meta["x"] = 1
    assert second.meta == {}


@pytest.mark.parametrize(
    ("result", "wire"),
    [
        (ReadResourceResult((ResourceContents("t", "a:b"),)), {"contents": [{"uri": "a:b", "text": "t"}]}),
        (
            ReadResourceResult((ResourceContents("t", "a:b"), ResourceContents(b"\0", "a:c", "x/y")), META),
            {
                "contents": [{"uri": "a:b", "text": "t"}, {"uri": "a:c", "mimeType": "x/y", "blob": "AA=="}],
                "_meta": META,
            },
        ),
        (ReadResourceResult(()), {"contents": []}),
    ],
)
def test_resource_contents_and_back(result: ReadResourceResult, wire: dict[str, Any]) -> None:
    assert result.to_wire() == wire
    assert ReadResourceResult.from_wire(wire) == result


def test_the_text_of_many_contents() -> None:
    contents = (ResourceContents("a"), ResourceContents(b"x"), ResourceContents("b"))
    assert ReadResourceResult(contents).text == "a\nb"


@pytest.mark.parametrize(
    ("result", "wire"),
    [
        (GetPromptResult(()), {"messages": []}),
        (
            GetPromptResult((PromptMessage(Text("a")), PromptMessage(Text("b"), "assistant")), "D", META),
            {
                "messages": [
                    {"role": "user", "content": {"type": "text", "text": "a"}},
                    {"role": "assistant", "content": {"type": "text", "text": "b"}},
                ],
                "description": "D",
                "_meta": META,
            },
        ),
    ],
)
def test_a_prompt_and_back(result: GetPromptResult, wire: dict[str, Any]) -> None:
    assert result.to_wire() == wire
    assert GetPromptResult.from_wire(wire) == result


@pytest.mark.parametrize(
    ("cls", "wire", "why"),
    [
        (CallToolResult, {}, "tools/call: the result must have content (list), got nothing"),
        (CallToolResult, {"content": "x"}, 'tools/call: the result must have content (list), got "x"'),
        (CallToolResult, {"content": None}, "tools/call: the result must have content (list), got null"),
        (CallToolResult, {"content": [1]}, "tools/call: a content block must be an object"),
        (
            CallToolResult,
            {"content": [{"type": "x"}]},
            "tools/call: unknown or incomplete content block of type 'x'",
        ),
        (ReadResourceResult, {}, "resources/read: the result must have contents (list), got nothing"),
        (ReadResourceResult, {"contents": {}}, "resources/read: the result must have contents (list), got {}"),
        (ReadResourceResult, {"contents": [{}]}, "resources/read: resource contents must be an object with a uri"),
        (GetPromptResult, {}, "prompts/get: the result must have messages (list), got nothing"),
        (GetPromptResult, {"messages": [1]}, "prompts/get: not a message: 1"),
        (
            GetPromptResult,
            {"messages": [{"role": "system", "content": {"type": "text", "text": ""}}]},
            'prompts/get: not a message: {"role":"system","content":{"type":"text","text":""}}',
        ),
        (GetPromptResult, {"messages": [{"role": "user"}]}, "prompts/get: a content block must be an object"),
        (
            GetPromptResult,
            {"messages": [{"role": ["user"], "content": {"type": "text", "text": ""}}]},
            'prompts/get: not a message: {"role":["user"],"content":{"type":"text","text":""}}',
        ),
    ],
)
def test_what_is_no_result(cls: Any, wire: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidResponse) as caught:
        cls.from_wire(wire)
    assert str(caught.value) == why


def test_require() -> None:
    assert require({"a": 0}, "a", int, "m") == 0
    with pytest.raises(InvalidResponse) as caught:
        # A boolean is no integer on the wire.
        require({"a": True}, "a", int, "m")
    assert str(caught.value) == "m: the result must have a (int), got true"


def test_a_complete_result_passes() -> None:
    for wire in ({}, {"a": 1}, {"resultType": "complete", "a": 1}):
        assert complete(wire, "m") is wire


@pytest.mark.parametrize(
    ("kind", "shown"),
    [("input_required", '"input_required"'), ("", '""'), (None, "null"), (["complete"], '["complete"]')],
)
def test_any_other_result_type_is_refused(kind: Any, shown: str) -> None:
    with pytest.raises(InvalidResponse) as caught:
        complete({"resultType": kind, "content": []}, "tools/call")
    assert str(caught.value) == f"tools/call: resultType {shown} is not known to this client"
