"""The methods of tasks in revision 2025-11-25 (basic/utilities/tasks): the client says which call becomes one, and asks for its
result, which is the time at which it can be asked in turn."""

from __future__ import annotations

from typing import Any, Final

import trio

from ...errors import InvalidParams, InvalidRequest, MCPError, ProtocolError
from ...protocol.cursors import page_after
from ...protocol.tasks import TASK_CHANGED, Task
from ...scopes.call import Call
from ...scopes.notices import Notice
from ..peer.session import Session
from ..tasks.session_rows import related, session_result, session_row
from ..tasks.tasks import cancel_task, update_task_of
from .serving import Serving

__all__ = ["SESSION_TASKS"]

_LOOK: Final = 1.0
"""Seconds between two looks at a task whose time is over, until it is not found any more."""


def _session(call: Call) -> Session:
    session = call.session
    assert isinstance(session, Session)
    return session


async def get(serving: Serving, call: Call) -> bytes:
    """`tasks/get`."""
    row = await serving.tasks.find(call.params["taskId"], call.principal)
    return serving.encode_bare(session_row(row))


async def list_tasks(serving: Serving, call: Call) -> bytes:
    """`tasks/list`: those of this session."""
    session, tasks = _session(call), serving.tasks
    rows: list[Task] = []
    for task_id in [*session.tasks]:
        try:
            rows.append(await tasks.find(task_id, call.principal))
        except InvalidParams:
            # It has expired.
            session.tasks.pop(task_id, None)
    ids = [row.id for row in rows]
    start, end, following = page_after(call.method, call.params.get("cursor"), ids, serving.server.page_size)
    page: dict[str, Any] = {"tasks": [session_row(row) for row in rows[start:end]]}
    if following is not None:
        page["nextCursor"] = following
    return serving.encode_bare(page)


async def cancel(serving: Serving, call: Call) -> bytes:
    """`tasks/cancel`: answered when the task is cancelled; a clean-up that takes long does not hold the answer back."""
    tasks, task_id = serving.tasks, call.params["taskId"]
    row = await tasks.find(task_id, call.principal)
    if not row.final:
        async with _Watch(serving, task_id) as watch:
            await cancel_task(tasks, call, told=True)
            with trio.move_on_after(serving.limits.task_settle):
                # What is told of its end comes before the answer: some clients bear nothing that comes later.
                while not (tasks.peek(task_id) or await tasks.find(task_id, call.principal)).final:
                    await watch.change()
        row = await tasks.find(task_id, call.principal)
    if row.final and row.status != "cancelled":
        raise InvalidParams(f"Cannot cancel task: already in terminal status {session_row(row)['status']!r}")
    return serving.encode_bare({**session_row(row), "status": "cancelled"})


async def result(serving: Serving, call: Call) -> bytes:
    """`tasks/result`: waits for the end, and asks the client meanwhile what the task asks."""
    tasks, task_id = serving.tasks, call.params["taskId"]
    row = await tasks.find(task_id, call.principal)
    if not row.final:
        async with call.away():
            row = await _Asker(serving, call, task_id).wait()
    if row.status == "completed":
        tool = serving.registry.tools.get(row.params.get("name", ""))
        assert call.dialect is not None
        shaped = session_result(row, call.dialect, tool is not None and tool.wraps)
        return serving.encode_bare(shaped)
    if row.status == "failed" and row.error is not None:
        raise ProtocolError.from_wire(row.error)
    raise InvalidRequest("The task was cancelled, so it has no result")


class _Watch:
    """Hears of the changes of one task, also where another process runs it."""

    def __init__(self, serving: Serving, task_id: str) -> None:
        self._serving = serving
        self._task_id = task_id
        self._changed = trio.Event()
        self._held = (serving.server.notices.attach(self._hear), serving.tasks.heard([task_id]))

    async def __aenter__(self) -> _Watch:
        for one in self._held:
            one.__enter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        for one in self._held:
            one.__exit__(None, None, None)

    def _hear(self, notice: Notice) -> None:
        if notice == (TASK_CHANGED, self._task_id):
            self._changed.set()

    async def change(self) -> None:
        """Wait for one, of those that nobody has waited for yet."""
        await self._changed.wait()
        self._changed = trio.Event()


class _Asker:
    """Waits for the end of a task for a client, and asks it what the task asks."""

    def __init__(self, serving: Serving, call: Call, task_id: str) -> None:
        self._serving = serving
        self._call = call
        self._task_id = task_id
        self._asked: dict[str, int] = {}
        self._mine: set[str] = set()

    async def wait(self) -> Task:
        """The task, once it has ended."""
        tasks, session = self._serving.tasks, _session(self._call)
        async with _Watch(self._serving, self._task_id) as watch, trio.open_nursery() as nursery:
            while not (row := await tasks.find(self._task_id, self._call.principal)).final:
                for key, request in row.requests.items():
                    if key not in self._mine:
                        self._mine.add(key)
                        self._count(key)
                        nursery.start_soon(self._ask, session, key, request)
                # Nobody tells that a task has expired; then it is not found any more.
                with trio.move_on_after(max(row.expires - tasks.clock(), _LOOK)):
                    await watch.change()
            nursery.cancel_scope.cancel()
        return row

    def _count(self, key: str) -> None:
        """An answer that does not fit is asked for again under a new key; but not for ever.

        Raises:
            InvalidRequest: the client does not understand the question.
        """
        base = key.partition("~")[0]
        self._asked[base] = self._asked.get(base, 0) + 1
        if self._asked[base] > self._serving.limits.question_tries:
            raise InvalidRequest("the answers of the client do not fit what the task asks; tasks/result asks again")

    async def _ask(self, session: Session, key: str, request: dict[str, Any]) -> None:
        mark = (self._task_id, key)
        # Whoever asked before may have lost its client on the way; the newest one asks.
        before = session.asking.get(mark)
        if before is not None:
            before.cancel()
        scope = session.asking[mark] = trio.CancelScope()
        with scope:
            await self._asked_in(session, key, request)
        if session.asking.get(mark) is scope:
            del session.asking[mark]

    async def _asked_in(self, session: Session, key: str, request: dict[str, Any]) -> None:
        limits = self._serving.limits
        try:
            params = session.dialect.question(request["method"], request["params"], f"{self._task_id}-{key}")
            params = {**params, "_meta": {**params.get("_meta", {}), **related(self._task_id)}}
            await self._call.outlet.wait_room()
            answer = await session.request(request["method"], params, limits.question_timeout, self._call.outlet.post)
            answer.pop("_meta", None)
            await update_task_of(self._serving.tasks, self._task_id, self._call.principal, {key: answer})
        except MCPError:
            # It stays open: whoever asks for the result again is asked again, until the task expires.
            return


SESSION_TASKS: Final = {"tasks/get": get, "tasks/list": list_tasks, "tasks/cancel": cancel, "tasks/result": result}
"""By method."""
