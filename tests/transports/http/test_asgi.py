"""The endpoint behind a host of ASGI that the test plays, in virtual time."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from trio_mcp import Context
from trio_mcp.server.serve.engine import open_engine
from trio_mcp.transports.http.asgi import HttpApp

from .helpers import IDLE, call, fields_of, make


async def test_a_host_that_shields_a_send_that_nobody_takes_does_not_keep_the_place(autojump_clock: MockClock) -> None:
    server, _ = make(write_stall=5)
    ended: list[float] = []

    @server.tool
    async def talk(ctx: Context) -> str:
        try:
            while True:
                await ctx.report_progress(trio.current_time())
                await trio.sleep(1)
        finally:
            ended.append(trio.current_time())

    message = call(1, "talk", {"progressToken": 1})
    body = [{"type": "http.request", "body": json.dumps(message).encode()}]

    async def receive() -> Any:
        return body.pop() if body else await trio.sleep_forever()

    async def send(_: Any) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(60)

    headers = [(name.lower().encode(), value.encode()) for name, value in fields_of(message).items()]
    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": headers, "server": ("127.0.0.1", 80)}
    async with open_engine(server) as engine, trio.open_nursery() as nursery:
        nursery.start_soon(HttpApp(engine, "/mcp"), scope, receive, send)
        await trio.sleep(20)
        assert ended == [pytest.approx(7.5, abs=2.6)]
        assert engine.executor.statistics() == IDLE
