"""Tasks (extension io.modelcontextprotocol/tasks) in plain JSON over HTTP: a client, and server processes to speak to."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import trio

from trio_mcp.protocol.meta import CLIENT_CAPABILITIES
from trio_mcp.protocol.tasks import TASKS
from trio_mcp.testing import request

from .helpers import Running
from .servers.http_peers import H1Peer, fields, post

CAPABILITIES: dict[str, Any] = {"extensions": {TASKS: {}}, "elicitation": {}}
FINAL = ("completed", "failed", "cancelled")
INTERRUPTED = "The server stopped before the task had finished"


def declared(id: Any, method: str, **params: Any) -> dict[str, Any]:
    """A request of a client that takes tasks."""
    message = request(id, method, **params)
    message["params"]["_meta"][CLIENT_CAPABILITIES] = CAPABILITIES
    return message


def headers(message: dict[str, Any]) -> dict[str, str]:
    """The header fields that belong to a request."""
    out = fields(message)
    if "taskId" in message["params"]:
        out["mcp-name"] = message["params"]["taskId"]
    return out


def text_of(result: dict[str, Any]) -> str:
    """The text in the result of a tool."""
    text: str = result["content"][0]["text"]
    return text


class TaskClient:
    """One client of one server.

    Args:
        http: Its connections.
        url: The server.
    """

    def __init__(self, http: httpx2.AsyncClient, url: str) -> None:
        self._http = http
        self.url = url
        self._id = 0

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request; the whole answer, with its `result` or `error`."""
        self._id += 1
        message = declared(self._id, method, **params)
        response = await self._http.post(self.url, json=message, headers=headers(message))
        if response.headers["content-type"].startswith("text/event-stream"):
            lines = [line for line in response.text.splitlines() if line.startswith("data: ")]
            answer: dict[str, Any] = json.loads(lines[-1][6:])
        else:
            answer = response.json()
        assert answer["id"] == message["id"]
        return answer

    async def result(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request; its result."""
        answer = await self.ask(method, **params)
        assert "result" in answer, (method, params, answer)
        result: dict[str, Any] = answer["result"]
        return result

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool; its result, or the handle of a task."""
        return await self.result("tools/call", name=tool, arguments=arguments)

    async def start(self, tool: str, **arguments: Any) -> str:
        """Call a tool that becomes a task; its id."""
        handle = await self.call(tool, **arguments)
        assert handle["resultType"] == "task", handle
        task_id: str = handle["taskId"]
        return task_id

    async def get(self, task_id: str) -> dict[str, Any]:
        """How a task stands."""
        return await self.result("tasks/get", taskId=task_id)

    async def cancel(self, task_id: str) -> None:
        """Ask for the end of a task."""
        await self.result("tasks/cancel", taskId=task_id)

    async def answer(self, task_id: str, requests: dict[str, Any], text: str) -> None:
        """Answer what a task asks, with a form that has one text."""
        content = {"action": "accept", "content": {"text": text}}
        await self.result("tasks/update", taskId=task_id, inputResponses=dict.fromkeys(requests, content))

    async def until(
        self, task_id: str, done: Callable[[dict[str, Any]], bool], within: float = 30, every: float = 0.02
    ) -> dict[str, Any]:
        """Look at a task until it stands as it should."""
        state: dict[str, Any] = {}
        try:
            with trio.fail_after(within):
                while not done(state := await self.get(task_id)):
                    await trio.sleep(every)
        except trio.TooSlowError:
            raise AssertionError(f"after {within} s the task stands so: {state}") from None
        return state

    async def end(self, task_id: str, within: float = 30) -> dict[str, Any]:
        """Wait for the end of a task."""
        return await self.until(task_id, lambda state: state["status"] in FINAL, within)

    @asynccontextmanager
    async def listen(self, *task_ids: str) -> AsyncIterator[Callable[[], Any]]:
        """Listen to tasks: gives a function that waits for the next change."""
        message = declared("listening", "subscriptions/listen", notifications={"taskIds": list(task_ids)})
        address = httpx2.URL(self.url)
        async with await trio.open_tcp_stream(address.host, address.port or 80) as stream:
            peer = H1Peer(stream)
            await peer.send(post(message))
            status, _ = await peer.head()
            assert status == 200

            async def following() -> dict[str, Any]:
                # Each event is one chunk, so its line is whole.
                while not (line := await peer.until(b"\n")).startswith(b"data: "):
                    pass
                heard: dict[str, Any] = json.loads(line[6:])
                return heard

            first = await following()
            assert first["params"]["notifications"] == {"taskIds": list(task_ids)}, first
            yield following


class Process:
    """A server process over HTTP.

    Args:
        running: The process.
        url: Where it serves.
        client: A client of it.
    """

    def __init__(self, running: Running, url: str, client: TaskClient) -> None:
        self.running = running
        self.url = url
        self.client = client

    @property
    def pid(self) -> int:
        return self.running.process.pid

    def kill(self) -> None:
        """End it at once, with SIGKILL."""
        self.running.process.kill()
        self.running.process.wait(10)

    async def ended(self, within: float) -> int:
        """Wait for its end; the exit status."""
        with trio.fail_after(within):
            while (status := self.running.process.poll()) is None:
                await trio.sleep(0.01)
        return status


def serving(path: Path, *, limits: dict[str, Any] | None = None, env: dict[str, str] | None = None) -> Running:
    """A process that begins to serve the tools of `task_tools.py` over a file."""
    bounds = {"running": 512, "waiting": 512, "tasks_active": 1_000, **(limits or {})}
    return Running("task_tools.py", str(path), "127.0.0.1:0", json.dumps(bounds), env=env)


async def url_of(running: Running) -> str:
    """Where a process serves, once it does."""
    line = await trio.to_thread.run_sync(running.line)
    assert line is not None, running.errors()
    return line.decode()


@asynccontextmanager
async def server_process(path: Path, **options: Any) -> AsyncIterator[Process]:
    """A process over a file that serves, and a client of it; options as for `serving`."""
    with serving(path, **options) as running:
        url = await url_of(running)
        pool = httpx2.Limits(max_connections=512, max_keepalive_connections=512)
        async with httpx2.AsyncClient(limits=pool, timeout=20) as http:
            yield Process(running, url, TaskClient(http, url))
