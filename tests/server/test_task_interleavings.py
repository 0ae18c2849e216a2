"""Every call ends once, whatever happens when: random timetables of answers, windows, disconnects, cancellations, answers to
questions, drains and failures of the store, in virtual time, beside what must be true of each."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import orjson
import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from trio_mcp import Context, InvalidParams, Limits, MemoryTaskStore, Server, Task, TaskStoreError, ToolError
from trio_mcp.protocol.envelope import Request
from trio_mcp.protocol.meta import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from trio_mcp.protocol.tasks import TASKS
from trio_mcp.scopes.call import Call, Settlement
from trio_mcp.server.serve.engine import Engine, open_engine

from ..scaled import scaled

LIMITS = Limits(drain_timeout=1.0, task_settle=3.0, task_retry=0.2, task_flush=0.05, task_sweep=0.5)
WINDOW = 0.1
META = {
    PROTOCOL_VERSION: "2026-07-28",
    CLIENT_CAPABILITIES: {"extensions": {TASKS: {}}, "elicitation": {}},
    "progressToken": 1,
}

# Times that meet: the window, twice the window, just before and after.
times = st.sampled_from([0.0, 0.05, 0.1, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0])


@dataclass(frozen=True)
class Plan:
    """What one call does, and what is done to it. Times are seconds from its beginning."""

    steps: tuple[float, ...]
    asks: bool
    ends: str
    disconnects: float | None
    cancels: float | None
    answers: float | None
    ticks: int = 0
    """Steps of the scheduler between the time of a disconnect and the disconnect."""


plans = st.builds(
    Plan,
    steps=st.lists(times, max_size=3).map(tuple),
    asks=st.booleans(),
    ends=st.sampled_from(["value", "tool error", "protocol error", "crash", "forever"]),
    disconnects=st.none() | times,
    cancels=st.none() | times,
    answers=st.none() | times,
    ticks=st.integers(0, 8),
)


class Slow(MemoryTaskStore):
    """A store that takes its time, and fails at some of its operations."""

    def __init__(self, delay: float, failing: frozenset[int]) -> None:
        super().__init__()
        self._delay = delay
        self._failing = failing
        self._count = 0

    async def _work(self) -> None:
        self._count += 1
        await trio.sleep(self._delay)
        if self._count in self._failing:
            raise TaskStoreError("the disk is full")

    async def create(self, task: Task) -> None:
        await self._work()
        await super().create(task)

    async def save(self, task: Task) -> bool:
        await self._work()
        return await super().save(task)

    async def delete(self, task_id: str) -> None:
        await self._work()
        await super().delete(task_id)

    def ids(self) -> set[str]:
        return set(self._tasks)


@dataclass
class Seen:
    """What one call did, seen from outside."""

    plan: Plan
    call: Call | None = None
    sent: list[float] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)
    runs: int = 0
    outcome: str | None = None
    reported: list[tuple[float, bool]] = field(default_factory=list)
    cancelled_on_the_wire: bool = False

    def begin(self) -> None:
        pass

    full = False

    async def wait_room(self) -> None:
        pass

    def post(self, message: bytes) -> None:
        self.sent.append(orjson.loads(message)["params"]["progress"])

    def answer(self, message: bytes) -> bool:
        self.answers.append(orjson.loads(message))
        return True

    @property
    def handle(self) -> str | None:
        result = self.answers[0].get("result", {}) if self.answers else {}
        return result["taskId"] if result.get("resultType") == "task" else None


def make_server(store: MemoryTaskStore, seen: list[Seen], inline: int) -> Server[Any]:
    server = Server("s", tasks=store, limits=LIMITS, task_inline_ms=inline)

    @server.tool(task_support="required")
    async def work(number: int, ctx: Context) -> str:
        one = seen[number]
        one.runs += 1
        for at, step in enumerate(one.plan.steps, 1):
            await trio.sleep(step)
            one.reported.append((at, ctx.task_id is not None))
            await ctx.report_progress(at)
        if one.plan.asks:
            await ctx.elicit("Go on?", {"sure": bool})
        if one.plan.ends == "forever":
            await trio.sleep_forever()
        one.outcome = one.plan.ends
        if one.plan.ends == "tool error":
            raise ToolError("no")
        if one.plan.ends == "protocol error":
            raise InvalidParams("never")
        if one.plan.ends == "crash":
            raise ZeroDivisionError
        return f"done {number}"

    return server


async def request(engine: Engine, outlet: Any, method: str, params: dict[str, Any]) -> Call:
    call = engine.prepare(Request(1, method, {**params, "_meta": META}), outlet)
    if isinstance(outlet, Seen):
        outlet.call = call
    await engine.run(call)
    return call


class Answer:
    def __init__(self) -> None:
        self.message: dict[str, Any] = {}

    def begin(self) -> None:
        pass

    full = False

    async def wait_room(self) -> None:
        pass

    def post(self, message: bytes) -> None:
        raise AssertionError

    def answer(self, message: bytes) -> bool:
        self.message = orjson.loads(message)
        return True


async def ask(engine: Engine, method: str, params: dict[str, Any]) -> dict[str, Any]:
    answer = Answer()
    await request(engine, answer, method, params)
    return answer.message


async def play(engine: Engine, number: int, one: Seen, start: float) -> None:
    """One call with everything that is done to it."""
    await trio.sleep(start)
    async with trio.open_nursery() as nursery:

        async def disconnect(at: float) -> None:
            await trio.sleep(at)
            for _ in range(one.plan.ticks):
                await trio.lowlevel.checkpoint()
            if one.call is not None and one.call.cancel("gone"):
                one.cancelled_on_the_wire = True

        async def later(at: float, method: str, more: dict[str, Any]) -> None:
            await trio.sleep(at)
            if one.handle is not None:
                await ask(engine, method, {"taskId": one.handle, **more})

        if one.plan.disconnects is not None:
            nursery.start_soon(disconnect, one.plan.disconnects)
        if one.plan.cancels is not None:
            nursery.start_soon(later, one.plan.cancels, "tasks/cancel", {})
        if one.plan.answers is not None:
            answers = {"elicit-1": {"action": "accept", "content": {"sure": True}}, "stray": {"action": "cancel"}}
            nursery.start_soon(later, one.plan.answers, "tasks/update", {"inputResponses": answers})
        await request(engine, one, "tools/call", {"name": "work", "arguments": {"number": number}})


async def run(
    store: Slow, seen: list[Seen], starts: list[float], inline: int, life: float
) -> tuple[dict[str, dict[str, Any]], int]:
    """Everything, up to a second server on the same store; what it says of each handle, and what still ran at the end."""
    server = make_server(store, seen, inline)
    with trio.move_on_after(life):
        async with open_engine(server) as engine, trio.open_nursery() as nursery:
            for number, (one, start) in enumerate(zip(seen, starts, strict=True)):
                nursery.start_soon(play, engine, number, one, start)
            await trio.sleep(life + 1)
    left = len(engine.tasks.running)
    if not store._failing:
        # The end of a server is the end of its tasks.
        assert all(task.final for task in store._tasks.values())
    store._failing = frozenset()
    async with open_engine(server) as engine:
        await trio.sleep(2)
        found = {one.handle: await ask(engine, "tasks/get", {"taskId": one.handle}) for one in seen if one.handle}
    return {handle: message.get("result", {}) for handle, message in found.items()}, left


EXPECTED = {"value": "completed", "tool error": "completed", "crash": "completed", "protocol error": "failed"}


@given(
    plan=st.lists(plans, min_size=1, max_size=4),
    starts=st.lists(times, min_size=4, max_size=4),
    inline=st.sampled_from([0, 100, 100]),
    delay=st.sampled_from([0.0, 0.0, 0.02, 0.1]),
    failing=st.frozensets(st.integers(1, 12), max_size=4),
    life=st.sampled_from([0.05, 0.1, 0.2, 0.35, 1.5, 6.0]),
)
@settings(deadline=None, max_examples=scaled(300))
def test_every_call_ends_once(
    plan: list[Plan], starts: list[float], inline: int, delay: float, failing: frozenset[int], life: float
) -> None:
    store = Slow(delay, failing)
    seen = [Seen(one) for one in plan]
    clock = trio.testing.MockClock(autojump_threshold=0)
    states, left = trio.run(run, store, seen, starts[: len(plan)], inline, life, clock=clock)
    assert left == 0
    # What nobody was told of leaves nothing behind, and what somebody was told of can be found.
    assert store.ids() == {one.handle for one in seen if one.handle}
    for one in seen:
        if one.call is None:
            continue
        assert len(one.answers) <= 1
        assert bool(one.answers) == (one.call.settlement is Settlement.ANSWERED)
        if one.cancelled_on_the_wire:
            assert one.answers == []
        assert one.runs <= 1
        in_line = [at for at, in_task in one.reported if not in_task]
        if one.answers:
            # Everything before the hand-over went to the response, in order, and nothing after it.
            assert one.sent == in_line
        if one.handle is None:
            check_in_line(one)
        else:
            check_task(one, states[one.handle])


def check_in_line(one: Seen) -> None:
    if not one.answers or one.call is None:
        return
    [answer] = one.answers
    result = answer.get("result", {})
    if result.get("resultType") == "input_required":
        assert one.plan.asks
    elif "error" in answer:
        assert one.outcome == "protocol error"
    elif not result.get("isError"):
        assert one.outcome == "value"
        assert result["content"][0]["text"].startswith("done")
    else:
        # A failing tool, or a store that did not take a task that was to be one from the beginning.
        assert one.outcome in ("tool error", "crash") or one.runs == 0


def check_task(one: Seen, state: dict[str, Any]) -> None:
    status = state["status"]
    assert status in ("completed", "failed", "cancelled")
    if one.outcome is not None:
        # The work had ended before anything else could end it.
        assert status == EXPECTED[one.outcome] or "stopped before" in state.get("statusMessage", ""), (one, state)
        if one.outcome == "value" and status == "completed":
            assert state["result"]["content"][0]["text"].startswith("done")
    elif status == "failed":
        assert "stopped before" in state["statusMessage"]
    else:
        assert status == "cancelled"
        assert one.plan.cancels is not None


def test_the_plans_reach_every_end() -> None:
    """The timetable above is worth nothing if it never gets anywhere; these are its corners."""

    def states_of(plan: Plan, **options: Any) -> tuple[Seen, dict[str, dict[str, Any]]]:
        values: dict[str, Any] = {"inline": 100, "life": 6.0, "delay": 0.0, "failing": frozenset(), **options}
        store, one = Slow(values["delay"], values["failing"]), Seen(plan)
        clock = trio.testing.MockClock(autojump_threshold=0)
        states, _ = trio.run(run, store, [one], [0.0], values["inline"], values["life"], clock=clock)
        return one, states

    slow = Plan((0.3,), False, "value", None, None, None)
    assert states_of(replace(slow, steps=(0.05,)))[0].handle is None
    one, states = states_of(slow)
    assert states[one.handle or ""]["status"] == "completed"
    one, states = states_of(replace(slow, ends="protocol error"))
    assert states[one.handle or ""]["status"] == "failed"
    one, states = states_of(replace(slow, ends="forever", cancels=0.5))
    assert states[one.handle or ""]["status"] == "cancelled"
    one, states = states_of(replace(slow, ends="forever"), life=0.5)
    assert "stopped before" in states[one.handle or ""]["statusMessage"]
    one, states = states_of(replace(slow, asks=True, answers=0.5))
    assert states[one.handle or ""]["status"] == "completed"
    one, states = states_of(replace(slow, disconnects=0.1))
    assert (one.handle, one.outcome) == (None, None)
    one, states = states_of(slow, failing=frozenset({1}))
    assert one.answers[0]["result"]["content"][0]["text"] == "done 0"
    one, states = states_of(slow, failing=frozenset({2, 3, 4}))
    assert states[one.handle or ""]["status"] == "completed"


def test_a_row_that_nobody_was_told_of_is_gone_at_the_end() -> None:
    """Also where the store fails several times when it is to be deleted."""
    plan = Plan((), False, "value", 0.0, None, None, ticks=2)
    for failing in ({3}, {3, 4}, {2, 3, 4}):
        store = Slow(0.0, frozenset(failing))
        trio.run(run, store, [Seen(plan)], [0.0], 0, 0.05, clock=trio.testing.MockClock(autojump_threshold=0))
        assert store.ids() == set()


@pytest.mark.parametrize("failing", [set(), {2}])
async def test_a_call_that_is_cancelled_in_the_step_of_its_hand_over_leaves_nothing(
    failing: set[int], autojump_clock: Any
) -> None:
    # The second operation of the store is to delete the row again.
    store, one = Slow(0.0, frozenset(failing)), Seen(Plan((), False, "value", None, None, None))
    server = Server("s", tasks=store, limits=LIMITS, task_inline_ms=100)
    ended: list[float] = []

    @server.tool(task_support="required")
    async def work(ctx: Context) -> None:
        await trio.sleep(WINDOW)
        while ctx.task_id is None:
            await trio.lowlevel.checkpoint()
        assert one.call is not None
        assert one.call.cancel("gone")
        try:
            await trio.sleep(50)
        finally:
            ended.append(trio.current_time())

    async with open_engine(server) as engine:
        await request(engine, one, "tools/call", {"name": "work", "arguments": {}})
        await trio.sleep(1)
        assert (one.answers, store.ids()) == ([], set())
    assert ended == [WINDOW]
