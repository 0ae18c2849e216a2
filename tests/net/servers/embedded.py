"""A trio program of its own that serves on stdio for a while and then goes on without it."""

import sys

import trio
from tools import server

from trio_mcp import serve_stdio


async def main() -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(serve_stdio, server)
        print("serving", file=sys.stderr, flush=True)
        await trio.sleep(float(sys.argv[1]))
        nursery.cancel_scope.cancel()
    # The standard output is the program's own again.
    print("after")


trio.run(main)
