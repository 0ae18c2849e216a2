"""The client of `mcp` lists the tools of a server and calls some of them.

    python mcp_calls.py command ... < CALLS      CALLS: a JSON list of [name, arguments]

Prints {"tools": [...], "results": [...]} with what was sent, as far as the client keeps it.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import anyio
from mcp import Client, StdioServerParameters


async def main(command: list[str], calls: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """One connection, one call after another."""
    parameters = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
    async with Client(parameters) as client:
        tools = await client.list_tools()
        results = [await client.call_tool(name, arguments) for name, arguments in calls]
    return {
        "tools": tools.model_dump(mode="json", by_alias=True, exclude_unset=True)["tools"],
        "results": [result.model_dump(mode="json", by_alias=True, exclude_unset=True) for result in results],
    }


if __name__ == "__main__":
    print(json.dumps(anyio.run(main, sys.argv[1:], json.load(sys.stdin))))
