"""`trio-mcp serve`."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys

import click

from ..serve import Server, run_stdio
from .load import load_server

__all__ = ["command"]

_LEVELS = ("debug", "info", "warning", "error")


@click.command("serve")
@click.argument("file", metavar="FILE[:NAME]")
@click.option("--debug", is_flag=True, help="Show the text of unexpected errors to clients, log at debug.")
@click.option("--log-level", type=click.Choice(_LEVELS), default=None, help="Log level on standard error [warning].")
@click.pass_obj
def command(behind: list[str] | None, file: str, debug: bool, log_level: str | None) -> int:
    """Serve the server in FILE on standard input and output.

    NAME is the variable that holds it, when the file has several. The server ends at the end of input and on SIGINT or
    SIGTERM, with status 0. On a terminal it prints the configuration for a host.
    """
    if behind is not None:
        raise click.UsageError("serve takes a Python file; a command behind -- is for the other commands")
    level = (log_level or ("debug" if debug else "warning")).upper()
    logging.basicConfig(level=level, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        server = load_server(file, debug=debug)
        server.expose_errors = server.expose_errors or debug
        on_terminal = sys.stdin is not None and sys.stdin.isatty()
        return run_stdio(server, lambda: _explain(server, file) if on_terminal else None)
    except KeyboardInterrupt:
        # Before the server was up to hear it.
        return 0


def _explain(server: Server[object], file: str) -> None:
    path, colon, name = file.partition(".py:")
    full = os.path.abspath(f"{path}.py" if colon else file) + (f":{name}" if colon else "")
    program = shutil.which("trio-mcp")
    entry = (
        {"command": program, "args": ["serve", full]}
        if program
        else {"command": sys.executable, "args": ["-m", "trio_mcp", "serve", full]}
    )
    config = json.dumps({"mcpServers": {server.name: entry}}, indent=2)
    click.echo(
        f"{server!r} serves on standard input and output. For the configuration of a host:\n\n{config}\n", err=True
    )
    click.echo("Waiting for messages, one JSON object a line. Ctrl-C ends the server.", err=True)
