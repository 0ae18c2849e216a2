"""Which era a server is of: `server/discover` first, and what leads to `initialize` from there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from trio_mcp import (
    ConnectionClosed,
    HttpError,
    InvalidResponse,
    LegacyServer,
    Limits,
    MCPError,
    ProtocolError,
    RequestTimeout,
    UnsupportedVersion,
    open_client,
)
from trio_mcp.protocol.revisions import LEGACY

from .legacy_peers import EXIT, MODERN, TEXT, EventStream, Seen, Web, error, hello, lines, old, silence, started

HANDSHAKE = ["server/discover", "initialize", "notifications/initialized"]


def after(seconds: float, outcome: Any) -> Callable[[dict[str, Any]], Any]:
    async def reply(message: dict[str, Any]) -> Any:
        await trio.sleep(seconds)
        return outcome

    return reply


@pytest.mark.parametrize(
    "code", [-32601, -32602, -32600, -32603, -32700, -32000, -32001, -32002, -32042, -32604, -32768, 0, -1, 1, -40000]
)
async def test_any_error_of_no_modern_meaning_leads_to_initialize(code: int) -> None:
    async with lines(old(server_discover=error(code))) as (client, peer):
        assert (client.era, client.protocol_version) == ("legacy", "2025-11-25")
        assert client.server_info["name"] == "old"
    assert peer.methods() == HANDSHAKE


@pytest.mark.parametrize("code", [-32020, -32021, -32022, 503, 504, 429])
async def test_a_modern_error_never_does(code: int) -> None:
    with pytest.raises(ProtocolError) as caught:
        async with lines(old(server_discover=error(code, data={"supported": ["2031-01-01"]}))):
            raise AssertionError("opened")
    assert caught.value.code == code


async def test_a_server_that_names_older_revisions_is_asked_in_one() -> None:
    told = error(-32022, data={"supported": ["2025-06-18"]})
    async with lines(old(server_discover=told, initialize=hello("2025-06-18"))) as (client, peer):
        assert client.protocol_version == "2025-06-18"
    async with lines(old(server_discover={**MODERN, "supportedVersions": ["2025-03-26"]})) as (client, peer):
        assert client.era == "legacy"
    assert peer.methods() == HANDSHAKE


async def test_a_modern_server_is_not_asked_for_more() -> None:
    async with lines(old(server_discover=MODERN)) as (client, peer):
        assert client.era == "modern"
    assert peer.methods() == ["server/discover"]


# -- silence


async def test_silence_costs_the_patience_and_no_more(autojump_clock: MockClock) -> None:
    async with lines(old(server_discover=silence)) as (client, peer):
        assert trio.current_time() == pytest.approx(3)
        assert client.era == "legacy"
    assert sorted(peer.methods()) == sorted([*HANDSHAKE, "notifications/cancelled"])
    began = trio.current_time()
    async with lines(old(server_discover=silence), limits=Limits(probe_patience=0.5)):
        assert trio.current_time() - began == pytest.approx(0.5)


async def test_a_late_answer_to_the_probe_wins(autojump_clock: MockClock) -> None:
    async with lines(old(server_discover=after(10, MODERN), initialize=silence)) as (client, peer):
        assert client.era == "modern"
        assert trio.current_time() == pytest.approx(10)
    assert peer.methods() == ["server/discover", "initialize"]


@pytest.mark.parametrize("refusal", [error(-32601), error(-32022), error(-32603)])
async def test_a_late_answer_to_the_probe_wins_over_a_refusal_of_the_other(
    refusal: Any, autojump_clock: MockClock
) -> None:
    async with lines(old(server_discover=after(5, MODERN), initialize=after(1, refusal))) as (client, _):
        assert client.era == "modern"
        assert trio.current_time() == pytest.approx(5)


async def test_a_late_refusal_of_the_probe_leaves_the_initialize_that_is_under_way(autojump_clock: MockClock) -> None:
    async with lines(old(server_discover=after(4, error()), initialize=after(5, hello()))) as (client, peer):
        assert client.era == "legacy"
        assert trio.current_time() == pytest.approx(8)
    assert peer.methods() == HANDSHAKE


async def test_silence_at_both_is_told(autojump_clock: MockClock) -> None:
    with pytest.raises(RequestTimeout, match=r"the stream within 12 s"):
        async with lines(silence, connect_timeout=12):
            raise AssertionError("opened")
    assert trio.current_time() == pytest.approx(12)


async def test_silence_at_initialize_is_told(autojump_clock: MockClock) -> None:
    with pytest.raises(RequestTimeout, match="initialize: no answer from the stream within 12 s"):
        async with lines(old(initialize=silence), connect_timeout=12):
            raise AssertionError("opened")


# -- a process


def exits_at(method: str, **replies: Any) -> Callable[[dict[str, Any]], Any]:
    def reply(message: dict[str, Any]) -> Any:
        return [EXIT] if message["method"] == method else old(**replies)(message)

    return reply


async def test_a_process_that_exits_at_the_probe_is_started_anew(autojump_clock: MockClock) -> None:
    async with started(exits_at("server/discover"), old()) as (client, peers):
        assert client.era == "legacy"
    assert [peer.methods() for peer in peers] == [["server/discover"], ["initialize", "notifications/initialized"]]


async def test_a_process_that_refuses_the_probe_and_exits_is_started_anew() -> None:
    async with started(exits_at("initialize"), old()) as (client, peers):
        assert client.era == "legacy"
    assert len(peers) == 2


async def test_a_silent_process_is_started_anew_when_initialize_stays_silent_too(autojump_clock: MockClock) -> None:
    async with started(silence, old()) as (client, peers):
        assert client.era == "legacy"
        assert trio.current_time() == pytest.approx(15)
    assert [peers[0].methods()[:2], peers[1].methods()] == [HANDSHAKE[:2], HANDSHAKE[1:]]


async def test_a_slow_start_is_waited_for(autojump_clock: MockClock) -> None:
    async with started(old(server_discover=after(12, error()), initialize=after(9, hello()))) as (client, peers):
        assert client.era == "legacy"
        assert trio.current_time() == pytest.approx(12)
    assert [[method for method in peer.methods() if "cancelled" not in method] for peer in peers] == [HANDSHAKE]


async def test_a_process_that_exits_twice_is_told(autojump_clock: MockClock) -> None:
    with pytest.raises(ConnectionClosed, match="the process closed the connection"):
        async with started(exits_at("server/discover"), exits_at("initialize")):
            raise AssertionError("opened")


@pytest.mark.parametrize("pins", [{"eras": ("legacy",)}, {"revision": "2025-06-18"}])
async def test_with_a_pinned_era_a_process_is_started_once(pins: Any, autojump_clock: MockClock) -> None:
    slow = old(initialize=after(20, hello("2025-06-18")))
    async with started(slow, **pins) as (client, peers):
        assert trio.current_time() == pytest.approx(20)
        assert client.protocol_version == "2025-06-18"
    assert [peer.methods() for peer in peers] == [HANDSHAKE[1:]]


# -- pins


async def test_eras_are_pinned() -> None:
    async with lines(old(), eras=["legacy"]) as (client, peer):
        assert client.era == "legacy"
    assert peer.methods() == HANDSHAKE[1:]
    with pytest.raises(LegacyServer):
        async with lines(old(), eras=["modern"]):
            raise AssertionError("opened")


@pytest.mark.parametrize("revision", LEGACY)
async def test_a_revision_is_pinned(revision: str) -> None:
    async with lines(old(initialize=hello(revision)), revision=revision) as (client, peer):
        assert (client.protocol_version, client.era) == (revision, "legacy")
    assert peer.methods() == HANDSHAKE[1:]
    assert peer.got[0]["params"]["protocolVersion"] == revision


async def test_another_revision_than_the_pinned_one_will_not_do() -> None:
    with pytest.raises(LegacyServer, match="speaks revision 2025-11-25; it was opened for 2025-03-26 only"):
        async with lines(old(), revision="2025-03-26"):
            raise AssertionError("opened")


async def test_the_modern_revision_is_pinned() -> None:
    with pytest.raises(LegacyServer):
        async with lines(old(), revision="2026-07-28"):
            raise AssertionError("opened")
    async with lines(old(server_discover=MODERN), revision="2026-07-28") as (client, _):
        assert client.era == "modern"


@pytest.mark.parametrize(
    ("pins", "told"),
    [
        ({"eras": []}, "expected one or both"),
        ({"eras": "modern"}, "expected one or both"),
        ({"eras": ["new"]}, "expected one or both"),
        ({"revision": "2025-01-01"}, "revision: expected one of 2026-07-28, 2025-11-25"),
        ({"eras": ["modern"], "revision": "2025-06-18"}, "is not of the eras modern"),
        ({"eras": ["legacy"], "revision": "2026-07-28"}, "is not of the eras legacy"),
    ],
)
def test_a_pin_that_is_none_is_refused(pins: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        open_client("http://server/mcp", **pins)


# -- initialize


@pytest.mark.parametrize(
    ("outcome", "kind", "told"),
    [
        ({}, InvalidResponse, "protocolVersion"),
        (hello(7), InvalidResponse, "protocolVersion"),  # type: ignore[arg-type]
        (hello(capabilities=[]), InvalidResponse, "capabilities"),
        (hello("2024-10-07"), LegacyServer, 'speaks revision "2024-10-07"; this client speaks 2026-07-28'),
        (hello("2030-01-01"), UnsupportedVersion, "2030-01-01"),
        (error(-32602, "bad version"), ProtocolError, "bad version"),
    ],
)
async def test_a_bad_answer_to_initialize_is_told(outcome: Any, kind: type[MCPError], told: str) -> None:
    with pytest.raises(kind, match=told):
        async with lines(old(initialize=outcome)):
            raise AssertionError("opened")


async def test_a_name_of_the_wrong_type_is_none() -> None:
    async with lines(old(initialize=hello(serverInfo=3, instructions=3))) as (client, _):
        assert (client.server_info, client.instructions) == ({}, None)


async def test_each_revision_can_be_agreed_on() -> None:
    for revision in LEGACY:
        async with lines(old(initialize=hello(revision, instructions="so", serverInfo={"name": "n"}))) as (
            client,
            peer,
        ):
            assert client.protocol_version == revision
            assert (client.instructions, client.server_info) == ("so", {"name": "n"})
        asked = peer.got[1]["params"]
        assert (asked["protocolVersion"], asked["clientInfo"]["name"]) == ("2025-11-25", "trio-mcp")
        assert "_meta" not in asked


# -- HTTP


@pytest.mark.parametrize("status", [400, 404, 405, 406, 415, 500, 501])
async def test_other_statuses_lead_to_initialize(status: int) -> None:
    web = Web()
    web.replies["server/discover"] = lambda seen: status
    async with web.client() as client:
        assert client.era == "legacy"
    assert web.methods()[:2] == HANDSHAKE[:2]


@pytest.mark.parametrize("status", [401, 403, 407, 429, 503])
async def test_statuses_that_say_nothing_of_the_era_do_not(status: int) -> None:
    web = Web()
    web.replies["server/discover"] = lambda seen: status
    with pytest.raises(HttpError) as caught:
        async with web.client():
            raise AssertionError("opened")
    assert caught.value.status == status
    assert web.methods() == ["server/discover"]


async def test_an_answer_that_is_no_message_leads_to_initialize() -> None:
    for body in (b"<html>", b"{}", b"[]", b""):
        web = Web()

        def odd(seen: Seen, web: Web = web, body: bytes = body) -> EventStream:
            stream = web.stream()
            stream.raw(body)
            stream.end()
            return stream

        web.replies["server/discover"] = odd
        async with web.client() as client:
            assert client.era == "legacy"


async def test_an_id_of_a_session_is_taken_from_the_answer_to_initialize_alone() -> None:
    web = Web()
    async with web.client() as client:
        await client.request("ping")
        web.replies["tools/call"] = lambda seen: TEXT
        await client.call_tool("a")
    assert [seen.session for seen in web.seen if seen.method != "GET"][:2] == [None, None]
    assert {seen.session for seen in web.seen[2:]} == {"s1"}
    assert web.sessions == set()
    assert len(web.of("notifications/initialized")) == 1


@pytest.mark.parametrize("revision", LEGACY)
async def test_the_header_of_the_revision(revision: str) -> None:
    web = Web(revision)
    async with web.client() as client:
        await client.request("ping")
    told = revision if revision >= "2025-06-18" else None
    assert web.seen[1].headers.get("mcp-protocol-version") is None
    assert {seen.headers.get("mcp-protocol-version") for seen in web.seen[2:]} == {told}


async def test_what_an_older_server_cannot_do_is_one_error() -> None:
    async with lines(old()) as (client, _):
        with pytest.raises(LegacyServer, match="revision 2025-11-25, and has no server/discover there"):
            await client.discover()
        with pytest.raises(LegacyServer, match="has no tasks/get there"):
            await client.task("a").refresh()
        with pytest.raises(LegacyServer, match="has no tasks there"):
            async with client.listen(tasks=["a"]):
                raise AssertionError("listens")
