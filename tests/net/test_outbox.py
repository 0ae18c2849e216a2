"""Writing at once to a pipe, and what does not fit into it."""

from __future__ import annotations

import os

import trio

from trio_mcp import Limits
from trio_mcp.transports.outbox import Outbox


async def test_what_does_not_fit_into_a_pipe_follows_and_nothing_comes_before_it() -> None:
    receive, send = os.pipe()
    async with trio.lowlevel.FdStream(receive) as reader, trio.lowlevel.FdStream(send) as writer:
        outbox = Outbox(writer, Limits(), fd=send)
        outbox.post(b"a" * 200_000, now=True)
        assert outbox.pending
        # There is room in the pipe again, and the rest of the first has not been written.
        got = await reader.receive_some(60_000)
        outbox.post(b"b", now=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(outbox.drain)
            while len(got) < 200_001:
                got += await reader.receive_some(60_000)
    assert got == b"a" * 200_000 + b"b"
