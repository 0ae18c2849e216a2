"""How HTTP/1.1 connections end on real sockets: no answer is lost or cut, and nothing is written to a number that is closed."""

from __future__ import annotations

import os
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
import trio

from trio_mcp import Context, Limits, Server, serve_http

from .servers.http_peers import call, post, serving


def make(**limits: Any) -> Server[Any]:
    server = Server("endings", version="1", limits=Limits(**limits))

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def big(size: int) -> str:
        return "x" * size

    return server


async def read_all(stream: Any, pace: float = 0.0, size: int = 65_536) -> bytes:
    """All that comes, and how slowly; a reset is an error."""
    out = b""
    while data := bytes(await stream.receive_some(size)):
        out += data
        if pace:
            await trio.sleep(pace)
    return out


@pytest.mark.parametrize("tls", [False, True])
async def test_a_refusal_of_an_upload_reaches_a_client_that_goes_on_sending(
    tls: bool, certificate: tuple[str, str]
) -> None:
    options = {"certfile": certificate[0], "keyfile": certificate[1]} if tls else {}
    context = ssl.create_default_context(cafile=certificate[0])
    data = post(call(1, "echo", text="x" * 4_000_000))
    async with serving(make(), **options) as site:
        for _ in range(5):
            stream: Any = await site.connect()
            if tls:
                stream = trio.SSLStream(stream, context, server_hostname="127.0.0.1", https_compatible=True)
                await stream.do_handshake()
            with trio.fail_after(30):
                # Much more than buffers hold goes out before anything is read.
                await stream.send_all(data)
                answer = await read_all(stream)
            assert answer.startswith(b"HTTP/1.1 413 "), answer
            assert b"connection: close" in answer
            await trio.aclose_forcefully(stream)


async def test_a_client_that_never_closes_is_left_after_a_moment(certificate: tuple[str, str]) -> None:
    context = ssl.create_default_context(cafile=certificate[0])
    server = make(head_timeout=60, write_stall=60)
    async with serving(server, certfile=certificate[0], keyfile=certificate[1]) as site:
        stream = trio.SSLStream(await site.connect(), context, server_hostname="127.0.0.1", https_compatible=True)
        await stream.do_handshake()
        begin = trio.current_time()
        await stream.send_all(b"garbage\r\n\r\n")
        answer = await read_all(stream)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert 0.9 < trio.current_time() - begin < 20
        await trio.aclose_forcefully(stream)


@pytest.mark.parametrize("behind", [b"garbage\r\n\r\n", post(call(2, "echo", text="x" * 2_100_000))])
async def test_a_refusal_cuts_no_answer_that_is_on_its_way(behind: bytes, tmp_path: Path) -> None:
    async with serving(make(), f"unix:{tmp_path / 'socket'}") as site:
        stream = await site.connect()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.send_all, post(call(1, "big", size=800_000)) + behind)
            answers = await read_all(stream, 0.01, 30_000)
        head, _, rest = answers.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert rest.count(b"x" * 800_000) == 1
        assert rest.count(b"HTTP/1.1 4") == 1
        await stream.aclose()


@pytest.mark.parametrize("end", ["connection: close", "drain"])
async def test_what_comes_behind_the_last_request_cuts_no_answer_that_is_on_its_way(end: str) -> None:
    async with serving(make(drain_timeout=20)) as site:
        stream = await site.connect()
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
        extra = b"\r\nConnection: close\r\n\r\n" if end != "drain" else b"\r\n\r\n"
        await stream.send_all(post(call(1, "big", size=4_000_000)).replace(b"\r\n\r\n", extra, 1))
        size = 0
        while data := await stream.receive_some(65_536):
            before, size = size, size + len(data)
            # The handler has long ended, and what is left waits for this client.
            if before <= 3_300_000 < size:
                if end == "drain":
                    site.serving.cancel()
                    await trio.sleep(0.05)
                await stream.send_all(post(call(2, "echo", text="x")))
            await trio.sleep(0.005)
        assert size > 4_000_000
        await stream.aclose()


async def test_a_connection_that_is_closed_at_the_deadline_writes_into_no_file(tmp_path: Path) -> None:
    """A clean-up that is shielded opens a file: it gets the number of the connection, which is closed by then."""
    server = make(drain_timeout=0.1)
    numbers: list[int] = []
    files: list[Path] = []
    started, closed = trio.Event(), trio.Event()

    @server.tool
    async def work(ctx: Context) -> str:
        try:
            await ctx.report_progress(1)
            started.set()
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await closed.wait()
                taken = []
                for number in range(20):
                    files.append(tmp_path / str(number))
                    taken.append(files[-1].open("wb", buffering=0))
                    numbers.append(taken[-1].fileno())
                    taken[-1].write(b"first row\n")
                await ctx.report_progress(2, message="rolled back")
                for file in taken:
                    file.write(b"second row\n")
                    file.close()
        return "never"

    async with trio.open_nursery() as nursery:
        http = await nursery.start(serve_http, server, "127.0.0.1:0")
        host, port = http.urls[0].split("/")[2].split(":")
        stream = await trio.open_tcp_stream(host, int(port))
        before = {int(name) for name in os.listdir("/proc/self/fd")}
        await stream.send_all(post(call(1, "work", progress=True)))
        await started.wait()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            with trio.fail_after(30):
                while await stream.receive_some():
                    pass
            closed.set()
    assert before & set(numbers), "no number was used again, so nothing was seen"
    assert {file.read_bytes() for file in files} == {b"first row\nsecond row\n"}
    await stream.aclose()
