"""Tasks to test a store with, and what the tests of `task_store` and `shared_task_store` have in common."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from dataclasses import fields, replace
from typing import Any, Final, cast

import trio
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from ..protocol.tasks import Signal, Status, Task
from ..tasks.store import TaskStore

__all__ = [
    "MANY",
    "METHODS",
    "OBJECTS",
    "PATIENCE",
    "SETTINGS",
    "STATUSES",
    "TASKS",
    "assert_same",
    "assert_usable",
    "at_once",
    "exact",
    "make_task",
    "name",
    "pass_time",
    "take",
]

MANY: Final = 300
"""Calls at once."""

PATIENCE: Final = 20.0
"""Seconds after which something that must happen has not. The machine may be slow."""

STATUSES: Final[tuple[Status, ...]] = ("working", "input_required", "completed", "failed", "cancelled")

# Another subclass runs the same functions, each in one process of tests with fixtures of its own for all examples.
SETTINGS: Final = settings(
    # Each opens a store, which may take a while.
    max_examples=max(1, settings().max_examples // 2),
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.differing_executors,
        HealthCheck.function_scoped_fixture,
    ],
)

_NUMBERS: Final = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
_JSON: Final = st.recursive(
    st.none() | st.booleans() | _NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
OBJECTS: Final = st.dictionaries(st.text(), _JSON, max_size=2)
_SECONDS: Final = st.floats(0, 4e9)

TASKS: Final = st.fixed_dictionaries(
    {
        "params": OBJECTS,
        "meta": OBJECTS,
        "created": _SECONDS,
        "updated": _SECONDS,
        "ttl": _SECONDS,
        "poll_interval": _SECONDS,
        "status": st.sampled_from(STATUSES),
        "message": st.none() | st.text(),
        "result": st.none() | OBJECTS,
        "error": st.none() | OBJECTS,
        "requests": OBJECTS,
        "recorded": OBJECTS,
        "restartable": st.booleans(),
        "attempts": st.integers(0, 1_000),
    }
)
"""Every field but those that say whose task it is."""

METHODS: Final[dict[str, Callable[[TaskStore, Task], Awaitable[object]]]] = {
    "create": lambda store, task: store.create(replace(task, id=name())),
    "save": lambda store, task: store.save(replace(task, message="further")),
    "get": lambda store, task: store.get(task.id),
    "delete": lambda store, task: store.delete(task.id),
    "count": lambda store, task: store.count(task.principal),
    "expire": lambda store, task: store.expire(task.expires + 1),
    "adopt": lambda store, task: store.adopt(task.owner),
    "send": lambda store, task: store.send(Signal(task.id, "cancel")),
    "receive": lambda store, task: store.receive(task.owner),
    "acknowledge": lambda store, task: store.acknowledge([Signal(task.id, "cancel", number=1 << 40)]),
    "wait_change": lambda store, task: store.wait_change(),
}
"""One call of each method that is only called while the store is open."""


def name() -> str:
    return uuid.uuid4().hex


def make_task(owner: str, **changes: Any) -> Task:
    """A task like none before."""
    row = Task(
        id=name(),
        owner=owner,
        principal=name(),
        params={"name": "tool", "arguments": {"x": [1, 2.5, None, True, "ö"]}},
        meta={"version": "2026-07-28"},
        created=1_000.0,
        updated=1_000.5,
        ttl=60.0,
        poll_interval=1.0,
    )
    return replace(row, **changes)


def exact(value: object) -> object:
    """A JSON value as something in which `True` does not equal 1."""
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, list):
        return [exact(item) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        return {key: exact(item) for key, item in cast("dict[str, object]", value).items()}
    return value


def assert_same(found: Task | None, expected: Task) -> None:
    assert found is not None
    for field in fields(Task):
        got, wanted = getattr(found, field.name), getattr(expected, field.name)
        assert exact(got) == exact(wanted), field.name


async def at_once(*calls: Callable[[], Awaitable[object]]) -> None:
    async with trio.open_nursery() as nursery:
        for call in calls:
            nursery.start_soon(call)


async def assert_usable(store: TaskStore, owner: str) -> None:
    """Every method does what it should."""
    task = make_task(owner)
    with trio.fail_after(PATIENCE):
        await store.create(task)
        task = replace(task, message="half")
        assert await store.save(task) is True
        assert_same(await store.get(task.id), task)
        await take(store, owner)
        await store.send(Signal(task.id, "cancel"))
        assert await take(store, owner) == [Signal(task.id, "cancel")]
        assert await store.adopt(owner) == []
        assert await store.save(replace(task, status="completed", result={}))
        assert await store.count(task.principal) == (0, 1)
        assert await store.expire(task.expires + 1) >= 1
        assert await store.get(task.id) is None
        await store.delete(task.id)
        assert await store.count(task.principal) == (0, 0)


async def pass_time(moment: int) -> None:
    """Let others run: for a few checkpoints, or longer and longer, so that a call is met in different stages."""
    for _ in range(min(moment, 3)):
        await trio.lowlevel.checkpoint()
    if moment > 3:
        await trio.sleep(0.0002 * 2 ** (moment - 4))


async def take(store: TaskStore, owner: str) -> list[Signal]:
    """What was left for the tasks of an owner; it is acknowledged."""
    signals = await store.receive(owner)
    await store.acknowledge(signals)
    return signals
