"""What one connection of lines takes of the scheduler that it shares with the others."""

from __future__ import annotations

import json
from typing import Any

import trio
from trio.testing import MockClock

from trio_mcp import Server
from trio_mcp.testing import open_raw, request

from .turns import counting


async def test_a_flood_of_requests_leaves_the_others_their_turn(autojump_clock: MockClock) -> None:
    server: Server[Any] = Server("s", version="1")

    @server.tool
    async def echo(text: str) -> str:
        return text

    one = json.dumps(request(0, "tools/call", name="echo", arguments={"text": "x"})).encode()
    count = 60_000 // len(one)
    flood = [request(number, "tools/call", name="echo", arguments={"text": "x"}) for number in range(count)]
    async with open_raw(server) as peer:
        with counting() as turns:
            # One piece, which is read at once.
            await peer.send_bytes(b"".join(json.dumps(message).encode() + b"\n" for message in flood))
            answers = [await peer.receive() for _ in flood]
    assert {answer["id"] for answer in answers} == set(range(count))
    assert all("result" in answer for answer in answers)
    # Those that were just read, and those that have or get a place: not all that came in one read.
    assert turns.most < count / 3, (turns.most, count)


async def test_what_was_read_before_the_end_is_answered(autojump_clock: MockClock) -> None:
    server: Server[Any] = Server("s", version="1")
    begun = trio.Event()

    @server.tool
    async def echo(text: str) -> str:
        begun.set()
        return text

    async with open_raw(server) as peer:
        flood = [request(number, "tools/call", name="echo", arguments={"text": "x"}) for number in range(150)]
        await peer.send_bytes(b"".join(json.dumps(message).encode() + b"\n" for message in flood))
        await begun.wait()
        # The reader has the rest of that piece before it.
        peer.serving.cancel()
        answers = [await peer.receive() for _ in flood]
        assert {answer["id"] for answer in answers} == set(range(150))
