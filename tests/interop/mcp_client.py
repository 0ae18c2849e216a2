"""The client of `mcp` goes through everything that a server offers and prints what it got, as one JSON object.

python mcp_client.py MARKS command ...        MARKS: the file where the server marks the start and end of `slow`
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, MCPError, StdioServerParameters
from pydantic import BaseModel


def wire(model: BaseModel) -> dict[str, Any]:
    """A result as it was sent, as far as the client keeps it."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


async def wait_for_mark(marks: Path, event: str) -> bool:
    """Whether the server marks an event within 10 seconds."""
    for _ in range(1000):
        if event in marked(marks):
            return True
        await anyio.sleep(0.01)
    return False


def marked(marks: Path) -> str:
    """All marks so far."""
    return marks.read_text() if marks.exists() else ""


async def cancel_slow(client: Client, marks: Path) -> dict[str, Any]:
    """Call `slow`, and leave once it has started."""
    heard: list[Any] = []
    with anyio.CancelScope() as scope:

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            heard.append([progress, total, message])
            scope.cancel()

        await client.call_tool("slow", {}, progress_callback=on_progress)
    return {
        "progress": heard,
        "cancelled": scope.cancelled_caught,
        "server heard": await wait_for_mark(marks, "cancelled"),
    }


async def rejected(call: Any) -> dict[str, Any]:
    """The error that a call ends in."""
    try:
        await call
    except MCPError as exc:
        return {"code": exc.code, "message": str(exc)}
    return {}


async def main(marks: Path, command: list[str]) -> dict[str, Any]:
    """The whole conversation, by what was asked."""
    out: dict[str, Any] = {}
    parameters = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
    async with Client(parameters) as client:
        out["revision"] = client.protocol_version
        out["server"] = wire(client.server_info) if client.server_info else None
        out["capabilities"] = wire(client.server_capabilities)
        out["instructions"] = client.instructions
        out["tools"] = wire(await client.list_tools())["tools"]
        out["resources"] = wire(await client.list_resources())["resources"]
        out["templates"] = wire(await client.list_resource_templates())["resourceTemplates"]
        out["prompts"] = wire(await client.list_prompts())["prompts"]
        out["echo"] = wire(await client.call_tool("echo", {"text": "naïve ☃\n"}))
        out["add"] = wire(await client.call_tool("add", {"a": 2, "b": 40}))
        out["picture"] = wire(await client.call_tool("picture", {}))
        out["fail"] = wire(await client.call_tool("fail", {}))
        out["wrong arguments"] = wire(await client.call_tool("add", {"a": "two"}))
        out["unknown tool"] = await rejected(client.call_tool("ad", {}))
        heard: list[Any] = []

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            heard.append([progress, total, message])
            await client.call_tool("go_on", {})

        out["progress"] = wire(await client.call_tool("progress", {}, progress_callback=on_progress))
        out["progress heard"] = heard
        out["resource"] = wire(await client.read_resource("note://today"))["contents"]
        out["templated resource"] = wire(await client.read_resource("note://day/monday"))["contents"]
        out["unknown resource"] = await rejected(client.read_resource("none://at/all"))
        out["prompt"] = wire(await client.get_prompt("review", {"code": "x = 1"}))
        out["cancelled call"] = await cancel_slow(client, marks)
        out["echo after it"] = wire(await client.call_tool("echo", {"text": "still here"}))
    return out


if __name__ == "__main__":
    print(json.dumps(anyio.run(main, Path(sys.argv[1]), sys.argv[2:])))
