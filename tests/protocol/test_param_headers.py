"""Parameters in headers (basic/transports/streamable-http, section Custom Headers from Tool Parameters)."""

from __future__ import annotations

from typing import Any

import pytest

from trio_mcp.errors import HeaderMismatch
from trio_mcp.protocol.param_headers import (
    HeaderParam,
    InvalidHeader,
    check_params,
    header_params,
    param_headers,
    with_reachable_marks,
)


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def marked(kind: Any, name: Any = "Region", **more: Any) -> dict[str, Any]:
    return {"type": kind, "x-mcp-header": name, **more}


def test_the_parameters_are_found_at_any_depth() -> None:
    found = header_params(
        schema(
            region=marked("string"),
            plain={"type": "string"},
            inner={"type": "object", "properties": {"count": marked(["integer", "null"], "Count")}},
            flag=marked("boolean", "F!#"),
        )
    )
    assert found == (
        HeaderParam("Mcp-Param-Region", ("region",), "string"),
        HeaderParam("Mcp-Param-Count", ("inner", "count"), "integer"),
        HeaderParam("Mcp-Param-F!#", ("flag",), "boolean"),
    )


@pytest.mark.parametrize(
    "bad",
    [
        schema(a=marked("string", "")),
        schema(a=marked("string", "two words")),
        schema(a=marked("string", "a\r\nb")),
        schema(a=marked("string", "é")),
        schema(a=marked("string", 3)),
        schema(a=marked("string", None)),
        schema(a=marked("number")),
        schema(a=marked("object")),
        schema(a=marked("array")),
        schema(a=marked(["string", "integer"])),
        schema(a=marked(None)),
        schema(a=marked("string"), b=marked("string", "REGION")),
        schema(a={"type": "array", "items": marked("string")}),
        schema(a={"anyOf": [marked("string"), {"type": "null"}]}),
        schema(a={"type": "array", "items": schema(b=marked("string"))}),
        {"type": "object", "$defs": {"x": marked("string")}},
        {"type": "object", "additionalProperties": marked("string")},
        {"type": "object", "allOf": [schema(a=marked("string"))]},
        {"type": "object", "if": schema(a=marked("string"))},
        {"type": "object", "patternProperties": {"x": marked("string")}},
        {"type": "object", "x-mcp-header": "Region"},
    ],
)
def test_a_mark_that_breaks_the_rules_is_an_error(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidHeader):
        header_params(bad)


def test_data_that_looks_like_a_mark_is_none() -> None:
    assert header_params(schema(a={"type": "object", "default": marked("string"), "enum": [marked("x")]})) == ()
    # A property of this name is a property.
    assert header_params({"type": "object", "properties": {"x-mcp-header": {"type": "string"}}}) == ()


def reference(name: str, **more: Any) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}", **more}


REGION = {"type": "object", "properties": {"name": marked("string")}, "description": "Where"}


def test_marks_in_definitions_are_put_where_they_are_reached() -> None:
    inner = {"type": "object", "properties": {"region": reference("Region"), "plain": reference("Plain")}}
    whole = {
        **schema(a=reference("Inner", description="Mine", default={}), b=reference("Plain"), c=True),
        "$defs": {"Inner": inner, "Region": REGION, "Plain": {"type": "object"}, "Left": {}},
    }
    found = with_reachable_marks(whole)
    assert found == {
        **schema(
            a={
                "type": "object",
                "properties": {"region": REGION, "plain": reference("Plain")},
                "description": "Mine",
                "default": {},
            },
            b=reference("Plain"),
            c=True,
        ),
        "$defs": {"Plain": {"type": "object"}},
    }
    assert header_params(found) == (HeaderParam("Mcp-Param-Region", ("a", "region", "name"), "string"),)


def test_what_may_be_null_is_opened_too() -> None:
    optional = {"anyOf": [{"type": "null"}, reference("Region")], "default": None}
    found = with_reachable_marks({**schema(a=optional), "$defs": {"Region": REGION}})
    assert found == schema(a={**REGION, "type": ["object", "null"], "default": None})


@pytest.mark.parametrize(
    "properties",
    [
        {"a": {"type": "array", "items": reference("Region")}},
        {"a": {"anyOf": [reference("Region"), {"type": "string"}]}},
        {"a": {"anyOf": [reference("Region"), {"type": "null"}, {"type": "string"}]}},
        {"a": {"anyOf": [reference("Region"), reference("Region")]}},
        {"a": {"anyOf": [reference("Region", minProperties=1), {"type": "null"}]}},
        {"a": {"anyOf": [{"type": "null"}]}},
        {"a": reference("Region"), "b": {"type": "array", "items": reference("Region")}},
    ],
)
def test_marks_that_cannot_be_reached_stay_where_they_are(properties: dict[str, Any]) -> None:
    whole = {**schema(**properties), "$defs": {"Region": REGION}}
    found = with_reachable_marks(whole)
    if "Region" in str(properties):
        with pytest.raises(InvalidHeader, match=r"^\$defs/Region/properties/name: "):
            header_params(found)
    else:
        assert header_params(found) == ()


def test_a_class_that_holds_itself_is_not_opened_for_ever() -> None:
    node = {"type": "object", "properties": {"id": marked("integer", "Id"), "next": reference("Node")}}
    found = with_reachable_marks({**schema(root=reference("Node")), "$defs": {"Node": node}})
    with pytest.raises(InvalidHeader, match=r"^\$defs/Node/properties/id: "):
        header_params(found)


def test_a_schema_without_marks_is_left_alone() -> None:
    plain = {**schema(a=reference("A")), "$defs": {"A": schema(**{"x-mcp-header": {"default": marked("string")}})}}
    assert with_reachable_marks(plain) is plain
    assert with_reachable_marks(schema(a=marked("string"))) == schema(a=marked("string"))


PARAMS = header_params(
    schema(text=marked("string", "Text"), number=marked("integer", "Number"), flag=marked("boolean", "Flag"))
)


@pytest.mark.parametrize(
    ("header", "value", "accepted"),
    [
        (b"42", 42, True),
        (b"42.0", 42, True),
        (b"4.2e1", 42, True),
        (b"43", 42, False),
        (b" 42", 42, False),
        (b"4_2", 42, False),
        (b"0x2a", 42, False),
        (b"nan", 42, False),
        (b"1e999", 42, False),
        (b"9" * 5000, 42, False),
        (b"true", True, True),
        (b"True", True, False),
        (b"1", True, False),
        (b"=?base64?SGVsbG8=?=", "Hello", True),
        (b"=?base64?SGVsbG8?=", "Hello", False),
        (b"=?base64?SGVs!!!bG8=?=", "Hello", False),
        (b"SGVsbG8=", "Hello", False),
        (b"SGVsbG8=", "SGVsbG8=", True),
        (b"=?base64?SGVsbG8=", "=?base64?SGVsbG8=", True),
        (b"caf\xe9", "café", False),
        (b"a\x00b", "a\x00b", False),
        (b"", "", True),
    ],
)
def test_how_a_header_is_compared(header: bytes, value: Any, accepted: bool) -> None:
    params = header_params(schema(v=marked({bool: "boolean", int: "integer", str: "string"}[type(value)], "V")))
    if accepted:
        check_params(params, {b"mcp-param-v": header}, {"v": value})
    else:
        with pytest.raises(HeaderMismatch, match="Mcp-Param-V"):
            check_params(params, {b"mcp-param-v": header}, {"v": value})


@pytest.mark.parametrize("arguments", [None, {}, {"text": None}, {"text": [1]}, {"text": 1.5}])
def test_a_value_that_is_not_there_or_of_another_type_has_no_header(arguments: Any) -> None:
    assert param_headers(PARAMS, arguments) == {}
    check_params(PARAMS, {}, arguments)
    with pytest.raises(HeaderMismatch, match="Mcp-Param-Flag is there, but the body has no flag"):
        check_params(PARAMS, {b"mcp-param-flag": b"true"}, arguments)


def test_an_integer_that_not_everybody_can_hold_is_not_sent() -> None:
    with pytest.raises(ValueError, match=r"number: 9007199254740992 does not fit into a header \(Mcp-Param-Number\)"):
        param_headers(PARAMS, {"number": 2**53})
    assert param_headers(PARAMS, {"number": 1 - 2**53}) == {"Mcp-Param-Number": "-9007199254740991"}
