"""Tasks in a file outlive their process, however it ends: killed at any moment, with hundreds of tasks under way."""

from __future__ import annotations

import functools
import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from ..scaled import scaled
from .helpers import Running
from .servers.task_tools import expected
from .task_client import FINAL, INTERRUPTED, Process, TaskClient, server_process, text_of

ROUNDS = max(2, scaled(2))
"""Each takes some seconds."""
SEED = int(os.environ.get("TASK_KILL_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
TASKS = 220


class Known:
    """What a client knows of a task.

    Args:
        tool: Its tool.
        number: Its argument.

    Attributes:
        cancelled: Whether its end was asked for.
        answered: Whether an answer was sent.
        seen: Its end, if the client saw it.
    """

    def __init__(self, tool: str, number: int) -> None:
        self.tool = tool
        self.number = number
        self.cancelled = False
        self.answered = False
        self.seen: dict[str, Any] | None = None

    def text(self) -> str:
        """The one right result."""
        text = expected(self.tool, self.number)
        if self.tool in ("ask", "again_ask"):
            text += f"answer {self.number}"
        return text + f" {self.number * 3}" if self.tool == "again_ask" else text

    def may_end(self) -> set[str]:
        """How it may stand after its process was killed."""
        if self.seen is not None:
            return {self.seen["status"]}
        if self.tool in ("again", "again_ask"):
            return {"completed"}
        if self.tool == "long":
            return {"failed", "cancelled"} if self.cancelled else {"failed"}
        return {"failed"} if self.tool == "ask" and not self.answered else {"failed", "completed"}

    def check(self, state: dict[str, Any]) -> str | None:
        """What is wrong with the end that is told of it."""
        status = state["status"]
        if status not in self.may_end():
            return f"{self.tool} {self.number} is {status}: {state}"
        right = True
        if status == "completed":
            right = text_of(state["result"]) == self.text() and "error" not in state
        elif status == "failed":
            right = state["error"] == {"code": -32603, "message": INTERRUPTED} and state["statusMessage"] == INTERRUPTED
        if right and self.seen is not None:
            right = {**state, "pollIntervalMs": 0} == {**self.seen, "pollIntervalMs": 0}
        return None if right else f"{self.tool} {self.number} is wrong: {state} (seen {self.seen})"


async def drive(
    client: TaskClient, tasks: dict[str, Known], known: Known, rng: random.Random, answered: Callable[[], object]
) -> None:
    """Start a task and do with it what clients do."""
    arguments: dict[str, Any] = {"number": known.number}
    if known.tool in ("quick", "thread", "again"):
        arguments["seconds"] = rng.choice([0.0, 0.05, rng.uniform(0, 2), rng.uniform(0, 2)])
    answers, ends = rng.random() < 0.5, rng.random() < 0.2
    result = await client.call(known.tool, **arguments)
    answered()
    if result["resultType"] == "complete":
        assert text_of(result) == known.text()
        return
    task_id = result["taskId"]
    tasks[task_id] = known
    while True:
        await trio.sleep(rng.uniform(0.05, 0.6))
        state = await client.get(task_id)
        if state["status"] in FINAL:
            known.seen = state
            return
        if state["status"] == "input_required" and answers:
            known.answered = True
            await client.answer(task_id, state["inputRequests"], f"answer {known.number}")
        if known.tool == "long" and ends:
            known.cancelled = True
            await client.cancel(task_id)


async def until_killed(process: Process, tasks: dict[str, Known], rng: random.Random) -> None:
    """Keep a process busy with tasks of all kinds, and kill it at some moment."""
    killed = False
    started = 0

    def answered() -> None:
        nonlocal started
        started += 1

    async def one(known: Known, own: random.Random) -> None:
        try:
            await drive(process.client, tasks, known, own, answered)
        except httpx2.TransportError:
            # The answer was on its way.
            assert killed

    kinds = ["quick", "quick", "thread", "long", "ask", "again", "again", "again_ask"]
    async with trio.open_nursery() as nursery:
        for _ in range(TASKS):
            number = rng.randrange(1_000_000)
            nursery.start_soon(one, Known(rng.choice(kinds), number), random.Random(rng.random()))
        # Often when all are under way, sometimes in the middle of their beginning.
        least = rng.choice([TASKS, TASKS, TASKS, rng.randrange(TASKS)])
        while started < least:
            await trio.sleep(0.005)
        await trio.sleep(rng.uniform(0, 1))
        killed = True
        process.kill()
        nursery.cancel_scope.cancel()


async def look(client: TaskClient, task_id: str, known: Known, wrong: list[str], ends: Counter[str]) -> None:
    """Wait for the end of a task in the process after, and check it."""

    def ended(state: dict[str, Any]) -> bool:
        return state["status"] in FINAL or (state["status"] == "input_required" and known.tool == "again_ask")

    while True:
        answer = await client.ask("tasks/get", taskId=task_id)
        if "error" in answer:
            wrong.append(f"{known.tool} {known.number} is lost: {answer['error']}")
            return
        state = await client.until(task_id, ended, within=30, every=0.1)
        if state["status"] in FINAL:
            break
        await client.answer(task_id, state["inputRequests"], f"answer {known.number}")
    bad = known.check(state)
    if bad is not None:
        wrong.append(bad)
    ends[f"{known.tool} {state['status']}{'' if known.seen is None else ' before'}"] += 1
    known.seen = state


async def check(client: TaskClient, tasks: dict[str, Known], ends: Counter[str]) -> list[str]:
    """Whatever is wrong with tasks that clients know."""
    wrong: list[str] = []
    limiter = trio.CapacityLimiter(32)

    async def one(task_id: str, known: Known) -> None:
        async with limiter:
            await look(client, task_id, known, wrong, ends)

    async with trio.open_nursery() as nursery:
        for task_id, known in tasks.items():
            nursery.start_soon(one, task_id, known)
    return wrong


async def kill_early(path: Path, rng: random.Random) -> None:
    """A process that is killed while it starts, and perhaps takes over what was left."""
    with Running("task_tools.py", str(path), "127.0.0.1:0") as running:
        starting = functools.partial(running.line, timeout=30)
        if rng.random() < 0.5:
            await trio.to_thread.run_sync(starting)
        else:
            await trio.sleep(rng.uniform(0.3, 1.2))


@pytest.mark.timeout(60 + 20 * ROUNDS)
async def test_nothing_is_lost_or_wrong_after_a_kill(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tasks.db"
    print(f"TASK_KILL_SEED={SEED}")
    rng = random.Random(SEED)
    every: dict[str, Known] = {}
    ends: Counter[str] = Counter()
    tasks: dict[str, Known] = {}
    for number in range(ROUNDS + 1):
        async with server_process(path) as process:
            wrong = await check(process.client, tasks, ends)
            assert not wrong, f"round {number} of seed {SEED}: {len(wrong)} of {len(tasks)}:\n" + "\n".join(wrong)
            if number == ROUNDS:
                # What was right once stays so, through all kills that followed.
                assert not (wrong := await check(process.client, every, Counter())), "\n".join(wrong)
                break
            tasks = {}
            await until_killed(process, tasks, rng)
            every.update(tasks)
        if rng.random() < 0.3:
            await kill_early(path, rng)
    print(f"{ROUNDS} rounds, {len(every)} tasks: {dict(sorted(ends.items()))}")
    # Those that cannot end before the kill were hit in the middle of their work, and others had ended before it.
    for end in ("long failed", "ask failed", "again completed"):
        assert ends[end] > 0, ends
    assert sum(count for end, count in ends.items() if end.endswith(" before")) > 0, ends


@pytest.mark.parametrize("how", ["heard", "asked"])
async def test_an_end_that_was_told_is_kept(how: str, tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    ends: dict[str, dict[str, Any]] = {}
    for number in range(3):
        async with server_process(path) as process:
            task_id = await process.client.start("quick", number=number, seconds=0.4)
            if how == "heard":
                async with process.client.listen(task_id) as following:
                    while (state := (await following())["params"])["status"] not in FINAL:
                        pass
                    process.kill()
            else:
                state = await process.client.until(task_id, lambda state: state["status"] in FINAL, within=10, every=0)
                process.kill()
            ends[task_id] = state["result"]
    async with server_process(path) as process:
        for task_id, result in ends.items():
            state = await process.client.get(task_id)
            assert (state["status"], state.get("result")) == ("completed", result)
