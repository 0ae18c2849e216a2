"""Calls that become tasks, in memory and in virtual time."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing

from trio_mcp import (
    Context,
    InvalidParams,
    Limits,
    MemoryTaskStore,
    MissingClientCapability,
    ProtocolError,
    RegistrationError,
    RemoteTask,
    RequestTimeout,
    Server,
    ServerBusy,
    Task,
    TaskCancelled,
    TaskState,
    TaskStoreError,
    ToolError,
    open_client,
    open_server,
)
from trio_mcp.protocol.meta import CLIENT_CAPABILITIES
from trio_mcp.testing import open_raw, request

from .task_helpers import LIMITS, TASKS, declared_request, sleeper, until

# -- the window


@pytest.mark.parametrize(("seconds", "task"), [(0, False), (0.09, False), (0.11, True), (5, True)])
async def test_what_is_quick_is_answered_in_line(seconds: float, task: bool, autojump_clock: Any) -> None:
    async with open_client(sleeper()) as client:
        started = await client.start_tool("sleep", {"seconds": seconds})
        assert (started.id is not None) == task
        assert (await started.result()).text == f"slept {seconds:g} s{' as a task' if task else ''}"


async def test_the_window_is_of_the_server_or_of_the_tool(autojump_clock: Any) -> None:
    server = sleeper(task_inline_ms=1_000)

    @server.tool(task_support="optional", task_inline_ms=2_000)
    async def patient() -> float:
        await trio.sleep(1.5)
        return trio.current_time()

    async with open_client(server) as client:
        assert (await client.start_tool("sleep", {"seconds": 0.9})).id is None
        assert (await client.start_tool("sleep", {"seconds": 1.1})).id is not None
        assert (await client.start_tool("patient")).id is None


async def test_a_window_of_zero_makes_a_task_before_the_function_begins(autojump_clock: Any) -> None:
    server = Server("s", task_inline_ms=0)

    @server.tool(task_support="optional")
    async def where(ctx: Context) -> bool:
        return ctx.task_id is not None

    async with open_client(server) as client:
        started = await client.start_tool("where")
        assert started.id is not None
        assert (await started.result()).data is True


class Slow(MemoryTaskStore):
    """A store that takes its time to create."""

    created = 0

    async def create(self, task: Task) -> None:
        self.created += 1
        await trio.sleep(1)
        await super().create(task)


@pytest.mark.parametrize(("seconds", "created"), [(0, 0), (0.5, 1)])
async def test_a_call_that_has_asked_stays_one_however_long_its_handler_takes_to_unwind(
    seconds: float, created: int, autojump_clock: Any
) -> None:
    """Whether it asks before its window is over, or while its row is made."""
    server = Server("s", tasks=(store := Slow()), task_inline_ms=100)
    runs: list[None] = []

    @server.tool(task_support="optional")
    async def ask(ctx: Context) -> str:
        runs.append(None)
        if len(runs) > 1:
            return f"{(await ctx.elicit('Well?', {'x': int})).value['x']}"
        await trio.sleep(seconds)
        try:
            await ctx.elicit("Well?", {"x": int})
        finally:
            await trio.sleep(3)
        return "never"

    async with open_client(server, on_elicit=lambda params: {"x": 1}) as client:
        assert (await client.call_tool("ask")).text == "1"
        assert (len(runs), store.created) == (2, created)


async def test_at_the_end_of_its_connection_a_call_stays_one(autojump_clock: Any) -> None:
    """Nobody is left who could ask for the task."""
    message = request(1, "tools/call", name="sleep", arguments={"seconds": 1})
    message["params"]["_meta"][CLIENT_CAPABILITIES] = {"extensions": {TASKS: {}}}
    for before in (True, False):
        async with open_raw(sleeper(task_inline_ms=100)) as peer:
            await peer.send(message)
            await trio.sleep(0.05 if before else 0.15)
            await peer.close_input()
            (answer,) = await peer.receive_all()
        assert answer["result"]["resultType"] == ("complete" if before else "task")


async def test_a_client_that_takes_no_tasks_waits(autojump_clock: Any) -> None:
    async with open_client(sleeper()) as client:
        result = await client.request("tools/call", {"name": "sleep", "arguments": {"seconds": 5}})
        assert result["content"][0]["text"] == "slept 5 s"


async def test_a_tool_that_must_be_a_task_is_refused_before_it_runs() -> None:
    server = Server("s")
    runs: list[None] = []

    @server.tool(task_support="required")
    async def job() -> None:
        runs.append(None)

    async with open_client(server) as client:
        with pytest.raises(MissingClientCapability, match="'job' runs as a task only") as caught:
            await client.request("tools/call", {"name": "job"})
        assert caught.value.data == {"requiredCapabilities": {"extensions": {TASKS: {}}}}
    assert runs == []


async def test_the_extension_is_told_when_a_tool_supports_tasks() -> None:
    async with open_client(sleeper()) as client:
        assert client.capabilities["extensions"] == {TASKS: {}}
    server = Server("s")
    server.tool(name="plain")(lambda: None)
    async with open_client(server) as client:
        assert "extensions" not in client.capabilities


async def test_wrong_arguments_are_told_in_line() -> None:
    async with open_client(sleeper(task_inline_ms=0)) as client:
        started = await client.start_tool("sleep", {"seconds": "x"})
        assert started.id is None
        assert (await started.result()).is_error


async def test_a_plain_function_goes_on_in_its_thread() -> None:
    server = Server("s", task_inline_ms=10)
    gate = threading.Event()

    @server.tool(task_support="required")
    def job(ctx: Context) -> bool:
        gate.wait(10)
        trio.from_thread.run(ctx.report_progress, 1)
        return ctx.task_id is not None

    async with open_client(server) as client:
        started = await client.start_tool("job")
        assert started.id is not None
        gate.set()
        assert (await started.result()).data is True


# -- progress


async def test_progress_goes_to_the_response_and_then_to_the_status(autojump_clock: Any) -> None:
    server = Server("s")

    @server.tool(task_support="optional")
    async def work(ctx: Context) -> None:
        await ctx.report_progress(1, 3, "early")
        await ctx.log("warning", "early")
        await trio.sleep(0.2)
        await ctx.report_progress(2, 3, "late")
        await trio.sleep(5)
        await ctx.log("debug", "unheard")
        await ctx.log("warning", {"late": True})
        await trio.sleep(5)

    heard: list[Any] = []
    async with open_client(server) as client:
        task = await client.start_tool(
            "work", on_progress=lambda *what: heard.append(what), on_log=lambda *what: heard.append(what)
        )
        assert heard == [(1, 3, "early"), ("warning", "early", None)]
        await trio.sleep(0.5)
        assert (await task.refresh()).message == "2 of 3: late"
        await trio.sleep(5)
        assert (await task.refresh()).message == '{"late":true}'
        await task.result()
        assert task.state is not None
        assert task.state.message is None
        assert len(heard) == 2


async def test_a_task_reports_though_nobody_asked_for_progress(autojump_clock: Any) -> None:
    server = Server("s", task_inline_ms=0)

    @server.tool(task_support="required")
    async def work(ctx: Context) -> None:
        assert ctx.wants_progress
        await ctx.report_progress(0.5)
        await ctx.report_progress(0.25)
        await trio.sleep(5)

    async with open_client(server) as client:
        task = await client.start_tool("work")
        await trio.sleep(1)
        assert (await task.refresh()).message == "0.5"


# -- ends


async def test_the_ends_of_a_task(autojump_clock: Any, caplog: pytest.LogCaptureFixture) -> None:
    server = Server("s", task_inline_ms=0)

    @server.tool(task_support="required")
    async def work(how: str) -> str:
        await trio.sleep(1)
        if how == "tool":
            raise ToolError("read me")
        if how == "protocol":
            raise InvalidParams("not like this", {"a": 1})
        if how == "crash":
            raise ZeroDivisionError("secret")
        return "fine"

    async with open_client(server) as client:

        async def end(how: str) -> tuple[TaskState, RemoteTask]:
            task = await client.start_tool("work", {"how": how})
            await trio.sleep(2)
            return await task.refresh(), task

        state, task = await end("fine")
        assert (state.status, (await task.result()).text) == ("completed", "fine")
        state, task = await end("tool")
        assert (state.status, (await task.result()).text) == ("completed", "read me")
        assert (await task.result()).is_error
        state, task = await end("protocol")
        assert state.status == "failed"
        assert state.message == "not like this"
        with pytest.raises(InvalidParams, match="not like this") as caught:
            await task.result()
        assert caught.value.data == {"a": 1}
        with caplog.at_level(logging.CRITICAL, "trio_mcp"):
            state, task = await end("crash")
        assert state.status == "completed"
        result = await task.result()
        assert result.is_error
        assert "secret" not in result.text


async def test_the_timeout_of_a_tool_counts_from_its_beginning(autojump_clock: Any) -> None:
    server = Server("s")

    @server.tool(task_support="optional", timeout=3)
    async def stuck() -> None:
        await trio.sleep_forever()

    async with open_client(server) as client:
        began = trio.current_time()
        result = await client.call_tool("stuck")
        assert result.text == "Tool 'stuck' did not finish within 3 s"
        assert 3 <= trio.current_time() - began <= 4.5


async def test_a_task_ends_with_its_time(autojump_clock: Any) -> None:
    server = Server("s", task_inline_ms=0, limits=replace(LIMITS, task_ttl=20))
    ended: list[float] = []

    @server.tool(task_support="optional")
    async def stuck() -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append(trio.current_time())

    async with open_client(server) as client:
        began = trio.current_time()
        task = await client.start_tool("stuck")
        assert task.state is not None
        assert task.state.ttl == 20
        await trio.sleep(30)
        assert ended == [began + 20]


async def test_a_result_that_is_too_large_is_a_failure_that_says_so(autojump_clock: Any) -> None:
    server = Server("s", task_inline_ms=0, limits=replace(LIMITS, task_result_bytes=1_000))

    @server.tool(task_support="optional")
    async def long(length: int) -> str:
        return "x" * length

    async with open_client(server) as client:
        assert len((await client.call_tool("long", {"length": 500})).text) == 500
        with pytest.raises(ProtocolError, match=r"has \d+ bytes; this server keeps 1000 \(limits.task_result_bytes\)"):
            await client.call_tool("long", {"length": 1_000})


def test_what_bounds_may_be() -> None:
    with pytest.raises(ValueError, match="task_result_bytes must be at most 4194304"):
        Limits(task_result_bytes=5_000_000)
    with pytest.raises(ValueError, match="task_ttl must be at most"):
        Limits(task_ttl=100_000)


# -- cancellation


async def test_leaving_call_tool_cancels_the_task(autojump_clock: Any) -> None:
    server = Server("s")
    ended: list[float] = []

    @server.tool(task_support="optional")
    async def stuck() -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append(trio.current_time())

    async with open_client(server) as client:
        began = trio.current_time()
        with trio.move_on_after(2):
            await client.call_tool("stuck")
        await trio.sleep(1)
        with pytest.raises(RequestTimeout, match="no result from s within 3 s; the task that it became was cancelled"):
            await client.call_tool("stuck", timeout=3)
        await trio.sleep(1)
        assert ended == [began + 2, began + 6]
        task = await client.start_tool("stuck")
        with trio.move_on_after(5):
            await task.result()
        assert (await task.refresh()).status == "working"


async def test_a_cancelled_task_stays_cancelled(autojump_clock: Any) -> None:
    async with open_client(sleeper()) as client:
        task = await client.start_tool("sleep", {"seconds": 100})
        await task.cancel()
        state = await until(client, task, "cancelled")
        assert state.message == "Cancelled by the client"
        await task.cancel()
        with pytest.raises(TaskCancelled):
            await task.result()
        done = await client.start_tool("sleep", {"seconds": 1})
        await done.result()
        await done.cancel()
        assert (await done.refresh()).status == "completed"


async def test_an_acknowledgement_is_empty(autojump_clock: Any) -> None:
    async with open_client(sleeper()) as client:
        task = await client.start_tool("sleep", {"seconds": 100})
        for method, more in (("tasks/update", {"inputResponses": {"stray": {}}}), ("tasks/cancel", {})):
            ack = await declared_request(client, method, {"taskId": task.id, **more})
            assert set(ack) == {"resultType", "_meta"}


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_an_unknown_task_is_invalid_params(method: str) -> None:
    async with open_client(sleeper()) as client:
        params = {"taskId": "nope", "inputResponses": {}}
        with pytest.raises(InvalidParams, match='Unknown task: "nope"'):
            await declared_request(client, method, params)
        with pytest.raises(MissingClientCapability) as caught:
            await client.request(method, params)
        assert caught.value.data == {"requiredCapabilities": {"extensions": {TASKS: {}}}}


async def test_a_task_of_somebody_else_looks_unknown(autojump_clock: Any) -> None:
    store = MemoryTaskStore()
    async with open_server(sleeper(tasks=store)) as running, open_client(running) as client:
        task = await client.start_tool("sleep", {"seconds": 1})
        assert task.id is not None
        running.tasks.running[task.id].row = replace(running.tasks.running[task.id].row, principal="somebody")
        with pytest.raises(InvalidParams, match="Unknown task"):
            await task.refresh()
        await trio.sleep(2)
        with pytest.raises(InvalidParams, match="Unknown task"):
            await task.refresh()


# -- bounds


async def test_a_caller_may_have_so_many_tasks_at_once(autojump_clock: Any) -> None:
    server = Server("s", limits=replace(LIMITS, tasks_active=3))
    runs: list[float] = []

    @server.tool(task_support="required")
    async def sleep(seconds: float) -> None:
        runs.append(seconds)
        await trio.sleep(seconds)

    async with open_client(server) as client:
        outcomes: list[str] = []

        async def start() -> None:
            try:
                outcomes.append(str((await client.start_tool("sleep", {"seconds": 50})).id is not None))
            except ServerBusy as exc:
                assert exc.retry_after
                outcomes.append("busy")

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(start)
        assert sorted(outcomes) == ["True", "True", "True", "busy", "busy"]
        with pytest.raises(ServerBusy, match="3 tasks of this caller are active"):
            await client.start_tool("sleep", {"seconds": 0})
        await trio.sleep(51)
        assert (await client.start_tool("sleep", {"seconds": 0})).id is None
    # Those that were refused did not run.
    assert runs == [50, 50, 50, 0]


async def test_a_caller_may_have_so_many_tasks_stored(autojump_clock: Any) -> None:
    server = Server("s", limits=replace(LIMITS, tasks_stored=2), task_inline_ms=0)

    @server.tool(task_support="required")
    async def sleep(seconds: float) -> None:
        await trio.sleep(seconds)

    async with open_client(server) as client:
        for _ in range(2):
            await client.call_tool("sleep", {"seconds": 0})
        with pytest.raises(ServerBusy, match="2 tasks of this caller are kept"):
            await client.call_tool("sleep", {"seconds": 0})


async def test_tasks_expire(autojump_clock: Any) -> None:
    server = sleeper(limits=replace(LIMITS, task_ttl=60), task_inline_ms=0)
    store = MemoryTaskStore()
    server.task_store = store
    async with open_server(server) as running, open_client(running) as client:
        zero = trio.current_time()
        running.tasks.clock = lambda: 1e9 + trio.current_time() - zero
        task = await client.start_tool("sleep", {"seconds": 1})
        await task.result()
        await trio.sleep(50)
        assert (await task.refresh()).final
        await trio.sleep(9)
        with pytest.raises(InvalidParams, match="expired"):
            await task.refresh()
        await trio.sleep(20)
        assert await store.count("") == (0, 0)


class Full(MemoryTaskStore):
    """Takes new tasks and no end of one; counts the attempts."""

    saves = 0

    async def save(self, task: Task) -> bool:
        await trio.lowlevel.checkpoint()
        self.saves += 1
        raise TaskStoreError("the disk is full")


async def test_an_end_that_cannot_be_stored_is_not_tried_for_longer_than_it_would_be_kept(autojump_clock: Any) -> None:
    store = Full()
    server = sleeper(tasks=store, limits=replace(LIMITS, task_ttl=60, task_retry=10), task_inline_ms=0)
    async with open_server(server) as running, open_client(running) as client:
        running.tasks.clock = trio.current_time
        task = await client.start_tool("sleep", {"seconds": 1})
        assert (await task.result()).text == "slept 1 s as a task"
        await trio.sleep(100)
        tried = store.saves
        assert tried >= 6
        await trio.sleep(100)
        assert store.saves == tried
        # It would count as one that works.
        assert await store.count("") == (0, 0)
        with pytest.raises(InvalidParams, match="Unknown task"):
            await task.refresh()


# -- registration


def test_what_a_tool_may_say_of_tasks() -> None:
    server = Server("s")

    async def tool() -> None: ...

    with pytest.raises(RegistrationError, match="'forbidden', 'optional' or 'required', not 'always'"):
        server.tool(tool, task_support="always")  # type: ignore[call-overload]
    with pytest.raises(RegistrationError, match="restartable and task_inline_ms are for tools with task_support"):
        server.tool(tool, restartable=True)
    for window in (-1, 1.5, "soon", True):
        with pytest.raises(RegistrationError, match="number of milliseconds"):
            server.tool(tool, task_support="optional", task_inline_ms=window)  # type: ignore[call-overload]
        with pytest.raises(RegistrationError, match="task_inline_ms"):
            Server("s", task_inline_ms=window)  # type: ignore[arg-type]
    with pytest.raises(RegistrationError, match=r"SQLiteTaskStore\('tasks.db'\)"):
        Server("s", tasks="tasks.db")  # type: ignore[arg-type]
