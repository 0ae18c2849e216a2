"""`trio-mcp call`."""

from __future__ import annotations

import importlib
import math
import sys
from contextlib import ExitStack
from typing import Any

import click

from .. import Client
from .session import no_such, print_json, run_client, split_target
from .show import show_blocks
from .values import parse_json_object, parse_pairs, typed_arguments

__all__ = ["command"]


@click.command("call")
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
@click.option("--log", "log_level", metavar="LEVEL", help="Show the log lines of the tool from this level on.")
@click.pass_obj
def command(
    behind: list[str] | None,
    words: tuple[str, ...],
    json_values: tuple[str, ...],
    timeout: float | None,
    log_level: str | None,
) -> int:
    """Call a tool and print its result.

    A VALUE is text where the tool wants text, and JSON otherwise: n=3, names='["a", "b"]'. While the tool runs, its
    progress is shown on a terminal. Ctrl-C stops the tool on the server.
    """
    given: dict[str, Any] = {}
    as_json = False
    pushed_back: list[str] = []
    for value in json_values:
        if value.lstrip().startswith(("{", "[")):
            given.update(parse_json_object(value))
        else:
            # `--json a=1`: a flag, and the first of the words behind it.
            as_json = True
            pushed_back += [value] if value else []
    target, rest = split_target(behind, (*words, *pushed_back))
    if not rest:
        raise click.UsageError("missing TOOL; 'trio-mcp tools TARGET' lists them")
    name, *pairs = rest
    values = parse_pairs(pairs)
    if timeout is not None and not math.isfinite(timeout):
        raise click.UsageError(f"--timeout: expected a number of seconds, got {timeout}")
    if log_level is not None:
        _check_level(log_level)

    async def work(client: Client) -> int:
        tools = {tool.name: tool for tool in await client.list_tools()}
        tool = tools.get(name)
        if tool is None:
            raise no_such("tool", name, tools)
        arguments = typed_arguments(name, tool.input_schema, values, given)
        with ExitStack() as stack:
            on_progress = None
            if sys.stderr.isatty():
                # rich takes a while to load, and is of use on a terminal only.
                bar = stack.enter_context(importlib.import_module(".progress", __package__).Bar(name))
                on_progress = bar.update
            result = await client.call_tool(
                name,
                arguments,
                timeout=timeout,
                on_progress=on_progress,
                on_log=_show_log if log_level else None,
                log_level=log_level or "info",
            )
        if as_json:
            print_json(result.to_wire())
        elif result.content or result.is_error:
            show_blocks(result.content, err=result.is_error)
        elif result.data is not None:
            print_json(result.data)
        return 1 if result.is_error else 0

    return run_client(target, f"{name!r}", work)


def _show_log(level: str, data: Any, logger: str | None) -> None:
    text = data if isinstance(data, str) else repr(data)
    click.echo(f"{level}{f' {logger}' if logger else ''}: {text}", err=True)


def _check_level(level: str) -> None:
    levels = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
    if level not in levels:
        raise no_such("log level", level, levels)
