"""HTTP/2 over real sockets: TLS, streams beside each other, windows, and what one client may not do to the others.

What it shares with the other edges is in `test_edges`; resets, bodies and the drain in `transports/http/test_h2_own`.
"""

from __future__ import annotations

import json
import logging
import re
import ssl
import time
from collections.abc import Awaitable, Callable

import h2.exceptions
import hyperframe.frame
import pytest
import trio
import trio.testing

from trio_mcp import open_server

from .servers.http_peers import (
    H1Peer,
    H2Peer,
    Headers,
    Site,
    all_places_free,
    call,
    events_of,
    holds,
    post,
    serving,
    settled,
    text_of,
)
from .servers.http_tools import Lab


async def secure(site: Site, cafile: str, *protocols: str) -> trio.SSLStream[trio.SocketStream]:
    """A TLS connection that offers these protocols."""
    context = ssl.create_default_context(cafile=cafile)
    context.set_alpn_protocols(protocols)
    stream = trio.SSLStream(await site.connect(), context, server_hostname="127.0.0.1", https_compatible=True)
    await stream.do_handshake()
    return stream


# -- calls


async def test_calls_over_tls_by_alpn(certificate: tuple[str, str]) -> None:
    async with serving(Lab().server, certfile=certificate[0], keyfile=certificate[1]) as site:
        stream = await secure(site, certificate[0], "h2", "http/1.1")
        assert stream.selected_alpn_protocol() == "h2"
        peer = H2Peer(stream)
        await peer.begin()
        assert await peer.echo("secure") == "secure"
        status, body = await peer.response(await peer.post(call(2, "chatter", progress=True, count=3, size=10)))
        assert (status, len(events_of(body))) == (200, 4)
        await peer.aclose()
        for protocols in (["http/1.1"], []):
            stream = await secure(site, certificate[0], *protocols)
            one = H1Peer(stream)
            assert await one.echo("old") == "old"
            await one.aclose()


async def test_http_1_where_http_2_was_agreed_closes_the_connection(certificate: tuple[str, str]) -> None:
    # RFC 9113, section 3.4: an invalid preface is a connection error. Nothing else may answer there.
    async with serving(Lab().server, certfile=certificate[0], keyfile=certificate[1]) as site:
        peer = H1Peer(await secure(site, certificate[0], "h2"))
        await peer.send(post(call(1, "echo", text="x")))
        assert b"HTTP/1.1" not in await peer.ended()
        await peer.aclose()


@pytest.mark.parametrize("line", ["PRI /mcp HTTP/1.1", "PRI * HTTP/1.1", "PRI * HTTP/2.0"])
async def test_nearly_a_preface_is_refused_and_closed(line: str) -> None:
    async with serving(Lab().server) as site:
        peer = await site.h1()
        await peer.send(line.encode() + b"\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
        data = await peer.ended()
        assert data == b"" or re.match(rb"HTTP/1\.1 [45]\d\d ", data), data
        await peer.aclose()


async def test_a_preface_in_pieces() -> None:
    async with serving(Lab().server) as site:
        peer = H2Peer(await site.connect())
        peer.h2.initiate_connection()
        for byte in peer.h2.data_to_send():
            await peer.stream.send_all(bytes([byte]))
            await trio.sleep(0.0005)
        assert await peer.echo("slowly") == "slowly"
        await peer.aclose()


async def test_many_streams_at_once_are_answered_each_with_its_own() -> None:
    lab = Lab()
    async with serving(lab.server) as site:
        peer = await site.h2()
        slow = await peer.post(call("slow", "slow", seconds=1.5))
        echoes = {await peer.post(call(number, "echo", text=f"{number}")): number for number in range(60)}
        chatter = await peer.post(call("chatter", "chatter", progress=True, count=50, size=1_000))
        for stream, number in echoes.items():
            status, body = await peer.response(stream)
            answer = json.loads(body)
            assert (status, answer["id"], text_of(answer)) == (200, number, f"{number}")
        assert slow not in peer.ended
        *progress, last = events_of((await peer.response(chatter))[1])
        assert [event["params"]["progress"] for event in progress] == list(range(1, 51))
        assert (last["id"], text_of(last)) == ("chatter", "said all")
        assert text_of(json.loads((await peer.response(slow))[1])) == "slept"
        await peer.aclose()


# -- windows


async def test_a_client_that_never_opens_its_window_is_held_back() -> None:
    lab = Lab()
    async with open_server(lab.server) as engine, serving(engine) as site:
        healthy = await site.h2()
        peer = H2Peer(await site.connect(), window=False, initial=0)
        await peer.begin()
        await peer.post(call(1, "chatter", progress=True, count=500, size=10_000))
        await lab.wait("said", 50)
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            await peer.pump_for(0.05)
            assert await healthy.echo("beside") == "beside"
        # 5 MB were to be said; what is held is one buffer of ours.
        assert lab.count("said") * 10_000 < 2_000_000
        assert lab.count("finally") == 0
        await peer.aclose()
        await lab.wait("finally")
        await all_places_free(engine)
        await healthy.aclose()


async def test_a_client_that_never_opens_its_window_counts_as_gone_and_gives_its_places_back() -> None:
    lab = Lab(write_stall=0.4, running=4)
    async with open_server(lab.server) as engine, serving(engine) as site:
        peer = H2Peer(await site.connect(), window=False, initial=0)
        await peer.begin()
        for id in range(4):
            await peer.post(call(id, "chatter", progress=True, count=500, size=10_000))
        await lab.wait("said", 100)
        # All places are taken, and come back; what waits is a buffer of ours for all streams together.
        await lab.wait("finally", 4)
        healthy = await site.h2()
        assert await healthy.echo("after") == "after"
        await all_places_free(engine)
        await healthy.aclose()
        await peer.aclose()


# -- what stops a server that is less careful (Hypercorn 0.18 is one)


def changed(peer: H2Peer, **values: bytes | None) -> Headers:
    """The head of a call with some pseudo fields changed or left out."""
    out = []
    for name, value in peer.head(call(1, "echo", text="x")):
        key = name[1:].decode() if name.startswith(b":") else ""
        new = values.get(key, value) if key else value
        if new is not None:
            out.append((name, new))
    return out


async def bad_path(peer: H2Peer) -> None:
    await peer.request(changed(peer, path=b"/mcp\xff\xc3"), end=True)


async def bad_method(peer: H2Peer) -> None:
    await peer.request(changed(peer, method=b"POST\xe9"), end=True)


async def bad_host(peer: H2Peer) -> None:
    await peer.request(changed(peer, authority=b"\xff\xfe:80"), end=True)


async def bad_host_field(peer: H2Peer) -> None:
    await peer.request([*changed(peer, authority=None), (b"host", b"\xff\xfe")], end=True)


async def connect_without_path(peer: H2Peer) -> None:
    await peer.request([(b":method", b"CONNECT"), (b":authority", b"127.0.0.1:80")])


async def connect_with_protocol(peer: H2Peer) -> None:
    await peer.request([*changed(peer, method=b"CONNECT"), (b":protocol", b"websocket")])
    await peer.pump_for(0.1)


async def data_after_the_answer(peer: H2Peer) -> None:
    stream = await peer.request(changed(peer, path=b"/other"))
    await peer.response(stream)
    for _ in range(5):
        await peer.stream.send_all(hyperframe.frame.DataFrame(stream, b"x" * 1_000).serialize())


async def priorities(peer: H2Peer) -> None:
    frames = [
        hyperframe.frame.PriorityFrame(2 * number + 1_001, stream_weight=1).serialize() for number in range(1_100)
    ]
    await peer.stream.send_all(b"".join(frames))


async def priority_ring(peer: H2Peer) -> None:
    frames = [(101, 103), (103, 105), (105, 101), (107, 107), (109, 0), (1, 3), (3, 1)]
    await peer.stream.send_all(
        b"".join(hyperframe.frame.PriorityFrame(one, depends_on=on).serialize() for one, on in frames)
    )


async def rapid_reset(peer: H2Peer) -> None:
    for _ in range(400):
        stream = peer.h2.get_next_available_stream_id()
        peer.h2.send_headers(stream, changed(peer), end_stream=True)
        peer.h2.reset_stream(stream, 8)
    await peer.flush()


async def too_many_streams(peer: H2Peer) -> None:
    for _ in range(150):
        peer.h2.send_headers(peer.h2.get_next_available_stream_id(), changed(peer))
    await peer.flush()


async def small_frames(peer: H2Peer) -> None:
    stream = await peer.request(changed(peer))
    for _ in range(14):
        await peer.stream.send_all(hyperframe.frame.DataFrame(stream, b"{").serialize())


async def large_head(peer: H2Peer) -> None:
    await peer.request([*changed(peer), *[(b"x-%d" % number, b"y" * 8_000) for number in range(20)]], end=True)


async def settings_flood(peer: H2Peer) -> None:
    await peer.stream.send_all(hyperframe.frame.SettingsFrame(0, settings={3: 1}).serialize() * 1_000)


async def ping_flood(peer: H2Peer) -> None:
    await peer.stream.send_all(hyperframe.frame.PingFrame(0, b"12345678").serialize() * 1_000)


async def broken_frames(peer: H2Peer) -> None:
    await peer.stream.send_all(b"\x00\x00\x04\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00" + b"\xff" * 100)


async def goaway(peer: H2Peer) -> None:
    await peer.post(call(1, "slow", seconds=30))
    await peer.stream.send_all(hyperframe.frame.GoAwayFrame(0, last_stream_id=0, error_code=2).serialize())


async def no_headers(peer: H2Peer) -> None:
    await peer.stream.send_all(hyperframe.frame.HeadersFrame(1, flags=["END_STREAM", "END_HEADERS"]).serialize())


Attack = Callable[[H2Peer], Awaitable[None]]

ATTACKS: list[Attack] = [
    *[bad_path, bad_method, bad_host, bad_host_field, connect_without_path, connect_with_protocol],
    *[data_after_the_answer, priorities, priority_ring, rapid_reset, too_many_streams, small_frames, large_head],
    *[settings_flood, ping_flood, broken_frames, goaway, no_headers],
]


@pytest.mark.parametrize("tls", [False, True])
async def test_one_client_cannot_stop_the_server(tls: bool, certificate: tuple[str, str]) -> None:
    lab = Lab()
    options = {"certfile": certificate[0], "keyfile": certificate[1]} if tls else {}
    async with open_server(lab.server) as engine, serving(engine, **options) as site:

        async def connect() -> H2Peer:
            peer = H2Peer(await secure(site, certificate[0], "h2") if tls else await site.connect())
            await peer.begin()
            return peer

        healthy = await connect()
        assert await healthy.echo("before") == "before"
        before = await settled()
        # One server bears them all, one after another, with the same healthy client.
        for attack in ATTACKS:
            try:
                await _bear(attack, lab, healthy, connect)
                # Nothing of the attacker is left.
                assert await holds(before) == before
                await all_places_free(engine)
            except BaseException as exc:
                exc.add_note(f"The attack was {attack.__name__}.")
                raise
        await healthy.aclose()


async def _bear(attack: Attack, lab: Lab, healthy: H2Peer, connect: Callable[[], Awaitable[H2Peer]]) -> None:
    """Attack while a healthy client has a call under way: it and a new one are served as if nothing happened."""
    started = lab.count("start")
    under_way = await healthy.post(call("during", "slow", progress=True, seconds=0.1))
    await lab.wait("start", started + 1)
    peer = await connect()
    try:
        await attack(peer)
        await peer.pump_for(0.05)
    except (EOFError, trio.BrokenResourceError, h2.exceptions.ProtocolError):
        pass  # its own half may not know what it has sent, or may not take what it is told
    assert await healthy.echo("during") == "during"
    assert text_of(events_of((await healthy.response(under_way))[1])[-1]) == "slept"
    await peer.aclose()
    assert await healthy.echo("after") == "after"
    new = await connect()
    assert await new.echo("new") == "new"
    await new.aclose()


async def test_an_attack_is_not_a_traceback_a_time_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    # What a client sends is no error of the server's; whoever can send it could fill the disk with it.
    async with serving(Lab().server) as site:
        with caplog.at_level(logging.WARNING):
            for attack in (bad_path, bad_method, connect_without_path, priorities):
                peer = await site.h2()
                await attack(peer)
                await peer.pump_for(0.05)
                await peer.aclose()
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
