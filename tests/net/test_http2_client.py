"""The client over HTTP/2, with servers that end streams and connections in every order."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import h2.events
import httpcore2
import httpx2
import pytest
import trio
from h2.errors import ErrorCodes
from h2.settings import SettingCodes

from trio_mcp import Client, ConnectionClosed, HttpError, Limits, MCPError, open_client

from .servers.h2_fake import H2Call, H2Server, H2Site, Script, served_over_h2
from .servers.http_peers import make_certificate, reset


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The paths of a certificate and its key."""
    return make_certificate(tmp_path_factory.mktemp("tls"))


@asynccontextmanager
async def called(
    script: Script, certificate: tuple[str, str], limits: Limits | None = None, **options: Any
) -> AsyncIterator[tuple[H2Site, Client]]:
    """A server, and a client of it."""
    trusted = ssl.create_default_context(cafile=certificate[0])
    async with (
        served_over_h2(script, certificate, **options) as site,
        open_client(site.url, http2=True, verify=trusted, limits=limits or Limits()) as client,
    ):
        yield site, client


async def text(client: Client, tool: str = "t", size: int = 0, timeout: float = 30) -> str:
    return (await client.call_tool(tool, {"x": "x" * size}, timeout=timeout)).text


LARGE = Limits(message_bytes=50_000_000)


def tool(call: H2Call) -> str:
    name: str = call.message["params"].get("name", "")
    return name


# -- the end of a connection, in order


async def test_streams_that_goaway_names_are_answered_and_new_calls_go_to_a_new_connection(
    certificate: tuple[str, str],
) -> None:
    held: list[H2Call] = []
    both = trio.Event()

    async def script(call: H2Call) -> None:
        if call.on.number > 1:
            await call.answer()
            return
        held.append(call)
        if len(held) == 2:
            await call.on.go_away(max(each.stream for each in held))
            both.set()

    async with called(script, certificate) as (site, client):
        got: list[str] = []

        async def one() -> None:
            got.append(await text(client))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one)
            nursery.start_soon(one)
            await both.wait()
            while not await _elsewhere(client):
                pass
            for call in held:
                await call.answer("on the old one")
        assert got == ["on the old one"] * 2
        assert site.count("tools/call") == len(held) + sum(n > 1 for n, _, m in site.calls if m == "tools/call")


async def _elsewhere(client: Client) -> bool:
    # A call that is written before GOAWAY has been read is above the last stream, and is moved.
    return (await text(client)).startswith("2/")


async def test_the_first_of_two_goaways_ends_nothing_that_runs(certificate: tuple[str, str]) -> None:
    async def script(call: H2Call) -> None:
        if call.on.number == 1 and tool(call) == "last":
            await call.on.go_away(2**31 - 1)
        await call.answer()

    async with called(script, certificate) as (site, client):
        assert await text(client, "last") == "1/3"
        assert [await text(client) for _ in range(3)] == ["2/1", "2/3", "2/5"]
        assert len(site.connections) == 2


async def test_a_call_above_the_last_stream_runs_once_on_a_new_connection(certificate: tuple[str, str]) -> None:
    async def head(on: H2Server, event: h2.events.RequestReceived) -> None:
        if on.number == 1 and event.stream_id == 3:
            await on.go_away(1)

    async def script(call: H2Call) -> None:
        if call.on.number > 1:
            await call.answer()

    async with called(script, certificate, head=head) as (site, client):
        assert await text(client) == "2/1"
        assert [n for n, _, method in site.calls if method == "tools/call" and n > 1] == [2]


@pytest.mark.parametrize("times", [1, 2])
async def test_a_stream_that_is_refused_is_tried_once_more(times: int, certificate: tuple[str, str]) -> None:
    refused = 0

    async def script(call: H2Call) -> None:
        nonlocal refused
        if refused < times:
            refused += 1
            await call.reset(ErrorCodes.REFUSED_STREAM)
        else:
            await call.answer()

    async with called(script, certificate) as (site, client):
        if times == 1:
            assert (await text(client)).startswith("1/")
        else:
            with pytest.raises(ConnectionClosed, match="refused the request twice"):
                await text(client)
        assert site.count("tools/call") == 2


async def test_a_server_that_takes_nothing_on_any_connection_is_an_error_soon(certificate: tuple[str, str]) -> None:
    async def begin(on: H2Server) -> None:
        if on.number > 1:
            await on.go_away(0)

    async def script(call: H2Call) -> None:
        await call.on.go_away(call.stream)
        await call.answer()

    async with called(script, certificate, begin=begin) as (site, client):
        await text(client)
        with trio.fail_after(20), pytest.raises(ConnectionClosed):
            await text(client)
        assert len(site.connections) <= 4


@pytest.mark.parametrize("how", ["closed", "reset"])
async def test_a_connection_that_was_closed_while_idle_takes_no_call(how: str, certificate: tuple[str, str]) -> None:
    async def script(call: H2Call) -> None:
        await call.answer()

    async with called(script, certificate) as (site, client):
        for number in range(1, 4):
            assert (await text(client)).startswith(f"{number}/")
            on = site.connections[-1]
            assert isinstance(on.stream, trio.SSLStream)
            if how == "closed":
                await on.close()
            else:
                await reset(on.stream.transport_stream)
            await trio.testing.wait_all_tasks_blocked(0.02)


async def test_a_tool_that_may_have_run_is_not_called_again(certificate: tuple[str, str]) -> None:
    async def script(call: H2Call) -> None:
        await call.on.close()

    async with called(script, certificate) as (site, client):
        with pytest.raises(ConnectionClosed, match="closed the connection"):
            await text(client)
        assert site.count("tools/call") == 1


async def test_what_only_reads_is_asked_again(certificate: tuple[str, str]) -> None:
    async def script(call: H2Call) -> None:
        if call.on.number == 1:
            await call.on.close()
        else:
            result = {"tools": [], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
            await call.head()
            await call.data(
                json.dumps({"jsonrpc": "2.0", "id": call.message["id"], "result": result}).encode(), end=True
            )

    async with called(script, certificate) as (site, client):
        assert await client.list_tools() == []
        assert site.count("tools/list") == 2


# -- an answer that has come counts


async def _close(call: H2Call) -> None:
    await call.on.close()


async def _go_away(call: H2Call) -> None:
    await call.on.go_away(call.stream, ErrorCodes.INTERNAL_ERROR)
    await call.on.close()


async def _no_error(call: H2Call) -> None:
    await call.reset(ErrorCodes.NO_ERROR)


async def _internal(call: H2Call) -> None:
    await call.reset(ErrorCodes.INTERNAL_ERROR)


@pytest.mark.parametrize("after", [_close, _go_away, _no_error, _internal])
@pytest.mark.parametrize("form", ["with its length", "without", "as an event", "ended"])
async def test_an_answer_counts_whatever_comes_after_it(form: str, after: Script, certificate: tuple[str, str]) -> None:
    async def script(call: H2Call) -> None:
        body = call.body("whole")
        if form == "as an event":
            await call.head(kind="text/event-stream")
            await call.data(b"event: message\ndata: " + body + b"\n\n")
        else:
            await call.head(*([("content-length", str(len(body)))] if form == "with its length" else []))
            await call.data(body, end=form == "ended")
        if not (form == "ended" and after in (_no_error, _internal)):
            await after(call)

    async with called(script, certificate) as (_, client):
        assert await text(client) == "whole"


@pytest.mark.parametrize("after", [_close, _go_away, _no_error, _internal])
async def test_half_an_answer_is_an_error(after: Script, certificate: tuple[str, str]) -> None:
    async def script(call: H2Call) -> None:
        await call.head()
        await call.data(call.body()[:-2])
        await after(call)

    async with called(script, certificate) as (site, client):
        why = "INTERNAL_ERROR" if after in (_internal, _go_away) else "closed|NO_ERROR"
        with pytest.raises(ConnectionClosed, match=why):
            await text(client)
        assert site.count("tools/call") == 1


@pytest.mark.parametrize("resets", [False, True])
async def test_an_answer_that_comes_before_the_request_has_been_read(
    resets: bool, certificate: tuple[str, str]
) -> None:
    async def head(on: H2Server, event: h2.events.RequestReceived) -> None:
        if event.stream_id == 3:
            on.held.add(3)
            call = H2Call(on, 3, {"method": "tools/call", "id": 2})
            await call.head(status=413)
            await call.data(b"too long", end=True)
            if resets:
                await call.reset(ErrorCodes.NO_ERROR)

    async def script(call: H2Call) -> None:
        await call.answer()

    async with called(script, certificate, LARGE, head=head) as (site, client):
        with trio.fail_after(20), pytest.raises(HttpError, match=r'answered 413 .*"too long"'):
            await text(client, size=3_000_000)
        assert (await text(client)).startswith("1/")
        assert len(site.connections) == 1
        if not resets:
            assert await site.connections[0].wait_reset(3) == ErrorCodes.CANCEL


# -- streams


async def test_a_call_that_is_left_resets_its_stream_and_no_other(certificate: tuple[str, str]) -> None:
    hangs = trio.Event()

    async def script(call: H2Call) -> None:
        if tool(call) == "hang":
            hangs.set()
        else:
            await call.answer()

    async with called(script, certificate) as (site, client):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(text, client, "hang")
            await hangs.wait()
            nursery.cancel_scope.cancel()
        assert await site.connections[0].wait_reset(3) == ErrorCodes.CANCEL
        assert await text(client) == "1/5"
        assert site.connections[0].resets == {3: ErrorCodes.CANCEL}


async def test_calls_overlap_where_the_server_sets_no_limit(certificate: tuple[str, str]) -> None:
    held: list[H2Call] = []

    async def script(call: H2Call) -> None:
        held.append(call)
        if len(held) == 30:
            for each in held:
                await each.answer()

    async with called(script, certificate) as (site, client), trio.open_nursery() as nursery:
        for _ in range(30):
            nursery.start_soon(text, client)
    assert len(site.connections) == 1


async def test_what_is_beyond_the_streams_of_a_connection_goes_to_another(certificate: tuple[str, str]) -> None:
    held: list[H2Call] = []

    async def script(call: H2Call) -> None:
        held.append(call)
        if len(held) == 5:
            for each in held:
                await each.answer()

    options = {"settings": {SettingCodes.MAX_CONCURRENT_STREAMS: 2}}
    async with called(script, certificate, **options) as (_, client), trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(text, client)
    assert [sum(call.on.number == n for call in held) for n in (1, 2, 3)] == [2, 2, 1]


async def test_a_call_that_is_cancelled_while_it_writes_takes_no_frames_of_others_with_it(
    certificate: tuple[str, str],
) -> None:
    begun, go_on = trio.Event(), trio.Event()

    async def head(on: H2Server, event: h2.events.RequestReceived) -> None:
        if event.stream_id == 3:
            begun.set()
            await go_on.wait()  # nothing is read meanwhile

    async def script(call: H2Call) -> None:
        await call.answer()

    settings = {SettingCodes.INITIAL_WINDOW_SIZE: 50_000_000}
    async with called(script, certificate, LARGE, head=head, settings=settings) as (site, client):
        site.connections[0].h2.increment_flow_control_window(50_000_000)
        await site.connections[0].flush()
        got: list[str] = []

        async def other() -> None:
            got.append(await text(client, "other", size=100_000))

        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(text, client, "big", 20_000_000)
                await begun.wait()
                scope.cancel()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            await trio.testing.wait_all_tasks_blocked(0.02)
            go_on.set()
        assert got == ["1/5"]
        assert 3 in site.connections[0].resets


async def test_a_callback_that_waits_holds_neither_its_own_stream_nor_another(certificate: tuple[str, str]) -> None:
    much = trio.Event()

    async def script(call: H2Call) -> None:
        if tool(call) != "chatter":
            await call.answer()
            return
        await call.head(kind="text/event-stream")
        note = {
            "progressToken": call.message["params"]["_meta"]["progressToken"],
            "progress": 1,
            "message": "x" * 9_000,
        }
        event = json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": note}).encode()
        # Several times what the windows hold.
        for _ in range(1_000):
            await call.data(b"data: " + event + b"\n\n")
        much.set()

    async def wait(*told: object) -> None:
        await trio.sleep_forever()

    async with called(script, certificate) as (_, client), trio.open_nursery() as nursery:

        async def slow() -> None:
            await client.call_tool("chatter", on_progress=wait)

        nursery.start_soon(slow)
        with trio.fail_after(30):
            assert (await text(client)).startswith("1/")
            await much.wait()
            assert (await text(client)).startswith("1/")
        nursery.cancel_scope.cancel()


# -- peers that do not keep to the protocol


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n",
        b"",
        b"\0\0\0\x04\0\0\0\0\0" + b"\0\0\x01\x01\x05\0\0\0\x01\xff",
        b"\0\0\0\x04\0\0\0\0\0" + b"\0\0\x08\x07\0\0\0\0\0" + bytes(8),
        b"\0\0\0\x04\0\0\0\0\0" + b"\0\0\x04\x08\0\0\0\0\0" + bytes(4),
        b"\xff" * 100,
    ],
)
async def test_what_is_no_http2_is_one_error(raw: bytes, certificate: tuple[str, str]) -> None:
    async def begin(on: H2Server) -> None:
        await on.stream.send_all(raw)
        await on.close()

    async def script(call: H2Call) -> None:
        raise AssertionError

    trusted = ssl.create_default_context(cafile=certificate[0])
    async with served_over_h2(script, certificate, begin=begin) as site:
        with trio.fail_after(20), pytest.raises(MCPError):
            async with open_client(site.url, http2=True, verify=trusted):
                pass


async def test_an_answer_in_pieces_of_one_byte_is_refused_before_it_costs_much(certificate: tuple[str, str]) -> None:
    async def script(call: H2Call) -> None:
        await call.head()
        body = call.body("x" * 60_000)
        frames = b"".join(
            b"\0\0\x01\0\0" + call.stream.to_bytes(4, "big") + body[at : at + 1] for at in range(len(body))
        )
        await call.on.raw(frames)

    async with called(script, certificate) as (_, client):
        begin = time.process_time()
        with pytest.raises(ConnectionClosed, match="too small pieces"):
            await text(client, timeout=30)
        assert time.process_time() - begin < 10


async def test_other_users_of_the_library_have_its_own_classes(certificate: tuple[str, str]) -> None:
    async def script(call: H2Call) -> None:
        await call.answer()

    def code() -> dict[str, object]:
        kinds = (httpcore2.AsyncHTTP2Connection, httpcore2.AsyncHTTP11Connection, httpcore2.AsyncConnectionPool)
        return {f"{kind.__name__}.{name}": value for kind in kinds for name, value in vars(kind).items()}

    before = code()
    trusted = ssl.create_default_context(cafile=certificate[0])
    async with called(script, certificate) as (site, client):
        await text(client)
        assert code() == before
        assert {getattr(value, "__module__", "httpcore2").partition(".")[0] for value in before.values()} <= {
            "httpcore2",
            "h2",
        }
        async with (
            httpx2.AsyncClient(http2=True, verify=trusted) as theirs,
            open_client(site.url, http=theirs) as second,
        ):
            assert (await text(second)).startswith("2/")
