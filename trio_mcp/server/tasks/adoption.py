"""What other processes have left: tasks whose process has ended, and signals for those that run here.

Neither a row nor a signal nor a tool that has changed since may cost more than its own task: whatever goes wrong with one is
logged, and the others go on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import trio

from ...convert.codec import Mismatch
from ...errors import InternalError
from ...protocol.meta import CLIENT_CAPABILITIES, PROTOCOL_VERSION, RequestMeta
from ...protocol.tasks import Signal, Task
from ...scopes.call import Call
from ...tasks.store import TaskStoreError
from .task import INTERRUPTED, ServerTask, TaskTable

__all__ = ["Adoption", "log_failure"]

logger: logging.Logger = logging.getLogger("trio_mcp.server.tasks")


def log_failure(exc: Exception, text: str = "") -> None:
    """A store that fails says how; another exception is an error in it, or in what it was given, and is shown whole."""
    known = isinstance(exc, TaskStoreError)
    said = str(exc) if known else f"the task store failed with {type(exc).__name__}"
    logger.error("%s%s", said, text, exc_info=None if known else exc)


class Adoption:
    """Takes over tasks, and hears what is left for them.

    Args:
        tasks: Those of the server.
        make: Makes a task of a row, or None where it cannot be begun again.
    """

    def __init__(self, tasks: TaskTable, make: Callable[[Task, Call, dict[str, Any]], ServerTask]) -> None:
        self._tasks = tasks
        self._make = make
        self._lock = trio.Lock()
        # What was taken over, until it runs or its end is stored.
        self._rows: dict[str, Task] = {}
        # Signals for these that could not be put back yet.
        self._kept: list[Signal] = []

    async def adopt(self) -> bool:
        """Take over what processes have left that have ended; whether there was anything. Raises what the store raises."""
        tasks = self._tasks
        # What was left for these tasks is taken once they run: before, nobody would be there for it.
        async with self._lock:
            self._rows |= {row.id: row for row in await tasks.store.adopt(tasks.owner)}
            if not self._rows:
                return False
            # At once: a store may write many with one flush.
            async with trio.open_nursery() as nursery:
                for row in [*self._rows.values()]:
                    nursery.start_soon(self._take_over, row)
            await self._receive()
            return True

    async def hear(self) -> None:
        """Take what was left for tasks of this process. Raises what the store raises."""
        async with self._lock:
            await self._receive()

    async def _receive(self) -> None:
        tasks = self._tasks
        await self._put_back()
        for signal in await tasks.store.receive(tasks.owner):
            if signal.task_id in self._rows:
                self._kept.append(signal)
            else:
                self._tell(signal)
        await self._put_back()

    async def _put_back(self) -> None:
        """Leave what is for tasks that do not run yet, for the time at which they do, here or elsewhere."""
        while self._kept:
            await self._tasks.store.send(self._kept[0])
            del self._kept[0]

    def _tell(self, signal: Signal) -> None:
        task = self._tasks.running.get(signal.task_id)
        if task is None:
            return
        try:
            if signal.kind == "cancel":
                task.cancel()
            elif signal.kind == "answer":
                task.answer(signal.payload)
        except Exception:
            logger.exception("a signal for task %s cannot be understood", signal.task_id)

    async def _take_over(self, row: Task) -> None:
        tasks = self._tasks
        try:
            await self._begin_again(row)
        except Exception as exc:
            # It stays in the list, for nobody else would look after it.
            log_failure(exc)
            return
        self._rows.pop(row.id, None)
        # The store tells of what others have written, and this was not.
        tasks.publish(row.id)

    async def _begin_again(self, row: Task) -> None:
        """Run a task again whose process has ended; where that cannot be, it has failed."""
        tasks = self._tasks
        try:
            task = self._prepare(row)
        except Exception:
            logger.exception("task %s cannot be run again", row.id)
            task = None
        if task is None:
            error = InternalError(INTERRUPTED)
            ended = replace(row, status="failed", message=INTERRUPTED, error=error.to_wire(), requests={})
            now = tasks.clock()
            await tasks.store.save(replace(ended, updated=now, ttl=row.lasting(now)))
            return
        await task.save()
        tasks.running[task.id] = task
        await tasks.collector.start(task.run)

    def _prepare(self, row: Task) -> ServerTask | None:
        """The task that runs it again. What is in a row, and what a tool makes of it, may raise anything."""
        tasks = self._tasks
        now = tasks.clock()
        tool = tasks.tools.get(row.params.get("name", ""))
        if tool is None or not tool.restartable or not row.restartable or row.expires <= now:
            return None
        if row.attempts >= tasks.limits.task_attempts:
            return None
        try:
            values = tool.handler.load(row.params["arguments"])
        except Mismatch:
            # The tool has changed since.
            return None
        meta = RequestMeta(row.meta[PROTOCOL_VERSION], row.meta[CLIENT_CAPABILITIES], raw=row.meta)
        call = Call(row.id, "tools/call", {"name": tool.name, "arguments": row.params["arguments"]}, meta, _NOBODY)
        call.principal = row.principal
        again = replace(row, status="working", requests={}, message=None, attempts=row.attempts + 1, updated=now)
        task = self._make(again, call, values)
        task.begun, task.escalated, call.task = True, True, task
        return task


class _Nobody:
    """Where the messages of a call go that nobody waits for."""

    def begin(self) -> None:
        pass

    full = False

    async def wait_room(self) -> None:
        pass

    def post(self, message: bytes) -> None:
        pass

    def answer(self, message: bytes) -> bool:
        return False


_NOBODY = _Nobody()
