"""The HTTP rules of the endpoint: who may call, in which form, and what the headers must repeat."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_mcp.errors import HeaderMismatch
from trio_mcp.protocol.envelope import Request
from trio_mcp.protocol.http import (
    Accepts,
    HostPolicy,
    Refusal,
    check_head,
    check_mirror,
    decode_value,
    encode_value,
    host_policy,
    is_loopback,
    mirror_headers,
    parse_accept,
)

LOOPBACK = host_policy(["127.0.0.1"])
ANYWHERE = host_policy(["0.0.0.0"])
BOTH = Accepts(True, True)


def judge(policy: HostPolicy, method: str = "POST", **fields: bytes | None) -> Refusal | Accepts:
    headers = {
        b"host": b"localhost:8000",
        b"content-type": b"application/json",
        b"accept": b"application/json, text/event-stream",
    }
    for name, value in fields.items():
        key = name.replace("_", "-").encode()
        if value is None:
            headers.pop(key, None)
        else:
            headers[key] = value
    return check_head(method, headers, policy)


def status(verdict: Refusal | Accepts) -> int:
    return verdict.status if isinstance(verdict, Refusal) else 200


# -- hosts and origins


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        (b"127.0.0.1:8000", 200),
        (b"127.0.0.1", 200),
        (b"localhost:8000", 200),
        (b"LocalHost", 200),
        (b"[::1]:8000", 200),
        (b"[::1]", 200),
        (b"evil.example", 403),
        (b"evil.example:8000", 403),
        (b"localhost.evil.example", 403),
        (b"127.0.0.1.evil.example:8000", 403),
        (b"evil.example:localhost", 403),
        (b"localhost:8000, evil.example", 403),
        (b"evil.example, localhost:8000", 403),
        (b"localhost@evil.example", 403),
        (b"localhost:8000@evil.example", 403),
        (b"[::1].evil.example", 403),
        (b"[::1", 403),
        (b"\xff", 403),
        (b"", 403),
        (None, 403),
    ],
)
@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "127.0.0.53", "localhost"])
def test_a_loopback_endpoint_serves_loopback_names_only(address: str, host: bytes | None, expected: int) -> None:
    assert status(judge(host_policy([address]), host=host)) == expected


@pytest.mark.parametrize("host", [b"mcp.example.com", b"evil.example", b"localhost", b"[::1]:1", b"10.0.0.7:80"])
@pytest.mark.parametrize("addresses", [["0.0.0.0"], ["::"], ["192.0.2.7"], ["127.0.0.1", "192.0.2.7"], []])
def test_an_endpoint_elsewhere_serves_any_host(addresses: list[str], host: bytes) -> None:
    assert judge(host_policy(addresses), host=host) == BOTH


@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["0.0.0.0"], []])
def test_allowed_hosts_replace_the_rule(addresses: list[str]) -> None:
    policy = host_policy(addresses, hosts=["MCP.example.com", "[fd00::1]:443"])
    hosts = (b"mcp.example.com", b"mcp.EXAMPLE.com:8443", b"[fd00::1]", b"localhost:8000", b"x.mcp.example.com")
    assert [status(judge(policy, host=host)) for host in hosts] == [200, 200, 200, 403, 403]


def test_a_refused_host_names_the_setting() -> None:
    assert judge(LOOPBACK, host=b"evil.example") == Refusal(
        403, "Forbidden: host 'evil.example' is not served here (setting: allowed_hosts)"
    )


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        (None, 200),
        (b"http://localhost:3000", 200),
        (b"http://localhost", 200),
        (b"https://127.0.0.1:8443", 200),
        (b"http://[::1]:3000", 200),
        (b"https://evil.example", 403),
        (b"https://localhost.evil.example", 403),
        (b"null", 403),
        (b"", 403),
        (b"localhost", 403),
        (b"file://localhost", 403),
        (b"javascript://localhost", 403),
        (b"http://evil.example/localhost", 403),
        (b"http://localhost, null", 403),
        (b"http://localhost:3000, null", 403),
        (b"http://localhost:3000, https://evil.example", 403),
        (b"https://evil.example, http://localhost:3000", 403),
        (b"http://localhost@evil.example", 403),
        (b"http://localhost:3000@evil.example", 403),
        (b"http://[::1].evil.example", 403),
    ],
)
def test_an_origin_must_be_one_of_the_hosts_of_a_loopback_endpoint(origin: bytes | None, expected: int) -> None:
    assert status(judge(LOOPBACK, origin=origin)) == expected


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        (None, 200),
        (b"http://203.0.113.7:8443", 200),
        (b"http://203.0.113.7", 403),
        (b"http://[2001:db8::1]:8443", 403),
        (b"https://evil.example", 403),
        (b"null", 403),
    ],
)
def test_elsewhere_an_origin_must_be_the_address_of_the_endpoint(origin: bytes | None, expected: int) -> None:
    assert status(judge(ANYWHERE, host=b"203.0.113.7:8443", origin=origin)) == expected


@pytest.mark.parametrize("name", [b"mcp.example.com:8443", b"evil.example", b"203.0.113.7.evil.example"])
def test_a_page_is_no_part_of_an_endpoint_that_it_calls_by_a_name(name: bytes) -> None:
    """Whoever owns a name can let it lead to us; the browser takes both for one origin then."""
    assert status(judge(ANYWHERE, host=name, origin=b"http://" + name)) == 403
    assert status(judge(ANYWHERE, host=name)) == 200
    listed = host_policy(["0.0.0.0"], hosts=["mcp.example.com"])
    assert status(judge(listed, host=name, origin=b"http://" + name)) == (200 if name.startswith(b"mcp") else 403)


def test_where_the_address_is_unknown_only_listed_hosts_pass() -> None:
    for host in (b"localhost", b"127.0.0.1", b"evil.example"):
        assert judge(host_policy(None), host=host) == Refusal(
            403, f"Forbidden: host {host.decode()!r} is not served here (setting: allowed_hosts)"
        )
    assert status(judge(host_policy(None, hosts=["shop.example"]), host=b"shop.example")) == 200


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1", "localhost"])
def test_loopback_addresses(address: str) -> None:
    assert is_loopback(address)
    assert not any(map(is_loopback, ["0.0.0.0", "::", "192.0.2.1", "::ffff:192.0.2.1", "example"]))


def test_allowed_origins_are_whole_origins() -> None:
    policy = host_policy(["0.0.0.0"], origins=["https://App.example/", "http://localhost:3000"])
    origins = (
        *(b"https://app.example", b"https://APP.example", b"http://localhost:3000", b"http://app.example"),
        *(b"https://app.example:8443", b"https://app.example.evil.example", b"http://localhost:3001", b"null"),
    )
    found = [status(judge(policy, host=b"mcp.example.com", origin=origin)) for origin in origins]
    assert found == [200, 200, 200, 403, 403, 403, 403, 403]


def test_a_refused_origin_names_the_setting() -> None:
    assert judge(LOOPBACK, origin=b"https://evil.example") == Refusal(
        403, "Forbidden: origin 'https://evil.example' may not call this server (setting: allowed_origins)"
    )


def test_the_origin_is_judged_before_anything_else() -> None:
    assert status(judge(LOOPBACK, "GET", origin=b"null", content_type=None, accept=b"text/html")) == 403


# -- verbs and types


@pytest.mark.parametrize("verb", ["GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "post", "QUERY"])
def test_only_post_is_allowed(verb: str) -> None:
    verdict = judge(LOOPBACK, verb)
    assert isinstance(verdict, Refusal)
    assert (verdict.status, verdict.allow) == (405, "POST")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (b"application/json", 200),
        (b"Application/JSON", 200),
        (b"application/json; charset=utf-8", 200),
        (b"application/json;charset=utf-8", 200),
        (b" application/json ", 200),
        (b"application/json ;charset=utf-8", 200),
        (b"application/jsonp", 415),
        (b"application/json-rpc", 415),
        (b"text/plain", 415),
        (b"text/plain; application/json", 415),
        (b"application/x-www-form-urlencoded", 415),
        (b"application/json, application/json", 415),
        (b"*/*", 415),
        (b"", 415),
        (None, 415),
    ],
)
def test_the_body_must_be_json(kind: bytes | None, expected: int) -> None:
    assert status(judge(LOOPBACK, content_type=kind)) == expected


@pytest.mark.parametrize(
    ("accept", "json", "sse"),
    [
        (None, True, True),
        (b"*/*", True, True),
        (b"application/json", True, False),
        (b"Application/JSON", True, False),
        (b"text/event-stream", False, True),
        (b"text/event-stream, application/json", True, True),
        (b"application/json,text/event-stream", True, True),
        (b"application/json , text/event-stream", True, True),
        (b"application/*, text/*;q=0.5", True, True),
        (b"application/json;q=0, text/event-stream", False, True),
        (b"application/json; q=0, text/event-stream; q=0", False, False),
        (b"application/json;Q=0.0, */*", False, True),
        (b"*/*;q=0", False, False),
        (b"*/*;q=0, application/json", True, False),
        (b"*/*, text/*;q=0", True, False),
        (b"text/*;q=0, text/event-stream;q=0.001", False, True),
        (b"application/*;q=0.000, */*;q=0.1", False, True),
        (b"application/json;q=1.000, text/event-stream;q=0.5", True, True),
        (b"application/json;charset=utf-8;q=0.9", True, False),
        (b"application/json;charset=utf-8;q=0, text/event-stream", False, True),
        (b"text/html", False, False),
        (b"text/html, application/xhtml+xml, */*;q=0.8", True, True),
        (b"application/json-seq", False, False),
        (b"application/jsonx, text/event", False, False),
        (b", application/json, ,", True, False),
        (b"application/json;q=abc", False, False),
        (b"application/json;q=nan", False, False),
        (b"application/json;q=-1", False, False),
        (b"application/json;q=2", False, False),
        (b"json", False, False),
        (b"*", False, False),
        (b"*/json", False, False),
        (b"\xff/\xfe, application/json", True, False),
    ],
)
def test_the_form_of_the_answer(accept: bytes | None, json: bool, sse: bool) -> None:
    assert parse_accept(accept) == Accepts(json, sse)
    verdict = judge(LOOPBACK, accept=accept)
    assert (verdict if json or sse else status(verdict)) == (Accepts(json, sse) if json or sse else 406)


@given(st.binary(max_size=200))
def test_any_accept_has_a_verdict(value: bytes) -> None:
    assert isinstance(parse_accept(value), Accepts)


@given(st.binary(max_size=60), st.binary(max_size=60), st.binary(max_size=60), st.binary(max_size=60))
def test_any_head_has_a_verdict(host: bytes, origin: bytes, kind: bytes, accept: bytes) -> None:
    verdict = judge(LOOPBACK, host=host, origin=origin, content_type=kind, accept=accept)
    assert status(verdict) in (200, 403, 406, 415)


# -- values of headers

ENCODED = [
    ("us-west1", "us-west1"),
    ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
    (" padded ", "=?base64?IHBhZGRlZCA=?="),
    ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
    ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
    ("note://café/1", "=?base64?bm90ZTovL2NhZsOpLzE=?="),
    ("a b ", "=?base64?YSBiIA==?="),
    ("a b", "a b"),
    ("a\tb", "a\tb"),
    ("\ta", "=?base64?CWE=?="),
    ("a\r\nX-Evil: 1", "=?base64?YQ0KWC1FdmlsOiAx?="),
    ("\x7f", "=?base64?fw==?="),
    ("=?BASE64?literal?=", "=?BASE64?literal?="),
    ("=?base64?literal", "=?base64?literal"),
    ("file:///projects/myapp/config.json", "file:///projects/myapp/config.json"),
    # It starts with the prefix and ends with the suffix.
    ("=?base64?=", "=?base64?PT9iYXNlNjQ/PQ==?="),
]


@pytest.mark.parametrize(("value", "header"), ENCODED)
def test_values_are_encoded_as_the_specification_shows(value: str, header: str) -> None:
    assert encode_value(value) == header
    assert decode_value(header.encode()) == value


@given(st.text() | st.text().map(lambda text: f"=?base64?{text}?=") | st.text("=?base64 \t", max_size=12))
def test_every_text_comes_back_from_its_header(value: str) -> None:
    header = encode_value(value)
    assert re.fullmatch(r"[\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?", header)
    assert decode_value(header.encode("ascii")) == value


@pytest.mark.parametrize(
    "header",
    [
        "note://café/1".encode(),
        "café".encode("latin-1"),
        *(b"a\x00b", b"a\x01b", b"a\nb", b"a\rb", b"\x7f", b" a", b"a ", b"\ta", b"=?base64?SGVsbG8?="),
        *(b"=?base64?SGVs bG8=?=", b"=?base64?SGVs\nbG8=?=", b"=?base64?SGVsbG8-?=", b"=?base64?/w==?="),
        *(b"=?base64?7aCA?=", b"=?base64?====?=", b"=?base64?SGVsbG8=SGVs?=", b"=?base64?\xc3\xa9?="),
    ],
)
def test_what_no_header_may_hold_is_not_decoded(header: bytes) -> None:
    assert decode_value(header) is None


@given(st.binary(max_size=60) | st.binary(max_size=30).map(lambda data: b"=?base64?" + data + b"?="))
def test_any_header_is_decoded_or_refused(header: bytes) -> None:
    value = decode_value(header)
    assert value is None or isinstance(value, str)


# -- mirrored headers


def tools_call(name: Any = "add", version: Any = "2026-07-28") -> Request:
    meta = {"io.modelcontextprotocol/protocolVersion": version, "io.modelcontextprotocol/clientCapabilities": {}}
    return Request(1, "tools/call", {"name": name, "arguments": {}, "_meta": meta})


def headers_for(request: Request, **changes: bytes | None) -> dict[bytes, bytes]:
    mirrored = mirror_headers(request.method, request.params, "2026-07-28")
    headers = {name.lower().encode(): value.encode() for name, value in mirrored.items()}
    for name, value in changes.items():
        key = name.replace("_", "-").encode()
        if value is None:
            headers.pop(key, None)
        else:
            headers[key] = value
    return headers


def test_a_client_mirrors_what_the_specification_shows() -> None:
    version = "2026-07-28"
    assert mirror_headers("tools/call", {"name": "get_weather"}, version) == {
        "MCP-Protocol-Version": version,
        "Mcp-Method": "tools/call",
        "Mcp-Name": "get_weather",
    }
    assert mirror_headers("resources/read", {"uri": "note://café/1"}, version) == {
        "MCP-Protocol-Version": version,
        "Mcp-Method": "resources/read",
        "Mcp-Name": "=?base64?bm90ZTovL2NhZsOpLzE=?=",
    }
    assert mirror_headers("prompts/get", {"name": "a b "}, version)["Mcp-Name"] == "=?base64?YSBiIA==?="
    assert mirror_headers("tools/list", {"name": "x"}, version) == {
        "MCP-Protocol-Version": version,
        "Mcp-Method": "tools/list",
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"mcp_protocol_version": None},
        {"mcp_protocol_version": b""},
        {"mcp_protocol_version": b"2025-11-25"},
        {"mcp_protocol_version": b"2099-01-01"},
        {"mcp_protocol_version": b"2000-01-01"},
        {"mcp_protocol_version": b"abc"},
        {"mcp_protocol_version": b"2026-07-28, 2026-07-28"},
        {"mcp_protocol_version": b"2026-07-28\xff"},
        {"mcp_method": None},
        {"mcp_method": b""},
        {"mcp_method": b"tools/list"},
        {"mcp_method": b"Tools/Call"},
        {"mcp_method": b"tools/call, tools/call"},
        {"mcp_name": None},
        {"mcp_name": b""},
        {"mcp_name": b"Add"},
        {"mcp_name": b"sub"},
        {"mcp_name": b"add, add"},
        {"mcp_name": b"=?base64?YWRk"},
        {"mcp_name": b"=?BASE64?YWRk?="},
        {"mcp_name": b"=?base64?QWRk?="},
        {"mcp_name": b"=?base64?YWR?="},
        {"mcp_name": b"\xff"},
        {"mcp_name": b"add\x00"},
    ],
)
def test_a_header_that_is_missing_or_says_something_else_is_a_mismatch(changes: dict[str, bytes | None]) -> None:
    request = tools_call()
    with pytest.raises(HeaderMismatch) as caught:
        check_mirror(headers_for(request, **changes), request)
    assert (caught.value.code, caught.value.http_status) == (-32020, 400)
    (name,) = changes
    titles = {"mcp_protocol_version": "MCP-Protocol-Version", "mcp_method": "Mcp-Method", "mcp_name": "Mcp-Name"}
    assert caught.value.message.startswith(f"Header mismatch: {titles[name]} ")


@pytest.mark.parametrize("name", ["add", "a b ", "note://café/1", "世界", "", "=?base64?YWRk?=", "a\nb", "a" * 300])
@pytest.mark.parametrize(
    ("method", "key"), [("tools/call", "name"), ("prompts/get", "name"), ("resources/read", "uri")]
)
def test_what_a_client_mirrors_is_accepted(method: str, key: str, name: str) -> None:
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    request = Request(1, method, {key: name, "_meta": meta})
    check_mirror(headers_for(request), request)


def test_a_plain_name_may_be_encoded_too() -> None:
    check_mirror(headers_for(tools_call(), mcp_name=b"=?base64?YWRk?="), tools_call())


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        # Said as it is, though it should have been encoded: no header may hold it (C040).
        ("café", "café".encode()),
        ("café", "café".encode("latin-1")),
        ("a b ", b"a b "),
        (" a", b" a"),
        ("a\x01b", b"a\x01b"),
        ("a\x7f", b"a\x7f"),
        ("a\nb", b"a\nb"),
        # A sentinel is decoded before it is compared.
        ("=?base64?YWRk?=", b"=?base64?YWRk?="),
        # Replacement characters are not what was meant.
        ("\ud800", b"?"),
        ("é", b"?"),
    ],
)
def test_a_name_that_should_have_been_encoded_is_a_mismatch(name: str, raw: bytes) -> None:
    request = tools_call(name)
    with pytest.raises(HeaderMismatch):
        check_mirror({**headers_for(tools_call()), b"mcp-name": raw}, request)


def test_a_request_without_a_mirrored_member_needs_no_name() -> None:
    request = Request(1, "tools/list", tools_call().params)
    check_mirror(headers_for(request, mcp_name=b"whatever"), request)
    check_mirror(headers_for(request, mcp_name=None), request)


@pytest.mark.parametrize("name", [1, None, ["add"], {}])
def test_a_name_that_is_no_text_is_left_to_the_check_of_the_parameters(name: Any) -> None:
    check_mirror(headers_for(tools_call(), mcp_name=None), tools_call(name))


def test_a_version_that_is_not_served_is_not_a_mismatch_when_both_agree() -> None:
    check_mirror(headers_for(tools_call(), mcp_protocol_version=b"2099-01-01"), tools_call(version="2099-01-01"))


@given(st.text(max_size=30), st.binary(max_size=40))
def test_any_pair_of_name_and_header_is_compared(name: str, raw: bytes) -> None:
    request = tools_call(name)
    try:
        check_mirror({**headers_for(tools_call()), b"mcp-name": raw}, request)
    except HeaderMismatch:
        assert decode_value(raw) != name
    else:
        assert decode_value(raw) == name
