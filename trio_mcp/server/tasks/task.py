"""One task that runs in this process: its worker, its questions and its one end.

The worker is begun under its request and may be handed to the collector (`nursery.start`): nothing is copied, and there is no
moment at which two own it. What ends it is always its own scope, or the scope of whoever owns it.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import trio

from ...errors import InternalError, ProtocolError
from ...limits import Limits
from ...protocol.tasks import TASK_CHANGED, Status, Task, TaskClock, readable_for
from ...scopes.call import Call
from ...tasks.store import TaskStore, TaskStoreError
from ..ask.context import Context
from ..ask.journal import Entry
from ..ask.running_server import RunningServer
from ..declare.registry import Tool
from ..failures import cut, ended

__all__ = ["INTERRUPTED", "Outcome", "ServerTask", "TaskTable"]

logger: logging.Logger = logging.getLogger("trio_mcp.server.tasks")

Outcome = bytes | ProtocolError
"""What a request answers: the encoded result, or an error."""

INTERRUPTED = "The server stopped before the task had finished"


class ServerTask:
    """A call that is, or may become, a task.

    Args:
        tasks: The table in which it stands.
        row: Its first state.
        call: The request.
        context: What its handler gets.
        work: Runs the handler; raises nothing but cancellation.
        timeout: Seconds that the work may take.

    Attributes:
        row: Its state now. What a store has is this or older.
        escalated: Whether it belongs to the collector, or is about to.
        begun: Whether a row was or may have been created.
        over: Whether the work has ended.
        outcome: Its outcome, once it is there.
    """

    __slots__ = (
        "_call",
        "_end",
        "_lapsed",
        "_lock",
        "_started",
        "_tasks",
        "_timeout",
        "_told",
        "_work",
        "abandoned",
        "begun",
        "cancelled",
        "context",
        "escalated",
        "outcome",
        "over",
        "row",
        "scope",
        "stored",
    )

    def __init__(
        self,
        tasks: TaskTable,
        row: Task,
        call: Call,
        context: Context[Any],
        work: Callable[[], Awaitable[Outcome]],
        timeout: float,
    ) -> None:
        self._tasks = tasks
        self._call = call
        self._work = work
        self._timeout = timeout
        self._end: Task | None = None
        self._lock = trio.Lock()
        # Questions that were given up by the handler.
        self._lapsed: list[Entry] = []
        self._started: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
        self.context: Context[Any] = context
        self.row: Task = row
        self.scope: trio.CancelScope = trio.CancelScope()
        self.escalated: bool = False
        self.begun: bool = False
        self.over: bool = False
        self.cancelled: bool = False
        self.abandoned: bool = False
        self.stored: bool = False
        # Whether a client was told that it is cancelled: then it stays so, whatever the work still comes to.
        self._told: bool = False
        self.outcome: Outcome | None = None

    @property
    def id(self) -> str:
        """The id of the task."""
        return self.row.id

    # -- the worker

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """The worker. Calls `started` once: when it is handed over, or with its outcome."""
        self._started = task_status
        if self.escalated:
            task_status.started()
        try:
            with self.scope:
                self.scope.deadline = trio.current_time() + self._timeout
                if not self.cancelled:
                    self.outcome = await self._work()
            self.over = True
            if self.outcome is None and not self.cancelled and not self.abandoned:
                self.outcome = self._tasks.timed_out(self._call, self._timeout)
            if not self.escalated:
                task_status.started()
            elif not self.abandoned:
                await self._settle(self._last())
        finally:
            self.over = True
            if self.escalated and not self.stored and not self.abandoned:
                # The server ends, or the request did in the very moment of the hand-over.
                with trio.move_on_after(self._tasks.limits.task_settle, shield=True):
                    await self._interrupted()
            self._tasks.forget(self)

    def hand_over(self) -> None:
        """Give the worker to the collector, and everything that it says from now on to the task."""
        self.escalated = True
        self._call.task = self
        self._tasks.running[self.id] = self
        recorded = self.recorded()
        if recorded != self.row.recorded:
            # Kept while the row was being made.
            self.row = replace(self.row, recorded=recorded)
            self._tasks.touch(self)
        self._started.started()

    def abandon(self) -> None:
        """Nobody was told of this task, and nobody will be: end the work and leave no trace."""
        self.abandoned = True
        self.scope.cancel()
        if self.begun:
            self._tasks.discard(self.id)

    def cancel(self, *, told: bool = False) -> None:
        """End the work, because the client asked for it. Loses against an outcome that is there already.

        Args:
            told: Whether the client is told at once (2025-11-25): then it stays cancelled, whatever comes of the work.
        """
        if not self.over:
            self.cancelled = True
            self.scope.cancel()
            if told:
                self._told = True
                self._change(message="Cancelled by the client")

    # -- the end

    def _last(self) -> Task:
        outcome, now = self.outcome, self._tasks.clock()
        row = replace(self.row, updated=now, ttl=self.row.lasting(now), requests={})
        if outcome is None or (self.cancelled and self._told):
            return replace(row, status="cancelled", message="Cancelled by the client")
        return replace(row, **ended(outcome, self._tasks.limits))

    async def _settle(self, row: Task) -> None:
        """Store the end, and tell it then. While the store fails this stays here, and the end can be found here."""
        self._end = row
        while not self.stored and not self.abandoned:
            try:
                await self.save()
            except Exception as exc:
                logger.error("%s; trying again", exc, exc_info=None if isinstance(exc, TaskStoreError) else exc)
                self._tell(row)
                await trio.sleep(self._tasks.limits.task_retry)
                if self._tasks.is_over(row):
                    # It would count as one that works for as long as this process lives.
                    self.abandon()
                    return

    async def _interrupted(self) -> None:
        if self._end is None and self.row.restartable:
            # The next process finds it unfinished and begins it again. It was not the fault of the task.
            self.row = replace(self.row, attempts=self.row.attempts - 1)
        elif self._end is None:
            error = InternalError(INTERRUPTED)
            row = replace(self.row, status="failed", message=INTERRUPTED, error=error.to_wire(), requests={})
            now = self._tasks.clock()
            self._end = replace(row, updated=now, ttl=row.lasting(now))
        try:
            await self.save()
        except Exception as exc:
            known = isinstance(exc, TaskStoreError)
            logger.error("the end of task %s is lost: %s", self.id, exc, exc_info=None if known else exc)

    async def save(self) -> None:
        """Bring the store up to date.

        Raises:
            TaskStoreError: it fails.
        """
        async with self._lock:
            row = self._end or self._now()
            await self._tasks.store.save(row)
            if row.final:
                self.stored = True
                self._tell(row)

    def _tell(self, end: Task) -> None:
        """Let the end be seen: what a client was told must not be another after a crash."""
        if self.row is not end:
            self.row = end
            self._tasks.publish(self.id)

    # -- while it works

    def _change(self, **changes: Any) -> None:
        self.row = replace(self.row, updated=self._tasks.clock(), **changes)
        self._tasks.publish(self.id)
        self._tasks.touch(self)

    def note(self, message: str) -> None:
        """Progress, or a log line: the status message. Does not wait; what follows quickly is stored once."""
        if not self.row.final:
            self._change(message=cut(message, self._tasks.limits))

    async def record(self) -> None:
        """Store answers and values of `once`, for a run after this one. While the store fails this stays here."""
        if not self.row.restartable:
            await trio.lowlevel.checkpoint()
            return
        self.row = replace(self.row, recorded=self.recorded())
        while True:
            try:
                return await self.save()
            except Exception as exc:
                logger.error("%s; trying again", exc, exc_info=None if isinstance(exc, TaskStoreError) else exc)
                await trio.sleep(self._tasks.limits.task_retry)

    def recorded(self) -> dict[str, Any]:
        """What a run after this one finds; nothing where there will be none."""
        return self.context.rounds.journal.to_json(stored=True) if self.row.restartable else {}

    async def ask(self, entries: Sequence[Entry]) -> None:
        """Ask, and wait for all of the answers that fit."""
        for entry in entries:
            entry.waiting = True
        self._standing()
        try:
            for entry in entries:
                await entry.answered.wait()
        finally:
            left = [entry for entry in entries if entry.waiting]
            if left:
                # Seen when the work goes on. When it ends with this, the next run finds the questions still open.
                self._lapsed += left
                self._tasks.touch(self)

    def answer(self, responses: Mapping[str, Any]) -> None:
        """Take answers. Those to other keys are ignored; one that does not fit is asked for again, under a new key."""
        journal = self.context.rounds.journal
        known = [journal.answer(key, response) for key, response in responses.items()]
        if any(known):
            self._standing()
        elif self.row.restartable:
            # To what an earlier run had asked, and this one has not come so far yet.
            self.row = replace(self.row, recorded=self.recorded())
            self._tasks.touch(self)

    def current(self) -> Task:
        """Its state now, as a client sees it."""
        row = self._now()
        return replace(row, status="cancelled", requests={}) if self._told and not row.final else row

    def _now(self) -> Task:
        if self._lapsed and not self.over:
            self._standing()
        return self.row

    def _standing(self) -> None:
        journal = self.context.rounds.journal
        for entry in self._lapsed:
            if entry.waiting:
                journal.forget(entry)
        self._lapsed.clear()
        requests = journal.waiting()
        status: Status = "input_required" if requests else "working"
        self._change(status=status, requests=requests, recorded=self.recorded())


class TaskTable:
    """What the tasks of a server share: where they are kept, which run here, and which the store is behind.

    Args:
        running: The server.
        store: Where they are kept.
        time_out: Makes the outcome of a call whose time is over.

    Attributes:
        running: Those whose work runs in this process, by id.
        changed: Those whose state is newer than their row.
        discarded: Rows that are to be deleted.
        work: Where whoever writes to the store waits for work.
        clock: Seconds since the epoch.
        expiry: The same, as tasks expire by it.
    """

    def __init__(self, running: RunningServer, store: TaskStore, time_out: Callable[[Call], Outcome]) -> None:
        self._server = running
        self._time_out = time_out
        self.store: TaskStore = store
        self.limits: Limits = running.limits
        self.owner: str = secrets.token_hex(8)
        self.running: dict[str, ServerTask] = {}
        self.changed: dict[ServerTask, None] = {}
        self.discarded: dict[str, None] = {}
        self.work: trio.lowlevel.ParkingLot = trio.lowlevel.ParkingLot()
        self.clock: Callable[[], float] = time.time
        self.expiry: Callable[[], float] = TaskClock(
            lambda: self.clock(), trio.current_time, readable_for(running.limits.task_poll)
        )
        self._collector: trio.Nursery | None = None

    @property
    def collector(self) -> trio.Nursery:
        """The nursery of handed-over work."""
        assert self._collector is not None
        return self._collector

    @property
    def tools(self) -> dict[str, Tool]:
        """The tools of the server."""
        return self._server.registry.tools

    def timed_out(self, call: Call, timeout: float) -> Outcome:
        """The outcome of a call whose time is over."""
        call.timeout = timeout
        return self._time_out(call)

    def publish(self, task_id: str) -> None:
        """A task has changed: tell those who listen."""
        self._server.server.notices.publish(TASK_CHANGED, task_id)

    def touch(self, task: ServerTask) -> None:
        """A task has changed: the store is behind."""
        self.changed[task] = None
        self.work.unpark()

    def discard(self, task_id: str) -> None:
        """Delete the row of a task that nobody knows of."""
        self.discarded[task_id] = None
        self.work.unpark()

    def forget(self, task: ServerTask) -> None:
        """The work has ended."""
        self.running.pop(task.id, None)
        self.changed.pop(task, None)

    def peek(self, task_id: str) -> Task | None:
        """How a task stands, if it runs in this process."""
        task = self.running.get(task_id)
        return None if task is None else task.row

    def is_over(self, row: Task) -> bool:
        """Whether the time of a task is over: nobody finds it any more."""
        return row.expires <= self.expiry()
