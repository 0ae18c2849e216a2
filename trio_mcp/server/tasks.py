"""Calls that become tasks (extension `io.modelcontextprotocol/tasks`, SEP-2663): the window, the hand-over, and the methods."""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import trio

from ..convert.codec import Mismatch
from ..errors import InternalError, InvalidParams, ProtocolError, ServerBusy
from ..limits import TASK_TTL_MOST, Limits
from ..protocol.jsontext import shorten
from ..protocol.meta import CLIENT_CAPABILITIES, PROTOCOL_VERSION, RequestMeta
from ..protocol.tasks import TASK_CHANGED, Mode, Signal, Task
from ..scopes.call import Call
from ..scopes.groups import unwrapped
from ..tasks.memory import MemoryTaskStore
from ..tasks.store import TaskStore, TaskStoreError
from .context import Context
from .registry import Tool
from .task import INTERRUPTED, Outcome, ServerTask

if TYPE_CHECKING:
    from .engine import Engine

__all__ = ["Tasks", "TasksStatistics", "cancel_task", "get_task", "update_task"]

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


class Tasks:
    """The tasks of an open server.

    Args:
        engine: The server.
        store: Where they are kept.
        run: Runs a tool; raises nothing but cancellation.

    Attributes:
        running: Those whose work runs in this process, by id.
        collector: The nursery of handed-over work.
        clock: Seconds since the epoch.
    """

    def __init__(self, engine: Engine, store: TaskStore, run: Run) -> None:
        self._engine = engine
        self._run = run
        self.store: TaskStore = store
        self.limits: Limits = engine.limits
        self.owner: str = secrets.token_hex(8)
        self.running: dict[str, ServerTask] = {}
        self.threads: trio.CapacityLimiter = trio.CapacityLimiter(engine.limits.tasks_active)
        self.clock: Callable[[], float] = time.time
        self._collector: trio.Nursery | None = None
        # Calls that have no row yet, by caller.
        self._opening: Counter[str] = Counter()
        self._changed: dict[ServerTask, None] = {}
        self._discarded: dict[str, None] = {}
        self._work = trio.lowlevel.ParkingLot()
        self._used = trio.Event()
        self._adopting = trio.Lock()
        self._adopted: list[Task] = []
        # Tasks of other processes that are listened to: how many listen, and which state was told last.
        self._heard: Counter[str] = Counter()
        self._told: dict[str, Task] = {}

    def statistics(self) -> TasksStatistics:
        """What is held: a server that has nothing to do with tasks holds nothing."""
        return TasksStatistics(
            running=len(self.running),
            opening=len(self._opening),
            unsaved=len(self._changed),
            discarded=len(self._discarded),
            heard=len(self._heard),
            told=len(self._told),
        )

    # -- life

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Hold the store open, with everything that looks after it."""
        self._engine.server.has_tasks = lambda: bool(self.running)
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
                while self._changed or self._discarded:
                    await self._write()

    async def begin(self, collector: trio.Nursery) -> None:
        """Take the place in which handed-over work runs, and every task that a process left behind."""
        self._collector = collector
        await self._adopt()

    # -- calls

    async def call(self, call: Call, tool: Tool, values: dict[str, Any], mode: Mode) -> bytes:
        """Serve a call that may become a task: its own result, or the handle.

        Raises:
            ProtocolError: the outcome of the call, or too many tasks.
        """
        principal = call.principal
        self._opening[principal] += 1
        try:
            await self._check_room(principal)
            context: Context[Any] = Context(self._engine, call)
            task = self._new(call, tool, values, context)
            told = False
            try:
                await self._serve(task, call, tool, mode)
                told = task.escalated
            finally:
                if task.begun and not told:
                    task.abandon()
        finally:
            self._opening[principal] -= 1
            if not self._opening[principal]:
                del self._opening[principal]
        if told:
            return self._engine.encode({**task.row.to_wire(self.clock()), "resultType": "task"})
        outcome = task.outcome
        assert outcome is not None
        if isinstance(outcome, ProtocolError):
            raise outcome
        return outcome

    async def _serve(self, task: ServerTask, call: Call, tool: Tool, mode: Mode) -> None:
        """Run the work until it has ended or belongs to the collector."""
        assert self._collector is not None
        window = self._engine.server.task_inline_ms if tool.task_inline_ms is None else tool.task_inline_ms
        if mode is Mode.TASK or window == 0:
            await self._create(task)
            call.task, task.escalated = task, True
            self.running[task.id] = task
            await self._collector.start(task.run)
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._hand_over_after, task, call, window / 1000)
            await self._collector.start(task.run)
            nursery.cancel_scope.cancel()

    def _new(self, call: Call, tool: Tool, values: dict[str, Any], context: Context[Any]) -> ServerTask:
        limits, now = self.limits, self.clock()
        ttl = limits.task_ttl if tool.timeout is None else min(tool.timeout + limits.task_ttl, TASK_TTL_MOST)
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

    def _task(self, row: Task, call: Call, tool: Tool, values: dict[str, Any], context: Context[Any]) -> ServerTask:
        timeout = min(math.inf if tool.timeout is None else tool.timeout, row.ttl)
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

    async def _hand_over_after(self, task: ServerTask, call: Call, seconds: float) -> None:
        await trio.sleep(seconds)
        if task.over or call.stays:
            return
        try:
            await self._create(task)
        except TaskStoreError as exc:
            # The work is worth more than the wish to keep it elsewhere: it goes on in line, and so does its outcome.
            logger.error("%s; the call goes on without a task", exc)
            return
        if not task.over and not call.stays:
            task.hand_over()

    async def _create(self, task: ServerTask) -> None:
        now = self.clock()
        task.row = replace(task.row, created=now, updated=now, recorded=task.recorded())
        task.begun = True
        self._used.set()
        await self.store.create(task.row)

    def timed_out(self, call: Call, timeout: float) -> Outcome:
        """The outcome of a call whose time is over."""
        call.timeout = timeout
        return self._engine.timed_out(call)

    # -- what tasks tell

    def publish(self, task_id: str) -> None:
        """A task has changed: tell those who listen."""
        self._engine.server.notices.publish(TASK_CHANGED, task_id)

    def touch(self, task: ServerTask) -> None:
        """A task has changed: the store is behind."""
        self._changed[task] = None
        self._work.unpark()

    def discard(self, task_id: str) -> None:
        """Delete the row of a task that nobody knows of."""
        self._discarded[task_id] = None
        self._work.unpark()

    def forget(self, task: ServerTask) -> None:
        """The work has ended."""
        self.running.pop(task.id, None)
        self._changed.pop(task, None)

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
            while not self._changed and not self._discarded:
                await self._work.park()
            await self._write()
            # Progress comes in bursts, and each write is one to the disk.
            await trio.sleep(self.limits.task_flush)

    async def _write(self) -> None:
        """Bring the store up to date; what it refuses is tried again."""
        changed = list(self._changed)
        try:
            for task in changed:
                # Before it is stored: what changes meanwhile is for the next time.
                self._changed.pop(task, None)
                if not task.over and not task.abandoned:
                    try:
                        await task.save()
                    except BaseException:
                        self._changed[task] = None
                        raise
            for task_id in [*self._discarded]:
                await self.store.delete(task_id)
                # Not before: nobody else would ever delete it.
                del self._discarded[task_id]
        except TaskStoreError as exc:
            logger.error("%s", exc)
            await trio.sleep(self.limits.task_retry)

    async def _sweep(self) -> None:
        while True:
            await self._used.wait()
            await trio.sleep(self.limits.task_sweep)
            try:
                await self.store.expire(self.clock())
                await self._adopt()
            except TaskStoreError as exc:
                logger.error("%s", exc)

    async def _hear(self) -> None:
        while True:
            await self._used.wait()
            try:
                await self.store.wait_change()
                async with self._adopting:
                    await self._receive()
                for task_id in [*self._heard]:
                    await self._compare(task_id)
            except TaskStoreError as exc:
                logger.error("%s", exc)
                await trio.sleep(self.limits.task_retry)

    async def _receive(self) -> None:
        for signal in await self.store.receive(self.owner):
            self._signalled(signal)

    def _signalled(self, signal: Signal) -> None:
        task = self.running.get(signal.task_id)
        if task is None:
            return
        if signal.kind == "cancel":
            task.cancel()
        else:
            task.answer(signal.payload)

    async def _compare(self, task_id: str) -> None:
        """Tell of a task of another process, if it has changed."""
        if task_id in self.running:
            return
        row = await self.store.get(task_id)
        if row is not None and row != self._told.get(task_id):
            self._told[task_id] = row
            self.publish(task_id)

    # -- after the end of a process

    async def _adopt(self) -> None:
        # What was left for these tasks is taken once they run: before, nobody would be there for it.
        async with self._adopting:
            self._adopted += await self.store.adopt(self.owner)
            if self._adopted:
                # At once: a store may write many with one flush.
                async with trio.open_nursery() as nursery:
                    for row in self._adopted:
                        nursery.start_soon(self._take_over, row)
                await self._receive()

    async def _take_over(self, row: Task) -> None:
        try:
            if not await self._begin_again(row):
                error = InternalError(INTERRUPTED)
                ended = replace(row, status="failed", message=INTERRUPTED, error=error.to_wire(), requests={})
                await self.store.save(replace(ended, updated=self.clock()))
        except TaskStoreError as exc:
            # It stays in the list, for nobody else would look after it.
            logger.error("%s", exc)
            return
        self._adopted.remove(row)
        # The store tells of what others have written, and this was not.
        self.publish(row.id)

    async def _begin_again(self, row: Task) -> bool:
        """Run a task again whose process has ended; False when that cannot be."""
        assert self._collector is not None
        tool = self._engine.registry.tools.get(row.params["name"])
        now = self.clock()
        if tool is None or not tool.restartable or not row.restartable or row.expires <= now:
            return False
        if row.attempts >= self.limits.task_attempts:
            return False
        try:
            values = tool.handler.load(row.params["arguments"])
        except Mismatch:
            # The tool has changed since.
            return False
        meta = RequestMeta(row.meta[PROTOCOL_VERSION], row.meta[CLIENT_CAPABILITIES], raw=row.meta)
        params = {"name": tool.name, "arguments": row.params["arguments"]}
        call = Call(row.id, "tools/call", params, meta, _NOBODY)
        call.principal = row.principal
        context: Context[Any] = Context(self._engine, call, row.recorded)
        again = replace(row, status="working", requests={}, message=None, attempts=row.attempts + 1, updated=now)
        task = self._task(again, call, tool, values, context)
        task.begun, task.escalated, call.task = True, True, task
        await task.save()
        self.running[task.id] = task
        await self._collector.start(task.run)
        return True

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
        if row is None or row.principal != principal or (task is None and row.expires <= self.clock()):
            raise InvalidParams(f"Unknown task: {shorten(task_id)}; there is none with this id, or it has expired")
        return row


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


async def get_task(engine: Engine, call: Call) -> dict[str, Any]:
    """`tasks/get`."""
    row = await engine.tasks.find(call.params["taskId"], call.principal)
    return row.detailed(engine.tasks.clock())


async def update_task(engine: Engine, call: Call) -> dict[str, Any]:
    """`tasks/update`: acknowledged once the answers are safe. Those that nobody waits for are ignored."""
    tasks = engine.tasks
    row = await tasks.find(call.params["taskId"], call.principal)
    responses = call.params["inputResponses"]
    task = tasks.running.get(row.id)
    if task is not None:
        task.answer(responses)
        if row.restartable:
            await task.save()
    elif not row.final:
        await tasks.store.send(Signal(row.id, "answer", responses))
    return {}


async def cancel_task(engine: Engine, call: Call) -> dict[str, Any]:
    """`tasks/cancel`: acknowledged before the work has ended; a task that has ended stays as it is."""
    tasks = engine.tasks
    row = await tasks.find(call.params["taskId"], call.principal)
    task = tasks.running.get(row.id)
    if not row.final and (task is None or row.restartable):
        # Also where the work is here: a process that ends now must not begin it again.
        await tasks.store.send(Signal(row.id, "cancel"))
    if task is not None:
        task.cancel()
    return {}
