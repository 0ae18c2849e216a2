"""What sessions cost, and that nothing of them is left."""

from __future__ import annotations

import gc
import tracemalloc

from trio.testing import MockClock, wait_all_tasks_blocked

from tests.scaled import FACTOR

from .session_helpers import Client, SessionSite, hello, open_sessions
from .session_tools import Desk

COUNT, ROUNDS = (10_000, 2_000) if FACTOR > 1 else (500, 500)
SESSION = 8_500
STREAM = 16_000
"""Bytes of one; what the tests hold of it counts as well."""


def held() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


async def begin(site: SessionSite) -> str:
    return (await site.stranger().ask(hello(0, "2025-11-25", {"roots": {}}))).fields_sent["mcp-session-id"]


async def test_many_sessions_are_small_and_gone_when_nobody_uses_them(mock_clock: MockClock) -> None:
    desk = Desk(sessions=COUNT, session_idle=100, silence=1_000_000)
    tracemalloc.start()
    try:
        async with open_sessions(desk.server) as site:
            await begin(site)
            before = held()
            ids = [await begin(site) for _ in range(COUNT - 1)]
            size = (held() - before) / COUNT
            streams = [Client(site, id).send(verb="GET", accept="text/event-stream") for id in ids]
            await wait_all_tasks_blocked()
            both = (held() - before) / COUNT
            print(f"{COUNT} sessions: {size:.0f} bytes each, {both:.0f} with a stream")
            assert size < SESSION
            assert both < STREAM
            for stream in streams:
                stream.vanish()
            streams.clear()
            del stream
            await wait_all_tasks_blocked()
            mock_clock.jump(101)
            await wait_all_tasks_blocked()
            assert site.engine.sessions.statistics().open == 0
            ids.clear()
            left = (held() - before) / COUNT
            print(f"{left:.0f} bytes each are left")
            # The tables stay as large as they were.
            assert left < 1_000
    finally:
        tracemalloc.stop()


async def test_sessions_that_are_ended_leave_nothing() -> None:
    desk = Desk()
    tracemalloc.start()
    try:
        async with open_sessions(desk.server) as site:

            async def rounds(count: int) -> None:
                for _ in range(count):
                    client = Client(site, await begin(site))
                    assert (await client.delete()).status == 204
                await wait_all_tasks_blocked()

            await rounds(50)
            before = held()
            await rounds(ROUNDS)
            left = held() - before
            print(f"{left} bytes are left of {ROUNDS} sessions")
            assert left < ROUNDS * 200
            statistics = site.engine.sessions.statistics()
            assert (statistics.open, statistics.idle, statistics.event_bytes) == (0, 0, 0)
    finally:
        tracemalloc.stop()
