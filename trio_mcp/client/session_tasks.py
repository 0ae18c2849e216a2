"""Tasks of revision 2025-11-25 (basic/utilities/tasks), for a client that knows those of the extension: the same `RemoteTask`.

There the client says that a call becomes a task, its state has no result, and a server asks its questions while the result is
waited for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import trio

from ..errors import InvalidResponse, MCPError, ProtocolError
from ..protocol.meta import CLIENT_CAPABILITIES, declared_settings
from ..protocol.tasks import FINAL, TASKS
from .channel import Listener

__all__ = ["SessionTasks"]

Call = Callable[[str, dict[str, Any], Listener], Awaitable[dict[str, Any]]]

_KEPT: Final = 100
"""Tasks whose results are being waited for at once; of one more the result is asked for when its state says that it has ended."""


class SessionTasks:
    """The tasks of one session, as the client sees them.

    Args:
        call: Sends a request of the session.
        nursery: Where results are waited for, so that the server can ask meanwhile.
    """

    def __init__(self, call: Call, nursery: trio.Nursery) -> None:
        self._call = call
        self._nursery = nursery
        # Whether a tool takes a task, or nothing else: as the list has told.
        self._support: dict[str, str] = {}
        self._waiting: set[str] = set()

    def learn_tools(self, tools: list[Any]) -> None:
        """Hear of the tools of the server, as they came."""
        for tool in tools:
            execution = tool.get("execution") if isinstance(tool, dict) else None
            if isinstance(execution, dict) and execution.get("taskSupport") in ("optional", "required"):
                self._support[str(tool.get("name"))] = execution["taskSupport"]

    def asks(self, method: str, params: Mapping[str, Any], meta: Mapping[str, Any]) -> bool:
        """Whether a call is to become a task: where the caller takes one, and the tool works in no other way."""
        return self.accepts(method, meta) and self._support.get(str(params.get("name"))) == "required"

    def accepts(self, method: str, meta: Mapping[str, Any]) -> bool:
        """Whether a caller takes a task for its call."""
        return method == "tools/call" and declared_settings(meta.get(CLIENT_CAPABILITIES) or {}, TASKS) is not None

    async def start(self, params: dict[str, Any], listener: Listener) -> dict[str, Any]:
        """Call a tool as a task: its first state, as the extension has it.

        Raises:
            InvalidResponse: the server made no task of it.
        """
        result = await self._call("tools/call", {**params, "task": {}}, listener)
        task = result.get("task")
        if type(task) is not dict:
            raise InvalidResponse("tools/call: a task was asked for, and the server answered without one")
        return {**_state(task), "resultType": "task"}

    async def serve(self, method: str, params: dict[str, Any], listener: Listener) -> dict[str, Any]:
        """A method of the extension, in the way of this revision."""
        if method == "tasks/update":
            # It is answered where it asks.
            await trio.lowlevel.checkpoint()
            return {}
        if method == "tasks/cancel":
            await self._call(method, {"taskId": params["taskId"]}, listener)
            return {}
        task_id = params["taskId"]
        state = _state(await self._call("tasks/get", {"taskId": task_id}, listener))
        status = state.get("status")
        if status == "input_required" and task_id not in self._waiting and len(self._waiting) < _KEPT:
            self._waiting.add(task_id)
            self._nursery.start_soon(self._wait, task_id)
        if status in FINAL and status != "cancelled":
            return await self._ended(state, task_id)
        return state

    async def _wait(self, task_id: str) -> None:
        """Wait for a result, which is when the server asks what it wants to know. The result itself is asked for again."""
        try:
            await self._call("tasks/result", {"taskId": task_id}, Listener())
        except MCPError:
            # Told by whoever looks at the task.
            return
        finally:
            self._waiting.discard(task_id)

    async def _ended(self, state: dict[str, Any], task_id: str) -> dict[str, Any]:
        try:
            result = await self._call("tasks/result", {"taskId": task_id}, Listener())
        except ProtocolError as exc:
            return {**state, "status": "failed", "error": exc.to_wire()}
        # A tool that failed has a result all the same.
        return {**state, "status": "completed", "result": result}


def _state(task: Mapping[str, Any]) -> dict[str, Any]:
    """A `Task` as the extension has it."""
    return {**task, "ttlMs": task.get("ttl"), "pollIntervalMs": task.get("pollInterval")}
