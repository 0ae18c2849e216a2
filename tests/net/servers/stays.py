"""A server whose calls outlast its end. Each notes in the file `LOG` that it began."""

import os

import trio

from trio_mcp import Context, Limits, Server

server = Server("stays", version="1", limits=Limits(drain_timeout=0.3, silence=60.0))


def note(text: str) -> None:
    with open(os.environ["LOG"], "a") as file:
        file.write(f"{text}\n")


@server.tool
async def plain() -> str:
    note("began")
    await trio.sleep_forever()
    return "never"


@server.tool
async def streaming(ctx: Context[None]) -> str:
    await ctx.report_progress(1, 2)
    note("began")
    await trio.sleep_forever()
    return "never"


@server.tool
async def clings(ctx: Context[None]) -> str:
    """Also to what it has to say."""
    try:
        await plain()
    finally:
        with trio.CancelScope(shield=True):
            await ctx.report_progress(2, 2)
            await trio.sleep(0.5)
    return "never"


if __name__ == "__main__":
    server.run()
