"""How the examples that serve HTTP end: by a signal, with status 0, and nobody listens any more."""

from __future__ import annotations

import os
import signal

import pytest
import trio

from trio_mcp import ConnectionClosed, open_client

from .helpers import running


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("name", ["embedded", "mounted", "own_host"])
async def test_a_signal_ends_the_program(name: str, number: signal.Signals) -> None:
    async with running(name) as (process, url):
        with trio.fail_after(30):
            os.kill(process.pid, number)
            assert await process.wait() == 0
            with pytest.raises(ConnectionClosed):
                async with open_client(url):
                    pass
