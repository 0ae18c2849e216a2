"""Stores that fail with whatever they like, rows that nobody understands, clocks that jump: each costs one task at the most."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.server.task_helpers import LIMITS, accept, until
from trio_mcp import (
    Context,
    MCPError,
    MemoryTaskStore,
    ProtocolError,
    Server,
    ServerBusy,
    Signal,
    SQLiteTaskStore,
    Task,
    TaskStoreError,
    open_client,
    open_server,
)
from trio_mcp.protocol.meta import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from trio_mcp.protocol.tasks import TaskClock
from trio_mcp.testing import open_raw, request

ERRORS = [TaskStoreError("the disk is full"), ConnectionError("reset by peer"), KeyError("x")]


class Moody(MemoryTaskStore):
    """Some of its methods raise, for as long as they are named here; some take their time first."""

    def __init__(self) -> None:
        super().__init__()
        self.failing: dict[str, Exception] = {}
        self.slow: dict[str, float] = {}
        self.calls: list[str] = []

    async def _mood(self, name: str) -> None:
        await trio.sleep(self.slow.get(name, 0))
        self.calls.append(name)
        if name in self.failing:
            raise self.failing[name]

    async def create(self, task: Task) -> None:
        await self._mood("create")
        await super().create(task)

    async def save(self, task: Task) -> bool:
        await self._mood("save")
        return await super().save(task)

    async def get(self, task_id: str) -> Task | None:
        await self._mood("get")
        return await super().get(task_id)

    async def delete(self, task_id: str) -> None:
        await self._mood("delete")
        await super().delete(task_id)

    async def count(self, principal: str) -> Any:
        await self._mood("count")
        return await super().count(principal)

    async def expire(self, now: float) -> int:
        await self._mood("expire")
        return await super().expire(now)

    async def adopt(self, owner: str) -> list[Task]:
        await self._mood("adopt")
        return await super().adopt(owner)

    async def send(self, signal: Signal) -> None:
        await self._mood("send")
        await super().send(signal)

    async def receive(self, owner: str) -> list[Signal]:
        await self._mood("receive")
        return await super().receive(owner)

    async def wait_change(self) -> None:
        await trio.sleep(1)
        await self._mood("wait_change")


def make(store: Any, **options: Any) -> Server[Any]:
    options.setdefault("limits", replace(LIMITS, task_sweep=2.0))
    server = Server("s", tasks=store, **options)

    @server.tool(task_support="optional")
    async def work(seconds: float) -> str:
        await trio.sleep(seconds)
        return "done"

    @server.tool(task_support="required")
    async def must(seconds: float) -> str:
        await trio.sleep(seconds)
        return "done"

    @server.tool(task_support="required", restartable=True, task_inline_ms=0)
    async def again(seconds: float, ctx: Context) -> str:
        await trio.sleep(seconds)
        return "done"

    @server.tool(task_support="required", restartable=True, task_inline_ms=0)
    async def ask(ctx: Context) -> str:
        return f"{(await ctx.elicit('Well?', {'x': int})).value['x']}"

    return server


def left(id: str, **changes: Any) -> Task:
    """What a process left that has ended."""
    values: dict[str, Any] = {
        "owner": "dead",
        "principal": "",
        "params": {"name": "again", "arguments": {"seconds": 1}},
        "meta": {PROTOCOL_VERSION: "2026-07-28", CLIENT_CAPABILITIES: {"elicitation": {}}},
        "created": 1e9,
        "updated": 1e9,
        "ttl": 1e9,
        "poll_interval": 1.0,
        "restartable": True,
    }
    return Task(id=id, **{**values, **changes})


async def fill(store: MemoryTaskStore, *rows: Task) -> None:
    async with store.open("dead"):
        for row in rows:
            await store.create(row)
    if isinstance(store, Moody):
        store.calls.clear()


# -- any exception of a store


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("name", ["adopt", "expire", "receive", "wait_change", "get", "save", "delete", "count"])
async def test_a_store_that_raises_brings_nothing_down(
    name: str, error: Exception, autojump_clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    store = Moody()
    await fill(store, left("old", params={"name": "again", "arguments": {"seconds": 30}}), left("other"))
    if name != "get":
        store.failing[name] = error
    async with open_server(make(store)) as engine, open_client(engine) as client:
        started = await client.start_tool("work", {"seconds": 12})
        # Cancelled before anybody was told of it, so its row is deleted.
        async with open_raw(engine) as peer:
            message = request(1, "tools/call", name="again", arguments={"seconds": 100})
            message["params"]["_meta"][CLIENT_CAPABILITIES] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
            store.slow["create"] = 1
            await peer.send(message)
            await trio.sleep(0.5)
            await peer.cancel(1)
            await trio.sleep(10)
            del store.slow["create"]
        async with client.listen(tasks=["other"]):
            store.failing[name] = error
            await trio.sleep(5)
            assert (await client.call_tool("work", {"seconds": 0})).text == "done"
        if name == "get":
            with pytest.raises(ProtocolError, match="Internal error in tasks/get"):
                await client.task("nobody").refresh()
        assert name in store.calls
        store.failing.clear()
        await trio.sleep(5)
        assert (await client.task("other").result()).text == "done"
        assert (await started.result()).text == "done"
        assert (await client.task("old").result()).text == "done"
        await trio.sleep(5)
        assert (await store.count("")).active == 0
    assert ("the task store failed with" in caplog.text) == (
        not isinstance(error, TaskStoreError) and name != "get"
    ) or name in ("save", "get")


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_what_could_not_be_taken_over_at_the_start_is_later(error: Exception, autojump_clock: Any) -> None:
    store = Moody()
    await fill(store, left("old"))
    store.failing["adopt"] = error
    async with open_client(make(store)) as client:
        await trio.sleep(5)
        assert (await client.task("old").refresh()).status == "working"
        store.failing.clear()
        assert (await client.task("old").result()).text == "done"


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_what_a_task_said_is_stored_once_the_store_works(error: Exception, autojump_clock: Any) -> None:
    """Also of a second task, whose own row is no trouble."""
    store = Moody()
    server = make(store, task_inline_ms=0)

    @server.tool(task_support="required")
    async def tell(ctx: Context) -> None:
        await ctx.report_progress(1)
        await trio.sleep_forever()

    async with open_client(server) as client:
        store.failing["save"] = error
        one, two = await client.start_tool("tell"), await client.start_tool("tell")
        assert one.id is not None and two.id is not None
        await trio.sleep(5)
        assert [(await store.get(id)).message for id in (one.id, two.id)] == [None, None]  # type: ignore[union-attr]
        store.failing.clear()
        await trio.sleep(5)
        assert [(await store.get(id)).message for id in (one.id, two.id)] == ["1", "1"]  # type: ignore[union-attr]


async def test_a_row_that_cannot_be_stored_keeps_no_other_back(autojump_clock: Any) -> None:
    store = MemoryTaskStore()
    server = make(store, task_inline_ms=0)

    @server.tool(task_support="required")
    async def tell(text: str, ctx: Context) -> None:
        await trio.sleep(1)
        await ctx.log("info", text)
        await trio.sleep_forever()

    save = store.save

    async def choosy(task: Task) -> bool:
        if task.message == "bad":
            raise ValueError("no")
        return await save(task)

    store.save = choosy  # type: ignore[method-assign]
    async with open_client(server) as client:
        ids = [(await client.start_tool("tell", {"text": text})).id or "" for text in ("bad", "good", "bad")]
        await trio.sleep(5)
        rows = [await store.get(id) for id in ids]
        assert [row.message for row in rows if row is not None] == [None, "good", None]


# -- rows


@dataclass
class Picky:
    n: int

    def __post_init__(self) -> None:
        if self.n > 5:
            raise RuntimeError("too large")


BAD_ROWS: dict[str, dict[str, Any]] = {
    "no name": {"params": {}},
    "no arguments": {"params": {"name": "again"}},
    "arguments of another kind": {"params": {"name": "again", "arguments": 5}},
    "a name that is none": {"params": {"name": 5, "arguments": {}}},
    "a name that cannot be looked up": {"params": {"name": [], "arguments": {}}},
    "no meta": {"meta": {}},
    "a class that raises": {"params": {"name": "picky", "arguments": {"picky": {"n": 7}}}},
    "keys that are none": {"recorded": {"keys": 5}},
    "questions that are none": {"recorded": {"asked": 5}, "requests": {"a": 1}},
    "a question without its key": {"recorded": {"asked": [{"digest": "x"}]}},
}


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize("name", BAD_ROWS)
async def test_a_row_that_cannot_be_run_again_has_failed_and_others_run(
    name: str, running: bool, autojump_clock: Any
) -> None:
    store = MemoryTaskStore()
    rows = left("good"), left("bad", **BAD_ROWS[name]), left("fine")
    server = make(store)

    @server.tool(task_support="required", restartable=True)
    async def picky(picky: Picky) -> int:
        return picky.n

    if not running:
        await fill(store, *rows)
    async with open_client(server) as client:
        if running:
            # Its sweep finds them.
            assert (await client.start_tool("must", {"seconds": 1})).id
            for row in rows:
                await store.create(row)
            await trio.sleep(3)
        assert (await client.task("bad").refresh()).status == "failed"
        for id in ("good", "fine"):
            assert (await client.task(id).result()).text == "done"


async def test_a_row_of_a_file_that_cannot_be_read_has_failed_and_the_server_starts(tmp_path: Path) -> None:
    from_file = SQLiteTaskStore(tmp_path / "tasks.db")
    async with from_file.open("dead"):
        for id in ("a", "b", "c"):
            await from_file.create(left(id, params={"name": "again", "arguments": {"seconds": 0}}))
        await from_file._write(lambda db: db.execute("UPDATE tasks SET row = x'7b' WHERE id = 'b'").close())
    async with open_client(make(SQLiteTaskStore(tmp_path / "tasks.db"))) as client:
        assert (await client.task("b").refresh()).status == "failed"
        for id in ("a", "c"):
            assert (await client.task(id).result()).text == "done"


async def test_a_signal_that_nobody_understands_keeps_no_other_back(autojump_clock: Any) -> None:
    store = Moody()
    async with open_client(make(store)) as client:
        task = await client.start_tool("again", {"seconds": 1_000})
        assert task.id is not None
        await store.send(Signal(task.id, "answer", 5))  # type: ignore[arg-type]
        await store.send(Signal(task.id, "pause"))  # type: ignore[arg-type]
        await store.send(Signal(task.id, "cancel"))
        await until(client, task, "cancelled")


# -- what was acknowledged


@pytest.mark.parametrize("before", [0.5, 1.5, 2.5])
async def test_what_is_acknowledged_while_tasks_are_taken_over_arrives(before: float, autojump_clock: Any) -> None:
    """Whenever in the adoption it comes: here of rows that are saved slowly, by a store that answers slowly."""
    store = Moody()
    server = make(store)
    # What this process has written itself wakes nobody.
    store.slow["wait_change"] = math.inf
    async with open_server(server) as engine, open_client(engine) as client:
        await client.start_tool("must", {"seconds": 0.5})
        store.slow |= {"save": 1.0, "send": 1.0, "adopt": 1.0, "receive": 0.2}
        rows = [left(f"c{n}", params={"name": "again", "arguments": {"seconds": 500}}) for n in range(3)]
        question = {"elicit-1": {"mode": "form"}}
        rows += [left(f"q{n}", params={"name": "ask", "arguments": {}}, requests=question) for n in range(3)]
        for row in rows:
            await store.create(row)
        store.calls.clear()
        while "adopt" not in store.calls:
            await trio.sleep(0.1)
        await trio.sleep(before)
        async with trio.open_nursery() as nursery:
            for n in range(3):
                nursery.start_soon(client.task(f"c{n}").cancel)
        await trio.sleep(10)
        for n in range(3):
            assert (await client.task(f"c{n}").refresh()).status == "cancelled"


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_what_is_acknowledged_for_a_task_that_could_not_be_begun_yet_arrives(
    error: Exception, autojump_clock: Any
) -> None:
    store = Moody()
    await fill(store, left("c"), left("q", params={"name": "ask", "arguments": {}}))
    store.failing["save"] = error
    async with open_server(make(store)) as engine, open_client(engine) as client:
        asked = client.task("q")
        await client.task("c").cancel()
        # To a question that nobody asks any more, and to one that will be asked.
        await asked.answer({"other": accept(x=1)})
        await trio.sleep(5)
        assert (await client.task("c").refresh()).status == "working"
        store.failing.clear()
        await trio.sleep(5)
        assert (await client.task("c").refresh()).status == "cancelled"
        state = await until(client, asked, "input_required")
        await asked.answer({key: accept(x=3) for key in state.requests})
        assert (await asked.result()).text == "3"


async def test_signals_for_a_task_that_waits_are_kept_for_it(autojump_clock: Any) -> None:
    store = Moody()
    await fill(store, left("q", params={"name": "ask", "arguments": {}}))
    store.failing["save"] = ERRORS[0]
    async with open_client(make(store)) as client:
        await store.send(Signal("q", "answer", {"elicit-1": accept(x=1)}))
        await trio.sleep(5)
        assert store._signals == [Signal("q", "answer", {"elicit-1": accept(x=1)})]
        store.failing.clear()
        assert (await client.task("q").refresh()).status == "working"


# -- a client that takes tasks is not served worse


@pytest.mark.parametrize("window", [0, 100])
@pytest.mark.parametrize("name", ["create", "count"])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_without_a_place_for_its_task_a_call_is_served_in_line(
    error: Exception, name: str, window: int, autojump_clock: Any
) -> None:
    store = Moody()
    async with open_client(make(store, task_inline_ms=window)) as client:
        store.failing[name] = error
        for seconds in (0, 1):
            started = await client.start_tool("work", {"seconds": seconds})
            assert started.id is None
            assert (await started.result()).text == "done"
        if name == "count" or window == 0:
            # One that is a task or nothing does not run.
            outcome = await client.call_tool("must", {"seconds": 1})
            assert outcome.is_error
        store.failing.clear()
        assert (await client.start_tool("work", {"seconds": 1})).id is not None


@pytest.mark.parametrize("window", [0, 100])
@pytest.mark.parametrize("full", ["tasks_active", "tasks_stored"])
async def test_a_caller_with_many_tasks_is_served_in_line(
    full: str, window: int, autojump_clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = make(Moody(), task_inline_ms=window, limits=replace(LIMITS, **{full: 2}))
    ids: list[str | None] = []
    async with open_client(server) as client:

        async def start(seconds: float) -> None:
            started = await client.start_tool("work", {"seconds": seconds})
            ids.append(started.id)
            assert (await started.result()).text == "done"

        async with trio.open_nursery() as nursery:
            for seconds in (5, 5, 5, 5) if window == 0 else (5, 5, 5, 0.05, 5, 0):
                nursery.start_soon(start, seconds)
            await trio.sleep(1)
            with pytest.raises(ServerBusy):
                await client.start_tool("must", {"seconds": 0})
        assert len([id for id in ids if id is not None]) == 2
    # A caller can do this as often as it likes, and it is no fault of the server.
    assert caplog.text == ""


# -- time


@pytest.mark.parametrize("poll", [1.0, 20.0])
async def test_what_has_ended_can_be_read_for_a_while(poll: float, autojump_clock: Any) -> None:
    limits = replace(LIMITS, task_ttl=2.0, task_sweep=0.5, task_poll=poll)
    server = make(MemoryTaskStore(), task_inline_ms=0, limits=limits)
    readable = max(3 * poll, 10)
    async with open_server(server) as engine, open_client(engine) as client:
        engine.tasks.clock = lambda: 1e9 + trio.current_time()
        for seconds in (1.9, 100):
            task = await client.start_tool("work", {"seconds": seconds})
            await trio.sleep(2)
            state = await until(client, task, "completed")
            await trio.sleep(readable - 0.5)
            state = await task.refresh()
            assert state.ttl is not None and state.ttl >= readable
            await trio.sleep(1.5)
            with pytest.raises(MCPError, match="Unknown task"):
                await task.refresh()
        await trio.sleep(1)
        assert await server.task_store.count("") == (0, 0)


@pytest.mark.parametrize("when", ["while it works", "after its end"])
@pytest.mark.parametrize("jump", [7_200.0, -7_200.0])
async def test_a_clock_that_jumps_takes_no_result_away(when: str, jump: float, autojump_clock: Any) -> None:
    server = make(MemoryTaskStore(), task_inline_ms=0, limits=replace(LIMITS, task_sweep=1.0))
    ahead = 0.0
    async with open_server(server) as engine, open_client(engine) as client:
        engine.tasks.clock = lambda: 1e9 + trio.current_time() + ahead
        task = await client.start_tool("work", {"seconds": 2})
        await trio.sleep(1 if when == "while it works" else 3)
        ahead = jump
        await trio.sleep(3)
        assert (await task.refresh()).status == "completed"
        await trio.sleep(6)
        assert (await task.result()).text == "done"
        # In the end it counts.
        ahead = 10 * LIMITS.task_ttl
        await trio.sleep(60)
        with pytest.raises(MCPError, match="Unknown task"):
            await task.refresh()


def test_the_clock_of_tasks_follows_slowly_ahead_and_at_once_back() -> None:
    now = [100.0, 5.0]
    clock = TaskClock(lambda: now[0], lambda: now[1], 10.0)

    def after(seconds: float, jump: float = 0.0) -> float:
        now[0] += seconds + jump
        now[1] += seconds
        return clock()

    assert clock() == 100
    assert after(20) == 120
    assert after(1, 0.5) == 121.5
    assert after(1, 3_600) == 122.5
    assert after(9) == 131.5
    assert after(1) == 3_732.5
    assert after(1) == 3_733.5
    assert after(1, -3_600) == 134.5
    # Set right again in time.
    assert after(1, 50) == 135.5
    assert after(1, -50) == 136.5
    assert after(100) == 236.5


async def test_what_is_run_again_has_what_is_left_of_its_time(autojump_clock: Any) -> None:
    store, now = MemoryTaskStore(), time.time()
    stuck = {"name": "again", "arguments": {"seconds": 1_000}}
    await fill(store, left("t", params=stuck, created=now - 800, updated=now - 800, ttl=1_000.0))
    began = trio.current_time()
    async with open_client(make(store)) as client:
        with trio.fail_after(500):
            while not (await client.task("t").refresh()).final:
                await trio.sleep(1)
    assert 100 < trio.current_time() - began < 205


# -- what is left for a task, and a process that ends before it has acted on it


async def test_a_task_that_was_cancelled_while_no_process_ran_it_is_not_begun_again(autojump_clock: Any) -> None:
    store = Moody()
    ran: list[int] = []
    server = Server("s", tasks=store)

    @server.tool(task_support="required", restartable=True)
    async def again(seconds: float) -> None:
        ran.append(1)

    async with store.open("dead"):
        await store.create(left("old"))
        await store.send(Signal("old", "cancel"))
    async with open_client(server) as client:
        await until(client, client.task("old"), "cancelled")
    assert ran == []


@pytest.mark.parametrize("kind", ["answer", "cancel"])
async def test_what_was_acknowledged_is_there_after_a_crash_at_any_moment(kind: Any, autojump_clock: Any) -> None:
    """Of the process that has taken it, and has not stored yet what came of it."""
    store = Moody()
    server = make(store)

    @server.tool(task_support="required", restartable=True, task_inline_ms=0)
    async def stubborn(ctx: Context) -> str:
        try:
            return f"{(await ctx.elicit('Well?', {'x': int})).value['x']}"
        finally:
            with trio.move_on_after(20, shield=True):
                await trio.sleep_forever()

    async with open_client(server, on_elicit=lambda params: {"x": 1}) as client:
        task = await client.start_tool("stubborn")
        await until(client, task, "input_required")
        row = await store.get(task.id or "")
        assert row is not None
        # As another process leaves it, and this one finds it; what it would store is lost with it.
        payload = {"elicit-1": accept(x=7)} if kind == "answer" else {}
        await store.send(Signal(row.id, kind, payload))
        store.failing["save"] = TaskStoreError("killed")
        await trio.sleep(5)
        assert "receive" in store.calls
        assert [signal.kind for signal in await store.receive(row.owner)] == [kind]
        store.failing.clear()
        await until(client, task, "completed" if kind == "answer" else "cancelled")
        # Once it is stored nothing is left.
        await trio.sleep(5)
        assert await store.receive(row.owner) == []


async def test_what_is_kept_while_the_row_is_made_is_in_it(autojump_clock: Any) -> None:
    """A value of `once` of a call that was about to become a task."""
    store = Moody()
    store.slow["create"] = 1.0
    server = Server("s", tasks=store)

    @server.tool(task_support="required", restartable=True, task_inline_ms=100)
    async def charge(ctx: Context) -> None:
        await trio.sleep(0.5)

        async def number() -> int:
            return 7

        await ctx.once("number", number)
        await trio.sleep(100)

    async with open_client(server) as client:
        task = await client.start_tool("charge")
        await trio.sleep(5)
        row = await store.get(task.id or "")
        assert row is not None
        assert row.recorded["once"] == {"number": 7}
