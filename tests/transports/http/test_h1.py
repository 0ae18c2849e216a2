"""One HTTP/1.1 connection, seen from the wire, in virtual time."""

from __future__ import annotations

import contextvars
import gc
import json
import math
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_mcp import Context, Server, ServerBusy
from trio_mcp.protocol.http import Accepts
from trio_mcp.scopes.executor import ExecutorStatistics
from trio_mcp.server.serve.engine import open_engine
from trio_mcp.testing import request
from trio_mcp.transports.http.endpoint import HttpEndpoint
from trio_mcp.transports.http.exchange import HttpExchange, HttpFields
from trio_mcp.wire.http1 import Connection
from trio_mcp.wire.parser import Parser

from ..model import add_swaps
from .helpers import BOTH, IDLE, Answer, Site, UnreadIsLost, call, fields_of, http, in_chunks, make, open_site

NOTE = {"jsonrpc": "2.0", "method": "notifications/anything"}
HELLO = call(1, "echo", text="hello")
PROGRESS = {"progressToken": "p"}


@asynccontextmanager
async def open_made(**limits: Any) -> AsyncIterator[Site]:
    """A site with the tools of the helpers, and their log."""
    server, log = make(**limits)
    async with open_site(server) as site:
        site.log = log
        yield site


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """One without limits of its own. An exception out of a connection fails the test."""
    async with open_made() as site:
        yield site


def progress(step: int, total: int) -> dict[str, Any]:
    params = {"progressToken": "p", "progress": step, "total": total}
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}


# -- forms of an answer


async def test_a_json_answer_is_one_write_of_head_and_body(site: Site) -> None:
    peer = site.connect()
    answer = await peer.ask(HELLO)
    assert len(peer.tap.writes) == 1
    assert (answer.status, answer.text) == (200, "hello")
    assert sorted(answer.fields) == ["content-length", "content-type", "date"]
    assert answer.fields["content-length"] == str(len(answer.body))
    assert answer.json["id"] == 1


async def test_a_stream_starts_with_the_first_progress(autojump_clock: MockClock, site: Site) -> None:
    peer = site.connect()
    answer = await peer.ask(call(1, "steps", PROGRESS, count=3, pause=1))
    again = await peer.ask(HELLO)
    assert answer.status == 200
    assert {name: answer.fields[name] for name in sorted(answer.fields) if name != "date"} == {
        "cache-control": "no-store",
        "content-type": "text/event-stream",
        "transfer-encoding": "chunked",
        "x-accel-buffering": "no",
    }
    assert answer.events[:-1] == [progress(0, 3), progress(1, 3), progress(2, 3)]
    assert (answer.text, answer.events[-1]["id"]) == ("done", 1)
    assert [when for when, _ in answer.pieces] == pytest.approx([1, 2, 3, 3])
    assert again.text == "hello"


async def test_a_stream_starts_with_the_first_log_line() -> None:
    server, _ = make()

    @server.tool
    async def talk(ctx: Context) -> str:
        await ctx.log("info", "one")
        await ctx.log("debug", "not wanted")
        return "said"

    async with open_site(server) as site:
        peer = site.connect()
        answer = await peer.ask(call(1, "talk", {"io.modelcontextprotocol/logLevel": "info"}))
    assert answer.events[0] == {
        "jsonrpc": "2.0",
        "method": "notifications/message",
        "params": {"level": "info", "data": "one"},
    }
    assert (len(answer.events), answer.text) == (2, "said")


async def test_progress_that_nobody_asked_for_starts_no_stream(site: Site) -> None:
    answer = await site.connect().ask(call(1, "steps", count=3, pause=0))
    assert answer.text == "done"
    assert answer.fields["content-type"] == "application/json"


async def test_an_error_of_a_tool_is_a_result(site: Site) -> None:
    answer = await site.connect().ask(call(1, "fails"))
    assert (answer.status, answer.text, answer.json["result"]["isError"]) == (200, "for the model", True)


async def test_a_silent_answer_becomes_a_stream_that_is_kept_alive(autojump_clock: MockClock, site: Site) -> None:
    peer = site.connect()
    await peer.send(http(call(1, "slow", seconds=75)))
    answer = await peer.head()
    assert trio.current_time() == pytest.approx(5)
    await peer.rest(answer)
    assert answer.fields["x-accel-buffering"] == "no"
    assert answer.comments == pytest.approx([5, 20, 35, 50, 65])
    assert answer.text == "slept"
    assert len(answer.events) == 1


async def test_an_answer_just_before_the_silence_ends_is_plain(autojump_clock: MockClock, site: Site) -> None:
    answer = await site.connect().ask(call(1, "slow", seconds=4.9))
    assert answer.fields["content-type"] == "application/json"


async def test_what_a_client_sends_behind_a_request_does_not_count_as_an_answer(
    autojump_clock: MockClock, site: Site
) -> None:
    peer = site.connect()
    await peer.send(http(call(1, "slow", seconds=30)))
    async with trio.open_nursery() as nursery:

        async def send_on() -> None:
            for id in range(2, 6):
                await trio.sleep(4)
                await peer.send(http(call(id, "echo", text="next")))

        nursery.start_soon(send_on)
        await peer.head()
        assert trio.current_time() == pytest.approx(5)


async def test_a_request_that_waits_for_its_place_is_kept_alive_too(autojump_clock: MockClock) -> None:
    async with open_made(running=1) as site:
        one, two = site.connect(), site.connect()
        await one.send(http(call(1, "slow", seconds=62)))
        await wait_all_tasks_blocked()
        await two.send(http(call(2, "slow", seconds=1)))
        answer = await two.head()
        assert trio.current_time() == pytest.approx(5)
        await two.rest(answer)
    assert answer.comments == pytest.approx([5, 20, 35, 50])
    assert (answer.text, trio.current_time()) == ("slept", pytest.approx(63))


async def test_a_client_that_takes_json_alone_never_gets_a_stream(autojump_clock: MockClock, site: Site) -> None:
    peer = site.connect()
    answers = [
        await peer.ask(call(1, "steps", PROGRESS, count=3, pause=20), accept="application/json"),
        await peer.ask(call(2, "slow", seconds=75), accept="application/json;q=0.1, text/event-stream;q=0"),
    ]
    assert len(peer.tap.writes) == 2
    assert [answer.text for answer in answers] == ["done", "slept"]
    assert [answer.fields["content-type"] for answer in answers] == ["application/json"] * 2


async def test_a_client_that_takes_streams_alone_gets_one_at_once(autojump_clock: MockClock, site: Site) -> None:
    peer = site.connect()
    await peer.send(http(call(1, "slow", seconds=3), accept="text/event-stream"))
    answer = await peer.head()
    assert trio.current_time() == pytest.approx(0)
    await peer.rest(answer)
    assert (answer.events[0]["id"], answer.text) == (1, "slept")
    listed = await peer.ask(request(2, "tools/list"), accept="text/event-stream, application/json;q=0")
    assert [event["id"] for event in listed.events] == [2]


@pytest.mark.parametrize("accept", ["*/*", None, "application/*, text/*;q=0.5", "text/event-stream, application/json"])
async def test_a_client_that_takes_both_gets_what_fits(accept: str | None, site: Site) -> None:
    peer = site.connect()
    plain = await peer.ask(HELLO, accept=accept)
    stream = await peer.ask(call(2, "steps", PROGRESS, count=1, pause=0), accept=accept)
    assert (plain.json["id"], len(stream.events)) == (1, 2)


async def test_an_accept_header_may_come_in_two_lines(site: Site) -> None:
    data = http(call(1, "steps", PROGRESS, count=1, pause=0), accept="application/json")
    peer = site.connect()
    await peer.send(data.replace(b"\r\nAccept:", b"\r\nAccept: text/event-stream\r\nAccept:"))
    assert len((await peer.answer()).events) == 2


# -- messages


async def test_a_notification_is_accepted_with_no_body(site: Site) -> None:
    peer = site.connect()
    answers = [
        await peer.ask(NOTE),
        await peer.ask({**NOTE, "method": "notifications/cancelled", "params": {"requestId": 1}}),
        await peer.ask({**NOTE, "params": [1]}),
        await peer.ask(HELLO),
    ]
    assert [(answer.status, answer.body) for answer in answers[:3]] == [(202, b"")] * 3
    assert "content-type" not in answers[0].fields
    assert answers[3].text == "hello"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b"\xff", -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"caf\xe9"}', -32700),
        (b"{}{}", -32700),
        (b"NaN", -32700),
        (b"[" * 200 + b"]" * 200, -32700),
        (b"[]", -32600),
        (b"1", -32600),
        (b"null", -32600),
        (json.dumps([HELLO, HELLO]).encode(), -32600),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}', -32600),
        (b'{"jsonrpc":"1.0","method":"x"}', -32600),
        (b'{"method":"x","id":1}', -32600),
        (b'{"jsonrpc":"2.0","id":1}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600),
    ],
)
async def test_what_is_not_one_message_is_a_bad_request(body: bytes, code: int, site: Site) -> None:
    peer = site.connect()
    answer = await peer.ask(body=body, Mcp_Method="tools/call", Mcp_Name="echo")
    healthy = await peer.ask(HELLO)
    assert (answer.status, answer.code) == (400, code)
    assert (healthy.text, site.log.events) == ("hello", [("echo", "hello")])


@pytest.mark.parametrize("id", ["1", 1, "01", "", -5, 0, 9007199254740993, "é", "x" * 256])
async def test_an_id_comes_back_with_the_same_value_and_type(id: Any, site: Site) -> None:
    peer = site.connect()
    plain = await peer.ask(call(id, "echo", text="hi"))
    stream = await peer.ask(call(id, "steps", {"progressToken": id}, count=1, pause=0))
    assert (plain.json["id"], type(plain.json["id"])) == (id, type(id))
    first, last = stream.events
    assert [(value, type(value)) for value in (first["params"]["progressToken"], last["id"])] == [(id, type(id))] * 2


@pytest.mark.parametrize("id", [None, 1.5, True, [], {}, "x" * 257, "x" * 4_097, 2**63])
async def test_a_wrong_id_is_a_bad_request_and_runs_nothing(id: Any, site: Site) -> None:
    answer = await site.connect().ask(call(id, "echo", text="no"))
    assert (answer.status, answer.code, site.log.events) == (400, -32600, [])
    # One that is only out of bounds is echoed, for its sender waits for it.
    assert answer.json.get("id") == (id if id in ("x" * 257, 2**63) else None)


async def test_an_unknown_method_is_not_found_with_a_json_rpc_error(site: Site) -> None:
    peer = site.connect()
    for method in ("tools/unknown", "resources/list", "ping", "logging/setLevel"):
        answer = await peer.ask(request(1, method))
        assert (answer.status, answer.code, answer.json["id"]) == (404, -32601, 1)
    assert (await peer.ask(HELLO)).text == "hello"


async def test_wrong_parameters_are_a_bad_request(site: Site) -> None:
    peer = site.connect()
    answers = [
        await peer.ask(request(1, "tools/call", name="missing", arguments={})),
        await peer.ask(request(1, "tools/call", name="echo", arguments=[])),
        await peer.ask(request(1, "tools/call", name=7), Mcp_Name="7"),
        await peer.ask({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
    ]
    assert [(answer.status, answer.code) for answer in answers] == [(400, -32602)] * 4
    assert site.log.events == []


@pytest.mark.parametrize(
    ("extra", "code"),
    [
        ({"MCP_Protocol_Version": None}, -32020),
        ({"MCP_Protocol_Version": "2025-11-25"}, -32020),
        ({"MCP_Protocol_Version": "abc"}, -32020),
        ({"MCP_Protocol_Version": ""}, -32020),
        ({"Mcp_Method": None}, -32020),
        ({"Mcp_Method": "tools/list"}, -32020),
        ({"Mcp_Name": None}, -32020),
        ({"Mcp_Name": "slow"}, -32020),
        ({"Mcp_Name": "Echo"}, -32020),
        ({"Mcp_Name": "=?base64?ZWNobw"}, -32020),
        ({"Mcp_Name": "=?base64?ZWNobw==?="}, None),
        ({"Mcp_Name": "  echo \t "}, None),
        ({"Mcp_Method": "\ttools/call  "}, None),
        ({"MCP_Protocol_Version": "2026-07-28 "}, None),
        ({"Accept": " application/json "}, None),
        ({"Content_Type": "application/json\t"}, None),
    ],
)
async def test_headers_are_checked_against_the_body(extra: dict[str, str | None], code: int | None, site: Site) -> None:
    answer = await site.connect().ask(HELLO, **extra)
    assert (answer.status, answer.code, answer.json["id"]) == (200 if code is None else 400, code, 1)
    assert len(site.log.events) == (code is None)


async def test_header_names_come_in_any_case_and_twice_is_a_mismatch(site: Site) -> None:
    data = http(HELLO)
    peer = site.connect()
    await peer.send(data.replace(b"Mcp-Method", b"mCP-mETHOD").replace(b"Host", b"HOST"))
    assert (await peer.answer()).text == "hello"
    for field in (b"Mcp-Method: tools/call\r\n", b"Mcp-Name: echo\r\n", b"MCP-Protocol-Version: 2026-07-28\r\n"):
        assert field in data
        await peer.send(data.replace(field, field * 2))
        answer = await peer.answer()
        assert (answer.status, answer.code) == (400, -32020)


async def test_a_version_that_is_not_served_is_told_which_are(site: Site) -> None:
    peer = site.connect()
    for version in ("2099-01-01", "2000-01-01", "abc"):
        message = call(1, "echo", text="x")
        message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = version
        answer = await peer.ask(message, MCP_Protocol_Version=version)
        assert (answer.status, answer.code) == (400, -32022)
        assert answer.json["error"]["data"] == {"supported": ["2026-07-28"], "requested": version}


async def test_without_older_revisions_a_handshake_is_told_which_versions_there_are() -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
    async with open_site(Server("modern", eras=["modern"])) as site:
        answer = await site.connect().ask(message, MCP_Protocol_Version=None, Mcp_Method=None)
    assert (answer.status, answer.code, answer.json["id"]) == (400, -32022, 1)
    assert answer.json["error"]["data"] == {"supported": ["2026-07-28"], "requested": "2025-11-25"}


async def test_session_ids_and_event_ids_of_older_clients_are_ignored(site: Site) -> None:
    answer = await site.connect().ask(HELLO, Mcp_Session_Id="abc", Last_Event_ID="7")
    assert (answer.status, answer.text) == (200, "hello")
    assert "mcp-session-id" not in answer.fields


# -- refusals by the head


@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
@pytest.mark.parametrize("target", ["/mcp", "/mcp/", "/mcp?x=1", "/mcp/?", "http://localhost:8000/mcp"])
async def test_the_endpoint_is_found_with_and_without_a_slash(path: str, target: str) -> None:
    server, _ = make()
    async with open_site(server, path=path) as site:
        answer = await site.connect().ask(HELLO, target=target)
    assert (answer.status, answer.text) == (200, "hello")


@pytest.mark.parametrize("target", ["/", "/mcp2", "/mcp//", "//mcp", "/MCP", "/a/mcp", "/mcp/x", "/?/mcp", "*"])
async def test_another_path_is_not_found(target: str, site: Site) -> None:
    answer = await site.connect().ask(HELLO, target=target)
    # A target begins with a slash, or is whole, or is the asterisk (RFC 9112, section 3.2).
    assert (answer.status, site.log.events) == (404, [])


async def test_the_root_can_be_the_endpoint() -> None:
    server, _ = make()
    async with open_site(server, path="/") as site:
        peer = site.connect()
        assert (await peer.ask(HELLO, target="/")).text == "hello"
        assert (await peer.ask(HELLO, target="/mcp")).status == 404


@pytest.mark.parametrize("verb", ["PUT", "PATCH", "OPTIONS", "HEAD", "TRACE"])
async def test_only_the_verbs_of_the_endpoint_are_allowed(verb: str, site: Site) -> None:
    peer = site.connect()
    answer = await peer.ask(verb=verb)
    assert (answer.status, answer.fields["allow"]) == (405, "GET, POST, DELETE")
    assert (answer.body == b"") == (verb == "HEAD")
    assert (await peer.ask(HELLO)).text == "hello"


@pytest.mark.parametrize("verb", ["GET", "DELETE"])
async def test_without_older_revisions_only_post_is_allowed(verb: str) -> None:
    async with open_site(Server("modern", eras=["modern"])) as site:
        answer = await site.connect().ask(verb=verb)
    assert (answer.status, answer.fields["allow"]) == (405, "POST")


async def test_head_gets_the_fields_of_the_answer_and_no_body(site: Site) -> None:
    peer = site.connect()
    for target in ("/mcp", "/other"):
        await peer.send(http(verb="HEAD", target=target))
        answer = await peer.answer("HEAD")
        assert int(answer.fields["content-length"]) > 0
        assert peer.sent.endswith(b"\r\n\r\n")


async def test_head_with_a_body_gets_no_body(site: Site) -> None:
    peer = site.connect()
    await peer.send(http(HELLO, verb="HEAD"))
    answer = await peer.answer("HEAD")
    assert answer.status == 405
    await wait_all_tasks_blocked()
    assert peer.sent.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("status", "extra"),
    [
        (403, {"Host": "evil.example"}),
        (403, {"Origin": "https://evil.example"}),
        (403, {"Origin": "null"}),
        (406, {"Accept": "text/html"}),
        (406, {"Accept": "application/json;q=0, text/event-stream;q=0"}),
        (415, {"Content_Type": "text/plain"}),
        (415, {"Content_Type": None}),
    ],
)
@pytest.mark.parametrize("size", [7, 1 << 20])
async def test_a_head_that_is_refused_runs_nothing(status: int, extra: dict[str, Any], size: int, site: Site) -> None:
    peer = site.connect()
    async with trio.open_nursery() as nursery:
        # It does not read the rest of the body, so not all may go out.
        nursery.start_soon(peer.send_cut, http(HELLO, **extra), size)
        answer = await peer.answer()
        nursery.cancel_scope.cancel()
    healthy = await site.connect().ask(HELLO)
    assert (answer.status, answer.code) == (status, -32600)
    assert "id" not in answer.json
    assert (healthy.text, site.log.events) == ("hello", [("echo", "hello")])


async def test_an_origin_of_this_machine_may_call(site: Site) -> None:
    assert (await site.connect().ask(HELLO, Origin="http://localhost:3000")).text == "hello"


@pytest.mark.parametrize("version", ["1.1", "1.0"])
async def test_a_host_is_required_by_http_1_1(version: str) -> None:
    server, log = make()
    async with open_site(server, address="0.0.0.0") as site:
        answer = await site.connect().ask(HELLO, version=version, Host=None)
    assert (answer.status, len(log.events)) == ((400, 0) if version == "1.1" else (200, 1))


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize("second", ["localhost:8000", "evil.example"])
async def test_two_hosts_are_a_bad_request(address: str, second: str) -> None:
    server, log = make()
    data = http(HELLO).replace(b"Host: localhost:8000\r\n", f"Host: localhost:8000\r\nHost: {second}\r\n".encode())
    async with open_site(server, address=address) as site:
        peer = site.connect()
        await peer.send(data)
        answer = await peer.answer()
    assert (answer.status, log.events) == (400, [])


async def test_an_absolute_target_names_the_host(autojump_clock: MockClock, site: Site) -> None:
    peer = site.connect()
    # The host of the target counts, whatever the header says (RFC 9112, section 3.2.2).
    answer = await peer.ask(HELLO, target="http://evil.example/mcp")
    assert (answer.status, site.log.events) == (403, [])


# -- limits of size


async def test_a_body_that_announces_too_much_is_refused() -> None:
    async with open_made(message_bytes=1_000) as site:
        peer = site.connect()
        await peer.send(http(call(1, "echo", text="x" * 1_000)))
        answer = await peer.answer()
        assert await peer.closed()
    assert (answer.status, answer.code, answer.fields["connection"]) == (413, -32600, "close")
    assert answer.json["error"]["message"] == "Message too long: the limit is 1000 bytes"
    assert site.log.events == []


async def test_a_body_of_just_the_limit_is_served() -> None:
    body = json.dumps(HELLO).encode().ljust(1_000)
    async with open_made(message_bytes=1_000) as site:
        peer = site.connect()
        await peer.send(http(HELLO, body=body))
        assert (await peer.answer()).text == "hello"
        await peer.send(http(HELLO, body=body, chunks=[300, 700]))
        assert (await peer.answer()).text == "hello"


async def test_trailers_are_no_headers(site: Site) -> None:
    data = http(HELLO, chunks=[10], Mcp_Name=None)
    peer = site.connect()
    await peer.send(data[:-2] + b"Mcp-Name: echo\r\nHost: evil.example\r\n\r\n")
    answer = await peer.answer()
    assert (answer.status, answer.code, site.log.events) == (400, -32020, [])
    await peer.send(http(HELLO, chunks=[10])[:-2] + b"Mcp-Name: slow\r\nX-Sum: 7\r\n\r\n")
    assert (await peer.answer()).text == "hello"
    assert (await peer.ask(HELLO)).text == "hello"


# -- limits of time


async def test_a_connection_without_a_request_ends(autojump_clock: MockClock, site: Site) -> None:
    peer = site.connect()
    assert await peer.closed()
    assert trio.current_time() == pytest.approx(75)
    peer = site.connect()
    await trio.sleep(50)
    assert (await peer.ask(HELLO)).text == "hello"
    assert await peer.closed()
    assert trio.current_time() == pytest.approx(75 + 50 + 75)


async def test_empty_lines_are_no_requests(autojump_clock: MockClock, site: Site) -> None:
    peer = site.connect(first=b"\r\n" + http(HELLO) + b"\r\n")
    assert (await peer.answer()).text == "hello"
    for _ in range(20):
        await trio.sleep(10)
        if peer.ended.is_set():
            break
        await peer.send(b"\r\n")
    assert peer.ended_at == pytest.approx(75)


@pytest.mark.parametrize("drip", [None, 3])
@pytest.mark.parametrize(
    ("first", "pause", "second", "end"),
    [(b"", 20, b"POST /mcp HTTP/1.1\r\nHo", 30), (http(HELLO)[:100], 9, http(HELLO)[100:-40], 19)],
    ids=["head", "body"],
)
async def test_a_request_must_come_in_time(
    autojump_clock: MockClock, drip: float | None, first: bytes, pause: float, second: bytes, end: float, site: Site
) -> None:
    peer = site.connect()
    await peer.send(first)
    await trio.sleep(pause)
    await peer.send(second)
    async with trio.open_nursery() as nursery:

        async def send_on() -> None:
            while drip is not None:
                await trio.sleep(drip)
                await peer.send(b"x")

        nursery.start_soon(send_on)
        answer = await peer.answer()
        nursery.cancel_scope.cancel()
    assert trio.current_time() == pytest.approx(end)
    assert await peer.closed()
    assert (answer.status, answer.fields["connection"]) == (408, "close")


async def test_a_request_that_begins_behind_another_gets_its_whole_time(autojump_clock: MockClock, site: Site) -> None:
    data = http(call(2, "echo", text="next"))
    peer = site.connect()
    await peer.send(http(call(1, "slow", seconds=60), accept="application/json") + data[:50])
    assert (await peer.answer()).text == "slept"
    await trio.sleep(9)
    await peer.send(data[50:])
    assert (await peer.answer()).text == "next"
    await peer.send(data[:50])
    answer = await peer.answer()
    assert (answer.status, trio.current_time()) == (408, pytest.approx(79))


# -- connections


async def test_a_connection_is_used_again(site: Site) -> None:
    peer = site.connect()
    for number in range(20):
        answer = await peer.ask(call(number, "echo", text=str(number)))
        assert (answer.json["id"], answer.text) == (number, str(number))
        assert "connection" not in answer.fields
    assert len(site.log.events) == 20


@pytest.mark.parametrize("keep", [None, "keep-alive", "Keep-Alive", "close"])
async def test_http_1_0(keep: str | None, autojump_clock: MockClock, site: Site) -> None:
    kept = keep is not None and keep != "close"
    peer = site.connect()
    answer = await peer.ask(HELLO, version="1.0", Connection=keep)
    assert answer.text == "hello"
    if kept:
        assert answer.fields["connection"] == "keep-alive"
        assert (await peer.ask(HELLO, version="1.0", Connection=keep)).text == "hello"
    else:
        assert await peer.closed()
        assert trio.current_time() < 1


async def test_http_1_0_gets_its_stream_without_chunks(autojump_clock: MockClock, site: Site) -> None:
    peer = site.connect()
    answer = await peer.ask(call(1, "steps", PROGRESS, count=2, pause=1), version="1.0", Connection="keep-alive")
    assert "transfer-encoding" not in answer.fields
    assert answer.fields.get("connection") != "keep-alive"
    assert [event.get("id") for event in answer.events] == [None, None, 1]
    assert await peer.closed()


async def test_the_client_may_ask_for_the_end(site: Site) -> None:
    peer = site.connect()
    answer = await peer.ask(HELLO, Connection="Close")
    assert (answer.text, answer.fields["connection"]) == ("hello", "close")
    assert await peer.closed()
    peer = site.connect()
    stream = await peer.ask(call(1, "steps", PROGRESS, count=1, pause=0), Connection="foo, close")
    assert (stream.text, stream.fields["connection"]) == ("done", "close")
    assert await peer.closed()


@pytest.mark.parametrize("behind", [http(call(2, "echo", text="second")), b"garbage\r\n\r\n", http(HELLO)[:50]])
async def test_nothing_is_answered_behind_the_request_that_ends_the_connection(behind: bytes, site: Site) -> None:
    peer = site.connect()
    await peer.send(http(HELLO, Connection="close") + behind)
    assert [answer.text for answer in await peer.answers()] == ["hello"]
    assert site.log.events == [("echo", "hello")]


async def test_requests_that_come_together_are_answered_in_order(autojump_clock: MockClock, site: Site) -> None:
    peer = site.connect()
    await peer.send(
        http(call(1, "slow", seconds=2)),
        http(NOTE),
        http(call(3, "slow", seconds=1)),
        http(verb="PUT"),
        http(call(5, "steps", PROGRESS, count=2, pause=0)),
        http(HELLO, target="/nowhere", body=b""),
        http(call(7, "echo", text="last")),
    )
    answers = [await peer.answer() for _ in range(7)]
    assert [answer.status for answer in answers] == [200, 202, 200, 405, 200, 404, 200]
    assert [answers[0].json["id"], answers[2].json["id"], answers[6].json["id"]] == [1, 3, 7]
    assert [event.get("id") for event in answers[4].events] == [None, None, 5]
    # One at a time.
    assert [event[:2] for event in site.log.events[:4]] == [("start", 1), ("end", 1), ("start", 3), ("end", 3)]
    assert trio.current_time() == pytest.approx(3)


async def test_many_requests_that_come_together_are_all_answered(autojump_clock: MockClock) -> None:
    async with open_made(pipelined=2, read_ahead=50_000) as site:
        peer = site.connect(pipe=1_000)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.send, *[http(call(id, "slow", seconds=0.1)) for id in range(50)])
            answers = [await peer.answer() for _ in range(50)]
    assert [answer.json["id"] for answer in answers] == list(range(50))


async def test_more_than_may_wait_is_refused_behind_what_waits(autojump_clock: MockClock) -> None:
    server, log = make(pipelined=2, read_ahead=1_000, retry_after=3)
    async with open_site(server) as site:
        peer = site.connect()
        await peer.send(http(call(0, "slow", seconds=1)))
        for id in range(1, 200):
            await peer.send(http(call(id, "slow", seconds=1)))
            await wait_all_tasks_blocked()
            assert peer.connection.held < 2_000
        *answers, last = await peer.answers()
    assert [answer.json["id"] for answer in answers] == list(range(len(answers)))
    assert len(answers) == 3
    assert (last.status, last.fields["retry-after"], last.fields["connection"]) == (503, "3", "close")
    assert len(log.events) == 6


async def test_an_open_stream_holds_nothing_of_its_request_and_no_parser(autojump_clock: MockClock, site: Site) -> None:
    listen = request(1, "subscriptions/listen", notifications={"toolsListChanged": True}, extra="x" * 500_000)
    tracemalloc.start()
    peer = site.connect()
    try:
        await peer.send(http(listen, X_Long="x" * 2_000))
        await wait_all_tasks_blocked()
        assert b"acknowledged" in peer.sent
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 300_000
    (wire,) = (held for held in gc.get_referents(peer.connection) if isinstance(held, Connection))
    assert not any(isinstance(held, Parser) for held in gc.get_referents(wire))


@pytest.mark.parametrize("behind", [0, 1, 8, 500, 5_000])
async def test_a_client_that_leaves_is_heard_behind_any_number_of_requests(
    autojump_clock: MockClock, behind: int
) -> None:
    server, log = make()
    async with open_site(server) as site:
        peer = site.connect()
        await peer.send(http(call(0, "slow", seconds=30), accept="application/json"))
        await peer.send(http(call(1, "slow", seconds=30)) * behind)
        await trio.sleep(1)
        await peer.leave()
        await wait_all_tasks_blocked()
        assert (peer.ended_at, site.statistics, peer.connection.held) == (pytest.approx(1), IDLE, 0)
    assert log.events == [("start", 0), ("end", 0, pytest.approx(1))]


@pytest.mark.parametrize("flood", [b"X: y\r\n", b"x", b"\r\n", http(HELLO)])
async def test_nothing_is_held_of_what_comes_behind_an_error(autojump_clock: MockClock, flood: bytes) -> None:
    server, log = make()
    async with open_site(server) as site:
        peer = site.connect()
        # No Host: the head is wrong, and the answer to it waits.
        await peer.send(http(call(0, "slow", seconds=1), accept="application/json"), http(HELLO, Host=None))
        tracemalloc.start()
        for _ in range(100):
            await peer.send(flood * (100_000 // len(flood)))
            await wait_all_tasks_blocked()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 1_000_000
        assert [answer.status for answer in await peer.answers()] == [200, 400]
    assert len(log.events) == 2


async def test_a_bad_request_behind_good_ones_is_answered_last_and_ends_the_connection(
    autojump_clock: MockClock, site: Site
) -> None:
    peer = site.connect()
    await peer.send(http(call(1, "slow", seconds=1)), http(call(2, "slow", seconds=1)), b"\x00\x00\r\n\r\n")
    answers = await peer.answers()
    assert [answer.status for answer in answers] == [200, 200, 400]
    assert answers[2].fields["connection"] == "close"


async def test_a_client_that_waits_for_100_continue_is_told_to(autojump_clock: MockClock, site: Site) -> None:
    data = http(HELLO, Expect="100-Continue")
    head, body = data[: data.index(b"\r\n\r\n") + 4], data[data.index(b"\r\n\r\n") + 4 :]
    peer = site.connect()
    for _ in range(2):
        await peer.send(head)
        await wait_all_tasks_blocked()
        assert peer.tap.writes.pop() == (0.0, b"HTTP/1.1 100 Continue\r\n\r\n")
        await peer.send(body)
        answer = await peer.answer()
        assert (answer.informed, answer.text) == ([100], "hello")


async def test_a_client_that_waits_for_100_continue_behind_a_request_is_told_to(
    autojump_clock: MockClock, site: Site
) -> None:
    data = http(HELLO, Expect="100-continue")
    edge = data.index(b"\r\n\r\n") + 4
    peer = site.connect()
    await peer.send(http(call(7, "slow", seconds=1)) + data[:edge])
    first = await peer.answer()
    assert (first.informed, first.json["id"]) == ([], 7)
    await wait_all_tasks_blocked()
    assert peer.sent.endswith(b"HTTP/1.1 100 Continue\r\n\r\n")
    await peer.send(data[edge:])
    assert (await peer.answer()).text == "hello"


@pytest.mark.parametrize(
    ("status", "options"),
    [
        (413, {"body": b" " * 2_000}),
        (404, {"target": "/nowhere"}),
        (405, {"verb": "PUT"}),
        (403, {"Origin": "null"}),
        (415, {"Content_Type": "text/plain"}),
        (406, {"Accept": "text/html"}),
        (400, {"Host": None}),
    ],
)
async def test_a_client_that_waits_for_100_continue_is_refused_at_once(
    autojump_clock: MockClock, status: int, options: dict[str, Any]
) -> None:
    data = http(HELLO, Expect="100-continue", **options)
    async with open_made(message_bytes=1_000) as site:
        peer = site.connect()
        await peer.send(data[: data.index(b"\r\n\r\n") + 4])
        answer = await peer.answer()
        assert trio.current_time() == pytest.approx(0)
    assert (answer.status, answer.informed) == (status, [])


async def test_http_1_0_gets_no_100_continue(autojump_clock: MockClock, site: Site) -> None:
    answer = await site.connect().ask(HELLO, version="1.0", Expect="100-continue")
    assert (answer.informed, answer.text) == ([], "hello")


@pytest.mark.parametrize("cut", [1, 30, 1 << 20])
@pytest.mark.parametrize("chunks", [None, [10]])
async def test_an_offer_of_another_protocol_is_answered_over_http_1_1(
    cut: int, chunks: list[int] | None, site: Site
) -> None:
    data = http(
        HELLO, chunks=chunks, Connection="Upgrade, HTTP2-Settings", Upgrade="h2c", HTTP2_Settings="AAMAAABkAAQAAP__"
    )
    peer = site.connect()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.send_cut, data + http(call(2, "echo", text="next")), cut)
        answers = [await peer.answer(), await peer.answer()]
    assert [(answer.status, answer.text) for answer in answers] == [(200, "hello"), (200, "next")]
    assert site.log.events == [("echo", "hello"), ("echo", "next")]


async def test_an_offer_of_another_protocol_may_end_the_connection(site: Site) -> None:
    peer = site.connect()
    answer = await peer.ask(HELLO, Connection="upgrade, close", Upgrade="websocket")
    assert (answer.text, answer.fields.get("connection")) == ("hello", "close")
    assert await peer.closed()


async def test_what_was_read_before_belongs_to_the_connection(site: Site) -> None:
    data = http(HELLO)
    assert (await site.connect(first=data).answer()).text == "hello"
    peer = site.connect(first=data[:3])
    await peer.send(data[3:])
    assert (await peer.answer()).text == "hello"


# -- admission


async def test_a_full_server_answers_503_with_retry_after(autojump_clock: MockClock) -> None:
    async with open_made(running=1, waiting=1, retry_after=2) as site:
        peers = [site.connect() for _ in range(3)]
        for number, peer in enumerate(peers):
            await peer.send(http(call(number, "slow", seconds=1)))
            await wait_all_tasks_blocked()
        refused = await peers[2].answer()
        assert trio.current_time() < 1
        served = [await peers[0].answer(), await peers[1].answer()]
        again = await peers[2].ask(HELLO)
        assert site.statistics == IDLE
    assert (refused.status, refused.fields["retry-after"], refused.code) == (503, "2", 503)
    assert refused.json["error"]["data"] == {"retryAfter": 2}
    assert refused.json["id"] == 2
    assert [answer.text for answer in served] == ["slept", "slept"]
    assert again.text == "hello"


async def test_a_stream_that_is_refused_as_busy_is_told_when_to_try_again() -> None:
    async with open_made(listeners=1, retry_after=2) as site:
        one, two = site.connect(), site.connect()
        await one.send(http(request(1, "subscriptions/listen", notifications={"toolsListChanged": True})))
        assert (await one.head()).status == 200
        refused = await two.ask(request(2, "subscriptions/listen", notifications={"toolsListChanged": True}))
        assert (refused.status, refused.fields["retry-after"], refused.code) == (503, "2", 503)
        assert refused.json["error"]["data"] == {"retryAfter": 2}
        await one.leave()
        assert (await two.ask(HELLO)).text == "hello"


@pytest.mark.parametrize(("seconds", "header"), [(None, None), (7.4, "7"), (0.2, "1"), (math.inf, None)])
async def test_a_handler_that_says_busy_may_say_when_to_try_again(seconds: float | None, header: str | None) -> None:
    server, _ = make()

    @server.resource("x://busy")
    async def busy() -> str:
        raise ServerBusy("The store is busy", None if seconds is None else {"retryAfter": seconds})

    async with open_site(server) as site:
        refused = await site.connect().ask(request(1, "resources/read", uri="x://busy"))
    assert (refused.status, refused.fields.get("retry-after"), refused.code) == (503, header, 503)


async def test_a_request_that_waits_and_whose_client_leaves_never_runs(autojump_clock: MockClock) -> None:
    async with open_made(running=1, waiting=2) as site:
        one, two, three = site.connect(), site.connect(), site.connect()
        await one.send(http(call(1, "slow", seconds=5)))
        await wait_all_tasks_blocked()
        await two.send(http(call(2, "slow", seconds=5)))
        await wait_all_tasks_blocked()
        await three.send(http(call(3, "slow", seconds=5)))
        await wait_all_tasks_blocked()
        assert site.statistics == ExecutorStatistics(running=1, waiting=2)
        await two.leave()
        await wait_all_tasks_blocked()
        assert site.statistics == ExecutorStatistics(running=1, waiting=1)
        assert (two.ended.is_set(), two.sent) == (True, b"")
        assert [(await one.answer()).text, (await three.answer()).text] == ["slept", "slept"]
        assert trio.current_time() == pytest.approx(10)
        assert site.statistics == IDLE
    assert [event[1] for event in site.log.events if event[0] == "start"] == [1, 3]


class Kept(HttpExchange):
    """An exchange that keeps its answers."""

    def __init__(self, message: dict[str, Any]) -> None:
        headers = {name.lower().encode(): value.encode() for name, value in fields_of(message).items()}
        super().__init__("POST", headers, json.dumps(message).encode())
        self.kept: list[Any] = []

    def send_answer(self, status: int, content_type: bytes, fields: HttpFields, body: bytes) -> None:
        self.kept.append((status, body))

    def send_head(self, fields: HttpFields) -> None:
        self.kept.append("stream")

    def send_piece(self, data: bytes, last: bool) -> bool:
        self.kept.append(data)
        return True

    def send_end(self) -> None:
        self.kept.append("end")

    full = False

    async def wait_room(self) -> None:
        await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("running", [1, 2])
async def test_a_client_that_left_before_its_request_was_looked_at_does_not_wait(
    autojump_clock: MockClock, running: int
) -> None:
    server, log = make(running=running)
    async with open_engine(server) as engine, trio.open_nursery() as nursery:
        endpoint = HttpEndpoint(engine, address="127.0.0.1")
        nursery.start_soon(endpoint.serve, Kept(call(1, "slow", seconds=100)), Accepts(True, True))
        await wait_all_tasks_blocked()
        exchange = Kept(call(2, "slow", seconds=100))
        exchange.peer_gone()
        with trio.move_on_after(50) as scope:
            await endpoint.serve(exchange, Accepts(True, True))
        assert not scope.cancelled_caught
        assert trio.current_time() == pytest.approx(0)
        assert engine.executor.statistics() == ExecutorStatistics(running=1, waiting=0)
        nursery.cancel_scope.cancel()
    assert exchange.kept == []
    assert [event[1] for event in log.events] == [1, 1]


class Broken(Kept):
    """One whose peer is found to be gone when the answer is written."""

    def send_answer(self, status: int, content_type: bytes, fields: HttpFields, body: bytes) -> None:
        super().send_answer(status, content_type, fields, body)
        self.peer_gone()


async def test_a_task_whose_handle_could_not_be_written_is_abandoned(autojump_clock: MockClock) -> None:
    server, _ = make()

    @server.tool(task_support="optional", task_inline_ms=0)
    async def long(ctx: Context) -> str:
        await trio.sleep_forever()
        return "never"

    message = call(1, "long")
    capabilities = message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
    capabilities["extensions"] = {"io.modelcontextprotocol/tasks": {}}
    async with open_engine(server) as engine:
        exchange = Broken(message)
        await HttpEndpoint(engine, address="127.0.0.1").serve(exchange, Accepts(True, True))
        assert b'"resultType":"task"' in exchange.kept[0][1]
        await trio.sleep(5)
        assert (engine.tasks.statistics().running, engine.executor.statistics()) == (0, IDLE)


class Full(Kept):
    """One that drops notices after the first."""

    def send_piece(self, data: bytes, last: bool) -> bool:
        return (last or self.kept == ["stream"]) and super().send_piece(data, last)


async def test_a_listener_that_misses_a_notice_ends_and_may_look_anew() -> None:
    server, _ = make()
    exchange = Full(request(1, "subscriptions/listen", notifications={"resourceSubscriptions": ["x://y"]}))

    @server.resource("x://y")
    async def resource() -> str:
        return "y"

    async with open_engine(server) as engine, trio.open_nursery() as nursery:
        endpoint = HttpEndpoint(engine, address="127.0.0.1")
        nursery.start_soon(endpoint.serve, exchange, Accepts(True, True))
        await wait_all_tasks_blocked()
        assert len(exchange.kept) == 2
        server.notify_resource_updated("x://y")
        await wait_all_tasks_blocked()
        assert b'"result"' in exchange.kept[2]
        assert exchange.kept[-1] == "end"
        nursery.cancel_scope.cancel()


# -- the client goes away


@pytest.mark.parametrize("accept", ["application/json", BOTH, "text/event-stream"])
@pytest.mark.parametrize("after", [1, 7])
async def test_a_client_that_leaves_ends_its_tool_at_once(
    autojump_clock: MockClock, accept: str, after: float, site: Site
) -> None:
    peer = site.connect()
    await peer.send(http(call(1, "slow", seconds=30), accept=accept))
    await trio.sleep(after)
    before = peer.sent
    assert (before == b"") == (accept == "application/json" or (accept == BOTH and after == 1))
    await peer.leave()
    await wait_all_tasks_blocked()
    assert trio.current_time() == pytest.approx(after)
    assert site.log.events == [("start", 1), ("end", 1, pytest.approx(after))]
    assert site.statistics == IDLE
    assert peer.ended.is_set()
    await trio.sleep(100)
    assert peer.sent == before


async def test_a_client_that_leaves_while_requests_wait_behind_ends_them_all(
    autojump_clock: MockClock, site: Site
) -> None:
    peer = site.connect()
    await peer.send(http(call(1, "slow", seconds=30)), http(call(2, "slow", seconds=30)), http(HELLO)[:70])
    await trio.sleep(1)
    await peer.send(http(HELLO)[70:], http(NOTE), b"POST /mcp HT")
    await trio.sleep(1)
    await peer.leave()
    await wait_all_tasks_blocked()
    assert (peer.ended_at, site.statistics, peer.sent) == (pytest.approx(2), IDLE, b"")
    assert site.log.events == [("start", 1), ("end", 1, pytest.approx(2))]


async def test_a_client_that_closes_its_sending_half_has_left(autojump_clock: MockClock, site: Site) -> None:
    peer = site.connect()
    await peer.send(http(call(1, "slow", seconds=30)))
    await trio.sleep(1)
    await peer._stream.send_stream.aclose()  # type: ignore[attr-defined]
    await wait_all_tasks_blocked()
    assert site.log.events == [("start", 1), ("end", 1, pytest.approx(1))]
    assert await peer.closed()


async def test_a_client_that_leaves_while_progress_is_sent_ends_the_tool(autojump_clock: MockClock) -> None:
    server, _ = make()
    ended: list[float] = []

    @server.tool
    async def talk(ctx: Context) -> str:
        try:
            for step in range(1_000):
                await ctx.report_progress(step)
                await trio.sleep(0.5)
        finally:
            ended.append(trio.current_time())
        return "never"

    async with open_site(server) as site:
        peer = site.connect()
        await peer.send(http(call(1, "talk", PROGRESS)))
        answer = await peer.head()
        while trio.current_time() < 3:
            await peer.more(answer)
        await peer.leave()
        await wait_all_tasks_blocked()
        assert (ended, site.statistics) == ([pytest.approx(3)], IDLE)


@pytest.mark.parametrize("client_leaves", [True, False])
async def test_a_tool_that_cleans_up_slowly_sends_nothing_more(client_leaves: bool, autojump_clock: MockClock) -> None:
    server, _ = make()

    @server.tool
    async def stubborn(ctx: Context) -> str:
        try:
            await trio.sleep_forever()
        finally:
            with trio.move_on_after(10, shield=True):
                await ctx.report_progress(1)
                await trio.sleep(5)
                await ctx.report_progress(2)
        return "never"

    async with open_site(server) as site:
        peer = site.connect()
        await peer.send(http(call(1, "stubborn", PROGRESS)))
        await trio.sleep(1)
        if client_leaves:
            await peer.leave()
        else:
            # Somebody else closes it, and more than once.
            peer.connection.abandon()
            peer.connection.abandon()
        await peer.ended.wait()
        assert (peer.sent, site.statistics, peer.ended_at) == (b"", IDLE, pytest.approx(6))


async def test_a_client_that_leaves_with_half_a_request_leaves_nothing(autojump_clock: MockClock, site: Site) -> None:
    data = http(HELLO)
    for cut in range(0, len(data), 13):
        peer = site.connect()
        await peer.send(data[:cut] or b"\r\n")
        await wait_all_tasks_blocked()
        await peer.leave()
        await peer.ended.wait()
        assert peer.sent == b""
    assert trio.current_time() == 0
    assert site.log.events == []


# -- slow readers


async def test_a_client_that_does_not_read_is_left_after_the_stall(autojump_clock: MockClock) -> None:
    server, _ = make(write_buffer=10_000)
    seen: list[Any] = []

    @server.tool
    async def talk(ctx: Context) -> str:
        try:
            for step in range(100_000):
                await ctx.report_progress(step, message="x" * 1_000)
                seen.append(step)
        finally:
            seen.append(("ended", trio.current_time()))
        return "never"

    async with open_site(server) as site:
        peer = site.connect(pipe=4_000)
        tracemalloc.start()
        await peer.send(http(call(1, "talk", PROGRESS)))
        await peer.ended.wait()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert site.statistics == IDLE
    assert seen.pop() == ("ended", pytest.approx(5))
    # What the pipe holds, what is being written, and what waits.
    assert len(seen) < 60
    assert peak < 1_000_000


async def test_an_answer_that_is_not_read_ends_the_connection(autojump_clock: MockClock) -> None:
    server, _ = make()

    @server.tool
    async def big() -> str:
        return "x" * 100_000

    async with open_site(server) as site:
        peer = site.connect(pipe=4_000)
        await peer.send(http(call(1, "big")))
        await peer.ended.wait()
        assert (peer.ended_at, site.statistics) == (pytest.approx(5), IDLE)


async def test_a_slow_reader_that_goes_on_reading_gets_everything(autojump_clock: MockClock) -> None:
    server, _ = make()

    @server.tool
    async def big() -> str:
        return "x" * 1_000_000

    async with open_site(server) as site:
        peer = site.connect(pipe=50_000)
        await peer.send(http(call(1, "big")))
        answer = await peer.head()
        while await peer.more(answer) is not None:
            await trio.sleep(1)
    assert len(answer.text) == 1_000_000
    assert trio.current_time() > 5


@pytest.mark.parametrize(
    "data",
    [http(verb="GET"), http(NOTE), http(HELLO, target="/nowhere", body=b""), http(body=b"{"), http(HELLO)],
)
async def test_requests_of_a_client_that_does_not_read_are_not_held_for_ever(
    autojump_clock: MockClock, data: bytes
) -> None:
    async with open_made(write_buffer=10_000) as site:
        peer = site.connect(pipe=4_000)
        sent = 0
        with trio.move_on_after(4):
            while sent < 5_000_000:
                await peer.send(data * 20)
                sent += len(data) * 20
                await trio.lowlevel.checkpoint()
                assert peer.connection.held < 300_000
                # Nor are the answers to them.
                assert peer.connection.outbox.waiting < 30_000
        await peer.ended.wait()
        assert trio.current_time() == pytest.approx(5)


@pytest.mark.parametrize("goes_on", [0, 5, 60])
async def test_an_answer_to_a_request_that_is_not_read_to_its_end_is_not_lost(
    goes_on: int, autojump_clock: MockClock
) -> None:
    server, _ = make(message_bytes=1_000)
    head = http(HELLO, body=b"x", content_length="1000000")
    async with open_site(server) as site, trio.open_nursery() as nursery:
        socket = UnreadIsLost(head)
        nursery.start_soon(site.serve, trio.SocketStream(socket))
        # What was on its way when the server answered.
        for _ in range(goes_on):
            await wait_all_tasks_blocked()
            socket.arrive(b"x" * 10_000)
        await wait_all_tasks_blocked()
        socket.arrive(None)
    assert socket.heard.startswith(b"HTTP/1.1 413 ")
    assert trio.current_time() == pytest.approx(0)


async def test_a_client_that_never_ends_is_waited_for_a_moment_only(autojump_clock: MockClock) -> None:
    server, _ = make(message_bytes=1_000)
    async with open_site(server) as site:
        await site.serve(trio.SocketStream(UnreadIsLost(http(HELLO, body=b"x", content_length="1000000"))))
    assert trio.current_time() == pytest.approx(1)


async def test_a_connection_that_is_not_read_stalls_nobody_else(autojump_clock: MockClock) -> None:
    server, _ = make()

    @server.tool
    async def big() -> str:
        return "x" * 1_000_000

    async with open_site(server) as site:
        deaf, other = site.connect(pipe=4_000), site.connect()
        await deaf.send(http(call(1, "big")))
        await wait_all_tasks_blocked()
        assert (await other.ask(HELLO)).text == "hello"
        assert trio.current_time() == pytest.approx(0)


# -- context variables


async def test_context_variables_do_not_pass_from_request_to_request() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
    server, _ = make()

    add_swaps(server, variable)
    variable.set("outer")
    async with open_site(server) as site:
        peer = site.connect()
        variable.set("later")
        answers = [await peer.ask(call(id, ("swap", "swap_in_thread")[id % 2], value=str(id))) for id in range(6)]
        await peer.send(*[http(call(id, "swap", value=str(id))) for id in range(6)])
        answers += [await peer.answer() for _ in range(6)]
    assert len({answer.text for answer in answers}) == 1
    assert answers[0].text in ("outer", "later")


async def test_requests_side_by_side_see_their_own_values(autojump_clock: MockClock) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
    server, _ = make()

    @server.tool
    async def keep(value: str) -> str:
        variable.set(value)
        await trio.sleep(1)
        return variable.get()

    async with open_site(server) as site:
        peers = [site.connect() for _ in range(4)]
        for number, peer in enumerate(peers):
            await peer.send(http(call(number, "keep", value=f"of {number}")))
        assert [(await peer.answer()).text for peer in peers] == [f"of {number}" for number in range(4)]


async def test_an_answer_keeps_its_place_until_it_has_room(autojump_clock: MockClock) -> None:
    server, _ = make(write_buffer=10_000)

    @server.tool
    async def big() -> str:
        return "x" * 100_000

    async with open_site(server) as site:
        deaf = site.connect(pipe=4_000)
        await deaf.send(http(call(1, "big")))
        await wait_all_tasks_blocked()
        assert site.statistics.running == 1
        await deaf.ended.wait()
        assert (deaf.ended_at, site.statistics) == (pytest.approx(5), IDLE)


# -- drain


async def test_an_idle_connection_is_drained_at_once(autojump_clock: MockClock, site: Site) -> None:
    fresh, used = site.connect(), site.connect()
    assert (await used.ask(HELLO)).text == "hello"
    for peer in (fresh, used):
        peer.connection.drain()
        assert await peer.closed()
    assert trio.current_time() == 0


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
async def test_a_busy_connection_finishes_its_answer_and_closes(
    autojump_clock: MockClock, accept: str, site: Site
) -> None:
    peer = site.connect()
    await peer.send(http(call(1, "slow", seconds=10), accept=accept), http(call(2, "slow", seconds=10)))
    await trio.sleep(1)
    peer.connection.drain()
    peer.connection.drain()
    (answer,) = await peer.answers()
    assert (answer.text, trio.current_time()) == ("slept", pytest.approx(10))
    assert accept != "application/json" or answer.fields["connection"] == "close"
    assert site.statistics == IDLE
    assert [event[:2] for event in site.log.events] == [("start", 1), ("end", 1)]


async def test_a_connection_that_is_drained_before_it_runs_serves_nothing(
    autojump_clock: MockClock, site: Site
) -> None:
    peer = site.connect(first=http(HELLO))
    peer.connection.drain()
    assert await peer.closed()
    assert site.log.events == []


async def test_a_stream_that_is_asked_for_during_the_drain_ends_at_once(autojump_clock: MockClock, site: Site) -> None:
    peer = site.connect()
    site.endpoint.drain()
    answer = await peer.ask(request(1, "subscriptions/listen", notifications={"toolsListChanged": True}))
    assert trio.current_time() == 0
    assert [message.get("method", "result") for message in answer.events] == [
        "notifications/subscriptions/acknowledged",
        "result",
        "notifications/cancelled",
    ]


async def test_a_client_that_leaves_during_the_drain_ends_its_tool(autojump_clock: MockClock, site: Site) -> None:
    peer = site.connect()
    await peer.send(http(call(1, "slow", seconds=10)))
    await trio.sleep(1)
    peer.connection.drain()
    await trio.sleep(1)
    await peer.leave()
    await peer.ended.wait()
    assert site.log.events == [("start", 1), ("end", 1, pytest.approx(2))]


async def test_cancelling_the_serving_cancels_what_runs(autojump_clock: MockClock) -> None:
    async with open_made() as site:
        peer = site.connect()
        await peer.send(http(call(1, "slow", seconds=10)))
        await trio.sleep(1)
    assert site.log.events == [("start", 1), ("end", 1, pytest.approx(1))]
    assert (peer.sent, peer.ended.is_set()) == (b"", True)


def test_the_client_of_the_tests_cuts_bodies_into_chunks() -> None:
    assert in_chunks(b"abcdef", [1, 2]) == b"1\r\na\r\n2\r\nbc\r\n3\r\ndef\r\n0\r\n\r\n"
    assert repr(Answer(200, {}, [])) == "<Answer 200 {} b''>"
