"""What the machine of tasks plays on: processes that share a store which fails, hangs, is slow and comes back, in virtual time.

Trio runs in a thread of its own, so that the steps of a machine can be plain functions. Time passes only inside of a step.
"""

from __future__ import annotations

import json
import math
import queue
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import outcome
import trio
from trio.testing import MockClock

from trio_mcp import MemoryTaskStore, Server, Signal, Task, TaskStore, TaskStoreError
from trio_mcp.protocol.envelope import Request
from trio_mcp.protocol.meta import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from trio_mcp.protocol.tasks import TASKS
from trio_mcp.scopes.call import Call
from trio_mcp.server.serve.engine import Engine, _with_tasks
from trio_mcp.server.serve.lifespan import open_lifespan
from trio_mcp.tasks.store import TaskCount

T = TypeVar("T")

META = {
    PROTOCOL_VERSION: "2026-07-28",
    CLIENT_CAPABILITIES: {"extensions": {TASKS: {}}, "elicitation": {"form": {}}},
    "progressToken": 1,
}
ERRORS: dict[str, Exception] = {
    "store": TaskStoreError("the disk is full"),
    "foreign": ConnectionError("reset by peer"),
    # What was asked for is done, and nobody hears that it was.
    "lost": TaskStoreError("the line was cut"),
}


class Spin(trio.abc.Instrument):
    """Ends a loop in which a task works and works, and no time passes."""

    STEPS = 20_000

    def __init__(self, end: Callable[[str], None]) -> None:
        self._end = end
        self._time = -1.0
        self._steps: Counter[trio.lowlevel.Task] = Counter()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        now = trio.current_time()
        if now != self._time:
            self._time = now
            self._steps.clear()
        self._steps[task] += 1
        if self._steps[task] == self.STEPS:
            frames = [f"{frame.f_code.co_name}:{line}" for frame, line in task.iter_await_frames()]
            self._end(f"spins: {' > '.join(frames)}")


class World:
    """A trio loop in a thread, whose steps are asked for from outside."""

    def __init__(self) -> None:
        self.clock = MockClock()
        self.error: BaseException | None = None
        self._steps: queue.SimpleQueue[Callable[[], Awaitable[Any]] | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[outcome.Outcome[Any]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            trio.run(self._main, clock=self.clock, instruments=[Spin(self._give_up)])
        except BaseException as exc:
            self.error = self.error or exc
            self._results.put(outcome.Error(self.error))

    def _give_up(self, why: str) -> None:
        self.error = AssertionError(why)
        self.nursery.cancel_scope.cancel()

    async def _main(self) -> None:
        async with trio.open_nursery() as self.nursery:
            # Between two steps the whole loop stands still, so that the same steps come to the same.
            while (step := self._steps.get()) is not None:
                self.clock.autojump_threshold = 0
                result = await outcome.acapture(step)
                self.clock.autojump_threshold = math.inf
                self._results.put(result)

    def do(self, fn: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Run a step; while it lasts, time jumps to the next thing that is due."""
        self._steps.put(lambda: fn(*args))
        done: T = self._results.get().unwrap()
        return done

    def end(self) -> None:
        """End the loop. Raises what a task of it has raised."""
        self._steps.put(None)
        self._thread.join()
        if self.error is not None:
            raise self.error


class Disk(MemoryTaskStore):
    """What all processes share."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0

    @property
    def rows(self) -> dict[str, Task]:
        """Every row, by id."""
        return self._tasks

    @property
    def alive(self) -> set[str]:
        """The owners."""
        return self._owners


@dataclass
class Mood:
    """How a method of a store misbehaves: in which way, how often, and for a delay how long."""

    kind: str
    times: int
    seconds: float = 0.0
    over: trio.Event = field(default_factory=trio.Event)


class View(TaskStore):
    """The store as one process has it."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._own = 0
        self._seen = -1
        self.owner = ""
        self.dead = False
        self.moods: dict[str, Mood] = {}
        # Also those whose last call is still under way.
        self._kept: list[Mood] = []

    def open(self, owner: str) -> AbstractAsyncContextManager[None]:
        return self._open(owner)

    @asynccontextmanager
    async def _open(self, owner: str) -> AsyncIterator[None]:
        self.owner = owner
        async with self._disk.open(owner):
            yield

    def die(self) -> None:
        """The process is gone: what it still says is heard by nobody."""
        self.dead = True
        self._disk.alive.discard(self.owner)
        self.mend()

    def mend(self) -> None:
        """All is well again."""
        for mood in [*self.moods.values(), *self._kept]:
            mood.over.set()
        self.moods.clear()
        self._kept.clear()

    async def _do(self, name: str, fn: Callable[[], Awaitable[T]], *, writes: bool = False) -> T:
        mood = self.moods.get(name)
        if mood is not None:
            self._kept.append(mood)
            mood.times -= 1
            if mood.times <= 0:
                del self.moods[name]
            if mood.kind == "slow":
                with trio.move_on_after(mood.seconds):
                    await mood.over.wait()
            elif mood.kind == "hang":
                with trio.move_on_after(10_000):
                    await mood.over.wait()
            elif mood.kind != "lost":
                await trio.lowlevel.checkpoint()
                raise ERRORS[mood.kind]
        if self.dead:
            await trio.lowlevel.checkpoint()
            raise TaskStoreError("the process is gone")
        value = await fn()
        if writes:
            self._disk.writes += 1
            self._own += 1
        if mood is not None and mood.kind == "lost":
            raise ERRORS["lost"]
        return value

    async def create(self, task: Task) -> None:
        await self._do("create", lambda: self._disk.create(task), writes=True)

    async def save(self, task: Task) -> bool:
        return await self._do("save", lambda: self._disk.save(task), writes=True)

    async def get(self, task_id: str) -> Task | None:
        return await self._do("get", lambda: self._disk.get(task_id))

    async def delete(self, task_id: str) -> None:
        await self._do("delete", lambda: self._disk.delete(task_id), writes=True)

    async def count(self, principal: str) -> TaskCount:
        return await self._do("count", lambda: self._disk.count(principal))

    async def expire(self, now: float) -> int:
        return await self._do("expire", lambda: self._disk.expire(now), writes=True)

    async def adopt(self, owner: str) -> list[Task]:
        return await self._do("adopt", lambda: self._disk.adopt(owner), writes=True)

    async def send(self, signal: Signal) -> None:
        await self._do("send", lambda: self._disk.send(signal), writes=True)

    async def receive(self, owner: str) -> list[Signal]:
        return await self._do("receive", lambda: self._disk.receive(owner))

    async def acknowledge(self, signals: Sequence[Signal]) -> None:
        await self._do("acknowledge", lambda: self._disk.acknowledge(signals), writes=True)

    async def wait_change(self) -> None:
        while self._seen == self._disk.writes - self._own:
            await trio.sleep(0.1)
        await self._do("wait_change", trio.lowlevel.checkpoint)
        self._seen = self._disk.writes - self._own


class Outlet:
    """Where a client reads the answer to one request."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.message: dict[str, Any] | None = None
        self.answers = 0
        self.gone = False
        self.began = trio.current_time()
        self.heard: Callable[[], None] = lambda: None

    full = False

    def begin(self) -> None:
        pass

    async def wait_room(self) -> None:
        pass

    def post(self, message: bytes) -> None:
        pass

    def answer(self, message: bytes) -> bool:
        if self.gone or self._process.view.dead:
            return False
        self.answers += 1
        self.message = json.loads(message)
        self.heard()
        return True


class Process:
    """A server process.

    Attributes:
        failed: What it ended with, where it should not have.
    """

    def __init__(self, world: World, disk: Disk, wall: Callable[[], float]) -> None:
        self._world = world
        self._wall = wall
        self._up = trio.Event()
        self.view = View(disk)
        self.engine: Engine | None = None
        self.scope = trio.CancelScope()
        self.leaving = False
        self.ended = trio.Event()
        self.failed: BaseException | None = None
        self.began = trio.current_time()

    @property
    def alive(self) -> bool:
        """Whether it takes requests."""
        return self.engine is not None and not self.leaving and not self.ended.is_set()

    def leave(self) -> None:
        """Begin to end."""
        self.leaving = True
        self.scope.cancel()

    async def run(self, server: Server[Any]) -> None:
        """Its whole life."""
        try:
            with self.scope, server.opening():
                async with open_lifespan(server) as value:
                    engine = Engine(server, value)
                    engine.tasks.clock = self._wall
                    async with _with_tasks(engine), trio.open_nursery() as self.nursery:
                        self.engine = engine
                        await trio.sleep_forever()
        except BaseException as exc:
            self.failed = exc
        finally:
            self.ended.set()

    async def _play(self, call: Call) -> None:
        assert self.engine is not None
        await self.engine.run(call)

    def begin(self, method: str, params: dict[str, Any], outlet: Outlet) -> Call:
        """Begin a request; its answer goes to the outlet."""
        assert self.engine is not None
        call = self.engine.prepare(Request(1, method, {**params, "_meta": META}), outlet)
        self.nursery.start_soon(self._play, call)
        return call


class Wall:
    """The clock on the wall, which everybody sees and somebody sets."""

    def __init__(self) -> None:
        self._zero = 1e9 - trio.current_time()
        self.ahead = 0.0

    def __call__(self) -> float:
        return self._zero + trio.current_time() + self.ahead
