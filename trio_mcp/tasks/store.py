"""What a server needs of a place that keeps tasks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

from ..errors import MCPError
from ..protocol.tasks import Signal, Task

__all__ = ["TaskCount", "TaskStore", "TaskStoreError"]


class TaskStoreError(MCPError):
    """The place that keeps tasks cannot be used, or failed."""


class TaskCount(NamedTuple):
    """How many tasks one caller has.

    Attributes:
        active: Those that are not final.
        stored: All of them.
    """

    active: int
    stored: int


class TaskStore(ABC):
    """Keeps tasks: one row each, written only by the process that runs it (its *owner*).

    A store is opened by the server that it was given to, and by one server at a time. Every method but `open` is called
    while it is open, from any task, often at once, and in a shield also while the block of `open` is being cancelled; it may
    be cancelled, and then may or may not have done its work. Called while the store is not open it raises `TaskStoreError`.
    What a method wrote is there for every later call of every process that shares the store, also after a crash.

    `trio_mcp.testing.TaskStoreContract` tests a store of your own.
    """

    @abstractmethod
    def open(self, owner: str) -> AbstractAsyncContextManager[None]:
        """Open the store for a process; while the block lasts, the owner counts as alive. What the block raises passes as it is.

        Args:
            owner: A name that no other process has or had.

        Raises:
            TaskStoreError: it cannot be used; the text says why.
        """

    @abstractmethod
    async def create(self, task: Task) -> None:
        """Keep a new task. It is durable when this returns.

        Raises:
            TaskStoreError: it could not be kept, or there is a task with its id; that one stays as it is.
        """

    @abstractmethod
    async def save(self, task: Task) -> bool:
        """Replace the row of a task, unless it is final, is gone, or belongs to another owner.

        Returns:
            Whether it was replaced.

        Raises:
            TaskStoreError: it could not be kept.
        """

    @abstractmethod
    async def get(self, task_id: str) -> Task | None:
        """The task, or None. The id is whatever text a client sent."""

    @abstractmethod
    async def delete(self, task_id: str) -> None:
        """Forget a task, and what was left for it; nothing happens when there is none."""

    @abstractmethod
    async def count(self, principal: str) -> TaskCount:
        """How many tasks a caller has."""

    @abstractmethod
    async def expire(self, now: float) -> int:
        """Forget final tasks whose time is over, and what was left for them.

        Args:
            now: Seconds since the epoch.

        Returns:
            How many.
        """

    @abstractmethod
    async def adopt(self, owner: str) -> list[Task]:
        """Take over every task that is not final and whose owner is not alive any more.

        Each goes to one caller only, however many call at once. What is returned has the new owner already.

        Args:
            owner: The new owner, which has the store open.
        """

    @abstractmethod
    async def send(self, signal: Signal) -> None:
        """Leave something for the process that runs a task. Kept until `acknowledge`, also while there is no such process;
        nothing happens when there is no such task, or when the same is there already."""

    @abstractmethod
    async def receive(self, owner: str) -> list[Signal]:
        """Everything that was left for tasks of an owner, in order. It stays, and is given again, until it is acknowledged:
        whoever ends before it has acted on it has lost nothing."""

    @abstractmethod
    async def acknowledge(self, signals: Sequence[Signal]) -> None:
        """Forget these, as `receive` gave them; nothing happens for those that are gone."""

    @abstractmethod
    async def wait_change(self) -> None:
        """Wait until another process may have changed something, since the last call or since this one began; all that wait
        are woken. Whatever was there when the store was opened counts as changed. Waits for ever where no other process can."""
