"""The server on the official Python SDK.

python mcp_server.py high|low [http default|json plain|fast PORT]
"""

from __future__ import annotations

import sys
from typing import Any

import anyio
import mcp_types as t
from mcp.server import MCPServer, Server
from mcp.server.mcpserver import Context
from mcp.server.stdio import stdio_server
from slow_log import mark
from tools import EXTRA_SCHEMA, extra, extra_tools


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
    """With decorators. Text only, as the others answer: by default this library adds the same text once more as data."""
    server = MCPServer("peer", log_level="ERROR")

    @server.tool(structured_output=False)
    async def echo(text: str) -> str:
        """Echo the text."""
        return text

    @server.tool(structured_output=False)
    async def add(a: int, b: int) -> int:
        """Add two integers."""
        return a + b

    @server.tool(structured_output=False)
    async def slow(seconds: float, tag: str, ctx: Context, progress: bool = False) -> str:
        """Sleep."""
        if progress:
            await ctx.report_progress(0, 1)
        return await nap(seconds, tag)

    for name, description in extra_tools():
        server.add_tool(extra, name=name, description=description, structured_output=False)
    return server


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
    tools += [t.Tool(name=name, description=text, input_schema=EXTRA_SCHEMA) for name, text in extra_tools()]
    schemas = {tool.name: tool.input_schema for tool in tools}

    async def on_list(ctx: Any, params: Any) -> Any:
        return t.ListToolsResult(tools=tools)

    async def on_call(ctx: Any, params: Any) -> Any:
        arguments = params.arguments or {}
        if params.name == "echo":
            out = arguments["text"]
        elif params.name == "add":
            out = str(arguments["a"] + arguments["b"])
        elif params.name == "slow":
            if arguments.get("progress"):
                await ctx.session.report_progress(0, 1)
            out = await nap(arguments["seconds"], arguments["tag"])
        else:
            out = await extra(**arguments)
        return t.CallToolResult(content=[t.TextContent(type="text", text=out)])

    return Server("peer", on_list_tools=on_list, on_call_tool=on_call, get_tool_input_schema=schemas.get)


async def run_stdio(server: Any) -> None:
    """Serve the low level server on a pipe."""
    async with stdio_server() as (receive, send):
        await server.run(receive, send, server.create_initialization_options())


if __name__ == "__main__":
    level = sys.argv[1]
    server = high() if level == "high" else low()
    if sys.argv[2:3] == ["http"]:
        from serving import serve

        _, _, _, mode, how, port = sys.argv
        serve(server.streamable_http_app(json_response=mode == "json"), how, port)
    elif level == "high":
        anyio.run(server.run_stdio_async)
    else:
        anyio.run(run_stdio, server)
