"""A server on `mcp` that ends what is listened to, at SIGTERM.

`MCPServer` does not: it keeps its `ListenHandler` to itself. This is the server below it, which is given one.

python mcp_listen_server.py                 on stdio; ends with its input
python mcp_listen_server.py --http          on HTTP/1.1; prints the URL
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from typing import Any

import anyio
import uvicorn
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.subscriptions import ResourceUpdated
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)

bus = InMemorySubscriptionBus()
listening = ListenHandler(bus)


async def list_tools(context: ServerRequestContext[Any], params: PaginatedRequestParams | None) -> ListToolsResult:
    """The names."""
    return ListToolsResult(tools=[Tool(name=name, input_schema={"type": "object"}) for name in ("touch", "process_id")])


async def call_tool(context: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
    """Say that a resource has changed, or what process this is."""
    text = str(os.getpid())
    if params.name == "touch":
        assert params.arguments is not None
        await bus.publish(ResourceUpdated(uri=params.arguments["uri"]))
        text = "touched"
    return CallToolResult(content=[TextContent(type="text", text=text)])


server = Server(
    "theirs", version="1.0", on_list_tools=list_tools, on_call_tool=call_tool, on_subscriptions_listen=listening
)


class HttpServer(uvicorn.Server):
    """Waits at its end until all answers are complete, so those that never are must be completed."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        listening.close()
        await super().shutdown(sockets)


async def serve_http() -> None:
    """Serve on a free port until a signal comes."""
    sock = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{sock.getsockname()[1]}/mcp", flush=True)
    await HttpServer(uvicorn.Config(server.streamable_http_app(), log_level="error")).serve(sockets=[sock])


async def end_at_signal() -> None:
    """Wait for SIGTERM."""
    with anyio.open_signal_receiver(signal.SIGTERM) as signals:
        async for _ in signals:
            listening.close()


async def serve_stdio() -> None:
    """Serve until the input ends."""
    async with anyio.create_task_group() as tasks, stdio_server() as (read, write):
        tasks.start_soon(end_at_signal)
        await server.run(read, write, server.create_initialization_options())
        tasks.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(serve_http if sys.argv[1:2] == ["--http"] else serve_stdio)
