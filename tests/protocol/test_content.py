"""Content blocks: on the wire and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_mcp.protocol.content import (
    Audio,
    ContentBlock,
    EmbeddedResource,
    Image,
    ResourceContents,
    ResourceLink,
    Text,
    content_from_wire,
)
from trio_mcp.protocol.jsontext import dumps, loads

NOTES = {"audience": ["user"], "priority": 0.5}
META = {"a/b": 1}


@pytest.mark.parametrize(
    ("block", "wire"),
    [
        (Text("hi"), {"type": "text", "text": "hi"}),
        (Text("", NOTES, META), {"type": "text", "text": "", "annotations": NOTES, "_meta": META}),
        (Image(b"\x89P"), {"type": "image", "data": "iVA=", "mimeType": "image/png"}),
        (
            Image(b"", "image/gif", NOTES, META),
            {"type": "image", "data": "", "mimeType": "image/gif", "annotations": NOTES, "_meta": META},
        ),
        (Audio(b"abc"), {"type": "audio", "data": "YWJj", "mimeType": "audio/wav"}),
        (
            Audio(b"abc", "audio/ogg", NOTES, META),
            {"type": "audio", "data": "YWJj", "mimeType": "audio/ogg", "annotations": NOTES, "_meta": META},
        ),
        (ResourceLink("a:b", "b"), {"type": "resource_link", "uri": "a:b", "name": "b"}),
        (
            ResourceLink("a:b", "b", "T", "D", "text/plain", 0, NOTES, META),
            {
                "type": "resource_link",
                "uri": "a:b",
                "name": "b",
                "title": "T",
                "description": "D",
                "mimeType": "text/plain",
                "size": 0,
                "annotations": NOTES,
                "_meta": META,
            },
        ),
        (
            EmbeddedResource(ResourceContents("t", "a:b")),
            {"type": "resource", "resource": {"uri": "a:b", "text": "t"}},
        ),
        (
            EmbeddedResource(ResourceContents(b"\x00\xff", "a:b", "image/png", META), NOTES, META),
            {
                "type": "resource",
                "resource": {"uri": "a:b", "mimeType": "image/png", "blob": "AP8=", "_meta": META},
                "annotations": NOTES,
                "_meta": META,
            },
        ),
    ],
)
def test_a_block_on_the_wire_and_back(block: ContentBlock, wire: dict[str, Any]) -> None:
    assert block.to_wire() == wire
    read = content_from_wire(loads(dumps(wire)))
    assert (type(read), read) == (type(block), block)


PLAIN = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.binary(), PLAIN)
def test_any_bytes_and_any_text_come_back(data: bytes, text: str) -> None:
    for block in (
        Text(text),
        Image(data),
        Audio(data),
        EmbeddedResource(ResourceContents(data, "a:b")),
        EmbeddedResource(ResourceContents(text, "a:b")),
    ):
        read = content_from_wire(loads(dumps(block.to_wire())))
        assert (type(read), read) == (type(block), block)


@pytest.mark.parametrize(
    ("wire", "why"),
    [
        (None, "a content block must be an object"),
        ([], "a content block must be an object"),
        ("text", "a content block must be an object"),
        ({}, "unknown or incomplete content block of type None"),
        ({"type": "video"}, "unknown or incomplete content block of type 'video'"),
        ({"type": ["text"], "text": ""}, "unknown or incomplete content block of type ['text']"),
        ({"type": "text"}, "unknown or incomplete content block of type 'text'"),
        ({"type": "text", "text": 1}, "unknown or incomplete content block of type 'text'"),
        ({"type": "image", "data": ""}, "unknown or incomplete content block of type 'image'"),
        ({"type": "image", "data": "a", "mimeType": "x/y"}, "image content: data is not base64"),
        ({"type": "image", "data": 1, "mimeType": "x/y"}, "image content: data is not base64"),
        ({"type": "image", "data": "é===", "mimeType": "x/y"}, "image content: data is not base64"),
        ({"type": "audio", "data": "YQ", "mimeType": "x/y"}, "audio content: data is not base64"),
        # A picture without its data is no empty picture.
        ({"type": "image", "mimeType": "x/y"}, "image content: data is not base64"),
        ({"type": "audio", "mimeType": "x/y"}, "audio content: data is not base64"),
        ({"type": "resource_link", "uri": "a:b"}, "unknown or incomplete content block of type 'resource_link'"),
        ({"type": "resource_link", "name": "b"}, "unknown or incomplete content block of type 'resource_link'"),
        ({"type": "resource"}, "resource contents must be an object with a uri"),
        ({"type": "resource", "resource": {"text": "x"}}, "resource contents must be an object with a uri"),
        (
            {"type": "resource", "resource": {"uri": "a:b"}},
            "resource contents of a:b have neither text nor blob",
        ),
        ({"type": "resource", "resource": {"uri": "a:b", "blob": "*"}}, "resource content: blob is not base64"),
    ],
)
def test_what_is_no_block(wire: Any, why: str) -> None:
    with pytest.raises(ValueError) as caught:
        content_from_wire(wire)
    assert str(caught.value) == why


def test_members_that_are_not_known_are_left_alone() -> None:
    assert content_from_wire({"type": "text", "text": "a", "new": 1}) == Text("a")


def test_resource_contents_as_text() -> None:
    assert ResourceContents("é").text == "é"
    assert ResourceContents("é".encode()).text == "é"
    with pytest.raises(UnicodeDecodeError):
        _ = ResourceContents(b"\xff").text


@pytest.mark.parametrize(
    "wire",
    [{"uri": "a:b", "text": "x", "mimeType": "text/plain"}, {"uri": "a:b", "blob": "AA==", "_meta": {"k": None}}],
)
def test_resource_contents_come_back(wire: dict[str, Any]) -> None:
    assert ResourceContents.from_wire(wire).to_wire() == wire


def test_blocks_are_values() -> None:
    assert Text("a") == Text("a") != Text("b")
    with pytest.raises(AttributeError):
        Text("a").text = "b"  # type: ignore[misc]
