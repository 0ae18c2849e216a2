"""A machine of tasks: processes that share a store, and what may happen to both, beside what must be true.

Whatever happens: nothing that was acknowledged is lost (a task, an answer, a cancellation), nothing ends twice, every question
can be answered, an end can be read for a while, and when all is well again everything comes to its end and nothing is held.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import trio
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from trio_mcp import Context, InvalidParams, Limits, Server, ToolError
from trio_mcp.scopes.call import Call

from ..scaled import scaled
from .task_world import Disk, Mood, Outlet, Process, Wall, World

TTL = 3_000.0
READABLE = 10.0
LIMITS = Limits(drain_timeout=1.0, task_settle=2.0, task_retry=0.5, task_flush=0.25, task_sweep=2.0, task_ttl=TTL)
PROCESSES = 3
INTERRUPTED = "stopped before"
METHODS = [
    "create",
    "save",
    "save",
    "get",
    "delete",
    "count",
    "expire",
    "adopt",
    "send",
    "receive",
    "acknowledge",
    "wait_change",
]
TOOLS = ["optional", "required", "at_once", "again", "again", "again_late"]
TIMES = st.sampled_from([0.0, 0.05, 0.1, 0.2, 0.5, 1.0])

steps = st.one_of(
    st.tuples(st.just("sleep"), TIMES),
    st.tuples(st.just("sleep"), TIMES),
    st.tuples(st.just("say"), st.just(0.0)),
    st.tuples(st.sampled_from(["ask", "ask", "ask named", "give up", "both"]), TIMES),
    st.tuples(st.just("once"), TIMES),
)
ends = st.sampled_from(["value", "value", "tool error", "protocol error", "crash", "forever"])
numbers = st.integers(0, 5)


@dataclass(frozen=True)
class Plan:
    """What a handler does."""

    steps: tuple[tuple[str, float], ...]
    end: str
    cleanup: float


plans = st.builds(Plan, st.lists(steps, max_size=4).map(tuple), ends, st.sampled_from([0.0, 0.0, 0.05, 0.15, 0.5]))


@dataclass(eq=False)
class Job:
    """A call, as its client and its handler know it.

    Attributes:
        given: Answers that were sent, by question.
        acked: Those of them that were acknowledged, by key.
        seen: Answers that the handler got, and values of `once` that it was given, by question.
        safe: Those questions whose answer must stay as it is.
        kept: Values of `once`.
        told: The end that the client was told, and when.
        cancelled: Whether a cancellation was acknowledged.
        working: Where its handler runs.
        finished: How its handler has ended by itself.
        fragile: Whether a process has ended on it that may have known more than the store.
    """

    number: int
    tool: str
    plan: Plan
    process: Process
    outlet: Outlet
    given: dict[str, set[int]] = field(default_factory=dict)
    acked: dict[str, set[int]] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    safe: set[str] = field(default_factory=set)
    kept: dict[str, int] = field(default_factory=dict)
    questions: dict[str, str] = field(default_factory=dict)
    call: Call | None = None
    handle: str | None = None
    told: dict[str, Any] | None = None
    told_at: float = 0.0
    made: float = 0.0
    aged: float = 0.0
    cancelled: bool = False
    cancel_sent: bool = False
    cancelled_early: bool = False
    lost: bool = False
    working: list[Process] = field(default_factory=list)
    runs: int = 0
    finished: set[str] = field(default_factory=set)

    @property
    def restartable(self) -> bool:
        return self.tool.startswith("again")

    @property
    def result(self) -> dict[str, Any]:
        return (self.outlet.message or {}).get("result", {})


class TaskMachine(RuleBasedStateMachine):
    """See the head of the module."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.jobs: list[Job] = []
        self.by_handle: dict[str, Job] = {}
        self.wrong: list[str] = []
        self.processes: list[Process] = []
        self.jumped = -math.inf
        self.closing = False
        self.world.do(self._set_up)

    async def _set_up(self) -> None:
        self.disk = Disk()
        self.wall = Wall()
        # So that it can be looked at between two processes.
        self.disk.alive.add("the machine")

    # -- the server

    def make_server(self, process: Process) -> Server[Any]:
        server = Server("s", tasks=process.view, limits=LIMITS, task_inline_ms=100, state_keys=[b"k" * 32])
        options: dict[str, dict[str, Any]] = {
            "optional": {"task_support": "optional"},
            "required": {"task_support": "required"},
            "at_once": {"task_support": "required", "task_inline_ms": 0},
            "again": {"task_support": "required", "task_inline_ms": 0, "restartable": True},
            "again_late": {"task_support": "optional", "restartable": True},
        }
        for name, option in options.items():

            @server.tool(name=name, **option)
            async def work(number: int, ctx: Context) -> str:
                return await self.work(self.jobs[number], ctx, process)

        return server

    async def work(self, job: Job, ctx: Context, process: Process) -> str:
        if process.view.dead:
            await trio.sleep_forever()
        if job.handle is not None:
            if job.told is not None:
                self.wrong.append(f"{job.number} runs again after its end was told")
            if job.cancelled:
                self.wrong.append(f"{job.number} runs again after its cancellation was acknowledged")
        if any(not other.view.dead for other in job.working):
            self.wrong.append(f"{job.number} runs twice at once")
        if job.runs and not job.restartable:
            self.wrong.append(f"{job.number} runs again, which it must not")
        job.runs += 1
        job.working.append(process)
        try:
            return await self.play(job, ctx, process)
        finally:
            if job.plan.cleanup:
                with trio.move_on_after(job.plan.cleanup, shield=True):
                    await trio.sleep_forever()
            job.working.remove(process)

    async def play(self, job: Job, ctx: Context, process: Process) -> str:
        for at, (kind, seconds) in enumerate(job.plan.steps):
            if kind == "sleep":
                await trio.sleep(seconds)
            elif kind == "say":
                await ctx.report_progress(at, message=f"at {at}")
            elif kind == "ask":
                await self.ask(job, ctx, process, f"{at}?", None)
            elif kind == "ask named":
                await self.ask(job, ctx, process, f"{at}?", f"key{at}")
            elif kind == "give up":
                with trio.move_on_after(seconds):
                    await self.ask(job, ctx, process, f"{at}?", None)
            elif kind == "both":
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self.ask, job, ctx, process, f"{at}a?", None)
                    nursery.start_soon(self.ask, job, ctx, process, f"{at}b?", f"key{at}")
            else:
                await self.once(job, ctx, process, f"once{at}", seconds)
        end = job.plan.end
        if end == "forever":
            await trio.sleep_forever()
        if not process.view.dead:
            job.finished.add(end)
        if end == "tool error":
            raise ToolError("no")
        if end == "protocol error":
            raise InvalidParams("never")
        if end == "crash":
            raise ZeroDivisionError
        return "done"

    async def ask(self, job: Job, ctx: Context, process: Process, text: str, key: str | None) -> None:
        answer = await ctx.elicit(text, {"x": int}, key=key)
        if process.view.dead:
            return
        value = answer.value["x"]
        if value not in job.given.get(text, ()):
            self.wrong.append(f"{job.number} got {value} for {text}, which was never sent")
        if text in job.safe and job.seen.get(text, value) != value:
            self.wrong.append(
                f"{job.number} got {value} for {text}, and {job.seen[text]} before, which was acknowledged"
            )
        job.seen[text] = value

    async def once(self, job: Job, ctx: Context, process: Process, key: str, seconds: float) -> None:
        async def charge() -> int:
            await trio.sleep(seconds)
            return job.runs

        value = await ctx.once(key, charge)
        if process.view.dead:
            return
        # Before it is a task there is no run after this one.
        if job.kept.get(key, value) != value:
            self.wrong.append(f"{job.number} was given {value} for {key}, and {job.kept[key]} before")
        job.kept[key] = value

    # -- processes

    @property
    def up(self) -> list[Process]:
        return [process for process in self.processes if process.alive]

    async def _start(self, moods: dict[str, Mood]) -> None:
        process = Process(self.world, self.disk, self.wall)
        process.view.moods.update(moods)
        self.processes.append(process)
        self.world.nursery.start_soon(process.run, self.make_server(process))
        with trio.move_on_after(3):
            while process.engine is None and not process.ended.is_set():
                await trio.sleep(0.01)

    @initialize()
    def begin(self) -> None:
        self.world.do(self._start, {})

    @precondition(lambda self: sum(not one.ended.is_set() for one in self.processes) < PROCESSES)
    @rule(
        moods=st.dictionaries(
            st.sampled_from(["adopt", "save", "receive"]), st.sampled_from(["store", "slow"]), max_size=1
        )
    )
    def start(self, moods: dict[str, str]) -> None:
        self.world.do(self._start, {name: Mood(kind, 1, 0.3) for name, kind in moods.items()})

    @precondition(lambda self: self.up)
    @rule(which=numbers, wait=st.booleans())
    def end(self, which: int, wait: bool) -> None:
        process = self.up[which % len(self.up)]
        self.world.do(self._end, process, wait)

    async def _end(self, process: Process, wait: bool) -> None:
        self._forget_untold(process)
        process.leave()
        if wait:
            await process.ended.wait()
            # What it told while it ended, and could not store.
            self._forget_untold(process)

    @precondition(lambda self: self.up)
    @rule(which=numbers)
    def kill(self, which: int) -> None:
        process = self.up[which % len(self.up)]
        self.world.do(self._kill, process)

    async def _kill(self, process: Process) -> None:
        self._forget_untold(process)
        process.view.die()
        process.leave()

    def _forget_untold(self, process: Process) -> None:
        """An end that could not be stored is told all the same; with its process it is lost."""
        for job in self.jobs:
            row = self.disk.rows.get(job.handle or "")
            if job.told is not None and row is not None and not row.final:
                job.told = None

    # -- what clients do

    def _begin(self, process: Process, job: Job, params: dict[str, Any]) -> None:
        self.jobs.append(job)
        job.made = self.wall()
        job.outlet.heard = lambda: self._answered(job)
        arguments = {"number": job.number}
        job.call = process.begin("tools/call", {"name": job.tool, "arguments": arguments, **params}, job.outlet)

    def _answered(self, job: Job) -> None:
        if job.result.get("resultType") == "task":
            job.handle = job.result["taskId"]
            self.by_handle[job.handle] = job
        if job.result.get("resultType") == "input_required":
            for key, request in job.result["inputRequests"].items():
                job.questions[key] = request["params"]["message"]

    @precondition(lambda self: self.up and len(self.jobs) < 8)
    @rule(which=numbers, tool=st.sampled_from(TOOLS), plan=plans, wait=TIMES)
    def call(self, which: int, tool: str, plan: Plan, wait: float) -> None:
        async def step() -> None:
            process = self.up[which % len(self.up)]
            outlet = Outlet(process)
            self._begin(process, Job(len(self.jobs), tool, plan, process, outlet), {})
            await trio.sleep(wait)

        self.world.do(step)

    def _asked(self) -> list[Job]:
        return [job for job in self.jobs if job.result.get("resultType") == "input_required"]

    @precondition(lambda self: self.up and self._asked() and len(self.jobs) < 12)
    @rule(which=numbers, number=numbers, value=st.integers(1, 9), fits=st.booleans(), wait=TIMES)
    def retry(self, which: int, number: int, value: int, fits: bool, wait: float) -> None:
        """The next round of a call, in any process."""
        self.world.do(self._retry, which, number, value, fits, wait)

    async def _retry(self, which: int, number: int, value: int, fits: bool, wait: float) -> None:
        process = self.up[which % len(self.up)]
        asked = self._asked()
        job = asked[number % len(asked)]
        state, requests = job.result["requestState"], job.result["inputRequests"]
        responses: dict[str, Any] = {}
        for key, request in requests.items():
            responses[key] = {"action": "accept", "content": {"x": value if fits else "no"}}
            if fits:
                job.given.setdefault(request["params"]["message"], set()).add(value)
        # The same call goes on: with what it has seen, in another request.
        job.safe |= job.seen.keys()
        job.process, job.outlet, job.runs = process, Outlet(process), 0
        job.outlet.heard = lambda: self._answered(job)
        params = {"name": job.tool, "arguments": {"number": job.number}}
        job.call = process.begin(
            "tools/call", {**params, "requestState": state, "inputResponses": responses}, job.outlet
        )
        await trio.sleep(wait)

    @precondition(lambda self: self.jobs)
    @rule(number=numbers)
    def vanish(self, number: int) -> None:
        """The client of a call hangs up."""

        async def step() -> None:
            job = self.jobs[number % len(self.jobs)]
            if job.call is not None and not job.outlet.answers:
                job.outlet.gone = True
                job.call.cancel("gone")

        self.world.do(step)

    def _task(self, number: int) -> Job:
        return [*self.by_handle.values()][number % len(self.by_handle)]

    @precondition(lambda self: self.up and self.by_handle)
    @rule(which=numbers, number=numbers, wait=TIMES)
    def get(self, which: int, number: int, wait: float) -> None:
        async def step() -> None:
            self._get(self.up[which % len(self.up)], self._task(number))
            await trio.sleep(wait)

        self.world.do(step)

    def _get(self, process: Process, job: Job) -> Outlet:
        outlet = Outlet(process)
        outlet.heard = lambda: self._told(process, job, outlet)
        process.begin("tasks/get", {"taskId": job.handle}, outlet)
        return outlet

    def _told(self, process: Process, job: Job, outlet: Outlet) -> None:
        message = outlet.message or {}
        if "error" in message:
            if "Unknown task" in message["error"]["message"]:
                self._unknown(job)
            return
        state = message["result"]
        row = self.disk.rows.get(job.handle or "")
        if state["status"] not in ("completed", "failed", "cancelled"):
            if job.told is not None and row is not None and row.final and not self._before(outlet, job):
                self.wrong.append(f"{job.number} is {state['status']}, and its end was told before")
            for key, request in state.get("inputRequests", {}).items():
                job.questions[key] = request["params"]["message"]
            return
        if job.told is None:
            job.told, job.told_at = state, trio.current_time()
            self._check_end(job, state)
        for name in ("status", "result", "error"):
            if job.told.get(name) != state.get(name):
                self.wrong.append(f"{job.number}: told {job.told}, and then {state}")

    def _before(self, outlet: Outlet, job: Job) -> bool:
        """Whether it was asked before the end was told: it may have been read then."""
        return outlet.began <= job.told_at

    def _unknown(self, job: Job) -> None:
        now = trio.current_time()
        if job.aged >= TTL / 2:
            # The clock was set, and so much the task could be found.
            if job.told is not None and now <= job.told_at + READABLE and not self._fresh_since_jump():
                self.wrong.append(f"{job.number} cannot be found {now - job.told_at} s after its end was told")
            return
        if now < TTL / 2:
            self.wrong.append(f"{job.number} cannot be found")

    def _fresh_since_jump(self) -> bool:
        """Whether a process has begun after the clock was set: it knows of no other time."""
        return any(process.began >= self.jumped for process in self.processes)

    def _check_end(self, job: Job, state: dict[str, Any]) -> None:
        status, text = state["status"], state.get("statusMessage", "")
        if status == "cancelled" and not job.cancel_sent:
            self.wrong.append(f"{job.number} was cancelled by nobody")
        if status == "completed" and not job.finished & {"value", "tool error", "crash"}:
            self.wrong.append(f"{job.number} was completed, and its work was not")
        if status == "failed" and INTERRUPTED not in text and not job.finished & {"protocol error"}:
            self.wrong.append(f"{job.number} failed: {state}")
        if status == "failed" and INTERRUPTED in text and job.process.alive and not job.restartable:
            self.wrong.append(f"{job.number} was interrupted, and its process runs")

    @precondition(lambda self: self.up and any(job.questions for job in self.by_handle.values()))
    @rule(which=numbers, number=numbers, value=st.integers(1, 9), fits=st.sampled_from([True, True, False]), wait=TIMES)
    def answer(self, which: int, number: int, value: int, fits: bool, wait: float) -> None:
        async def step() -> None:
            asked = [job for job in self.by_handle.values() if job.questions]
            self._answer(self.up[which % len(self.up)], asked[number % len(asked)], value, fits)
            await trio.sleep(wait)

        self.world.do(step)

    def _answer(self, process: Process, job: Job, value: int, fits: bool) -> Outlet:
        outlet = Outlet(process)
        responses = {key: {"action": "accept", "content": {"x": value if fits else "no"}} for key in job.questions}
        texts = dict(job.questions)
        if fits:
            for text in texts.values():
                job.given.setdefault(text, set()).add(value)

        def heard() -> None:
            if fits and "result" in (outlet.message or {}):
                for key, text in texts.items():
                    job.acked.setdefault(key, set()).add(value)
                    if job.seen.get(text) == value:
                        job.safe.add(text)

        outlet.heard = heard
        process.begin("tasks/update", {"taskId": job.handle, "inputResponses": responses}, outlet)
        return outlet

    @precondition(lambda self: self.up and self.by_handle)
    @rule(which=numbers, number=numbers, wait=TIMES)
    def cancel(self, which: int, number: int, wait: float) -> None:
        async def step() -> None:
            self._cancel(self.up[which % len(self.up)], self._task(number))
            await trio.sleep(wait)

        self.world.do(step)

    def _cancel(self, process: Process, job: Job) -> Outlet:
        outlet = Outlet(process)
        job.cancel_sent = True

        def heard() -> None:
            if "result" in (outlet.message or {}):
                job.cancelled = True
                job.cancelled_early |= not self.closing

        outlet.heard = heard
        process.begin("tasks/cancel", {"taskId": job.handle}, outlet)
        return outlet

    # -- what befalls them

    @precondition(lambda self: self.up)
    @rule(
        which=numbers,
        method=st.sampled_from(METHODS),
        kind=st.sampled_from(["store", "foreign", "lost", "slow", "slow", "hang"]),
        times=st.sampled_from([1, 1, 2, 5]),
        seconds=TIMES,
    )
    def misbehave(self, which: int, method: str, kind: str, times: int, seconds: float) -> None:
        async def step() -> None:
            self.up[which % len(self.up)].view.moods[method] = Mood(kind, times, seconds)

        self.world.do(step)

    @rule()
    def mend(self) -> None:
        async def step() -> None:
            for process in self.processes:
                process.view.mend()

        self.world.do(step)

    @rule(seconds=st.sampled_from([0.05, 0.1, 0.25, 0.5, 1.0, 3.0, 12.0]))
    def pass_time(self, seconds: float) -> None:
        self.world.do(trio.sleep, seconds)

    @rule(number=st.integers(1, 12))
    def pass_steps(self, number: int) -> None:
        async def step() -> None:
            for _ in range(number):
                await trio.lowlevel.checkpoint()

        self.world.do(step)

    @rule(seconds=st.sampled_from([-TTL, -30.0, -1.0, 1.0, 30.0, 2 * TTL]))
    def set_the_clock(self, seconds: float) -> None:
        async def step() -> None:
            self.wall.ahead += seconds
            self.jumped = trio.current_time()
            for job in self.jobs:
                job.aged = max(job.aged, self.wall() - job.made)

        self.world.do(step)

    # -- what must be true

    @invariant()
    def nothing_is_wrong(self) -> None:
        assert not self.wrong, self.wrong
        for process in self.processes:
            if process.failed is not None:
                raise process.failed
        for job in self.jobs:
            assert job.outlet.answers <= 1, job

    def teardown(self) -> None:
        try:
            if self.processes:
                self.world.do(self._all_is_well_again)
                self.nothing_is_wrong()
        finally:
            self.world.end()

    async def _all_is_well_again(self) -> None:
        self.closing = True
        with trio.fail_after(1_000):
            for process in self.processes:
                process.view.mend()
            if not self.up:
                await self._start({})
            await trio.sleep(12)
            first = True
            for turn in range(40):
                unfinished = [job for job in self.by_handle.values() if job.told is None and not job.lost]
                if not unfinished:
                    break
                for job in unfinished:
                    await self._bring_on(self.up[turn % len(self.up)], job, turn, first)
                first = False
                await trio.sleep(3)
            else:
                self.wrong.append(f"{[job.number for job in unfinished]} never end")
            self._check_cancelled()
            await self._check_in_line()
            await self._check_what_is_held()

    async def _bring_on(self, process: Process, job: Job, turn: int, first: bool) -> None:
        job.questions.clear()
        state = self._get(process, job)
        await trio.sleep(0.5)
        if state.message is None:
            self.wrong.append(f"{job.number}: nobody says how it stands")
        elif "Unknown task" in str(state.message.get("error")):
            job.lost = True
            return
        elif "error" in state.message:
            self.wrong.append(f"{job.number}: {state.message}")
        if job.told is not None:
            return
        lost = job.questions.keys() & job.acked.keys()
        if lost and first:
            self.wrong.append(f"{job.number}: the answers to {lost} were acknowledged, and it still asks")
        if job.questions:
            self._answer(process, job, 5, True)
        if turn > 12:
            self._cancel(process, job)

    def _check_cancelled(self) -> None:
        for job in self.by_handle.values():
            status = (job.told or {}).get("status")
            if INTERRUPTED in (job.told or {}).get("statusMessage", ""):
                # Its process had ended, and it could not be run again: that may have been before the cancellation.
                continue
            if job.cancelled_early and job.restartable and not job.finished and status != "cancelled" and not job.lost:
                self.wrong.append(f"{job.number}: its cancellation was acknowledged, and it is {status}")

    async def _check_in_line(self) -> None:
        """Every request that could be answered was."""
        for job in self.jobs:
            if job.outlet.answers or job.outlet.gone or not job.process.alive or job.call is None:
                continue
            if job.plan.end == "forever":
                job.outlet.gone = True
                job.call.cancel("gone")
            else:
                self.wrong.append(f"{job.number}: the request was never answered")

    async def _check_what_is_held(self) -> None:
        await trio.sleep(3)
        last = self.up
        for process in last:
            process.leave()
        for process in self.processes:
            await process.ended.wait()
        for process in last:
            assert process.engine is not None
            held = process.engine.tasks.statistics()
            if any((held.running, held.opening, held.unsaved, held.discarded, held.heard, held.told)):
                self.wrong.append(f"at the end there is {held}")
            if process.engine.executor.statistics().running:
                self.wrong.append("a place was lost")
        never_told = self.disk.rows.keys() - self.by_handle.keys()
        if never_told and len(last) == len(self.processes):
            self.wrong.append(f"rows of which nobody was told: {never_told}")
        for row in self.disk.rows.values():
            if not row.final and not self.by_handle_lost(row.id):
                self.wrong.append(f"{row.id} is {row.status} at the end")

    def by_handle_lost(self, task_id: str) -> bool:
        job = self.by_handle.get(task_id)
        return job is None or job.lost


@contextmanager
def quiet() -> Iterator[None]:
    """Failures are played on purpose, ten thousand times."""
    logger = logging.getLogger("trio_mcp")
    before, logger.disabled = logger.level, False
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)


TaskMachine.TestCase.settings = settings(
    deadline=None,
    max_examples=scaled(60),
    stateful_step_count=30,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)


class TestTaskMachine(TaskMachine.TestCase):
    def runTest(self) -> None:
        with quiet():
            super().runTest()
