"""The client of `mcp` 1.x opens a session, goes through what a server of ours offers and prints what it got, as one JSON object.

    python mcp1_session_client.py MARKS command ...         over stdio
    python mcp1_session_client.py MARKS URL                 over HTTP

MARKS is the file where the server marks the start and end of `slow`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
from mcp import ClientSession, McpError, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from pydantic import AnyUrl

NOTE = AnyUrl("note://today")


async def wait_for(condition: Callable[[], bool]) -> bool:
    """Whether something becomes true within 10 seconds."""
    for _ in range(1000):
        if condition():
            return True
        await anyio.sleep(0.01)
    return False


async def rejected(call: Any) -> int | str:
    """The code of the error that a call ends in."""
    try:
        await call
    except McpError as exc:
        return exc.error.code
    return "answered"


class Host:
    """What stands behind the client: it answers questions, and remembers what it was told."""

    def __init__(self) -> None:
        self.answer = "accept"
        self.roots = ["file:///one"]
        self.told: list[Any] = []
        self.lines: list[str] = []
        self.came_back = 0

    async def elicit(self, context: Any, params: Any) -> types.ElicitResult:
        """Fill in the form, or not."""
        content = {"name": "Ada"} if self.answer == "accept" else None
        return types.ElicitResult(action=self.answer, content=content)

    async def sample(self, context: Any, params: Any) -> types.CreateMessageResult:
        """Be the model."""
        content = types.TextContent(type="text", text="Paris")
        return types.CreateMessageResult(role="assistant", content=content, model="none")

    async def list_roots(self, context: Any) -> types.ListRootsResult:
        """Say which folders there are."""
        return types.ListRootsResult(roots=[types.Root(uri=uri) for uri in self.roots])

    async def hear(self, message: Any) -> None:
        """Take a notification."""
        if isinstance(message, types.ServerNotification):
            self.told.append(message.root)

    async def hear_line(self, params: Any) -> None:
        """Take a log line."""
        self.lines.append(params.level)

    async def look(self, request: httpx.Request) -> None:
        """Count the GETs that take up a stream where it ended."""
        self.came_back += request.method == "GET" and "last-event-id" in request.headers

    def updated(self) -> list[str]:
        """The resources that have changed."""
        return [str(one.params.uri) for one in self.told if isinstance(one, types.ResourceUpdatedNotification)]

    def list_changed(self) -> bool:
        """Whether the list of tools has."""
        return any(isinstance(one, types.ToolListChangedNotification) for one in self.told)


@asynccontextmanager
async def connect(target: list[str], host: Host) -> AsyncIterator[tuple[ClientSession, Callable[[], str | None]]]:
    """A session with what the command line names, and what gives its id."""
    callbacks: dict[str, Any] = {
        "elicitation_callback": host.elicit,
        "sampling_callback": host.sample,
        "list_roots_callback": host.list_roots,
        "message_handler": host.hear,
        "logging_callback": host.hear_line,
    }
    if target[0].startswith("http"):
        async with (
            httpx.AsyncClient(timeout=30, event_hooks={"request": [host.look]}) as http,
            streamable_http_client(target[0], http_client=http) as (read, write, session_id),
            ClientSession(read, write, **callbacks) as client,
        ):
            yield client, session_id
    else:
        command = StdioServerParameters(command=target[0], args=target[1:], env=dict(os.environ))
        async with stdio_client(command) as (read, write), ClientSession(read, write, **callbacks) as client:
            yield client, lambda: None


async def count(client: ClientSession) -> list[Any]:
    """Call `count`, and let it go on after each step."""
    steps: list[Any] = []
    async with anyio.create_task_group() as group:

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            steps.append([progress, total])
            # The client reads nothing while this runs.
            group.start_soon(client.call_tool, "go_on")

        await client.call_tool("count", progress_callback=on_progress)
    return steps


async def cancel_slow(client: ClientSession, marks: Path) -> list[bool]:
    """Call `slow`, and give it up once it has started."""

    async def marked(event: str) -> bool:
        return await wait_for(lambda: marks.exists() and event in marks.read_text())

    # The client itself says nothing when its caller gives up.
    number = client._request_id
    async with anyio.create_task_group() as group:
        group.start_soon(client.call_tool, "slow", {})
        await marked("start")
        params = types.CancelledNotificationParams(requestId=number, reason="enough")
        note = types.CancelledNotification(method="notifications/cancelled", params=params)
        await client.send_notification(types.ClientNotification(note))
        heard = await marked("cancelled")
        group.cancel_scope.cancel()
    return [True, heard]


async def run_tasks(client: ClientSession) -> list[Any]:
    """One task to its end, and another one that is cancelled."""
    tasks = client.experimental
    made = await tasks.call_tool_as_task("job", {}, ttl=60_000)
    async for _ in tasks.poll_task(made.task.taskId):
        pass
    result = await tasks.get_task_result(made.task.taskId, types.CallToolResult)
    listed = made.task.taskId in [task.taskId for task in (await tasks.list_tasks()).tasks]
    other = await tasks.call_tool_as_task("job", {"wait": True}, ttl=60_000)
    return [listed, result.content[0].text, (await tasks.cancel_task(other.task.taskId)).status]


async def main(marks: Path, target: list[str]) -> dict[str, Any]:
    """The whole conversation, by what was asked."""
    host, out = Host(), {}
    async with connect(target, host) as (client, session_id):

        async def said(name: str, arguments: dict[str, Any] | None = None) -> str:
            return (await client.call_tool(name, arguments)).content[0].text

        made = await client.initialize()
        out["revision"], out["server"] = made.protocolVersion, made.serverInfo.name
        out["tools"] = [tool.name for tool in (await client.list_tools()).tools]
        out["resource"] = (await client.read_resource(NOTE)).contents[0].text
        out["echo"] = await said("echo", {"text": "naïve ☃\n"})
        out["data"] = (await client.call_tool("numbers")).structuredContent
        failed = await client.call_tool("fail")
        out["fail"] = [failed.isError, failed.content[0].text]
        out["unknown tool"] = await rejected(client.call_tool("ech"))
        out["visit"] = await rejected(client.call_tool("visit"))
        out["unknown resource"] = await rejected(client.read_resource(AnyUrl("none://at/all")))
        out["progress"] = await count(client)
        await client.set_logging_level("warning")
        await client.call_tool("grumble")
        out["log"] = host.lines
        out["elicit"] = []
        for host.answer in ("accept", "decline", "cancel"):
            out["elicit"].append(await said("name"))
        out["sample"] = await said("think")
        out["roots"] = [await said("places")]
        host.roots.append("file:///two")
        await client.send_roots_list_changed()
        out["roots"].append(await said("places"))

        await client.subscribe_resource(NOTE)
        await client.call_tool("touch")
        await wait_for(lambda: host.updated() != [])
        await client.unsubscribe_resource(NOTE)
        await client.call_tool("touch")
        await client.call_tool("grow")
        out["list changed"] = await wait_for(host.list_changed)
        # Both come in order, so a second one would be here by now.
        out["updated"] = host.updated()

        out["cancelled"] = await cancel_slow(client, marks)
        out["task"] = await run_tasks(client)
        before = host.came_back
        out["polled"] = await said("polled")
        out["came back"] = host.came_back > before
        own_id = session_id()
    if own_id is not None:
        # It has said DELETE when it was left.
        headers = {"mcp-session-id": own_id, "accept": "application/json, text/event-stream"}
        async with httpx.AsyncClient(headers=headers) as http:
            answer = await http.post(target[0], json={"jsonrpc": "2.0", "id": 1, "method": "ping"})
        out["after DELETE"] = answer.status_code
    return out


if __name__ == "__main__":
    print(json.dumps(anyio.run(main, Path(sys.argv[1]), sys.argv[2:])))
