"""The client of `mcp` goes through everything that a server offers and prints what it got, as one JSON object.

    python mcp_client.py MARKS command ...                  over stdio
    python mcp_client.py MARKS URL                          over HTTP/1.1
    python mcp_client.py MARKS URL CERTFILE LOG             over HTTP/2 with TLS, written down in LOG

MARKS is the file where the server marks the start and end of `slow`. Over HTTP/2 the client does not wait there for the
end: httpx2 does not reset a stream that it leaves, so the server hears of it when the connection ends.
"""

from __future__ import annotations

import json
import os
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
from http_log import HttpLog, RecordingTransport
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
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


async def cancel_slow(client: Client, marks: Path, hears: bool) -> dict[str, Any]:
    """Call `slow`, and leave once it has started. `hears` says whether to wait for the server to hear of it."""
    heard: list[Any] = []
    with anyio.CancelScope() as scope:

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            heard.append([progress, total, message])
            scope.cancel()

        await client.call_tool("slow", {}, progress_callback=on_progress)
    return {
        "progress": heard,
        "cancelled": scope.cancelled_caught,
        "server heard": await wait_for_mark(marks, "cancelled") if hears else None,
    }


async def rejected(call: Any) -> dict[str, Any]:
    """The error that a call ends in."""
    try:
        await call
    except MCPError as exc:
        return {"code": exc.code, "message": str(exc)}
    return {}


@asynccontextmanager
async def connect(target: list[str]) -> AsyncIterator[Client]:
    """A client of what the command line names."""
    if not target[0].startswith("http"):
        async with Client(StdioServerParameters(command=target[0], args=target[1:], env=dict(os.environ))) as client:
            yield client
    elif len(target) == 1:
        async with Client(target[0]) as client:
            yield client
    else:
        url, certfile, log = target
        verify = ssl.create_default_context(cafile=certfile)
        transport = RecordingTransport(httpx2.AsyncHTTPTransport(http2=True, verify=verify), HttpLog(log), "HTTP/2")
        async with (
            httpx2.AsyncClient(transport=transport, timeout=30) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            yield client


async def main(marks: Path, target: list[str]) -> dict[str, Any]:
    """The whole conversation, by what was asked."""
    out: dict[str, Any] = {}
    async with connect(target) as client:
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
        out["cancelled call"] = await cancel_slow(client, marks, len(target) < 3 or not target[0].startswith("http"))
        out["echo after it"] = wire(await client.call_tool("echo", {"text": "still here"}))
    return out


if __name__ == "__main__":
    print(json.dumps(anyio.run(main, Path(sys.argv[1]), sys.argv[2:])))
