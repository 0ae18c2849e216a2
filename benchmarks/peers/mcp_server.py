"""The server on the official Python SDK.

python mcp_server.py high|low
"""

from __future__ import annotations

import sys
from typing import Any

import anyio
import mcp_types as t
from mcp.server import MCPServer, Server
from mcp.server.stdio import stdio_server
from slow_log import mark


async def nap(seconds: float, tag: str) -> str:
    """The `slow` tool."""
    mark("start", tag)
    try:
        await anyio.sleep(seconds)
    except anyio.get_cancelled_exc_class():
        mark("cancelled", tag)
        raise
    mark("done", tag)
    return tag


def high() -> Any:
    """With decorators."""
    server = MCPServer("peer", log_level="ERROR")

    @server.tool()
    async def echo(text: str) -> str:
        """Echo the text."""
        return text

    @server.tool()
    async def add(a: int, b: int) -> int:
        """Add two integers."""
        return a + b

    @server.tool()
    async def slow(seconds: float, tag: str) -> str:
        """Sleep."""
        return await nap(seconds, tag)

    return server.run_stdio_async


def low() -> Any:
    """With the handlers written by hand."""

    def schema(**properties: Any) -> dict[str, Any]:
        return {"type": "object", "properties": properties, "required": list(properties)}

    text, integer, number = {"type": "string"}, {"type": "integer"}, {"type": "number"}
    tools = [
        t.Tool(name="echo", description="Echo the text.", input_schema=schema(text=text)),
        t.Tool(name="add", description="Add two integers.", input_schema=schema(a=integer, b=integer)),
        t.Tool(name="slow", description="Sleep.", input_schema=schema(seconds=number, tag=text)),
    ]
    schemas = {tool.name: tool.input_schema for tool in tools}

    async def on_list(ctx: Any, params: Any) -> Any:
        return t.ListToolsResult(tools=tools)

    async def on_call(ctx: Any, params: Any) -> Any:
        arguments = params.arguments or {}
        if params.name == "echo":
            out = arguments["text"]
        elif params.name == "add":
            out = str(arguments["a"] + arguments["b"])
        else:
            out = await nap(arguments["seconds"], arguments["tag"])
        return t.CallToolResult(content=[t.TextContent(type="text", text=out)])

    server: Any = Server("peer", on_list_tools=on_list, on_call_tool=on_call, get_tool_input_schema=schemas.get)

    async def run() -> None:
        async with stdio_server() as (receive, send):
            await server.run(receive, send, server.create_initialization_options())

    return run


if __name__ == "__main__":
    anyio.run(high() if sys.argv[1] == "high" else low())
