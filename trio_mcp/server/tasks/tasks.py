"""Calls that become tasks (extension `io.modelcontextprotocol/tasks`, SEP-2663): the window, the hand-over, and the methods."""

from __future__ import annotations

import logging
import math
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import trio

from ...errors import InvalidParams, ProtocolError, ServerBusy
from ...limits import TASK_TTL_MOST
from ...protocol.jsontext import shorten
from ...protocol.meta import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from ...protocol.tasks import Mode, Signal, Task
from ...scopes.call import Call
from ...scopes.groups import unwrapped
from ...tasks.memory import MemoryTaskStore
from ...tasks.store import TaskStore
from ..ask.context import Context
from ..ask.running_server import RunningServer
from ..declare.registry import Tool
from .adoption import Adoption, log_failure
from .session_rows import asked_ttl, session_row
from .task import Outcome, ServerTask, TaskTable

__all__ = ["Tasks", "TasksStatistics", "cancel_task", "get_task", "update_task", "update_task_of"]

logger: logging.Logger = logging.getLogger("trio_mcp.server.tasks")

Run = Callable[[Call, Tool, dict[str, Any], Context[Any]], Awaitable[Outcome]]


@dataclass(frozen=True, slots=True)
class TasksStatistics:
    """What the tasks of a server hold right now.

    Attributes:
        running: Tasks whose work runs in this process.
        opening: Callers with calls that have no row yet.
        unsaved: Tasks whose state is newer than their row.
        discarded: Rows that are to be deleted: nobody was told of their tasks.
        heard: Tasks that somebody listens to.
        told: Tasks of other processes among them whose last state is kept, to notice the next one.
    """

    running: int
    opening: int
    unsaved: int
    discarded: int
    heard: int
    told: int


class Tasks(TaskTable):
    """The tasks of an open server.

    Args:
        running: The server.
        store: Where they are kept.
        run: Runs a tool; raises nothing but cancellation.
        time_out: Makes the outcome of a call whose time is over.
    """

    def __init__(self, running: RunningServer, store: TaskStore, run: Run, time_out: Callable[[Call], Outcome]) -> None:
        super().__init__(running, store, time_out)
        self._run = run
        self.threads: trio.CapacityLimiter = trio.CapacityLimiter(running.limits.tasks_active)
        # Calls that have no row yet, by caller.
        self._opening: Counter[str] = Counter()
        self._used = trio.Event()
        self._adoption = Adoption(self, self._again)
        # Tasks of other processes that are listened to: how many listen, and which state was told last.
        self._heard: Counter[str] = Counter()
        self._told: dict[str, Task] = {}

    def statistics(self) -> TasksStatistics:
        """What is held: a server that has nothing to do with tasks holds nothing."""
        return TasksStatistics(
            running=len(self.running),
            opening=len(self._opening),
            unsaved=len(self.changed),
            discarded=len(self.discarded),
            heard=len(self._heard),
            told=len(self._told),
        )

    # -- life

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Hold the store open, with everything that looks after it."""
        self._server.server.has_tasks = lambda: bool(self.running)
        self.expiry()  # what is ahead later is a jump
        async with self.store.open(self.owner):
            with unwrapped():
                async with trio.open_nursery() as nursery:
                    if not isinstance(self.store, MemoryTaskStore):
                        self._used.set()
                    for service in (self._flush, self._sweep, self._hear):
                        nursery.start_soon(service)
                    yield
                    nursery.cancel_scope.cancel()
            with trio.move_on_after(self.limits.task_settle):
                # More than once: a row that nobody was told of would count against its caller until it expires.
                while self.changed or self.discarded:
                    await self._write()

    async def begin(self, collector: trio.Nursery) -> None:
        """Take the place in which handed-over work runs, and every task that a process left behind."""
        self._collector = collector
        try:
            if await self._adoption.adopt():
                self._used.set()
        except Exception as exc:
            # Tried again by the sweep, and no reason not to start.
            log_failure(exc)
            self._used.set()

    # -- calls

    async def call(self, call: Call, tool: Tool, values: dict[str, Any], mode: Mode) -> bytes:
        """Serve a call that may become a task: its own result, or the handle.

        Raises:
            ProtocolError: the outcome of the call, or too many tasks.
        """
        context: Context[Any] = Context(self._server, call)
        task = self._new(call, tool, values, context)
        told = False
        # A tool that is a task or nothing is refused before it runs; another one asks for room when it becomes a task.
        must = tool.task_support == "required" or call.dialect is not None
        with self._opened(call.principal) if must else nullcontext():
            if must:
                await self._check_room(call.principal)
            try:
                await self._serve(task, call, tool, mode, must)
                told = task.escalated
            finally:
                if task.begun and not told:
                    task.abandon()
        if told and call.dialect is not None:
            assert call.session is not None
            call.session.begun(task.id)
            return self._server.encode_bare({"task": session_row(task.row)})
        if told:
            return self._server.encode({**task.row.to_wire(self.clock()), "resultType": "task"})
        outcome = task.outcome
        assert outcome is not None
        if isinstance(outcome, ProtocolError):
            raise outcome
        return outcome

    async def _serve(self, task: ServerTask, call: Call, tool: Tool, mode: Mode, must: bool) -> None:
        """Run the work until it has ended or belongs to the collector."""
        window = self._server.server.task_inline_ms if tool.task_inline_ms is None else tool.task_inline_ms
        if mode is Mode.TASK or window == 0:
            if await self._may_create(task, must):
                call.task, task.escalated = task, True
                self.running[task.id] = task
            await self.collector.start(task.run)
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._hand_over_after, task, call, tool, window / 1000)
            await self.collector.start(task.run)
            nursery.cancel_scope.cancel()

    @contextmanager
    def _opened(self, principal: str) -> Iterator[None]:
        """Held while a call of a caller may become a task and has no row yet."""
        self._opening[principal] += 1
        try:
            yield
        finally:
            self._opening[principal] -= 1
            if not self._opening[principal]:
                del self._opening[principal]

    def _new(self, call: Call, tool: Tool, values: dict[str, Any], context: Context[Any]) -> ServerTask:
        limits, now = self.limits, self.clock()
        ttl = limits.task_ttl if tool.timeout is None else min(tool.timeout + limits.task_ttl, TASK_TTL_MOST)
        if call.dialect is not None:
            ttl = asked_ttl(call.params.get("task"), ttl)
        row = Task(
            id=secrets.token_hex(16),
            owner=self.owner,
            principal=call.principal,
            params={"name": tool.name, "arguments": call.params.get("arguments") or {}},
            meta={
                PROTOCOL_VERSION: call.meta.protocol_version,
                CLIENT_CAPABILITIES: call.meta.client_capabilities,
            },
            created=now,
            updated=now,
            ttl=ttl,
            poll_interval=limits.task_poll,
            restartable=tool.restartable,
        )
        return self._task(row, call, tool, values, context)

    def _again(self, row: Task, call: Call, values: dict[str, Any]) -> ServerTask:
        tool = self.tools[row.params["name"]]
        return self._task(row, call, tool, values, Context(self._server, call, row.recorded))

    def _task(self, row: Task, call: Call, tool: Tool, values: dict[str, Any], context: Context[Any]) -> ServerTask:
        # Of one that is run again a part of its time is over.
        timeout = min(math.inf if tool.timeout is None else tool.timeout, row.expires - row.updated)
        return ServerTask(self, row, call, context, lambda: self._run(call, tool, values, context), timeout)

    async def _check_room(self, principal: str) -> None:
        limits = self.limits
        active, stored = await self.store.count(principal)
        # This call is among those that are opening.
        if active + self._opening[principal] > limits.tasks_active:
            raise ServerBusy(
                f"Server busy: {limits.tasks_active} tasks of this caller are active; cancel one, or wait until one ends",
                {"retryAfter": limits.retry_after},
            )
        if stored + self._opening[principal] > limits.tasks_stored:
            raise ServerBusy(
                f"Server busy: {limits.tasks_stored} tasks of this caller are kept; wait until some expire",
                {"retryAfter": limits.task_sweep},
            )

    async def _hand_over_after(self, task: ServerTask, call: Call, tool: Tool, seconds: float) -> None:
        await trio.sleep(seconds)
        if task.over or call.stays:
            return
        try:
            created = await self._may_create(task, tool.task_support == "required")
        except Exception as exc:
            # The work is worth more than the wish to keep it elsewhere: it goes on in line, and so does its outcome.
            log_failure(exc, "; the call goes on without a task")
            return
        if created and not task.over and not call.stays:
            task.hand_over()

    async def _may_create(self, task: ServerTask, must: bool) -> bool:
        """Make the row of a task. Where there is no room, or the store fails, a tool that can do without goes on in line:
        a client that takes tasks is not served worse than another.

        Raises:
            Exception: the store failed, and the call is a task or nothing.
        """
        if must:
            # There was room when it began.
            await self._create(task)
            return True
        principal = task.row.principal
        with self._opened(principal):
            try:
                await self._check_room(principal)
                await self._create(task)
            except ServerBusy as exc:
                logger.info("%s; the call goes on without a task", exc.message)
            except Exception as exc:
                log_failure(exc, "; the call goes on without a task")
            else:
                return True
        return False

    async def _create(self, task: ServerTask) -> None:
        now = self.clock()
        task.row = replace(task.row, created=now, updated=now, recorded=task.recorded())
        task.begun = True
        self._used.set()
        await self.store.create(task.row)

    # -- listening

    @contextmanager
    def heard(self, ids: list[str]) -> Iterator[None]:
        """Held while somebody listens to these tasks."""
        self._heard.update(ids)
        try:
            yield
        finally:
            self._heard.subtract(ids)
            for task_id in ids:
                if not self._heard[task_id]:
                    del self._heard[task_id]
                    self._told.pop(task_id, None)

    # -- services

    async def _flush(self) -> None:
        while True:
            while not self.changed and not self.discarded:
                await self.work.park()
            await self._write()
            # Progress comes in bursts, and each write is one to the disk.
            await trio.sleep(self.limits.task_flush)

    async def _write(self) -> None:
        """Bring the store up to date; what it refuses is tried again, and keeps no other back."""
        changed = [*self.changed]
        self.changed.clear()
        failures: list[Exception] = []
        # At once: a store may write many with one flush.
        async with trio.open_nursery() as nursery:
            for task in changed:
                if not task.over and not task.abandoned:
                    nursery.start_soon(self._save, task, failures)
            for task_id in [*self.discarded]:
                nursery.start_soon(self._delete, task_id, failures)
        if failures:
            log_failure(failures[0])
            await trio.sleep(self.limits.task_retry)

    async def _save(self, task: ServerTask, failures: list[Exception]) -> None:
        try:
            await task.save()
        except BaseException as exc:
            if not task.over:
                self.changed[task] = None
            if not isinstance(exc, Exception):
                raise
            failures.append(exc)

    async def _delete(self, task_id: str, failures: list[Exception]) -> None:
        try:
            await self.store.delete(task_id)
        except Exception as exc:
            failures.append(exc)
        else:
            # Not before: nobody else would ever delete it.
            self.discarded.pop(task_id, None)

    async def _sweep(self) -> None:
        while True:
            await self._used.wait()
            await trio.sleep(self.limits.task_sweep)
            with _logged():
                await self.store.expire(self.expiry())
            with _logged():
                await self._adoption.adopt()

    async def _hear(self) -> None:
        while True:
            await self._used.wait()
            failed = True
            with _logged():
                await self.store.wait_change()
                await self._adoption.hear()
                failed = False
            for task_id in [*self._heard]:
                with _logged():
                    await self._compare(task_id)
            if failed:
                await trio.sleep(self.limits.task_retry)

    async def _compare(self, task_id: str) -> None:
        """Tell of a task of another process, if it has changed."""
        if task_id in self.running:
            return
        row = await self.store.get(task_id)
        if row is not None and row != self._told.get(task_id):
            self._told[task_id] = row
            self.publish(task_id)

    # -- the methods

    async def find(self, task_id: str, principal: str) -> Task:
        """The state of a task of a caller.

        Raises:
            InvalidParams: there is none, or it is somebody else's: that looks the same.
        """
        task = self.running.get(task_id)
        row = task.current() if task is not None else await self.store.get(task_id)
        if task is not None:
            await trio.lowlevel.checkpoint()
        if row is None or row.principal != principal or (task is None and self.is_over(row)):
            raise InvalidParams(f"Unknown task: {shorten(task_id)}; there is none with this id, or it has expired")
        return row


async def get_task(tasks: Tasks, call: Call) -> dict[str, Any]:
    """`tasks/get`."""
    row = await tasks.find(call.params["taskId"], call.principal)
    return row.detailed(tasks.clock())


async def update_task(tasks: Tasks, call: Call) -> dict[str, Any]:
    """`tasks/update`: acknowledged once the answers are safe. Those that nobody waits for are ignored."""
    return await update_task_of(tasks, call.params["taskId"], call.principal, call.params["inputResponses"])


async def update_task_of(tasks: Tasks, task_id: str, principal: str, responses: dict[str, Any]) -> dict[str, Any]:
    """Give a task the answers to what it has asked; the same, for whoever has asked on its behalf."""
    row = await tasks.find(task_id, principal)
    if row.id not in tasks.running and not row.final:
        await tasks.store.send(Signal(row.id, "answer", responses))
    # Looked up now: it may have been taken over while the signal was left.
    task = tasks.running.get(row.id)
    if task is not None:
        task.answer(responses)
        if row.restartable:
            await task.save()
    return {}


async def cancel_task(tasks: Tasks, call: Call, *, told: bool = False) -> dict[str, Any]:
    """`tasks/cancel`: acknowledged before the work has ended; a task that has ended stays as it is."""
    row = await tasks.find(call.params["taskId"], call.principal)
    if not row.final and (row.id not in tasks.running or row.restartable):
        # Also where the work is here: a process that ends now must not begin it again.
        await tasks.store.send(Signal(row.id, "cancel"))
    # Looked up now: it may have been taken over while the signal was left.
    task = tasks.running.get(row.id)
    if task is not None:
        task.cancel(told=told)
    return {}


@contextmanager
def _logged() -> Iterator[None]:
    """A store may fail with whatever it likes: that is logged, and what looks after the tasks goes on."""
    try:
        yield
    except Exception as exc:
        log_failure(exc)
