"""`trio-mcp tasks`."""

from __future__ import annotations

import importlib
from contextlib import ExitStack
from typing import Any

import click
import trio

from .. import CallToolResult, Client, InvalidParams, MCPError, RemoteTask, TaskState
from .book import entries, forget
from .session import no_such, run_client, split_target
from .show import is_terminal, say, say_json, show_result

__all__ = ["command"]

_ACTIONS = ("list", "get", "cancel", "watch")


@click.command("tasks")
@click.argument("words", metavar="[TARGET] [list|get|cancel|watch] [ID]...", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print JSON: an object for each task.")
@click.pass_obj
def command(behind: list[str] | None, words: tuple[str, ...], as_json: bool) -> int:
    """Look after tasks: calls that go on after the request.

    `list` shows those that `trio-mcp call --task` or `--detach` has started here, `get` how one stands and its result, `cancel`
    ends some, `watch` shows a table until all have ended. Without an ID, `watch` takes those of `list`.
    """
    target, rest = split_target(behind, words)
    action, *ids = rest or ["list"]
    if action not in _ACTIONS:
        raise no_such("action", action, _ACTIONS)
    if action == "get" and len(ids) != 1:
        raise click.UsageError("get takes one ID; 'trio-mcp tasks TARGET list' shows those that are known")
    if action == "cancel" and not ids:
        raise click.UsageError("cancel takes at least one ID; 'trio-mcp tasks TARGET list' shows those that are known")
    if action == "list" and ids:
        raise click.UsageError("list takes no ID")
    known = {entry.id: entry for entry in entries(words[0])} if words and behind is None else {}
    if action in ("list", "watch") and not ids:
        ids = list(known)
        if not ids:
            click.echo("no tasks of this server are known here; 'trio-mcp call --detach' starts one", err=True)
            return 0
    tools = {task_id: known[task_id].tool for task_id in ids if task_id in known}

    async def work(client: Client) -> int:
        tasks = [client.task(task_id) for task_id in ids]
        if action == "get":
            return await _get(tasks[0], as_json)
        if action == "cancel":
            for task in tasks:
                await task.cancel()
        gone = await _refresh(tasks)
        if action != "watch":
            _show(tasks, tools, as_json)
        else:
            await _watch(tasks, tools, as_json)
        forget(gone)
        return 0

    return run_client(target, "watching" if action == "watch" else action, work, "interrupted; the tasks go on")


async def _get(task: RemoteTask, as_json: bool) -> int:
    state = await task.refresh()
    if as_json:
        say_json(_as_json(state))
    else:
        say(_line(state, ""), err=state.status == "completed")
    if state.status != "completed":
        return 1 if state.status == "failed" else 0
    result = CallToolResult.from_wire(state.result or {})
    if not as_json:
        show_result(result)
    return 1 if result.is_error else 0


async def _refresh(tasks: list[RemoteTask]) -> set[str]:
    """Look at all of them, at once; the ids of those that are gone."""
    gone: set[str] = set()
    failed: list[MCPError] = []

    async def one(task: RemoteTask) -> None:
        if task.state is not None and task.state.final:
            return
        try:
            await task.refresh()
        except InvalidParams:
            assert task.id is not None
            gone.add(task.id)
            tasks.remove(task)
            say(f"{task.id}  gone: the server does not know it (any more)", err=True)
        except MCPError as exc:
            failed.append(exc)

    async with trio.open_nursery() as nursery:
        for task in list(tasks):
            nursery.start_soon(one, task)
    if failed:
        raise failed[0]
    return gone


async def _watch(tasks: list[RemoteTask], tools: dict[str, str], as_json: bool) -> None:
    shown: dict[str, TaskState] = {}
    with ExitStack() as stack:
        table: Any = None
        if is_terminal() and not as_json:
            # rich takes a while to load, and is of use on a terminal only.
            table = stack.enter_context(importlib.import_module(".table", __package__).TaskTable(tools))
        while tasks:
            states = [task.state for task in tasks if task.state is not None]
            if table is not None:
                table.update(states)
            else:
                for state in states:
                    if shown.get(state.id) != state:
                        shown[state.id] = state
                        _print(state, tools.get(state.id, ""), as_json)
            if all(state.final for state in states):
                return
            await trio.sleep(min(state.poll_interval for state in states if not state.final))
            await _refresh(tasks)


def _show(tasks: list[RemoteTask], tools: dict[str, str], as_json: bool) -> None:
    for task in tasks:
        if task.state is not None:
            _print(task.state, tools.get(task.state.id, ""), as_json)


def _print(state: TaskState, tool: str, as_json: bool) -> None:
    if as_json:
        say_json(_as_json(state))
    else:
        say(_line(state, tool))


def _line(state: TaskState, tool: str) -> str:
    """One task on one line: `ID  status  tool  message`."""
    parts = [state.id, f"{state.status:<14}", tool, _message(state)]
    return "  ".join(part for part in parts if part).replace("\n", " ").rstrip()


def _message(state: TaskState) -> str:
    if state.status == "input_required":
        return f"asks for {', '.join(state.requests)}"
    return state.message or ""


def _as_json(state: TaskState) -> dict[str, Any]:
    parts: dict[str, Any] = {
        "taskId": state.id,
        "status": state.status,
        "statusMessage": state.message,
        "createdAt": state.created_at,
        "lastUpdatedAt": state.updated_at,
        "result": state.result,
        "error": state.error.to_wire() if state.error is not None else None,
        "inputRequests": state.requests or None,
    }
    return {key: value for key, value in parts.items() if value is not None}
