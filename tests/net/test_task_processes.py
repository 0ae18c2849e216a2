"""Several server processes over one file of tasks, and what becomes of tasks when one of them ends."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from .helpers import SERVERS, Running
from .servers.task_tools import expected
from .task_client import FINAL, INTERRUPTED, Process, TaskClient, declared, server_process, serving, text_of, url_of

QUICK_SWEEP = {"task_sweep": 0.3}


@asynccontextmanager
async def processes(path: Path, count: int, **options: Any) -> AsyncIterator[list[Process]]:
    """So many processes over one file, begun one after another."""
    async with contextlib.AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(server_process(path, **{"limits": QUICK_SWEEP, **options}))
            for _ in range(count)
        ]


def marks(path: Path) -> Counter[str]:
    """What was done how often."""
    return Counter(path.read_text().splitlines() if path.exists() else ())


async def until_marked(path: Path, mark: str, count: int = 1) -> None:
    with trio.fail_after(30):
        while marks(path)[mark] < count:
            await trio.sleep(0.01)


def failed(state: dict[str, Any]) -> bool:
    """Whether a task failed because its process ended, and says so."""
    error = {"code": -32603, "message": INTERRUPTED}
    return (state["status"], state.get("error"), state.get("statusMessage")) == ("failed", error, INTERRUPTED)


# -- any of them


async def test_processes_that_begin_at_once_share_a_new_file(tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        several = [stack.enter_context(serving(tmp_path / "tasks.db")) for _ in range(4)]
        urls = [await url_of(running) for running in several]
        http = await stack.enter_async_context(httpx2.AsyncClient())
        clients = [TaskClient(http, url) for url in urls]
        ids = [await client.start("quick", number=number, seconds=0.1) for number, client in enumerate(clients)]
        for number, task_id in enumerate(ids):
            for client in clients:
                assert text_of((await client.end(task_id))["result"]) == expected("quick", number)


async def test_every_process_tells_the_same_of_a_task(tmp_path: Path) -> None:
    async with processes(tmp_path / "tasks.db", 3) as (one, two, three):
        asking = await one.client.start("ask", number=1)
        working = await two.client.start("long", number=2)
        for process in (one, two, three):
            asked = await process.client.until(asking, lambda state: state["status"] == "input_required")
            assert list(asked["inputRequests"]) == ["elicit-1"]
            told = await process.client.until(working, lambda state: "statusMessage" in state)
            assert told["status"] == "working"
            unknown = await process.client.ask("tasks/get", taskId="no such task")
            assert unknown["error"]["code"] == -32602
        assert two.client.url != three.client.url


async def test_a_cancel_reaches_the_process_that_works(tmp_path: Path) -> None:
    async with processes(tmp_path / "tasks.db", 3) as (one, two, three):
        ids = [await one.client.start("long", number=number) for number in range(5)]
        for task_id, process in zip(ids, (one, two, three, two, three), strict=True):
            await process.client.cancel(task_id)
        for task_id in ids:
            for process in (one, two, three):
                assert (await process.client.end(task_id))["status"] == "cancelled"


async def test_an_answer_reaches_the_process_that_works(tmp_path: Path) -> None:
    async with processes(tmp_path / "tasks.db", 3) as (one, two, three):
        for tool, end in (("ask", "yes"), ("again_ask", "yes 21")):
            task_id = await one.client.start(tool, number=7)
            asked = await two.client.until(task_id, lambda state: state["status"] == "input_required")
            await three.client.answer(task_id, asked["inputRequests"], "yes")
            for process in (two, one, three):
                state = await process.client.end(task_id)
                assert text_of(state["result"]) == expected(tool, 7) + end


async def test_listeners_on_another_process_hear_the_changes(tmp_path: Path) -> None:
    async with processes(tmp_path / "tasks.db", 2) as (one, two):
        asking = await one.client.start("ask", number=7)
        working = await one.client.start("long", number=8)
        async with two.client.listen(asking, working) as following:
            heard: dict[str, list[dict[str, Any]]] = {asking: [], working: []}

            async def until(task_id: str, status: str) -> dict[str, Any]:
                with trio.fail_after(30):
                    while not heard[task_id] or heard[task_id][-1]["status"] != status:
                        message = await following()
                        assert message["method"] == "notifications/tasks"
                        heard[message["params"]["taskId"]].append(message["params"])
                return heard[task_id][-1]

            asked = await until(asking, "input_required")
            await until(working, "working")
            await one.client.answer(asking, asked["inputRequests"], "yes")
            ended = await until(asking, "completed")
            assert text_of(ended["result"]) == expected("ask", 7) + "yes"
            await one.client.cancel(working)
            await until(working, "cancelled")
        # Progress was heard as well, each state that was told is later than the one before.
        for states in heard.values():
            assert [state["lastUpdatedAt"] for state in states] == sorted(state["lastUpdatedAt"] for state in states)


# -- one of them is killed


async def test_another_process_takes_over_what_a_killed_one_left(tmp_path: Path) -> None:
    noted = tmp_path / "marks"
    noted.touch()
    async with processes(tmp_path / "tasks.db", 3, env={"MARKS": str(noted)}) as (one, two, three):
        lasting = [await one.client.start("long", number=number) for number in range(5)]
        asking = await one.client.start("ask", number=1)
        again = {await one.client.start("second_time", number=number): number for number in range(20)}
        kept = await one.client.start("again_ask", number=5)
        asked = await one.client.until(kept, lambda state: state["status"] == "input_required")
        done = await one.client.start("quick", number=3, seconds=0.5)
        before = await one.client.end(done)
        others = [await two.client.start("long", number=number) for number in range(3)]
        await until_marked(noted, "second_time 19")
        # What another process sees of it is written, and so is what `once` gave before it asked.
        await two.client.until(kept, lambda state: state["status"] == "input_required")
        one.kill()
        for process in (two, three):
            for task_id in (*lasting, asking):
                assert failed(await process.client.end(task_id))
            for task_id, number in again.items():
                assert text_of((await process.client.end(task_id))["result"]) == expected("second_time", number)
            state = await process.client.get(done)
            assert state["result"] == before["result"]
            for task_id in others:
                assert (await process.client.get(task_id))["status"] == "working"
        new = await three.client.until(kept, lambda state: state["status"] == "input_required")
        assert new["inputRequests"] == asked["inputRequests"]
        await three.client.answer(kept, new["inputRequests"], "yes")
        assert text_of((await two.client.end(kept))["result"]) == expected("again_ask", 5) + "yes 15"
    # Begun by the first process, and by one of the two others.
    assert marks(noted) == {"once 5": 1, **{f"second_time {number}": 2 for number in range(20)}}


async def test_listeners_hear_of_the_end_of_a_task_whose_process_was_killed(tmp_path: Path) -> None:
    async with processes(tmp_path / "tasks.db", 3) as (one, two, three):
        task_id = await one.client.start("ask", number=1)
        async with two.client.listen(task_id) as second, three.client.listen(task_id) as third:
            one.kill()
            # One of them takes it over, and the other one hears of that.
            for following in (second, third):
                with trio.fail_after(30):
                    while (message := await following())["params"]["status"] not in FINAL:
                        pass
                assert failed(message["params"])


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_cancel_that_came_after_the_kill_reaches_whoever_takes_over(tmp_path: Path, restarted: bool) -> None:
    path = tmp_path / "tasks.db"
    async with (
        server_process(path) as one,
        server_process(path, limits={"task_sweep": 600 if restarted else 1.0}) as two,
    ):
        ids = [await one.client.start("again", number=number, seconds=60) for number in range(60)]
        one.kill()
        for task_id in ids:
            await two.client.cancel(task_id)
        async with contextlib.AsyncExitStack() as stack:
            heir = await stack.enter_async_context(server_process(path)) if restarted else two
            for task_id in ids:
                assert (await heir.client.end(task_id))["status"] == "cancelled"


# -- one of them is asked to end


async def test_sigterm_lets_tasks_end_and_says_so_of_the_others(tmp_path: Path) -> None:
    path, noted = tmp_path / "tasks.db", tmp_path / "marks"
    noted.touch()
    async with server_process(path, limits={"drain_timeout": 2.0}, env={"MARKS": str(noted)}) as process:
        start = process.client.start
        again = await start("second_time", number=1)
        lasting = [await start("thread", number=9, seconds=60), await start("ask", number=1)]
        quick: dict[str, int] = {}

        async def start_long(number: int) -> None:
            lasting.append(await start("long", number=number))

        async def start_quick(number: int) -> None:
            quick[await start("quick", number=number, seconds=0.5)] = number

        # At once, and so that the quick ones are still at work when the end comes.
        for begun in (start_long, start_quick):
            async with trio.open_nursery() as nursery:
                for number in range(40):
                    nursery.start_soon(begun, number)
        begin = time.monotonic()
        process.running.process.send_signal(signal.SIGTERM)
        assert await process.ended(30) == 0
        assert 1.8 < time.monotonic() - begin < 20
        assert process.running.errors() == ""
    assert marks(noted) == {"second_time 1": 1}
    async with server_process(path, env={"MARKS": str(noted)}) as process:
        for task_id, number in quick.items():
            state = await process.client.get(task_id)
            assert text_of(state["result"]) == expected("quick", number)
        for task_id in lasting:
            assert failed(await process.client.get(task_id))
        assert text_of((await process.client.end(again))["result"]) == expected("second_time", 1)
    assert marks(noted) == {"second_time 1": 2}


async def test_sigterm_with_tasks_that_end_soon_waits_no_longer_than_they_take(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    async with server_process(path, limits={"drain_timeout": 60.0}) as process:
        task_id = await process.client.start("quick", number=1, seconds=0.5)
        begin = time.monotonic()
        process.running.process.send_signal(signal.SIGTERM)
        assert await process.ended(30) == 0
        assert time.monotonic() - begin < 20
        assert process.running.errors() == ""
    async with server_process(path) as process:
        assert text_of((await process.client.get(task_id))["result"]) == expected("quick", 1)


async def test_what_was_done_once_is_known_to_the_process_after_a_sigterm(tmp_path: Path) -> None:
    path, noted = tmp_path / "tasks.db", tmp_path / "marks"
    # Nothing is written behind in time: the end has to do it.
    limits = {"drain_timeout": 0.2, "task_flush": 60.0}
    async with server_process(path, limits=limits, env={"MARKS": str(noted)}) as process:
        task_id = await process.client.start("again_once", number=5, seconds=60)
        await until_marked(noted, "kept 5")
        process.running.process.send_signal(signal.SIGTERM)
        assert await process.ended(30) == 0
        assert process.running.errors() == ""
    async with server_process(path, env={"MARKS": str(noted)}) as process:
        assert (await process.client.get(task_id))["status"] == "working"
        await until_marked(noted, "kept 5", 2)
        assert marks(noted) == {"once 5": 2, "kept 5": 2}
        await process.client.cancel(task_id)
        assert (await process.client.end(task_id))["status"] == "cancelled"


# -- stdio


async def test_a_stdio_server_settles_its_tasks_at_the_end_of_input(tmp_path: Path) -> None:
    path, noted = tmp_path / "tasks.db", tmp_path / "marks"
    noted.touch()
    env = {"TASKS": str(path), "MARKS": str(noted), "LIMITS": '{"drain_timeout": 2.0}'}
    argv = [sys.executable, "-m", "trio_mcp", "serve", str(SERVERS / "task_tools.py")]
    calls: list[tuple[str, dict[str, Any]]] = [
        ("second_time", {"number": 1}),
        ("quick", {"number": 2, "seconds": 0.3}),
        ("long", {"number": 3}),
        ("thread", {"number": 4, "seconds": 60}),
        ("ask", {"number": 5}),
        ("again_ask", {"number": 6}),
    ]
    with Running(*argv, env=env) as running:
        ids: dict[str, str] = {}
        for id, (tool, arguments) in enumerate(calls):
            running.send(declared(id, "tools/call", name=tool, arguments=arguments))
        for _ in calls:
            answer = await trio.to_thread.run_sync(running.message)
            ids[calls[answer["id"]][0]] = answer["result"]["taskId"]
        await until_marked(noted, "once 6")
        begin = time.monotonic()
        running.close_input()
        assert await trio.to_thread.run_sync(partial(running.process.wait, 30)) == 0
        assert 1.8 < time.monotonic() - begin < 20
        assert running.line() is None
        assert running.errors() == ""
    assert marks(noted) == {"second_time 1": 1, "once 6": 1}
    # The files that say who is alive are gone.
    assert [name for name in os.listdir(tmp_path) if "owner" in name] == []
    async with server_process(path, env={"MARKS": str(noted)}) as process:
        client = process.client
        assert text_of((await client.get(ids["quick"]))["result"]) == expected("quick", 2)
        for tool in ("long", "thread", "ask"):
            assert failed(await client.get(ids[tool]))
        assert text_of((await client.end(ids["second_time"]))["result"]) == expected("second_time", 1)
        asked = await client.until(ids["again_ask"], lambda state: state["status"] == "input_required")
        await client.answer(ids["again_ask"], asked["inputRequests"], "yes")
        assert text_of((await client.end(ids["again_ask"]))["result"]) == expected("again_ask", 6) + "yes 18"
    assert marks(noted) == {"second_time 1": 2, "once 6": 1}
