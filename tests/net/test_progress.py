"""Writing to a pipe whose reader is slow, and whose reader has stopped, in virtual time."""

from __future__ import annotations

import os

import pytest
import trio
from trio.testing import MockClock

from trio_mcp.transports.progress import send_all


async def test_who_takes_less_than_wakes_the_writer_is_slow_and_who_takes_nothing_is_gone(
    autojump_clock: MockClock,
) -> None:
    receive, send = os.pipe()
    wrote: list[int] = []
    async with trio.lowlevel.FdStream(receive), trio.lowlevel.FdStream(send) as writer, trio.open_nursery() as nursery:

        async def read() -> None:
            # The kernel wakes the writer when a page is free, which takes four of these.
            for _ in range(18):
                await trio.sleep(3)
                os.read(receive, 1_024)

        nursery.start_soon(read)
        with pytest.raises(trio.BrokenResourceError, match="nothing for 5 s"):
            await send_all(writer, bytes(1_000_000), 5, fd=send, wrote=wrote.append)
    # The last two have woken nobody, and count.
    assert 54 + 5 <= trio.current_time() <= 54 + 10
    assert sum(wrote) >= 65_536 + 16_384
