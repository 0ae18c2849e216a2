"""Tasks of a server, as a program follows them (extension `io.modelcontextprotocol/tasks`, SEP-2663)."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, get_args

import trio

from ..errors import ConnectionClosed, InvalidResponse, MCPError, ProtocolError, RequestTimeout, TaskCancelled
from ..limits import Limits
from ..protocol.content import optional
from ..protocol.jsontext import shorten
from ..protocol.results import CallToolResult, complete, require
from ..protocol.tasks import FINAL, Status

__all__ = ["RemoteTask", "StateCallback", "TaskState"]

StateCallback = Callable[["TaskState"], Awaitable[None] | None]
"""Called with each new state of a task. Plain or async."""

_STATUSES: Final = frozenset(get_args(Status))
_INTERVAL: Final = 1.0
"""Seconds between two looks, when the server does not say."""
_SHORTEST: Final = 0.05
_NEVER: Final = 1e18
"""Milliseconds beyond which a time is none: no calendar has them."""
_LONGEST: Final = 60.0
"""Whatever the server says: more often is a burden to both, and more seldom keeps a result from who waits for it."""


@dataclass(frozen=True, slots=True)
class TaskState:
    """How a task stands.

    Attributes:
        id: The task.
        status: "working", "input_required", "completed", "failed" or "cancelled".
        message: For a person, or None.
        created_at: When it was created, as ISO 8601.
        updated_at: When it last changed.
        ttl: Seconds from its creation for which it can be found, or None for ever.
        poll_interval: Seconds until the next look makes sense.
        result: The result, as it came, of one that is completed.
        error: The error of one that failed.
        requests: The questions of one that needs input, by key, as the protocol has them.
    """

    id: str
    status: Status
    message: str | None = None
    created_at: str = ""
    updated_at: str = ""
    ttl: float | None = None
    poll_interval: float = _INTERVAL
    result: dict[str, Any] | None = None
    error: ProtocolError | None = None
    requests: dict[str, Any] = field(default_factory=dict)

    @property
    def final(self) -> bool:
        """Whether it will not change any more."""
        return self.status in FINAL

    @staticmethod
    def from_wire(wire: dict[str, Any], method: str) -> TaskState:
        """Read a `Task` or a `DetailedTask`.

        Raises:
            InvalidResponse: it is none.
        """
        status = require(wire, "status", str, method)
        if status not in _STATUSES:
            raise InvalidResponse(f"{method}: status {shorten(status)} is not known to this client")
        error = wire.get("error")
        if status == "failed" and not (type(error) is dict and type(error.get("code")) is int):
            error = {"code": -32603, "message": "the server does not say why"}
        requests, result = wire.get("inputRequests"), wire.get("result")
        return TaskState(
            id=require(wire, "taskId", str, method),
            status=status,
            message=optional(wire, "statusMessage", str),
            created_at=optional(wire, "createdAt", str) or "",
            updated_at=optional(wire, "lastUpdatedAt", str) or "",
            ttl=_seconds(wire.get("ttlMs")),
            poll_interval=min(max(_seconds(wire.get("pollIntervalMs")) or _INTERVAL, _SHORTEST), _LONGEST),
            result=result if type(result) is dict else None,
            error=ProtocolError.from_wire({"message": "", **error}) if status == "failed" and error else None,
            requests=requests if type(requests) is dict else {},
        )


def _seconds(milliseconds: Any) -> float | None:
    if type(milliseconds) not in (int, float) or not 0 < milliseconds < _NEVER:
        return None
    return float(milliseconds / 1000)


class Requests(Protocol):
    """What a task needs of its client."""

    limits: Limits

    @property
    def peer(self) -> str:
        """What the client is connected to."""
        ...

    @property
    def reconnects(self) -> bool:
        """Whether a request may succeed after one that failed with `ConnectionClosed`."""
        ...

    async def request(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        timeout: float | None = None,
        result_types: Collection[str] = (),
    ) -> dict[str, Any]:
        """Send a request; return its result as it came."""
        ...

    async def answers_to(self, requests: dict[str, Any], method: str) -> dict[str, Any]:
        """Answers to questions of the server, by key."""
        ...


class RemoteTask:
    """A call of a tool on a server, that may outlive the request, the connection and this program.

    Made by `Client.start_tool` and `Client.task`. Leaving it alone leaves the work running.

    Attributes:
        id: To find it again; None when the server answered in line.
        state: The last state that was seen, or None.
    """

    def __init__(self, client: Requests, id: str | None, state: TaskState | None = None) -> None:
        self._client = client
        self.id: str | None = id
        self.state: TaskState | None = state
        self._answered: set[str] = set()
        # What the server says at first has neither a result nor questions.
        self._bare = id is not None and state is not None

    def __repr__(self) -> str:
        return f"<RemoteTask {self.id} {self.state.status if self.state else 'unknown'}>"

    async def refresh(self, *, timeout: float | None = None) -> TaskState:
        """Look how it stands (tasks/get).

        Raises:
            InvalidParams: the server knows no such task, or it has expired.
            MCPError: as for `Client.request`.
        """
        if self.id is None:
            assert self.state is not None
            await trio.lowlevel.checkpoint()
            return self.state
        wire = await self._client.request("tasks/get", {"taskId": self.id}, timeout=timeout, result_types=("task",))
        self.state = TaskState.from_wire(wire, "tasks/get")
        self._bare = False
        return self.state

    async def cancel(self, *, timeout: float | None = None) -> None:
        """Ask the server to end it (tasks/cancel). It may have ended otherwise in the meantime; `refresh` tells.

        Raises:
            MCPError: as for `Client.request`.
        """
        if self.id is not None:
            await self._client.request("tasks/cancel", {"taskId": self.id}, timeout=timeout, result_types=("task",))

    async def answer(self, responses: dict[str, Any], *, timeout: float | None = None) -> None:
        """Answer questions (tasks/update). `result` does so by itself, with the callbacks of the client.

        Args:
            responses: By the keys of `state.requests`, as the protocol has them.
            timeout: Seconds to wait.

        Raises:
            MCPError: as for `Client.request`.
        """
        params = {"taskId": self.id, "inputResponses": responses}
        await self._client.request("tasks/update", params, timeout=timeout, result_types=("task",))
        self._answered.update(responses)

    async def result(self, *, timeout: float | None = None, on_state: StateCallback | None = None) -> CallToolResult:
        """Wait for the result. Questions are answered on the way, by the callbacks of the client.

        Over HTTP the server may restart meanwhile: for `limits.connect_timeout` it is looked for again.

        Args:
            timeout: Seconds, without the time that answers take. Otherwise as long as it takes.
            on_state: Called with each new state.

        Raises:
            TaskCancelled: it was cancelled.
            RequestTimeout: no result in time; the work goes on.
            ProtocolError: it failed; the class tells how.
            MCPError: as for `Client.request`.
        """
        left = timeout
        last: TaskState | None = None
        while True:
            state = self.state
            if state is not None and state != last:
                last = state
                if on_state is not None:
                    outcome = on_state(state)
                    if inspect.isawaitable(outcome):
                        await outcome
            if state is not None and state.final and not self._bare:
                return _result_of(state)
            if state is not None and state.status == "input_required":
                await self._answer(state)
            before = trio.current_time()
            with trio.move_on_after(float("inf") if left is None else left) as patience:
                if state is not None and not state.final:
                    await trio.sleep(state.poll_interval)
                await self._look()
            if patience.cancelled_caught:
                raise RequestTimeout(f"task {self.id}: no result from {self._client.peer} within {timeout:g} s")
            if left is not None:
                left = max(0.0, left - (trio.current_time() - before))

    async def _answer(self, state: TaskState) -> None:
        # A question may be shown again before the server has seen its answer.
        open_questions = {key: request for key, request in state.requests.items() if key not in self._answered}
        if open_questions:
            await self.answer(await self._client.answers_to(open_questions, "tasks/get"))

    async def _look(self) -> None:
        """Look, also when the server is away for a while."""
        until = trio.current_time() + self._client.limits.connect_timeout
        while True:
            try:
                await self.refresh()
                return
            except ConnectionClosed:
                if not self._client.reconnects or trio.current_time() >= until:
                    raise
            await trio.sleep(_INTERVAL)

    async def end(self) -> None:
        """Cancel it from a task that is being cancelled itself: bounded, and without an error."""
        with trio.move_on_after(self._client.limits.task_settle, shield=True):
            try:
                await self.cancel()
            except MCPError:
                pass


def _result_of(state: TaskState) -> CallToolResult:
    if state.error is not None:
        raise state.error
    if state.status == "cancelled":
        raise TaskCancelled(f"task {state.id} was cancelled{f': {state.message}' if state.message else ''}")
    return CallToolResult.from_wire(complete(state.result or {}, "tools/call"))
