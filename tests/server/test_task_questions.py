"""Questions in tasks, listening to tasks, and tasks after a restart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing

from trio_mcp import (
    Context,
    Elicited,
    InputRequired,
    InvalidParams,
    MemoryTaskStore,
    MissingClientCapability,
    ProtocolError,
    RequestTimeout,
    Server,
    Task,
    TaskState,
    form_question,
    open_client,
    open_server,
)

from .task_helpers import LIMITS, accept, sleeper, until

# -- questions


def asking() -> Server[Any]:
    server = Server("s", task_inline_ms=0)

    @server.tool(task_support="required")
    async def ask(ctx: Context) -> str:
        answer: Elicited[Any] = await ctx.elicit("How many?", {"count": int})
        again: Elicited[Any] = await ctx.elicit("Really?", {"sure": bool})
        return f"{answer.value} {again.action}"

    @server.tool(task_support="required")
    async def together(ctx: Context) -> str:
        questions = {"a": form_question("A?", {"x": int}), "b": form_question("B?", {"x": int})}
        answers = await ctx.ask(questions)
        return f"{answers['a'].value['x']} {answers['b'].value['x']}"

    @server.tool(task_support="required")
    async def apart(ctx: Context) -> str:
        out: dict[str, Any] = {}

        async def one(key: str) -> None:
            out[key] = (await ctx.elicit(f"{key}?", {"x": int}, key=key)).value["x"]

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one, "a")
            nursery.start_soon(one, "b")
        return f"{out['a']} {out['b']}"

    @server.tool(task_support="required")
    async def low(ctx: Context) -> InputRequired | str:
        if ctx.request_state is None:
            params = {"mode": "form", "message": "Name?", "requestedSchema": {"type": "object", "properties": {}}}
            return InputRequired({"name": {"method": "elicitation/create", "params": params}}, state=1)
        if ctx.request_state == 1:
            return InputRequired({}, state=[2, ctx.input_responses["name"]["action"]])
        return str(ctx.request_state)

    return server


async def test_the_client_answers_on_the_way(autojump_clock: Any) -> None:
    def fill_in(params: dict[str, Any]) -> Any:
        return {"count": 3} if params["message"] == "How many?" else False

    async with open_client(asking(), on_elicit=fill_in) as client:
        states: list[str] = []
        result = await client.call_tool("ask", on_task=lambda state: states.append(state.status))
        assert result.text == "{'count': 3} decline"
        assert states[-1] == "completed"
        assert "input_required" in states


async def test_keys_are_never_used_again(autojump_clock: Any) -> None:
    async with open_client(asking(), on_elicit=lambda params: None) as client:
        task = await client.start_tool("ask")
        state = await until(client, task, "input_required")
        assert list(state.requests) == ["elicit-1"]
        # One that does not fit is asked for again, and the old key is dead.
        await task.answer({"elicit-1": accept(count="three")})
        assert list((await task.refresh()).requests) == ["elicit-1~2"]
        await task.answer({"elicit-1": accept(count=1), "stray": {}})
        assert list((await task.refresh()).requests) == ["elicit-1~2"]
        await task.answer({"elicit-1~2": accept(count="two")})
        assert list((await task.refresh()).requests) == ["elicit-1~3"]
        await task.answer({"elicit-1~3": accept(count=2)})
        await trio.sleep(0.1)
        assert list((await task.refresh()).requests) == ["elicit-2"]
        await task.answer({"elicit-2": {"action": "cancel"}, "elicit-1~2": accept(count=9)})
        await until(client, task, "completed")
        assert (await task.result()).text == "{'count': 2} cancel"


@pytest.mark.parametrize("tool", ["together", "apart"])
async def test_answers_may_come_one_by_one(tool: str, autojump_clock: Any) -> None:
    async with open_client(asking(), on_elicit=lambda params: None) as client:
        task = await client.start_tool(tool)
        await trio.sleep(0.1)
        assert set((await task.refresh()).requests) == {"a", "b"}
        await task.answer({"b": accept(x=2)})
        state = await task.refresh()
        assert (state.status, set(state.requests)) == ("input_required", {"a"})
        await task.answer({"a": accept(x=1)})
        await until(client, task, "completed")
        assert (await task.result()).text == "1 2"


async def test_the_low_level_way_works_in_a_task(autojump_clock: Any) -> None:
    async with open_client(asking(), on_elicit=lambda params: False) as client:
        assert (await client.call_tool("low")).text == "[2, 'decline']"


async def test_what_the_client_cannot_answer_fails_the_task(autojump_clock: Any) -> None:
    async with open_client(asking()) as client:
        with pytest.raises(MissingClientCapability):
            await client.call_tool("ask")


async def test_a_task_that_waits_for_an_answer_can_be_cancelled(autojump_clock: Any) -> None:
    async with open_client(asking(), on_elicit=lambda params: None) as client:
        task = await client.start_tool("ask")
        await until(client, task, "input_required")
        await task.cancel()
        state = await until(client, task, "cancelled")
        assert state.requests == {}


async def test_a_question_that_is_given_up_is_asked_no_more(autojump_clock: Any) -> None:
    server = Server("s", task_inline_ms=0)

    @server.tool(task_support="required")
    async def impatient(ctx: Context) -> str:
        with trio.move_on_after(3):
            await ctx.elicit("Well?", {"x": int})
        await trio.sleep(3)
        return "moved on"

    async with open_client(server, on_elicit=lambda params: None) as client:
        task = await client.start_tool("impatient")
        await until(client, task, "input_required")
        await trio.sleep(4)
        state = await task.refresh()
        assert (state.status, state.requests) == ("working", {})
        await task.answer({"elicit-1": accept(x=1)})
        assert (await task.result()).text == "moved on"


async def test_rounds_come_before_the_task(autojump_clock: Any) -> None:
    server = Server("s")
    runs: list[bool] = []

    @server.tool(task_support="required")
    async def both(ctx: Context) -> str:
        runs.append(ctx.task_id is not None)
        first = await ctx.elicit("First?", {"x": int})
        await trio.sleep(1)
        second = await ctx.elicit("Second?", {"x": int})
        return f"{first.value['x']} {second.value['x']}"

    def fill_in(params: dict[str, Any]) -> dict[str, Any]:
        return {"x": 1 if params["message"] == "First?" else 2}

    async with open_client(server, on_elicit=fill_in) as client:
        assert (await client.call_tool("both")).text == "1 2"
    assert runs == [False, False]


# -- listening


async def test_a_listener_hears_how_a_task_goes(autojump_clock: Any) -> None:
    async with open_client(asking(), on_elicit=lambda params: None) as client:
        task = await client.start_tool("ask")
        assert task.id is not None
        async with client.listen(tasks=[task.id, "unknown", task.id]) as changes:
            assert changes.agreed == {"taskIds": [task.id]}
            told: list[TaskState] = []
            async for change in changes:
                assert change.kind == "task"
                assert change.task is not None
                told.append(change.task)
                if change.task.status == "input_required":
                    await task.answer({key: {"action": "cancel"} for key in change.task.requests})
                if change.task.final:
                    break
        assert told[-1].result is not None
        assert told[-1] == await task.refresh()


async def test_who_listens_late_hears_the_end(autojump_clock: Any) -> None:
    async with open_client(sleeper(task_inline_ms=0)) as client:
        task = await client.start_tool("sleep", {"seconds": 0})
        await task.result()
        assert task.id is not None
        async with client.listen(tasks=[task.id]) as changes:
            change = await anext(changes)
            assert change.task is not None
            assert change.task.status == "completed"


async def test_listening_to_tasks_needs_the_extension(autojump_clock: Any) -> None:
    async with open_client(sleeper()) as client:
        with pytest.raises(MissingClientCapability):
            await client.request("subscriptions/listen", {"notifications": {"taskIds": ["x"]}})
        with pytest.raises(InvalidParams, match="1001 taskIds; the limit is 1000"):
            async with client.listen(tasks=[str(number) for number in range(1_001)]):
                pass


class Restless(MemoryTaskStore):
    """Another process writes all the time."""

    async def wait_change(self) -> None:
        await trio.sleep(1)


async def test_a_task_of_another_process_is_told_when_it_has_changed(autojump_clock: Any) -> None:
    store = Restless()
    server = sleeper(tasks=store, task_inline_ms=0)
    async with open_client(server) as client, store.open("other"):
        own = await client.start_tool("sleep", {"seconds": 1_000})
        assert own.id is not None
        row = await store.get(own.id)
        assert row is not None
        await store.create(row := replace(row, id="its", owner="other"))
        told: list[str | None] = []
        async with trio.open_nursery() as nursery, client.listen(tasks=["its"]) as changes:

            async def hear() -> None:
                async for change in changes:
                    assert change.task is not None
                    told.append(change.task.message)

            nursery.start_soon(hear)
            await trio.sleep(10)
            # How it stands, and perhaps once more when it was looked at first.
            assert told in ([None], [None, None])
            await store.save(replace(row, message="half"))
            await trio.sleep(10)
            assert told[told.count(None) :] == ["half"]
            nursery.cancel_scope.cancel()
        await own.cancel()


# -- after a restart


async def test_a_task_that_may_be_run_again_finds_what_it_had(autojump_clock: Any) -> None:
    store = MemoryTaskStore()
    runs: list[str] = []
    server = Server("s", tasks=store, task_inline_ms=0)

    @server.tool(task_support="required", restartable=True)
    async def long(word: str, ctx: Context) -> str:
        async def pick() -> int:
            runs.append("picked")
            await trio.lowlevel.checkpoint()
            return 7

        runs.append("began")
        picked = await ctx.once("pick", pick)
        first = await ctx.elicit("First?", {"x": int})
        second = await ctx.elicit("Second?", {"x": int})
        return f"{word} {picked} {first.value['x']} {second.value['x']}"

    async with open_client(server, on_elicit=lambda params: None) as client:
        task = await client.start_tool("long", {"word": "w"})
        assert task.id is not None
        await until(client, task, "input_required")
        await task.answer({"elicit-1": accept(x=1)})
        await trio.sleep(0.1)
        assert list((await task.refresh()).requests) == ["elicit-2"]
    async with open_client(server, on_elicit=lambda params: None) as client:
        task = client.task(task.id)
        state = await until(client, task, "input_required")
        # The answer and the picked number are there again, and the open question is the same.
        assert list(state.requests) == ["elicit-2"]
        await task.answer({"elicit-1": accept(x=9), "elicit-2": accept(x=2)})
        await until(client, task, "completed")
        assert (await task.result()).text == "w 7 1 2"
    assert runs == ["began", "picked", "began"]


async def test_what_was_done_once_is_stored_before_the_handler_goes_on(autojump_clock: Any) -> None:
    store = MemoryTaskStore()
    server = Server("s", tasks=store, task_inline_ms=0)
    rows: list[dict[str, Any]] = []

    @server.tool(task_support="required", restartable=True)
    async def charge(ctx: Context) -> None:
        async def pay() -> str:
            return "paid"

        await ctx.once("pay", pay)
        assert ctx.task_id is not None
        row = await store.get(ctx.task_id)
        assert row is not None
        rows.append(row.recorded["once"])

    async with open_client(server) as client:
        await (await client.start_tool("charge")).result()
    assert rows == [{"pay": "paid"}]


class Unsteady(MemoryTaskStore):
    """Fails once, in a way of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[Exception] = [ConnectionError("gone")]

    async def save(self, task: Task) -> bool:
        if "once" in task.recorded and self.failures:
            raise self.failures.pop()
        return await super().save(task)


async def test_a_store_that_fails_in_its_own_way_is_tried_again_and_no_error_of_the_handler(
    autojump_clock: Any,
) -> None:
    store = Unsteady()
    server = Server("s", tasks=store, task_inline_ms=0)

    @server.tool(task_support="required", restartable=True)
    async def charge(ctx: Context) -> str:
        async def pay() -> str:
            return "paid"

        return str(await ctx.once("pay", pay))

    async with open_client(server) as client:
        assert (await (await client.start_tool("charge")).result()).text == "paid"
    assert store.failures == []


async def test_a_low_level_round_goes_on_where_it_was(autojump_clock: Any) -> None:
    server = Server("s", tasks=MemoryTaskStore(), task_inline_ms=0)

    @server.tool(task_support="required", restartable=True)
    async def add_up(ctx: Context) -> str | InputRequired:
        total = ctx.request_state or 0
        if ctx.input_responses:
            number = ctx.input_responses["n"]["content"]["n"]
            if not number:
                return f"{total} in all"
            total += number
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
        params = {"mode": "form", "message": "Next?", "requestedSchema": schema}
        return InputRequired({"n": {"method": "elicitation/create", "params": params}}, state=total)

    task_id = ""
    for number in (3, 4, 0):
        # Each answer goes to another run.
        async with open_client(server, on_elicit=lambda params: None) as client:
            if not task_id:
                started = await client.start_tool("add_up")
                assert started.id is not None
                task_id = started.id
            task = client.task(task_id)
            [key] = (await until(client, task, "input_required")).requests
            await task.answer({key: accept(n=number)})
            if number:
                await trio.sleep(0.1)
            else:
                await until(client, task, "completed")
                assert (await task.result()).text == "7 in all"


async def test_one_that_may_not_says_so(autojump_clock: Any) -> None:
    server = sleeper(tasks=MemoryTaskStore(), limits=replace(LIMITS, drain_timeout=0.5))
    async with open_client(server) as client:
        task = await client.start_tool("sleep", {"seconds": 100})
        assert task.id is not None
    async with open_client(server) as client:
        with pytest.raises(ProtocolError, match="stopped before the task had finished") as caught:
            await client.task(task.id).result()
        assert caught.value.code == -32603


async def test_one_is_not_begun_for_ever(autojump_clock: Any) -> None:
    server = Server("s", tasks=MemoryTaskStore(), task_inline_ms=0, limits=replace(LIMITS, task_attempts=3))
    runs: list[None] = []

    @server.tool(task_support="required", restartable=True)
    async def stuck() -> None:
        runs.append(None)
        await trio.sleep_forever()

    async with open_client(server) as client:
        task = await client.start_tool("stuck")
        assert task.id is not None
        await trio.sleep(0.1)
    for _ in range(4):
        # Ends in order do not count.
        async with open_client(server) as client:
            await trio.sleep(0.1)
            assert (await client.task(task.id).refresh()).status == "working"
    assert len(runs) == 5
    for attempts, status in ((1, "working"), (2, "failed")):
        async with server.task_store.open("dead"):
            row = await server.task_store.get(task.id)
            assert row is not None
            await server.task_store.delete(task.id)
            # What a process leaves that was killed in its second, and in its third attempt.
            await server.task_store.create(replace(row, owner="dead", attempts=attempts + 1))
        async with open_client(server) as client:
            await trio.sleep(0.1)
            assert (await client.task(task.id).refresh()).status == status


async def test_an_answer_to_a_run_that_ended_is_found_by_the_next(autojump_clock: Any) -> None:
    store = MemoryTaskStore()
    server = Server("s", tasks=store, task_inline_ms=0)
    pauses = iter([0, 5])

    @server.tool(task_support="required", restartable=True)
    async def ask(ctx: Context) -> str:
        await trio.sleep(next(pauses))
        answers = await ctx.ask({name: form_question(f"{name}?", {"x": int}) for name in ("a", "b")})
        return f"{answers['a'].value['x']} {answers['b'].value['x']}"

    async with open_client(server, on_elicit=lambda params: None) as client:
        task = await client.start_tool("ask")
        assert task.id is not None
        await until(client, task, "input_required")
    async with open_client(server, on_elicit=lambda params: None) as client:
        task = client.task(task.id)
        assert (await task.refresh()).status == "working"
        await task.answer({"a": accept(x=1)})
        state = await until(client, task, "input_required")
        assert list(state.requests) == ["b"]
        await task.answer({"b": accept(x=2)})
        await until(client, task, "completed")
        assert (await task.result()).text == "1 2"


async def test_an_answer_to_a_run_that_ended_is_kept_until_a_run_comes_to_its_question(autojump_clock: Any) -> None:
    server = Server("s", tasks=MemoryTaskStore(), task_inline_ms=0)
    pauses = iter([0, 100, 0])

    @server.tool(task_support="required", restartable=True)
    async def ask(ctx: Context) -> str:
        await trio.sleep(next(pauses))
        answer: Elicited[Any] = await ctx.elicit("x?", {"x": int})
        return str(answer.value["x"])

    async with open_client(server, on_elicit=lambda params: None) as client:
        task = await client.start_tool("ask")
        assert task.id is not None
        await until(client, task, "input_required")
    async with open_client(server, on_elicit=lambda params: None) as client:
        await client.task(task.id).answer({"elicit-1": accept(x=1)})
    async with open_client(server, on_elicit=lambda params: None) as client:
        await until(client, client.task(task.id), "completed")
        assert (await client.task(task.id).result()).text == "1"


async def test_another_question_of_the_next_run_has_another_key(autojump_clock: Any) -> None:
    server = Server("s", tasks=MemoryTaskStore(), task_inline_ms=0)
    questions = iter(["One?", "Two?"])

    @server.tool(task_support="required", restartable=True)
    async def ask(ctx: Context) -> None:
        await ctx.elicit(next(questions), {"x": int}, key="x")

    keys: list[list[str]] = []
    async with open_client(server, on_elicit=lambda params: None) as client:
        task = await client.start_tool("ask")
        keys.append(list((await until(client, task, "input_required")).requests))
    assert task.id is not None
    async with open_client(server, on_elicit=lambda params: None) as client:
        keys.append(list((await until(client, client.task(task.id), "input_required")).requests))
    assert keys == [["x"], ["x~2"]]


async def test_a_task_that_was_cancelled_here_is_not_begun_again_after_a_crash(autojump_clock: Any) -> None:
    store, after = MemoryTaskStore(), MemoryTaskStore()
    server = Server("s", tasks=store, task_inline_ms=0)

    @server.tool(task_support="required", restartable=True)
    async def stuck() -> None:
        await trio.sleep_forever()

    async with open_client(server) as client:
        task = await client.start_tool("stuck")
        assert task.id is not None
        row = await store.get(task.id)
        assert row is not None
        await task.cancel()
        # What a process leaves that was killed in this moment.
        async with after.open("dead"):
            await after.create(replace(row, owner="dead"))
            for signal in await store.receive(row.owner):
                await after.send(signal)
    server.task_store = after
    async with open_client(server) as client:
        await until(client, client.task(task.id), "cancelled")


class Delayed(MemoryTaskStore):
    """The first row is stored slowly; keeps what rows had of answers, in the order in which they were stored."""

    def __init__(self) -> None:
        super().__init__()
        self._delays = iter([1.0])
        self.answers: list[set[str]] = []

    async def save(self, task: Task) -> bool:
        await trio.sleep(next(self._delays, 0))
        self.answers.append({entry["key"] for entry in task.recorded.get("asked", ()) if "answer" in entry})
        return await super().save(task)


async def test_what_is_stored_does_not_go_back(autojump_clock: Any) -> None:
    store = Delayed()
    server = Server("s", tasks=store, task_inline_ms=0)

    @server.tool(task_support="required", restartable=True)
    async def ask(ctx: Context) -> None:
        await ctx.elicit("x?", {"x": int})
        await trio.sleep(5)

    async with open_client(server, on_elicit=lambda params: None) as client:
        task = await client.start_tool("ask")
        await until(client, task, "input_required")
        await trio.sleep(0.5)
        assert store.answers == []
        # While the row without the answer is on its way.
        await task.answer({"elicit-1": accept(x=1)})
        assert store.answers[-1] == {"elicit-1"}
        await until(client, task, "completed")
    assert store.answers == sorted(store.answers, key=len)


async def test_a_tool_that_has_gone_or_changed_fails_its_tasks(autojump_clock: Any) -> None:
    server = Server("s", tasks=MemoryTaskStore(), task_inline_ms=0)

    def register(annotation: Any) -> None:
        async def stuck(x: Any) -> None:
            await trio.sleep_forever()

        stuck.__annotations__["x"] = annotation
        server.tool(stuck, task_support="required", restartable=True)

    register(int)
    ids: list[str] = []
    for change in (lambda: register(list[int]), lambda: None):
        async with open_client(server) as client:
            task = await client.start_tool("stuck", {"x": 1 if not ids else [1]})
            assert task.id is not None
            ids.append(task.id)
        server.remove_tool("stuck")
        change()
    async with open_client(server) as client:
        for task_id in ids:
            assert (await client.task(task_id).refresh()).status == "failed"


async def test_at_the_end_tasks_get_the_time_of_the_drain(autojump_clock: Any) -> None:
    store = MemoryTaskStore()
    server = sleeper(tasks=store)
    async with open_client(server) as client:
        quick = await client.start_tool("sleep", {"seconds": 1.5})
        slow = await client.start_tool("sleep", {"seconds": 9})
        began = trio.current_time()
    assert trio.current_time() - began <= LIMITS.drain_timeout + LIMITS.task_settle
    assert quick.id is not None
    assert slow.id is not None
    async with store.open("later"):
        found = await store.get(quick.id), await store.get(slow.id)
    assert [task.status for task in found if task is not None] == ["completed", "failed"]


async def test_one_look_that_takes_too_long_is_told_as_it_is(autojump_clock: Any) -> None:
    server = sleeper(task_inline_ms=0, limits=replace(LIMITS, task_poll=0.1))
    async with open_server(server) as running, open_client(running, limits=replace(LIMITS, client_timeout=2)) as client:

        async def hang(task_id: str, principal: str) -> Any:
            await trio.sleep_forever()

        running.tasks.find = hang  # type: ignore[method-assign]
        with pytest.raises(RequestTimeout, match="tasks/get: no answer from s within 2 s"):
            await client.call_tool("sleep", {"seconds": 60})
