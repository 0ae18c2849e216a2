"""What the tests of tasks share."""

from __future__ import annotations

from typing import Any

import trio

from trio_mcp import Client, Context, Limits, RemoteTask, Server, TaskState

TASKS = "io.modelcontextprotocol/tasks"
LIMITS = Limits()


def accept(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


async def until(client: Client, task: RemoteTask, status: str) -> TaskState:
    with trio.fail_after(60):
        while True:
            state = await task.refresh()
            if state.status == status:
                return state
            assert not state.final, state
            await trio.sleep(0.05)


async def declared_request(client: Client, method: str, params: dict[str, Any]) -> dict[str, Any]:
    return await client.request(method, params, result_types=("task",))


def sleeper(**options: Any) -> Server[Any]:
    server = Server("s", **options)

    @server.tool(task_support="optional")
    async def sleep(seconds: float, ctx: Context) -> str:
        await trio.sleep(seconds)
        return f"slept {seconds:g} s{' as a task' if ctx.task_id else ''}"

    return server
