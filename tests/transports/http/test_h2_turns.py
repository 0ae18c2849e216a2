"""What one HTTP/2 connection takes of the scheduler that it shares with the others."""

from __future__ import annotations

import json

import trio
from trio.testing import MockClock

from ..turns import counting
from .helpers import call
from .test_h2_own import site


async def test_a_flood_of_requests_leaves_the_others_their_turn(autojump_clock: MockClock) -> None:
    count = 100
    async with site(waiting=count) as s:
        client = await s.connect()
        streams = [client.h2.get_next_available_stream_id() + 2 * number for number in range(count)]
        for number, stream in enumerate(streams):
            message = call(number, "echo", text=f"{number}")
            client.h2.send_headers(stream, client.head(message))
            client.h2.send_data(stream, json.dumps(message).encode(), end_stream=True)
        with counting() as turns:
            # One piece, which is read at once.
            await client.flush()
            texts = [await client.text(stream) for stream in streams]
        assert texts == [f"{number}" for number in range(count)]
        # Those that were just read, and those that began before: not all that came in one read.
        assert turns.most < count * 0.6, turns.most


async def test_a_client_that_does_not_read_costs_no_steps(autojump_clock: MockClock) -> None:
    async with site(write_stall=5) as s:
        client = await s.connect(lockstep=True, initial=2**24)
        # Each is more than the stream holds, and nobody reads.
        for number in range(5):
            await client.ask(number, "big", size=60_000)
        await trio.sleep(1)
        with counting() as turns:
            await trio.sleep(3)
        # A few for those that look whether it takes something; each millisecond would be thousands.
        assert turns.all < 200, turns.all
        await client.over.wait()
