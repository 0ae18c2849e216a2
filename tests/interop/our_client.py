"""Our client goes through everything that a peer's server offers; the keys are those of the peers' clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio

from trio_mcp import Client, ProtocolError, StdioCommand, open_client


async def converse(target: list[str] | str, marks: Path, *, hears: bool = True, **http: Any) -> dict[str, Any]:
    """Ask a server for everything, and call off one call.

    Args:
        target: How to start it, on stdio; or its URL.
        marks: The file where it marks the start and end of `slow`.
        hears: Whether to wait for the server to hear of the cancellation.
        http: For a URL, as for `open_client`.

    Returns:
        The whole conversation, by what was asked.
    """
    out: dict[str, Any] = {}
    async with open_client(
        target if isinstance(target, str) else StdioCommand(target), eras=["modern"], **http
    ) as client:
        out["revision"] = client.protocol_version
        out["server"] = client.server_info
        out["instructions"] = client.instructions
        out["tools"] = [tool.raw for tool in await client.list_tools()]
        out["resources"] = [resource.raw for resource in await client.list_resources()]
        out["templates"] = [template.raw for template in await client.list_resource_templates()]
        out["prompts"] = [prompt.raw for prompt in await client.list_prompts()]
        for key, name, arguments in (
            ("echo", "echo", {"text": "naïve ☃\n"}),
            ("add", "add", {"a": 2, "b": 40}),
            ("picture", "picture", {}),
            ("fail", "fail", {}),
            ("wrong arguments", "add", {"a": "two"}),
        ):
            out[key] = (await client.call_tool(name, arguments)).to_wire()
        out["unknown tool"] = await _refused(client, "tools/call", {"name": "ad", "arguments": {}})
        heard: list[Any] = []

        async def on_progress(value: float, total: float | None, message: str | None) -> None:
            heard.append([value, total, message])
            await client.call_tool("go_on")

        out["progress"] = (await client.call_tool("progress", on_progress=on_progress)).to_wire()
        out["progress heard"] = heard
        out["resource"] = (await client.read_resource("note://today")).to_wire()["contents"]
        out["templated resource"] = (await client.read_resource("note://day/monday")).to_wire()["contents"]
        out["unknown resource"] = await _refused(client, "resources/read", {"uri": "none://at/all"})
        out["prompt"] = (await client.get_prompt("review", {"code": "x = 1"})).to_wire()
        out["cancelled call"] = await _cancel_slow(client, marks, hears)
        out["echo after it"] = (await client.call_tool("echo", {"text": "still here"})).to_wire()
    return out


async def _refused(client: Client, method: str, params: dict[str, Any]) -> int | dict[str, Any]:
    """The code of the error that a request ends in; the result if there is none."""
    try:
        return await client.request(method, params)
    except ProtocolError as exc:
        return exc.code


async def _cancel_slow(client: Client, marks: Path, hears: bool) -> dict[str, Any]:
    """Call `slow`, and leave once it has started."""
    heard: list[Any] = []
    with trio.CancelScope() as scope:

        def on_progress(value: float, total: float | None, message: str | None) -> None:
            heard.append([value, total, message])
            scope.cancel()

        await client.call_tool("slow", on_progress=on_progress)
    return {
        "progress": heard,
        "cancelled": scope.cancelled_caught,
        "server heard": await _wait_for_mark(marks, "cancelled") if hears else None,
    }


async def _wait_for_mark(marks: Path, event: str) -> bool:
    """Whether the server marks an event within 10 seconds."""
    for _ in range(1000):
        if event in _marked(marks):
            return True
        await trio.sleep(0.01)
    return False


def _marked(marks: Path) -> str:
    """All marks so far."""
    return marks.read_text() if marks.exists() else ""
