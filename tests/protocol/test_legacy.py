"""How what a server has is said in each revision with sessions."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from trio_mcp.errors import (
    InvalidParams,
    InvalidRequest,
    MissingClientCapability,
    ProtocolError,
    ResourceNotFound,
    ServerBusy,
)
from trio_mcp.limits import DEFAULT
from trio_mcp.protocol.legacy import DIALECTS, Dialect, Hello, legacy_meta, negotiate, read_hello, wraps

R1, R2, R3, R4 = "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"
REVISIONS = (R1, R2, R3, R4)

each = pytest.mark.parametrize("revision", REVISIONS)

ICON = {"src": "https://example.com/i.png", "mimeType": "image/png"}
TOOL = {
    "name": "t",
    "title": "T",
    "description": "does it",
    "inputSchema": {"type": "object", "properties": {"a": {"type": "integer"}}},
    "outputSchema": {"type": "object", "properties": {"b": {"type": "integer"}}},
    "annotations": {"readOnlyHint": True},
    "icons": [ICON],
    "_meta": {"a/b": 1},
}
RESOURCE = {
    "name": "r",
    "uri": "test://r",
    "title": "R",
    "description": "is it",
    "mimeType": "text/plain",
    "size": 3,
    "annotations": {"audience": ["user"], "priority": 1},
    "icons": [ICON],
    "_meta": {"a/b": 1},
}
TEXT = {"type": "text", "text": "x"}
IMAGE = {"type": "image", "data": "QUJD", "mimeType": "image/png"}
AUDIO = {"type": "audio", "data": "QUJD", "mimeType": "audio/wav"}
LINK = {"type": "resource_link", "uri": "test://r", "name": "r", "title": "R"}
EMBEDDED = {"type": "resource", "resource": {"uri": "test://r", "text": "x"}}


def listed(revision: str, method: str, member: str, item: dict[str, Any]) -> dict[str, Any]:
    result = {
        member: [copy.deepcopy(item)],
        "resultType": "complete",
        "ttlMs": 1,
        "cacheScope": "public",
        "nextCursor": "c",
    }
    cut = DIALECTS[revision].result(method, result)
    assert cut.keys() == {member, "nextCursor"}
    found: dict[str, Any] = cut[member][0]
    return found


# -- the handshake


@pytest.mark.parametrize("asked", [*REVISIONS, "2026-07-28", "1999-01-01", "2099-01-01", "", "draft"])
def test_the_revision_that_was_asked_for_or_the_latest(asked: str) -> None:
    assert negotiate(asked).revision == (asked if asked in REVISIONS else R4)


def test_what_a_client_says_of_itself() -> None:
    params = {"protocolVersion": R3, "capabilities": {"roots": {}}, "clientInfo": {"name": "c", "version": "1"}}
    assert read_hello(params) == Hello(R3, {"roots": {}}, {"name": "c", "version": "1"})
    assert read_hello({"protocolVersion": "x"}) == Hello("x", {}, None)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"protocolVersion": None}, "protocolVersion must be a string, got nothing"),
        ({"protocolVersion": 1}, "protocolVersion must be a string, got 1"),
        ({"capabilities": []}, "capabilities must be an object"),
        ({"capabilities": None}, "capabilities must be an object, got nothing"),
        ({"clientInfo": "me"}, "clientInfo must be an object"),
    ],
)
def test_a_hello_that_is_malformed_names_the_member(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidParams) as info:
        read_hello({"protocolVersion": R4, "capabilities": {}, "clientInfo": {}} | change)
    assert said in info.value.message


@each
def test_the_welcome(revision: str) -> None:
    info = {
        "name": "s",
        "version": "1",
        "title": "S",
        "description": "d",
        "websiteUrl": "https://e.com",
        "icons": [ICON],
    }
    dialect = DIALECTS[revision]
    result = dialect.welcome(info, {"logging": {}}, "read this")
    since = {R1: 2, R2: 2, R3: 3, R4: 6}[revision]
    names = ["name", "version", "title", "description", "websiteUrl", "icons"][:since]
    assert sorted(result["serverInfo"]) == sorted(names)
    assert (result["protocolVersion"], result["instructions"]) == (revision, "read this")
    assert "instructions" not in dialect.welcome(info, {}, None)


@each
def test_capabilities(revision: str) -> None:
    modern = {"tools": {"listChanged": True}, "completions": {}, "extensions": {"x/y": {}}}
    dialect = DIALECTS[revision]
    plain = {"tools": {"listChanged": True}, "completions": {}}
    assert dialect.capabilities(modern, False) == plain
    tasks = {"tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}} if revision == R4 else {}
    assert dialect.capabilities(modern, True) == plain | tasks
    assert "extensions" in modern


def test_what_a_request_says_about_itself() -> None:
    said = Hello(R4, {"roots": {}}, None)

    def meta(params: dict[str, Any]) -> Any:
        return legacy_meta(DIALECTS[R4], said, "info", params)

    found = meta({"_meta": {"progressToken": 0, "a/b": 1}})
    assert (found.progress_token, found.protocol_version, found.log_level) == (0, R4, "info")
    assert found.client_capabilities == {"roots": {}}
    assert meta({}).progress_token is None
    assert meta({"_meta": None}).progress_token is None
    for wrong in (1, [], "x"):
        with pytest.raises(InvalidParams, match="_meta"):
            meta({"_meta": wrong})
    for wrong in (1.5, True, [], "x" * (DEFAULT.id_bytes + 1)):
        with pytest.raises(InvalidParams, match="progressToken"):
            meta({"_meta": {"progressToken": wrong}})


# -- lists


@each
def test_a_tool_has_what_its_revision_has(revision: str) -> None:
    names = {
        R1: ["name", "description", "inputSchema"],
        R2: ["annotations"],
        R3: ["title", "outputSchema", "_meta"],
        R4: ["icons"],
    }
    expected = {name for since, new in names.items() if since <= revision for name in new}
    found = listed(revision, "tools/list", "tools", TOOL)
    assert found == {name: value for name, value in TOOL.items() if name in expected}


@each
@pytest.mark.parametrize(
    ("method", "member"),
    [("resources/list", "resources"), ("resources/templates/list", "resourceTemplates"), ("prompts/list", "prompts")],
)
def test_a_resource_has_what_its_revision_has(revision: str, method: str, member: str) -> None:
    hidden = {"title": R3, "_meta": R3, "icons": R4}
    found = listed(revision, method, member, RESOURCE)
    assert found == {name: value for name, value in RESOURCE.items() if hidden.get(name, R1) <= revision}


@each
def test_the_title_of_an_argument_of_a_prompt(revision: str) -> None:
    prompt = {"name": "p", "arguments": [{"name": "a", "title": "A", "description": "d", "required": True}]}
    (argument,) = listed(revision, "prompts/list", "prompts", prompt)["arguments"]
    expected = {"name", "description", "required"} | ({"title"} if revision >= R3 else set())
    assert argument.keys() == expected


@each
def test_the_schema_of_a_tool_is_kept_but_for_properties_that_are_no_objects(revision: str) -> None:
    # Each schema.json before 2026-07-28 has objects only there.
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"any": True, "none": False, "deep": {"properties": {"x": True}}, "plain": {"type": "string"}},
        "$defs": {"a": {"$anchor": "a", "type": "string"}},
        "allOf": [{"anyOf": [{"required": ["plain"]}]}],
        "if": {"required": ["any"]},
        "additionalProperties": False,
    }
    found = listed(revision, "tools/list", "tools", TOOL | {"inputSchema": schema})["inputSchema"]
    assert found["properties"] == {
        "any": {},
        "none": {"not": {}},
        "deep": {"properties": {"x": True}},
        "plain": {"type": "string"},
    }
    assert {**found, "properties": schema["properties"]} == schema
    if revision >= R3:
        output = listed(revision, "tools/list", "tools", TOOL | {"outputSchema": schema})["outputSchema"]
        assert output == found


@pytest.mark.parametrize("revision", [R3, R4])
@pytest.mark.parametrize(
    ("schema", "wrapped"),
    [
        ({"type": "object"}, {"type": "object"}),
        (
            {"type": "integer"},
            {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]},
        ),
        ({}, {"type": "object", "properties": {"result": {}}, "required": ["result"]}),
        (
            {"anyOf": [{"type": "object"}, {"type": "null"}], "$schema": "s"},
            {
                "$schema": "s",
                "type": "object",
                "properties": {"result": {"anyOf": [{"type": "object"}, {"type": "null"}]}},
                "required": ["result"],
            },
        ),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}},
            {"type": "object", "$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}},
        ),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": {"type": "array"}}},
            {
                "type": "object",
                "properties": {"result": {"$ref": "#/$defs/a"}},
                "required": ["result"],
                "$defs": {"a": {"type": "array"}},
            },
        ),
        (
            {"$ref": "#/$defs/b"},
            {"type": "object", "properties": {"result": {"$ref": "#/$defs/b"}}, "required": ["result"]},
        ),
    ],
)
def test_data_that_may_be_no_object_is_wrapped_in_the_list(
    revision: str, schema: dict[str, Any], wrapped: dict[str, Any]
) -> None:
    assert listed(revision, "tools/list", "tools", TOOL | {"outputSchema": schema})["outputSchema"] == wrapped
    assert wraps(schema) == ("result" in wrapped.get("properties", {}))
    assert not wraps(None)


# -- results


@each
def test_what_only_the_modern_revision_has_is_left_out_of_every_result(revision: str) -> None:
    modern = {"completion": {}, "resultType": "complete", "ttlMs": 1, "cacheScope": "private", "_meta": {"a/b": 1}}
    assert DIALECTS[revision].result("completion/complete", modern) == {"completion": {}, "_meta": {"a/b": 1}}


@each
@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("data", [{"a": 1}, {"result": 1}, [1], 0, None, "x"])
def test_the_data_of_a_result(revision: str, wrapped: bool, data: Any) -> None:
    result = DIALECTS[revision].result("tools/call", {"content": [TEXT], "structuredContent": data}, wrapped=wrapped)
    assert result.pop("content") == [TEXT]
    if revision < R3:
        assert result == {}
    else:
        inner = data if isinstance(data, dict) and not wrapped else {"result": data}
        assert result == {"structuredContent": inner}


@each
def test_content_of_a_kind_that_a_revision_does_not_have_is_text(revision: str) -> None:
    blocks = [TEXT, IMAGE, AUDIO, LINK, EMBEDDED]
    sound = AUDIO if revision >= R2 else {"type": "text", "text": "[audio, audio/wav, 3 bytes]"}
    link = LINK if revision >= R3 else {"type": "text", "text": "R: test://r"}
    expected = [TEXT, IMAGE, sound, link, EMBEDDED]
    dialect = DIALECTS[revision]
    assert dialect.result("tools/call", {"content": copy.deepcopy(blocks)})["content"] == expected
    messages = [{"role": "user", "content": copy.deepcopy(block)} for block in blocks]
    result = dialect.result("prompts/get", {"messages": messages})
    assert [message["content"] for message in result["messages"]] == expected


@each
def test_errors_have_codes_that_the_revision_has(revision: str) -> None:
    dialect = DIALECTS[revision]
    missing = dialect.error(ResourceNotFound("test://x"))
    assert (missing.code, missing.data, missing.message) == (
        -32002,
        {"uri": "test://x"},
        ResourceNotFound("test://x").message,
    )
    refused = dialect.error(MissingClientCapability("cannot be asked", {"requiredCapabilities": {}}))
    assert (type(refused), refused.data) == (InvalidRequest, None)
    for error in (ProtocolError("x", code=7), ServerBusy("busy"), InvalidParams("bad")):
        assert dialect.error(error) is error


# -- questions

FORM = {
    "type": "object",
    "properties": {
        "plain": {"type": "string", "default": "x"},
        "choice": {"type": "string", "title": "C", "oneOf": [{"const": "a", "title": "A"}, {"const": "b"}]},
    },
    "required": ["plain"],
}


def form(revision: str, schema: dict[str, Any] = FORM) -> dict[str, Any]:
    params = {"mode": "form", "message": "m", "requestedSchema": schema}
    return DIALECTS[revision].question("elicitation/create", params, "page")


def test_a_form_in_each_revision() -> None:
    assert form(R4) == {"mode": "form", "message": "m", "requestedSchema": FORM}
    older = form(R3)
    assert older.keys() == {"message", "requestedSchema"}
    assert older["requestedSchema"] == FORM | {
        "properties": {
            "plain": {"type": "string", "default": "x"},
            "choice": {"type": "string", "title": "C", "enum": ["a", "b"], "enumNames": ["A", "b"]},
        }
    }
    for revision in (R1, R2):
        with pytest.raises(MissingClientCapability, match=revision):
            form(revision)
    several = {"type": "object", "properties": {"many": {"type": "array", "items": {"enum": ["a"]}}}}
    assert form(R4, several)["requestedSchema"] == several
    with pytest.raises(MissingClientCapability, match="'many'"):
        form(R3, several)


def test_a_page_in_each_revision() -> None:
    page = {"mode": "url", "message": "m", "url": "https://example.com"}
    asked = DIALECTS[R4].question("elicitation/create", page, "page")
    assert asked == page | {"elicitationId": "page"}
    for revision in (R1, R2, R3):
        with pytest.raises(MissingClientCapability, match=revision):
            DIALECTS[revision].question("elicitation/create", page, "page")


@each
def test_other_questions_are_the_same_in_each_revision(revision: str) -> None:
    for method in ("roots/list", "sampling/createMessage"):
        params = {"messages": [], "maxTokens": 1}
        assert DIALECTS[revision].question(method, params, "page") == params


def test_what_each_revision_can() -> None:
    def flags(dialect: Dialect) -> str:
        names = ("audio", "progress_text", "links", "elicitation", "modes", "tasks", "primed", "batches")
        return " ".join(name for name in names if getattr(dialect, name))

    assert {revision: flags(DIALECTS[revision]) for revision in REVISIONS} == {
        R1: "",
        R2: "audio progress_text batches",
        R3: "audio progress_text links elicitation",
        R4: "audio progress_text links elicitation modes tasks primed",
    }
    assert list(DIALECTS) == [R4, R3, R2, R1]
