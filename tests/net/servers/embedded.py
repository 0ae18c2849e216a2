"""A trio program of its own that serves on stdio until SIGUSR1 and then goes on without it."""

import signal

import trio
from tools import server

from trio_mcp import serve_stdio


async def main() -> None:
    with trio.open_signal_receiver(signal.SIGUSR1) as signals:
        async with trio.open_nursery() as nursery:
            await nursery.start(serve_stdio, server)
            await anext(aiter(signals))
            nursery.cancel_scope.cancel()
    # The standard output is the program's own again.
    print("after")


trio.run(main)
