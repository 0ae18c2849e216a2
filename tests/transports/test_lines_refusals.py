"""A client that is refused something while a large answer is on its way to it."""

from __future__ import annotations

import json
from typing import Any

from trio.testing import MockClock, wait_all_tasks_blocked

from trio_mcp import Limits, Server
from trio_mcp.testing import open_raw, request


async def test_one_mistake_beside_a_large_answer_does_not_end_the_connection(autojump_clock: MockClock) -> None:
    server: Server[Any] = Server("big", version="1", limits=Limits(write_buffer=2_000))

    @server.tool
    async def big(size: int) -> str:
        return "x" * size

    async with open_raw(server, pipe=1_000) as peer:
        await peer.send(request(1, "tools/call", name="big", arguments={"size": 5_000}))
        await wait_all_tasks_blocked()
        await peer.send_bytes(b"{]\n")
        await wait_all_tasks_blocked()
        answer = await peer.receive()
        assert json.dumps(answer).count("x") >= 5_000
        assert (await peer.receive())["error"]["code"] == -32700
        await peer.send(request(2, "server/discover"))
        assert (await peer.receive())["id"] == 2
