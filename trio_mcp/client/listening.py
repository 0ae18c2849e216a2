"""Listening for changes (basic/patterns/subscriptions)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal

import trio

from ..errors import InvalidResponse, MCPError, RequestTimeout
from ..limits import Limits
from ..protocol.envelope import Notification
from ..protocol.listening import ACKNOWLEDGED, LIST_CHANGED, RESOURCE_UPDATED
from ..protocol.tasks import TASK_CHANGED
from ..scopes.groups import unwrapped
from .channel import Channel, Listener
from .tasks import TaskState

__all__ = ["Change", "Changes", "open_changes"]

Kind = Literal["tools", "prompts", "resources", "resource", "task"]
_KINDS: Final[dict[str, Kind]] = {
    LIST_CHANGED["tools"]: "tools",
    LIST_CHANGED["prompts"]: "prompts",
    LIST_CHANGED["resources"]: "resources",
    RESOURCE_UPDATED: "resource",
    TASK_CHANGED: "task",
}


@dataclass(frozen=True, slots=True)
class Change:
    """One change.

    Attributes:
        kind: "tools", "prompts" or "resources": that list has changed; "resource": what a resource holds has; "task": how a
            task stands.
        uri: The resource, or None.
        task: How the task stands, or None.
    """

    kind: Kind
    uri: str | None = None
    task: TaskState | None = None


class Changes:
    """What `client.listen` gives: iterate over it with `async for`. It ends when the server ends it.

    A change that has not been taken yet is held once, however often it happens; of a task the latest state.

    Attributes:
        agreed: The filter as the server acknowledged it; what it cannot tell is left out.
    """

    def __init__(self, limits: Limits) -> None:
        self.agreed: dict[str, Any] = {}
        self._most = limits.listened_uris + len(LIST_CHANGED)
        self._acknowledged = False
        self._pending: dict[tuple[Kind, str | None], Change] = {}
        self._over = False
        self._error: MCPError | None = None
        self._news = trio.lowlevel.ParkingLot()

    def __aiter__(self) -> Changes:
        return self

    async def __anext__(self) -> Change:
        await trio.lowlevel.checkpoint()
        while not self._pending:
            if self._error is not None:
                raise self._error
            if self._over:
                raise StopAsyncIteration
            await self._news.park()
        return self._pending.pop(next(iter(self._pending)))

    def take(self, message: Notification) -> None:
        """Called by the channel with each notification of the stream."""
        if message.method == ACKNOWLEDGED:
            agreed = message.params.get("notifications")
            self.agreed = agreed if isinstance(agreed, dict) else {}
            self._acknowledged = True
        elif message.method in _KINDS:
            change = _change(_KINDS[message.method], message.params)
            if change is not None:
                self._pending[change.kind, change.task.id if change.task else change.uri] = change
            if len(self._pending) > self._most:
                # More resources than anybody asked for: only a broken server does this.
                del self._pending[next(iter(self._pending))]
        self._news.unpark_all()

    def finish(self, error: MCPError | None = None) -> None:
        """Called when nothing more will come."""
        self._over, self._error = True, error
        self._news.unpark_all()

    async def acknowledged(self) -> None:
        """Wait for the acknowledgement, or an error in its place.

        Raises:
            MCPError: the server refused.
        """
        while not self._acknowledged and not self._over:
            await self._news.park()
        if self._error is not None and not self._acknowledged:
            raise self._error


def _change(kind: Kind, params: dict[str, Any]) -> Change | None:
    if kind == "task":
        try:
            return Change(kind, task=TaskState.from_wire(params, TASK_CHANGED))
        except InvalidResponse:
            return None  # nothing to go by; `tasks/get` tells
    uri = params.get("uri")
    return Change(kind, uri if isinstance(uri, str) else None)


@asynccontextmanager
async def open_changes(channel: Channel, params: dict[str, Any], limits: Limits) -> AsyncIterator[Changes]:
    """Listen while the block lasts.

    Args:
        channel: To the server.
        params: Of `subscriptions/listen`, with its `_meta`.
        limits: Bounds.
    """
    changes = Changes(limits)

    async def hear() -> None:
        try:
            await channel.call("subscriptions/listen", params, Listener(changes=changes.take))
        except MCPError as exc:
            changes.finish(exc)
        else:
            changes.finish()

    with unwrapped():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hear)
            with trio.move_on_after(limits.connect_timeout) as patience:
                await changes.acknowledged()
            if patience.cancelled_caught:
                raise RequestTimeout(
                    f"subscriptions/listen: {channel.peer} did not acknowledge within {limits.connect_timeout:g} s"
                )
            yield changes
            nursery.cancel_scope.cancel()
