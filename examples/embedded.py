"""A program that does something of its own, and serves MCP as well: a boiler that is heated, ten steps a second.

python examples/embedded.py [HOST:PORT]      prints its URL, which the commands below take
trio-mcp call URL state
trio-mcp call URL set_target celsius=60
trio-mcp call URL wait_for celsius=60

The boiler runs whether anybody is connected or not. The tools read and change what the program has: all of it runs on
one thread, so there is nothing to lock.
"""

import signal
import sys
from dataclasses import dataclass, field

import trio

from trio_mcp import Context, Server, ToolError, serve_http

HOTTEST = 90.0


@dataclass
class Boiler:
    """The program. It knows nothing of MCP."""

    temperature: float = 20.0
    target: float = 40.0
    heating: bool = False
    ticked: trio.Event = field(default_factory=trio.Event)

    async def run(self) -> None:
        while True:
            self.heating = self.temperature < self.target
            self.temperature += 1.0 if self.heating else -0.5
            # Wakes all who wait for this step; the next one has an event of its own.
            self.ticked.set()
            self.ticked = trio.Event()
            await trio.sleep(0.1)


@dataclass
class State:
    temperature: float
    target: float
    heating: bool


def control(boiler: Boiler) -> Server[None]:
    """A server whose tools hold on to this boiler."""
    server = Server("boiler", version="1.0", instructions="Temperatures are in degrees Celsius.")

    # Tools that touch the state are `async def`: a plain `def` would run in a thread beside the boiler.
    @server.tool(annotations={"readOnlyHint": True})
    async def state() -> State:
        """What the boiler does now."""
        return State(boiler.temperature, boiler.target, boiler.heating)

    @server.tool
    async def set_target(celsius: float) -> str:
        """Choose the temperature that the boiler holds."""
        if not 10 <= celsius <= HOTTEST:
            raise ToolError(f"The target must be from 10 to {HOTTEST:g}, not {celsius:g}.")
        boiler.target = celsius
        return f"The target is {celsius:g} now."

    @server.tool
    async def wait_for(celsius: float, ctx: Context) -> float:
        """Wait until the water is at least this hot. The caller may leave at any time."""
        for step in range(sys.maxsize):
            if boiler.temperature >= celsius:
                break
            await ctx.report_progress(step, message=f"{boiler.temperature:.1f} °C")
            await boiler.ticked.wait()
        return boiler.temperature

    return server


async def main(bind: str) -> None:
    boiler = Boiler()
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(boiler.run)
            http = await nursery.start(serve_http, control(boiler), bind)
            print(http.urls[0], flush=True)
            # How it ends is up to the program, too. Calls under way get a moment to finish.
            await anext(signals)
            nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8000")
