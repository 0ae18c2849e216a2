"""Tasks in memory: they live as long as the server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace

import trio

from ..protocol.tasks import Signal, Task
from .store import TaskCount, TaskStore, TaskStoreError

__all__ = ["MemoryTaskStore"]


class MemoryTaskStore(TaskStore):
    """Keeps tasks in this process: nothing to set up, and nothing left after it ends."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task] = {}
        self._counts: dict[str, TaskCount] = {}
        self._signals: list[Signal] = []
        self._sent = 0
        self._owners: set[str] = set()

    def open(self, owner: str) -> AbstractAsyncContextManager[None]:
        return self._open(owner)

    @asynccontextmanager
    async def _open(self, owner: str) -> AsyncIterator[None]:
        self._owners.add(owner)
        try:
            yield
        finally:
            self._owners.discard(owner)

    async def _turn(self) -> None:
        await trio.lowlevel.checkpoint()
        if not self._owners:
            raise TaskStoreError("this task store is not open")

    async def create(self, task: Task) -> None:
        await self._turn()
        if task.id in self._tasks:
            raise TaskStoreError(f"there is a task {task.id} already")
        self._put(task)

    async def save(self, task: Task) -> bool:
        await self._turn()
        known = self._tasks.get(task.id)
        if known is None or known.final or known.owner != task.owner:
            return False
        self._put(task)
        return True

    def _put(self, task: Task) -> None:
        self._drop(task.id)
        self._tasks[task.id] = task
        active, stored = self._counts.get(task.principal, (0, 0))
        self._counts[task.principal] = TaskCount(active + (not task.final), stored + 1)

    def _drop(self, task_id: str) -> None:
        task = self._tasks.pop(task_id, None)
        if task is None:
            return
        active, stored = self._counts[task.principal]
        if stored == 1:
            del self._counts[task.principal]
        else:
            self._counts[task.principal] = TaskCount(active - (not task.final), stored - 1)

    async def get(self, task_id: str) -> Task | None:
        await self._turn()
        return self._tasks.get(task_id)

    async def delete(self, task_id: str) -> None:
        await self._turn()
        self._drop(task_id)
        self._signals = [signal for signal in self._signals if signal.task_id != task_id]

    async def count(self, principal: str) -> TaskCount:
        await self._turn()
        return self._counts.get(principal, TaskCount(0, 0))

    async def expire(self, now: float) -> int:
        await self._turn()
        over = {task.id for task in self._tasks.values() if task.final and task.expires <= now}
        for task_id in over:
            self._drop(task_id)
        self._signals = [signal for signal in self._signals if signal.task_id not in over]
        return len(over)

    async def adopt(self, owner: str) -> list[Task]:
        await self._turn()
        left = [task for task in self._tasks.values() if not task.final and task.owner not in self._owners]
        adopted = [replace(task, owner=owner) for task in left]
        for task in adopted:
            self._put(task)
        return adopted

    async def send(self, signal: Signal) -> None:
        await self._turn()
        if signal.task_id in self._tasks and signal not in self._signals:
            self._sent += 1
            self._signals.append(replace(signal, number=self._sent))

    async def receive(self, owner: str) -> list[Signal]:
        await self._turn()
        return [signal for signal in self._signals if self._tasks[signal.task_id].owner == owner]

    async def acknowledge(self, signals: Sequence[Signal]) -> None:
        await self._turn()
        known = {signal.number for signal in signals}
        self._signals = [signal for signal in self._signals if signal.number not in known]

    async def wait_change(self) -> None:
        await self._turn()
        await trio.sleep_forever()
