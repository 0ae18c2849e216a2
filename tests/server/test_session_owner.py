"""Whose a session is, and what is left of one that asks too much."""

from __future__ import annotations

import pytest
from trio.testing import wait_all_tasks_blocked

from trio_mcp import Limits, Server
from trio_mcp.protocol.legacy import DIALECTS, Hello
from trio_mcp.server.serve.engine import open_engine

HELLO = Hello("2025-11-25", {}, None)


async def test_a_session_is_found_by_whoever_has_opened_it() -> None:
    async with open_engine(Server("s", version="1")) as engine:
        session = await engine.sessions.start(DIALECTS["2025-11-25"], HELLO, "alice")
        assert engine.sessions.find(session.id, "alice") is session
        for other in ("bob", "", "alice "):
            assert engine.sessions.find(session.id, other) is None
        session.close("now")
        assert engine.sessions.find(session.id, "alice") is None
        await wait_all_tasks_blocked()
        assert engine.sessions.statistics().open == 0


async def test_questions_that_are_too_large_take_no_room() -> None:
    server: Server[None] = Server("s", version="1", limits=Limits(session_requests=2, message_bytes=10_000))
    async with open_engine(server) as engine:
        session = await engine.sessions.start(DIALECTS["2025-11-25"], HELLO, "")
        for _ in range(5):
            with pytest.raises(ValueError, match="too large"):
                await session.request("ping", {"x": "y" * 20_000}, 1)
