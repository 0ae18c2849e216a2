"""Hosts of ASGI that do what others do not."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from trio_mcp import Context, Server, http_app
from trio_mcp.server.serve.engine import open_engine
from trio_mcp.transports.http.asgi import HttpApp

from .helpers import IDLE, call, fields_of, make


async def test_a_host_whose_send_fails_when_the_client_is_gone(autojump_clock: MockClock) -> None:
    server, _ = make()
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
        # ASGI 2.4: "servers should raise an OSError" then.
        await trio.lowlevel.checkpoint()
        if trio.current_time() > 2:
            raise OSError("the client is gone")

    headers = [(name.lower().encode(), value.encode()) for name, value in fields_of(message).items()]
    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": headers, "server": ("127.0.0.1", 80)}
    async with open_engine(server) as engine:
        with trio.fail_after(100):
            await HttpApp(engine, "/mcp")(scope, receive, send)
        assert ended == [pytest.approx(3, abs=1)]
        assert engine.executor.statistics() == IDLE


def test_a_host_on_asyncio_is_told_what_to_do() -> None:
    app = http_app(Server("s", version="1"))

    async def receive() -> Any:
        return {"type": "lifespan.startup"}

    async def send(_: Any) -> None:
        raise AssertionError("nothing is said")

    async def main() -> None:
        await app({"type": "lifespan", "asgi": {"version": "3.0"}}, receive, send)

    with pytest.raises(RuntimeError, match="hypercorn -k trio"):
        asyncio.run(main())
