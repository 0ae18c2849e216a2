"""Mirrored headers: what a client encodes a server accepts, and no other value, over names and parameters of any kind."""

from __future__ import annotations

import base64
import re
import unicodedata
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trio_mcp.errors import HeaderMismatch
from trio_mcp.protocol.envelope import Request
from trio_mcp.protocol.http import check_mirror, encode_value, mirror_headers
from trio_mcp.protocol.param_headers import HeaderParam, check_params, header_params, param_headers

from ..scaled import scaled

VERSION = "2026-07-28"
METHODS = st.sampled_from([("tools/call", "name"), ("prompts/get", "name"), ("resources/read", "uri")])
TEXT = st.one_of(
    st.text(),
    st.text("ab \t=?/\r\n\x00\x7fé\u00a0", max_size=8),
    st.text(max_size=6).map(lambda text: f"=?base64?{text}?="),
    st.binary(max_size=9).map(lambda raw: f"=?base64?{base64.b64encode(raw).decode()}?="),
)


def meant(raw: bytes) -> str | None:
    """What a header says (section Value Encoding), with other tools than the code under test."""
    if raw[:9] == b"=?base64?" and raw[-2:] == b"?=":
        inner = raw[9:-2] if len(raw) >= 11 else b"!"
        if len(inner) % 4 or not re.fullmatch(rb"[A-Za-z0-9+/]*={0,2}", inner):
            return None
        try:
            return base64.b64decode(inner).decode()
        except ValueError:
            return None
    plain = all(byte == 9 or 32 <= byte <= 126 for byte in raw)
    return raw.decode() if plain and raw.strip(b" \t") == raw else None


def near(text: str) -> st.SearchStrategy[str]:
    """Texts that something on the way could take for another one."""
    return st.sampled_from(
        [
            text.lower(),
            text.upper(),
            text.strip(),
            text + " ",
            " " + text,
            text + "\n",
            text + "\0",
            text[:-1],
            text * 2,
            text + ", " + text,
            unicodedata.normalize("NFC", text),
            unicodedata.normalize("NFD", text),
            unicodedata.normalize("NFKC", text),
            encode_value(text),
            text.encode().decode("latin-1"),
        ]
    )


@st.composite
def edited(draw: st.DrawFn, raw: bytes) -> bytes:
    """A header after one or two edits."""
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, len(raw)))
        raw = (
            raw[:at]
            + draw(st.binary(max_size=2) | st.sampled_from([b"!", b" ", b"=", b"-", b"\t"]))
            + raw[at + draw(st.integers(0, 2)) :]
        )
    return raw


# -- Mcp-Name


def call(method: str, member: str, name: str) -> Request:
    return Request(1, method, {member: name, "_meta": {"io.modelcontextprotocol/protocolVersion": VERSION}})


def sent(headers: dict[str, str]) -> dict[bytes, bytes]:
    for value in headers.values():
        # Nothing that an HTTP stack would refuse, strip or read as a second header (RFC 9110, section 5.5).
        assert re.fullmatch(r"[\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?", value)
    return {name.lower().encode(): value.encode("ascii") for name, value in headers.items()}


@given(METHODS, TEXT)
def test_any_name_is_accepted_as_it_was_mirrored(row: tuple[str, str], name: str) -> None:
    request = call(*row, name)
    headers = sent(mirror_headers(request.method, request.params, VERSION))
    assert meant(headers[b"mcp-name"]) == name
    check_mirror(headers, request)


@given(METHODS, TEXT, st.data())
def test_any_other_name_is_refused(row: tuple[str, str], name: str, data: st.DataObject) -> None:
    other = data.draw(near(name) | TEXT)
    headers = sent(mirror_headers(row[0], {row[1]: other}, VERSION))
    if other == name:
        check_mirror(headers, call(*row, name))
    else:
        with pytest.raises(HeaderMismatch, match="Mcp-Name"):
            check_mirror(headers, call(*row, name))


@given(TEXT, st.data())
def test_a_header_that_was_edited_is_refused_unless_it_says_the_same(name: str, data: st.DataObject) -> None:
    request = call("tools/call", "name", name)
    headers = sent(mirror_headers("tools/call", request.params, VERSION))
    headers[b"mcp-name"] = data.draw(edited(headers[b"mcp-name"]) | st.just(name.encode()))
    if meant(headers[b"mcp-name"]) == name:
        check_mirror(headers, request)
    else:
        with pytest.raises(HeaderMismatch, match="Mcp-Name"):
            check_mirror(headers, request)


# -- Mcp-Param-*

KINDS: dict[str, st.SearchStrategy[Any]] = {
    "string": TEXT,
    "integer": st.integers(-(2**53) + 1, 2**53 - 1) | st.integers(-2, 2),
    "boolean": st.booleans(),
}
TOKENS = st.from_regex(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,8}", fullmatch=True)


@st.composite
def schemas(draw: st.DrawFn, depth: int = 2) -> dict[str, Any]:
    """An object schema with marked properties at any depth; the tokens are made distinct afterwards."""
    properties: dict[str, Any] = {}
    for name in draw(st.lists(st.text(max_size=4), unique=True, max_size=3)):
        if depth and draw(st.booleans()):
            properties[name] = draw(schemas(depth - 1))
        else:
            kind = draw(st.sampled_from([*KINDS, "number", "array"]))
            properties[name] = {"type": draw(st.sampled_from([kind, [kind, "null"]]))}
            if kind in KINDS:
                properties[name]["x-mcp-header"] = draw(TOKENS)
    return {"type": "object", "properties": properties}


def distinct(schema: dict[str, Any], seen: set[str]) -> dict[str, Any]:
    for inner in schema["properties"].values():
        if "properties" in inner:
            distinct(inner, seen)
        elif "x-mcp-header" in inner:
            while inner["x-mcp-header"].lower() in seen:
                inner["x-mcp-header"] += "-"
            seen.add(inner["x-mcp-header"].lower())
    return schema


@st.composite
def arguments(draw: st.DrawFn, schema: dict[str, Any]) -> Any:
    """Arguments that fit a schema; anything may be missing or null."""
    if "properties" in schema:
        out = {name: draw(arguments(inner)) for name, inner in schema["properties"].items() if draw(st.integers(0, 4))}
        return out if draw(st.integers(0, 9)) else None
    kind = schema["type"] if isinstance(schema["type"], str) else schema["type"][0]
    return draw(KINDS.get(kind, st.just(0.5))) if draw(st.integers(0, 4)) else None


def told(params: tuple[HeaderParam, ...], given: Any) -> list[Any]:
    """The mirrored values, in order, with their types."""
    out: list[Any] = []
    for param in params:
        value = given
        for name in param.path:
            value = value.get(name) if isinstance(value, dict) else None
        out.append((type(value), value))
    return out


@settings(max_examples=scaled(200))
@given(st.data())
def test_arguments_of_any_shape_are_accepted_as_they_were_mirrored_and_no_others(data: st.DataObject) -> None:
    schema = distinct(data.draw(schemas()), set())
    params = header_params(schema)
    mine, others = data.draw(arguments(schema)), data.draw(arguments(schema))
    headers = sent(param_headers(params, mine))
    assert len(headers) == sum(value is not None for _, value in told(params, mine))
    check_params(params, headers, mine)
    if told(params, others) == told(params, mine):
        check_params(params, headers, others)
    else:
        with pytest.raises(HeaderMismatch, match="Mcp-Param-"):
            check_params(params, headers, others)
    for key in headers:
        with pytest.raises(HeaderMismatch, match="is missing"):
            check_params(params, {name: value for name, value in headers.items() if name != key}, mine)


def one(kind: str) -> tuple[HeaderParam, ...]:
    return header_params({"type": "object", "properties": {"v": {"type": kind, "x-mcp-header": "V"}}})


def accepts(kind: str, raw: bytes, value: Any) -> bool:
    try:
        check_params(one(kind), {b"mcp-param-v": raw}, {"v": value})
    except HeaderMismatch:
        return False
    return True


@given(TEXT, st.data())
def test_text_is_compared_as_text(value: str, data: st.DataObject) -> None:
    raw = data.draw(
        edited(encode_value(value).encode())
        | near(value).map(lambda text: text.encode())
        | near(value).map(lambda text: encode_value(text).encode())
        | st.binary(max_size=20)
    )
    assert accepts("string", raw, value) is (meant(raw) == value)


@given(st.booleans(), st.sampled_from([b"true", b"false", b"True", b"FALSE", b"1", b"0", b"", b" true"]) | st.binary())
def test_a_boolean_has_one_spelling(value: bool, raw: bytes) -> None:
    assert accepts("boolean", raw, value) is (raw == (b"true" if value else b"false"))


@st.composite
def spelled(draw: st.DrawFn, value: int) -> bytes:
    """A number near this one in some spelling, or hardly a number at all."""
    value += draw(st.sampled_from([0, 0, 0, 1, -1]))
    power = draw(st.integers(-3, 3))
    whole, rest = divmod(abs(value), 10**power) if power > 0 else (abs(value), 0)
    scaled = f"{whole}.{rest:0{power}}e{power}" if power > 0 else f"{whole * 10**-power}e{power}"
    text = draw(
        st.sampled_from([f"{abs(value)}", f"{abs(value)}.0", f"{abs(value)}.00e0", f"{abs(value)}.5", scaled])
        | st.from_regex(r"[0-9]{1,3}(\.[0-9]{1,2})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
    )
    text = ("-" if value < 0 else "") + text
    return draw(
        st.just(text.encode())
        | edited(text.encode())
        | st.sampled_from(
            [text + " ", "+" + text, text.replace("e", " e"), f"{text}_0", "0x" + text, "nan", "-inf"]
        ).map(lambda text: text.encode())
    )


@settings(max_examples=scaled(300))
@given(KINDS["integer"], st.data())
def test_an_integer_is_compared_as_a_number(value: int, data: st.DataObject) -> None:
    raw = data.draw(spelled(value))
    text = meant(raw) or ""
    number = re.fullmatch(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?", text)
    assert accepts("integer", raw, value) is (number is not None and Fraction(text) == value), raw
