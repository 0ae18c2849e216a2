"""The smallest useful server: a tool, a resource, a prompt.

trio-mcp call examples/quickstart.py add a=1 b=2
trio-mcp call examples/quickstart.py countdown seconds=3
"""

import trio

from trio_mcp import Context, Server

server = Server("quickstart", version="1.0", instructions="Adds numbers and counts down.")


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
async def countdown(seconds: int, ctx: Context) -> str:
    """Count down, one step a second.

    Args:
        seconds: Where to start.
    """
    for step in range(seconds):
        await ctx.report_progress(step, total=seconds, message=f"{seconds - step} …")
        await trio.sleep(1)
    return "Liftoff!"


@server.resource("greeting://{name}")
def greeting(name: str) -> str:
    """A greeting for anyone."""
    return f"Hello, {name}!"


@server.prompt
def review(code: str, language: str = "Python") -> str:
    """Ask for a code review."""
    return f"Please review this {language} code:\n\n{code}"


if __name__ == "__main__":
    server.run()
