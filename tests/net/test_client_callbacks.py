"""What a slow callback holds up: the same over lines, HTTP/1.1 and HTTP/2."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock, memory_stream_pair

from trio_mcp import Client, InvalidParams, Limits, open_client

from .servers.h2_fake import H2Call, answer_of, served_over_h2
from .servers.http_peers import H1Peer, discovery, faked, make_certificate

Message = dict[str, Any]
Say = Callable[..., Awaitable[None]]
Script = Callable[[Message, Say], Awaitable[None]]
"""Given a call, and what sends messages in one piece; the last of them is the answer."""

LIMITS = Limits(client_events=10)
WAYS = pytest.mark.parametrize("way", ["lines", "HTTP/1.1", "HTTP/2"])


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The paths of a certificate and its key."""
    return make_certificate(tmp_path_factory.mktemp("tls"))


def note(call: Message, number: int, message: str = "") -> Message:
    token = call["params"]["_meta"]["progressToken"]
    params = {"progressToken": token, "progress": number, "message": message}
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}


def events(messages: tuple[Message, ...]) -> bytes:
    return b"".join(b"data: " + json.dumps(message).encode() + b"\n\n" for message in messages)


@asynccontextmanager
async def over_lines(script: Script) -> AsyncIterator[Client]:
    ours, theirs = memory_stream_pair()

    async def say(*messages: Message) -> None:
        await theirs.send_all(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    async def serve() -> None:
        data = b""
        while more := await theirs.receive_some():
            data += more
            *lines, data = data.split(b"\n")
            for message in map(json.loads, lines):
                if message["method"] == "server/discover":
                    await say(discovery(message["id"]))
                elif message["method"] == "tools/call":
                    nursery.start_soon(script, message, say)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        async with open_client(ours, limits=LIMITS) as client:
            yield client
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def over_http_1(script: Script) -> AsyncIterator[Client]:
    async def answer(peer: H1Peer, path: str, call: Message) -> None:
        async def say(*messages: Message) -> None:
            data = events(messages)
            end = b"0\r\n\r\n" if "id" in messages[-1] else b""
            await peer.send(b"%x\r\n%b\r\n%b" % (len(data), data, end))

        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        await script(call, say)

    async with faked(answer) as url, open_client(url, limits=LIMITS) as client:
        yield client


@asynccontextmanager
async def over_http_2(script: Script, certificate: tuple[str, str]) -> AsyncIterator[Client]:
    async def answer(call: H2Call) -> None:
        async def say(*messages: Message) -> None:
            data = events(messages)
            while call.on.h2.local_flow_control_window(call.stream) < len(data):
                await trio.sleep(0.001)
            while len(data) > 16_384:
                call.on.h2.send_data(call.stream, data[:16_384])
                data = data[16_384:]
            await call.data(data, end="id" in messages[-1])

        await call.head(kind="text/event-stream")
        await script(call.message, say)

    trusted = ssl.create_default_context(cafile=certificate[0])
    async with (
        served_over_h2(answer, certificate) as site,
        open_client(site.url, http2=True, verify=trusted, limits=LIMITS) as client,
    ):
        yield client


def connected(way: str, script: Script, certificate: tuple[str, str]) -> Any:
    if way == "HTTP/2":
        return over_http_2(script, certificate)
    return over_lines(script) if way == "lines" else over_http_1(script)


@WAYS
async def test_what_comes_while_a_callback_runs_is_read_and_the_latest_counts(
    way: str, certificate: tuple[str, str]
) -> None:
    sent = trio.Event()
    heard: list[float] = []

    async def script(call: Message, say: Say) -> None:
        # Far more than what sockets and windows hold.
        for number in range(0, 1_200, 10):
            await say(*(note(call, number + step, "x" * 10_000) for step in range(10)))
        sent.set()
        await say(answer_of(call["id"], "done"))

    async def slow(progress: float, total: float | None, message: str | None) -> None:
        await sent.wait()
        heard.append(progress)

    async with connected(way, script, certificate) as client:
        with trio.fail_after(60):
            assert (await client.call_tool("t", on_progress=slow)).text == "done"
    assert heard[-1] == 1_199
    assert heard == sorted(heard)


@WAYS
async def test_no_more_than_the_bound_waits_and_the_oldest_goes(way: str, certificate: tuple[str, str]) -> None:
    heard: list[float] = []

    async def script(call: Message, say: Say) -> None:
        # One piece is read in one step.
        await say(*(note(call, number) for number in range(50)), answer_of(call["id"], "done"))

    async with connected(way, script, certificate) as client:
        await client.call_tool("t", on_progress=lambda *what: heard.append(what[0]))
    assert heard == list(range(40, 50))


@WAYS
async def test_an_answer_that_is_here_counts_when_a_callback_takes_all_the_time(
    way: str, certificate: tuple[str, str], mock_clock: MockClock
) -> None:
    ended: list[str] = []

    async def script(call: Message, say: Say) -> None:
        good = call["params"]["name"] == "good"
        error = {"jsonrpc": "2.0", "id": call["id"], "error": {"code": -32602, "message": "no such tool"}}
        await say(note(call, 1), note(call, 2), answer_of(call["id"], "here") if good else error)

    async def endless(progress: float, total: float | None, message: str | None) -> None:
        # In one piece with this came the answer.
        try:
            mock_clock.jump(100)
            await trio.sleep_forever()
        finally:
            ended.append(f"{progress}")

    async with connected(way, script, certificate) as client:
        assert (await client.call_tool("good", timeout=50, on_progress=endless)).text == "here"
        with pytest.raises(InvalidParams, match="no such tool"):
            await client.call_tool("bad", timeout=50, on_progress=endless)
    assert ended == ["1", "1"]


@WAYS
async def test_an_error_of_a_callback_comes_out_as_it_is(way: str, certificate: tuple[str, str]) -> None:
    group = ExceptionGroup("mine", [KeyError("only one")])

    async def script(call: Message, say: Say) -> None:
        await say(note(call, 1))
        if call["params"]["name"] == "good":
            await say(answer_of(call["id"], "here"))

    def complain(progress: float, total: float | None, message: str | None) -> None:
        raise group

    async with connected(way, script, certificate) as client:
        with trio.fail_after(10), pytest.raises(ExceptionGroup) as caught:
            await client.call_tool("bad", on_progress=complain)
        assert caught.value is group
        assert (await client.call_tool("good", on_progress=lambda *what: None)).text == "here"


@WAYS
async def test_what_is_no_progress_and_no_log_line_reaches_no_callback(way: str, certificate: tuple[str, str]) -> None:
    heard: list[Any] = []

    async def script(call: Message, say: Say) -> None:
        def progress(value: Any, **more: Any) -> Message:
            made = note(call, 1)
            made["params"] = {"progressToken": made["params"]["progressToken"], "progress": value, **more}
            return made

        def line(level: Any, **more: Any) -> Message:
            return {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": level, **more}}

        values: list[Any] = [None, True, "1", [1], {}]
        for value in values:
            await say(progress(value))
        levels: list[Any] = [None, True, "debug", "loud", ["info"]]
        for level in levels:
            await say(line(level, data="x"))
        await say(progress(1, total="2", message=3), progress(1.5, total=True, message=["x"]), progress(2, total=3))
        await say(line("info", data=1, logger=2), line("error", logger="a"))
        await say(answer_of(call["id"], "done"))

    async with connected(way, script, certificate) as client:
        await client.call_tool(
            "t", on_progress=lambda *what: heard.append(what), on_log=lambda *what: heard.append(what)
        )
    assert heard == [(1, None, None), (1.5, None, None), (2, 3, None), ("info", 1, None), ("error", None, "a")]
