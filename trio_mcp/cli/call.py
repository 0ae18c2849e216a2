"""`trio-mcp call`."""

from __future__ import annotations

import importlib
import itertools
import math
from contextlib import ExitStack
from typing import Any

import click

from .. import Client, RemoteTask, StdioCommand, TaskState
from .book import remember
from .session import no_such, run_client, split_target
from .show import is_terminal, say, say_json, show_result
from .values import parse_json_object, parse_pairs, typed_arguments

__all__ = ["command"]


class _Call(click.Command):
    """`--json` stands alone, or before an object: any other word behind it is one of the words, in its place."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words: list[str] = []
        for word, behind in itertools.zip_longest(args, args[1:], fillvalue=""):
            alone = word == "--json" and not behind.lstrip().startswith(("{", "["))
            words.append("--json=" if alone else word)
        return super().parse_args(ctx, words[: len(args)])


@click.command("call", cls=_Call)
@click.argument("words", metavar="[TARGET] TOOL [NAME=VALUE]...", nargs=-1)
@click.option(
    "--json",
    "json_values",
    metavar="['{…}']",
    multiple=True,
    is_flag=False,
    flag_value="",
    help="With an object: the arguments. Alone: print the whole result as JSON.",
)
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), help="Seconds to wait for the result [300].")
@click.option("--task", "follow", is_flag=True, help="Show the task that the call becomes; Ctrl-C leaves it running.")
@click.option("--detach", is_flag=True, help="Do not wait for a call that becomes a task: print its id.")
@click.option("--log", "log_level", metavar="LEVEL", help="Show the log lines of the tool from this level on.")
@click.pass_obj
def command(
    behind: list[str] | None,
    words: tuple[str, ...],
    json_values: tuple[str, ...],
    timeout: float | None,
    follow: bool,
    detach: bool,
    log_level: str | None,
) -> int:
    """Call a tool and print its result.

    A VALUE is text where the tool wants text, and JSON otherwise: n=3, names='["a", "b"]'. While the tool runs, its
    progress is shown on a terminal. Ctrl-C stops the tool on the server.

    A server may make a task of a call that takes long; it is waited for like any other. `trio-mcp tasks` looks after those
    that were started with --task or --detach.
    """
    given: dict[str, Any] = {}
    as_json = False
    for value in json_values:
        if value:
            given.update(parse_json_object(value))
        else:
            as_json = True
    target, rest = split_target(behind, words)
    if not rest:
        raise click.UsageError("missing TOOL; 'trio-mcp tools TARGET' lists them")
    name, *pairs = rest
    values = parse_pairs(pairs)
    if timeout is not None and not math.isfinite(timeout):
        raise click.UsageError(f"--timeout: expected a number of seconds, got {timeout}")
    if log_level is not None:
        _check_level(log_level)

    where = words[0] if behind is None else ""
    if (follow or detach) and isinstance(target, StdioCommand):
        raise click.UsageError(
            "--task and --detach need the URL of a server: one that is started here ends with the call"
        )
    told = Told(where, name)

    async def work(client: Client) -> int:
        tools = {tool.name: tool for tool in await client.list_tools()}
        tool = tools.get(name)
        if tool is None:
            raise no_such("tool", name, tools)
        arguments = typed_arguments(name, tool.input_schema, values, given)
        with ExitStack() as stack:
            on_progress = None
            if is_terminal(err=True):
                # rich takes a while to load, and is of use on a terminal only.
                bar = stack.enter_context(importlib.import_module(".progress", __package__).Bar(name))
                on_progress = bar.update
            options: dict[str, Any] = {
                "timeout": timeout,
                "on_progress": on_progress,
                "on_log": _show_log if log_level else None,
                "log_level": log_level or "info",
            }
            if follow or detach:
                task = await client.start_tool(name, arguments, **options)
                told.begin(task)
                if detach and task.id is not None:
                    say(task.id)
                    return 0
                result = await task.result(timeout=timeout, on_state=told.state)
            else:
                result = await client.call_tool(name, arguments, **options)
        if as_json:
            say_json(result.to_wire())
        else:
            show_result(result)
        return 1 if result.is_error else 0

    return run_client(target, f"{name!r}", work, told.interrupted)


class Told:
    """What a person is told of a task.

    Args:
        where: The server, as it was named.
        tool: What is called.
    """

    def __init__(self, where: str, tool: str) -> None:
        self._where = where
        self._tool = tool
        self._id: str | None = None

    def begin(self, task: RemoteTask) -> None:
        """The server has answered."""
        self._id = task.id
        if task.id is not None:
            remember(self._where, task.id, self._tool)
            say(f"task {task.id}; 'trio-mcp tasks {self._where} get {task.id}' shows it", err=True)

    def state(self, state: TaskState) -> None:
        """The task has changed."""
        if self._id is not None and not state.final:
            message = f"asks for {', '.join(state.requests)}" if state.requests else state.message
            say(f"{state.status}{f': {message}' if message else ''}", err=True)

    def interrupted(self) -> str:
        """The person does not wait any more."""
        if self._id is None:
            return f"interrupted; the server was told to stop {self._tool!r}"
        return f"interrupted; the task goes on: trio-mcp tasks {self._where} watch {self._id}"


def _show_log(level: str, data: Any, logger: str | None) -> None:
    text = data if isinstance(data, str) else repr(data)
    say(f"{level}{f' {logger}' if logger else ''}: {text}", err=True)


def _check_level(level: str) -> None:
    levels = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
    if level not in levels:
        raise no_such("log level", level, levels)
