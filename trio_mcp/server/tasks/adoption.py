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
        # Those of them that run once it is known what was left for them.
        self._ready: dict[str, ServerTask] = {}

    async def adopt(self) -> bool:
        """Take over what processes have left that have ended, and what was left for them; whether there was anything. Raises
        what the store raises."""
        tasks = self._tasks
        async with self._lock:
            self._rows |= {row.id: row for row in await tasks.store.adopt(tasks.owner)}
            found = bool(self._rows)
            # At once: a store may write many with one flush.
            async with trio.open_nursery() as nursery:
                for row in [*self._rows.values()]:
                    if row.id not in self._ready:
                        nursery.start_soon(self._take_over, row)
            # Before they run: one that was cancelled meanwhile is not begun again.
            await self._receive()
            for task_id, task in self._ready.items():
                del self._rows[task_id]
                await tasks.collector.start(task.run)
            self._ready.clear()
            return found

    async def hear(self) -> None:
        """Take what was left for tasks of this process. Raises what the store raises."""
        async with self._lock:
            await self._receive()

    async def _receive(self) -> None:
        """Act on what was left. What was acted on is forgotten once a crash could not undo it."""
        store = self._tasks.store
        done: list[Signal] = []
        for signal in await store.receive(self._tasks.owner):
            try:
                if await self._tell(signal):
                    done.append(signal)
            except Exception as exc:
                # It comes again.
                log_failure(exc)
        if done:
            await store.acknowledge(done)

    async def _tell(self, signal: Signal) -> bool:
        """Tell a task. Whether nothing of it would be lost with this process."""
        task = self._tasks.running.get(signal.task_id)
        if task is None:
            if signal.task_id in self._rows:
                return False
            # One whose process ends is nobody's task for a moment, and is begun again.
            row = await self._tasks.store.get(signal.task_id)
            return row is None or row.final
        try:
            if signal.kind == "cancel":
                task.cancel()
            else:
                task.answer(signal.payload)
        except Exception:
            logger.exception("a signal for task %s cannot be understood", signal.task_id)
            return True
        if task.row.restartable and signal.kind == "answer":
            await task.save()
        # A cancellation counts until its task has ended.
        return not task.row.restartable or signal.kind == "answer"

    async def _take_over(self, row: Task) -> None:
        tasks = self._tasks
        try:
            task = await self._begin_again(row)
        except Exception as exc:
            # It stays in the list, for nobody else would look after it.
            log_failure(exc)
            return
        if task is None:
            self._rows.pop(row.id, None)
        else:
            # From here on it can be told what comes.
            tasks.running[task.id] = self._ready[task.id] = task
        # The store tells of what others have written, and this was not.
        tasks.publish(row.id)

    async def _begin_again(self, row: Task) -> ServerTask | None:
        """A task to run again whose process has ended; where that cannot be, it has failed."""
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
            return None
        await task.save()
        return task

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
