"""`http_app` in a stock Hypercorn on real sockets, beside another application.

What it shares with the other edges is in `test_edges`.
"""

from __future__ import annotations

import json
import logging
import time
from functools import partial
from typing import Any

import pytest
import trio
from hypercorn.middleware.dispatcher import TrioDispatcherMiddleware

from trio_mcp import Context, Limits, MCPError, Server, http_app, open_client, open_server

from .edges import hosting
from .servers.http_peers import H2Peer, Site, call, events_of, post, text_of
from .servers.http_tools import Lab

Scope = dict[str, Any]


async def other(scope: Scope, receive: Any, send: Any) -> None:
    """Another application: says hello."""
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
    else:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
        await send({"type": "http.response.body", "body": b"hello"})


def mounted(app: Any, prefix: str = "/api/v1") -> Any:
    """Our application below a prefix, and another one beside it."""
    return TrioDispatcherMiddleware({prefix: app, "/other": other})


async def get(site: Site, path: str) -> tuple[int, bytes]:
    """GET a path."""
    peer = await site.h1()
    await peer.send(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode())
    with trio.fail_after(20):
        status, _, body = await peer.response()
    await peer.aclose()
    return status, body


async def test_calls_and_event_streams_beside_another_application() -> None:
    lab = Lab()
    async with hosting(mounted(http_app(lab.server))) as site:
        assert await get(site, "/other") == (200, b"hello")
        url = f"{site.url}/api/v1/mcp"
        async with open_client(url) as client:
            assert (await client.call_tool("echo", {"text": "mounted"})).text == "mounted"
            heard: list[float] = []
            answer = await client.call_tool(
                "chatter", {"count": 5, "size": 10}, on_progress=lambda done, total, text: heard.append(done)
            )
            assert (answer.text, heard) == ("said all", [1, 2, 3, 4, 5])
        assert await get(site, "/other") == (200, b"hello")
    assert [name for name, _ in lab.notes if name in ("entered", "left")] == ["entered", "left"]


@pytest.mark.parametrize("prefix", ["", "/api/v1"])
@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
async def test_both_spellings_of_the_path_are_answered_directly(prefix: str, path: str) -> None:
    app = http_app(Lab().server)
    async with hosting(mounted(app) if prefix else app) as site:
        for peer in (await site.h1(),):
            await peer.send(post(call(1, "echo", text="x"), path=prefix + path))
            status, _, body = await peer.response()
            assert (status, text_of(json.loads(body))) == (200, "x")
            await peer.aclose()
        two = await site.h2()
        message = call(2, "echo", text="y")
        stream = await two.request(two.head(message, (prefix + path).encode()))
        two.h2.send_data(stream, json.dumps(message).encode(), end_stream=True)
        await two.flush()
        status, body = await two.response(stream)
        assert (status, text_of(json.loads(body))) == (200, "y")
        await two.aclose()
        assert (await get(site, f"{prefix}/mcpx"))[0] == 404
        assert (await get(site, f"{prefix}{path}"))[0] == 400


async def test_the_root_path_of_the_host() -> None:
    async with hosting(http_app(Lab().server), root_path="/behind/a/proxy") as site:
        # Hypercorn leaves the path as it came; proxies that strip the prefix send the short form.
        for path in ("/behind/a/proxy/mcp", "/mcp"):
            async with open_client(f"{site.url}{path}") as client:
                assert (await client.call_tool("echo", {"text": path})).text == path


# -- the lifespan


async def test_the_lifespan_is_entered_once_before_the_first_request_and_left_at_the_end() -> None:
    lab = Lab()
    async with hosting(http_app(lab.server)) as site:
        assert [name for name, _ in lab.notes] == ["entered"]
        for number in range(10):
            peer = await site.h1()
            assert await peer.echo(f"{number}") == f"{number}"
            await peer.aclose()
        two = await site.h2()
        assert await two.echo("h2") == "h2"
        await two.aclose()
        assert [name for name, _ in lab.notes] == ["entered"]
    assert [name for name, _ in lab.notes] == ["entered", "left"]


async def test_the_same_server_can_be_hosted_again() -> None:
    lab = Lab()
    for _ in range(2):
        async with hosting(http_app(lab.server)) as site:
            peer = await site.h1()
            assert await peer.echo("again") == "again"
            await peer.aclose()
    assert [name for name, _ in lab.notes] == ["entered", "left"] * 2


async def test_mounted_without_a_lifespan_is_a_clear_error(caplog: pytest.LogCaptureFixture) -> None:
    app = http_app(Lab().server)

    async def forgetful(scope: Scope, receive: Any, send: Any) -> None:
        await (other if scope["type"] == "lifespan" else app)(scope, receive, send)

    async with hosting(forgetful) as site:
        with caplog.at_level(logging.ERROR):
            peer = await site.h1()
            await peer.send(post(call(1, "echo", text="x")))
            with trio.fail_after(20):
                assert (await peer.head())[0] == 500
            await peer.aclose()
    text = " ".join(
        record.getMessage() + str(record.exc_info[1] if record.exc_info else "") for record in caplog.records
    )
    assert "forward the ASGI lifespan" in text
    assert "open_server" in text


async def test_a_server_that_is_open_needs_no_lifespan() -> None:
    lab = Lab()
    async with open_server(lab.server) as running:
        app = http_app(running)

        async def forgetful(scope: Scope, receive: Any, send: Any) -> None:
            await (other if scope["type"] == "lifespan" else app)(scope, receive, send)

        async with hosting(forgetful) as site:
            peer = await site.h1()
            assert await peer.echo("open") == "open"
            await peer.aclose()
        assert [name for name, _ in lab.notes] == ["entered"]
    assert [name for name, _ in lab.notes] == ["entered", "left"]


async def test_a_lifespan_that_fails_stops_the_host() -> None:
    lab = Lab()
    async with open_server(lab.server):
        # The server is open already, so it cannot be opened again.
        with pytest.raises(BaseExceptionGroup) as caught:
            async with hosting(http_app(lab.server)):
                pass
    assert "is open already" in repr(caught.value) or caught.value.subgroup(lambda exc: "open already" in str(exc))


# -- clients that go


async def test_our_client_that_leaves_the_scope_stops_the_tool() -> None:
    lab = Lab()
    async with hosting(http_app(lab.server)) as site, open_client(f"{site.url}/mcp") as client:
        for number, progress in ((1, None), (2, lambda done, total, text: None)):
            async with trio.open_nursery() as calls:
                calls.start_soon(partial(client.call_tool, "slow", {"seconds": 30}, on_progress=progress))
                await lab.wait("start", number)
                calls.cancel_scope.cancel()
            await lab.wait("finally", number)
        assert (await client.call_tool("echo", {"text": "on"})).text == "on"


async def test_a_client_that_never_opens_its_window_costs_a_bounded_amount() -> None:
    """A host of HTTP/2 keeps whatever it is given, so notices beyond `write_buffer` are dropped; the answer is not."""
    lab = Lab(write_buffer=100_000)
    async with hosting(http_app(lab.server)) as site:
        peer = H2Peer(await site.connect(), window=False, initial=0)
        await peer.begin()
        stream = await peer.post(call(1, "chatter", progress=True, count=50, size=10_000))
        await lab.wait("said", 50)
        await peer.pump_for(0.2)
        peer.h2.increment_flow_control_window(1_000_000, stream)
        peer.h2.increment_flow_control_window(1_000_000)
        await peer.flush()
        with trio.fail_after(20):
            while stream not in peer.ended:
                await peer.pump()
        events = events_of(peer.bodies[stream])
        assert (len(events), text_of(events[-1])) == (10, "said all")
        await peer.aclose()


async def test_the_shutdown_of_the_host_cancels_what_still_runs() -> None:
    lab = Lab()
    async with hosting(http_app(lab.server), graceful_timeout=0.2) as site:
        peer = await site.h1()
        await peer.send(post(call(1, "slow", progress=True, seconds=60)))
        await lab.wait("start")
        begin = time.monotonic()
    assert time.monotonic() - begin < 20
    assert [name for name, _ in lab.notes] == ["entered", "start", "finally", "left"]


# -- other scopes


async def test_a_websocket_is_closed_at_once() -> None:
    async with hosting(http_app(Lab().server)) as site:
        peer = await site.h1()
        await peer.send(
            b"GET /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
            b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        with trio.fail_after(20):
            assert (await peer.head())[0] == 403
        await peer.aclose()
        new = await site.h1()
        assert await new.echo("on") == "on"
        await new.aclose()


@pytest.mark.parametrize("path", ["", "mcp", "/mcp?x"])
def test_a_path_that_is_none_is_a_value_error(path: str) -> None:
    with pytest.raises(ValueError, match="path must start with a slash"):
        http_app(Lab().server, path=path)


@pytest.mark.parametrize("options", [{"allowed_hosts": ["http://x"]}, {"allowed_origins": ["x"]}])
def test_hosts_and_origins_that_are_none_are_value_errors(options: dict[str, list[str]]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        http_app(Lab().server, **options)


async def test_a_server_is_not_opened_twice() -> None:
    lab = Lab()
    async with hosting(http_app(lab.server)):
        with pytest.raises(MCPError, match="is open already"):
            async with open_server(lab.server):
                pass


async def test_an_event_stream_in_a_dispatcher_ends_well() -> None:
    async with hosting(mounted(http_app(Lab().server))) as site:
        peer = await site.h1()
        await peer.send(post(call(1, "chatter", progress=True, count=100, size=5_000), path="/api/v1/mcp"))
        status, _, body = await peer.response()
        assert (status, len(events_of(body)), text_of(events_of(body)[-1])) == (200, 101, "said all")
        assert await get(site, "/other/") == (200, b"hello")
        await peer.aclose()


async def test_an_answer_that_is_whole_behind_a_send_that_waits_gives_its_place_back() -> None:
    """A host may shield its `send`, so what it does not take says when the client is gone, the answer included."""
    server = Server("test", version="1", limits=Limits(write_stall=0.2, write_buffer=1_000))

    @server.tool
    async def talk(ctx: Context) -> str:
        await ctx.report_progress(1)
        await trio.sleep(0.05)
        return "x" * 10_000

    raw = post(call(1, "talk", progress=True))
    head, _, body = raw.partition(b"\r\n\r\n")
    pairs = [line.split(b": ", 1) for line in head.split(b"\r\n")[1:]]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/mcp",
        "headers": [(name.lower(), value) for name, value in pairs],
        "http_version": "1.1",
        "server": ("127.0.0.1", 1),
    }
    released, sending, asked = trio.Event(), trio.Event(), False

    async def receive() -> dict[str, Any]:
        nonlocal asked
        if asked:
            await trio.sleep_forever()
        asked = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sending.set()
        with trio.CancelScope(shield=True):
            await released.wait()

    async with open_server(server) as engine, trio.open_nursery() as nursery:
        nursery.start_soon(http_app(engine), scope, receive, send)
        await sending.wait()
        assert engine.executor.statistics().running == 1
        with trio.move_on_after(20):
            while engine.executor.statistics().running:
                await trio.sleep(0.01)
        running = engine.executor.statistics().running
        released.set()
        nursery.cancel_scope.cancel()
        assert running == 0
