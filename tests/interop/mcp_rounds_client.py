"""The client of `mcp` answers questions, or listens, and prints what it got, as one JSON object.

python mcp_rounds_client.py ask command ...         over stdio; with a URL instead of the command, over HTTP
python mcp_rounds_client.py listen command ...
python mcp_rounds_client.py end command ...         also: URL CERTFILE LOG, over HTTP/2 with TLS, written down in LOG

With `end` it prints a line as soon as it listens, and the rest when the server has ended that.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from typing import Any

import anyio
from mcp import Client, StdioServerParameters
from mcp.client import ClientRequestContext
from mcp.client.subscriptions import SubscriptionLost
from mcp_client import connect, wire
from mcp_types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestParams,
    ElicitResult,
    ListRootsResult,
    Root,
    TextContent,
)
from pydantic import FileUrl

FORMS: dict[str, dict[str, str | int | float | bool | list[str] | None]] = {
    "Who goes to Rome?": {"name": "Ada", "age": 36},
    "Is that all?": {"sure": True},
}


async def ask(target: str | StdioServerParameters) -> dict[str, Any]:
    """Call the tools that ask."""
    asked: list[Any] = []

    async def elicit(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        found = wire(params)
        asked.append([found["message"], sorted(found["requestedSchema"]["properties"])])
        form = FORMS.get(params.message)
        return ElicitResult(action="accept", content=form) if form else ElicitResult(action="decline")

    async def sample(context: ClientRequestContext, params: CreateMessageRequestParams) -> CreateMessageResult:
        found = wire(params)
        asked.append([found["messages"], found["maxTokens"]])
        return CreateMessageResult(
            role="assistant", content=TextContent(type="text", text="O Rome!"), model="poet", stop_reason="endTurn"
        )

    async def roots(context: ClientRequestContext) -> ListRootsResult:
        asked.append("roots")
        return ListRootsResult(roots=[Root(uri=FileUrl("file:///home/ada"), name="home")])

    async with Client(
        target, elicitation_callback=elicit, sampling_callback=sample, list_roots_callback=roots
    ) as client:
        plan = wire(await client.call_tool("plan", {"place": "Rome"}))
        declined = wire(await client.call_tool("ask_once", {}))
        return {
            "revision": client.protocol_version,
            "plan": plan["structuredContent"],
            "declined": declined["content"],
            "asked": asked,
        }


async def listen(target: str | StdioServerParameters) -> dict[str, Any]:
    """Listen while the server changes."""
    async with Client(target) as client:
        before = [tool.name for tool in (await client.list_tools()).tools]
        async with client.listen(tools_list_changed=True, resource_subscriptions=["note://today"]) as changes:
            await client.call_tool("touch", {"uri": "note://other"})
            await client.call_tool("touch", {"uri": "note://today"})
            with anyio.fail_after(20):
                first = await anext(changes)
            await client.call_tool("grow", {"name": "shoot"})
            with anyio.fail_after(20):
                second = await anext(changes)
            honored = wire(changes.honored)
        after = [tool.name for tool in (await client.list_tools()).tools]
        return {
            "revision": client.protocol_version,
            "honored": honored,
            "changes": [[type(event).__name__, dataclasses.asdict(event)] for event in (first, second)],
            "new": sorted({*after} - {*before}),
            "says": wire(await client.call_tool("shoot", {}))["content"],
        }


async def end(target: list[str]) -> dict[str, Any]:
    """Listen until the server ends."""
    async with connect(target) as client:
        process = wire(await client.call_tool("process_id", {}))["content"][0]["text"]
        async with client.listen(tools_list_changed=True, resource_subscriptions=["note://today"]) as changes:
            await client.call_tool("touch", {"uri": "note://today"})
            print(json.dumps({"process": int(process), "honored": wire(changes.honored)}), flush=True)
            heard: list[Any] = []
            ended = "gracefully"
            try:
                with anyio.fail_after(20):
                    async for event in changes:
                        name = type(event).__name__
                        heard.append([name, dataclasses.asdict(event)])
            except SubscriptionLost:
                ended = "lost"
    return {"changes": heard, "ended": ended}


if __name__ == "__main__":
    what, target, *args = sys.argv[1:]
    if what == "end":
        print(json.dumps(anyio.run(end, [target, *args])))
    else:
        server = target if args == [] else StdioServerParameters(command=target, args=args, env=dict(os.environ))
        print(json.dumps(anyio.run({"ask": ask, "listen": listen}[what], server)))
