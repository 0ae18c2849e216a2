"""`trio-mcp serve`."""

from __future__ import annotations

import importlib
import json
import logging
import os
import re
import shutil
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from .. import Server, SQLiteTaskStore
from ..protocol.http import host_policy
from ..protocol.revisions import Era
from ..running.process import OwnProcess
from ..serve import run_http, run_stdio
from .load import load_app, load_server

if TYPE_CHECKING:
    from .. import HttpServer

__all__ = ["command"]

_ORIGIN: Final = re.compile(r"null|[A-Za-z][A-Za-z0-9+.-]*://[^/\s?#@]+/?")
_LEVELS = ("debug", "info", "warning", "error")


@click.command("serve")
@click.argument("file", metavar="FILE[:NAME]")
@click.option(
    "--http", "bind", metavar="HOST:PORT", help="Serve HTTP at this address instead of stdio; port 0 takes a free one."
)
@click.option("--uds", metavar="PATH", help="Serve HTTP on a unix socket.")
@click.option("--path", metavar="PATH", help="The path of the HTTP endpoint [/mcp].")
@click.option(
    "--app",
    metavar="MODULE:NAME",
    help="Serve this ASGI application, too, with the endpoint in it (FILE.py:NAME as well).",
)
@click.option("--certfile", metavar="FILE", help="Certificate chain (PEM): serve HTTPS.")
@click.option("--keyfile", metavar="FILE", help="Its key, if that is another file.")
@click.option(
    "--allowed-host", multiple=True, metavar="NAME", help="A name that a Host header may have; may be repeated."
)
@click.option(
    "--allowed-origin", multiple=True, metavar="ORIGIN", help="A web page's origin that may call; may be repeated."
)
@click.option(
    "--tasks", "tasks_file", metavar="FILE", help="Keep tasks in this SQLite file, so that they outlive the server."
)
@click.option(
    "--eras",
    metavar="ERAS",
    help="Which revisions to speak: modern (2026-07-28), legacy (2025-11-25 and older), or modern,legacy; else as the file says.",
)
@click.option("--sse", is_flag=True, help="Also serve HTTP+SSE (2024-11-05): /sse and /messages beside the endpoint.")
@click.option("--simple", is_flag=True, help="Only POST: one JSON answer each, no sessions, no streams.")
@click.option("--no-delete", is_flag=True, help="Clients cannot end their sessions (DELETE is answered with 405).")
@click.option("--debug", is_flag=True, help="Show the text of unexpected errors to clients, log at debug.")
@click.option("--log-level", type=click.Choice(_LEVELS), default=None, help="Log level on standard error [warning].")
@click.pass_obj
def command(
    behind: list[str] | None,
    /,
    file: str,
    bind: str | None,
    uds: str | None,
    app: str | None,
    tasks_file: str | None,
    eras: str | None,
    debug: bool,
    log_level: str | None,
    **http: Any,
) -> int:
    """Serve the server in FILE on standard input and output, or over HTTP.

    NAME is the variable that holds it, when the file has several. The server ends at the end of input and on SIGINT or
    SIGTERM, with status 0. It prints the configuration for a host: with HTTP always, on stdio when that is a terminal.
    """
    if behind is not None:
        raise click.UsageError("serve takes a Python file; a command behind -- is for the other commands")
    spoken = _eras(eras)
    address = _address(bind, uds, http)
    _check_ways(spoken, address, http)
    if app is not None and bind is None:
        raise click.UsageError("--app needs --http HOST:PORT")
    on_terminal = sys.stdin is not None and sys.stdin.isatty()
    # Before the file is loaded, which may print.
    process = OwnProcess(stdio=address is None)
    level = (log_level or ("debug" if debug else "warning")).upper()
    logging.basicConfig(level=level, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        server = load_server(file, debug=debug)
        server.expose_errors = server.expose_errors or debug
        if spoken is not None:
            server.eras = spoken
        elif Era.LEGACY not in server.eras:
            _check_ways(
                server.eras, address, http, f", since {file} says eras={sorted(era.value for era in server.eras)}"
            )
        if tasks_file is not None:
            server.task_store = SQLiteTaskStore(tasks_file)
        if address is not None:
            loaded = None if app is None else load_app(app, debug=debug)
            return run_http(server, address, lambda bound: _explain_http(server, bound, app), process, loaded, **http)
        return run_stdio(server, lambda: _explain(server, file) if on_terminal else None, process)
    except KeyboardInterrupt:
        # Before the server was up to hear it.
        return 0


def _eras(text: str | None) -> frozenset[Era] | None:
    """What `--eras` says, or None without it."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if not {*names} <= {era.value for era in Era}:
        raise click.UsageError(f"--eras: {text!r} is not known; expected modern, legacy, or modern,legacy")
    return frozenset(map(Era, names))


def _check_ways(eras: frozenset[Era] | None, address: str | None, http: dict[str, Any], why: str = "") -> None:
    """Check which ways to be reached stand together."""
    for option in ("sse", "simple", "no_delete"):
        if not http[option]:
            continue
        name = "--" + option.replace("_", "-")
        if address is None:
            raise click.UsageError(f"{name} needs --http or --uds: on stdio there is one way only")
        if option == "simple":
            continue
        if http["simple"]:
            raise click.UsageError(f"{name} and --simple exclude each other: with --simple there are no sessions")
        if eras is not None and Era.LEGACY not in eras:
            raise click.UsageError(
                f"{name} is for revisions with sessions, and none is spoken{why}; expected --eras legacy or modern,legacy"
            )
    if http["sse"]:
        try:
            importlib.import_module("..transports.http.edge", __package__).check_ways(
                True, http["path"], True, False, http["no_delete"]
            )
        except ValueError as exc:
            raise click.UsageError(f"--path: {exc}") from None


def _address(bind: str | None, uds: str | None, http: dict[str, Any]) -> str | None:
    """What to bind, or None for stdio; puts the HTTP options into the form that `serve_http` takes.

    What is wrong with them is said here, before anything of the server's runs.
    """
    if bind is not None and uds is not None:
        raise click.UsageError("--http and --uds exclude each other")
    hosts, origins = http.pop("allowed_host"), http.pop("allowed_origin")
    if bind is None and uds is None:
        if http["path"] is not None:
            raise click.UsageError("--path needs --http or --uds: on stdio there are no paths")
        if http["certfile"] or http["keyfile"] or hosts or origins:
            raise click.UsageError("--certfile, --keyfile, --allowed-host and --allowed-origin need --http")
        return None
    for host in hosts:
        if "" in (host_policy([], [host]).hosts or ()):
            raise click.UsageError(
                f"--allowed-host: {host!r} is no name of a host; expected one without a scheme or a path, as in shop.example"
            )
    for origin in origins:
        if _ORIGIN.fullmatch(origin) is None:
            raise click.UsageError(
                f"--allowed-origin: {origin!r} is no origin; expected SCHEME://HOST or SCHEME://HOST:PORT, "
                "as in https://app.example"
            )
    http["allowed_hosts"] = list(hosts) or None
    http["allowed_origins"] = list(origins) or None
    http["path"] = "/mcp" if http["path"] is None else http["path"]
    if http["keyfile"] and not http["certfile"]:
        raise click.UsageError("--keyfile needs --certfile")
    # As with the address, before the file is loaded: it may do much.
    edge = importlib.import_module("..transports.http.edge", __package__)
    option, text = ("--http", bind) if bind is not None else ("--uds", f"unix:{uds}")
    try:
        edge.check_path(http["path"])
    except ValueError as exc:
        raise click.UsageError(f"--path: {exc}") from None
    if option == "--uds" and not uds:
        raise click.UsageError("--uds: the path of the socket is empty; expected a file name, as in /run/shop.sock")
    try:
        edge.check_bind(text)
    except ValueError as exc:
        raise click.UsageError(f"{option}: {exc}") from None
    if bind is not None and (bind.startswith("unix:") or not bind.rpartition(":")[0]):
        raise click.UsageError(
            f"--http: {bind!r} is no address: expected HOST:PORT, as in 127.0.0.1:8000, or --uds PATH"
        )
    return text


def _explain_http(server: Server[object], bound: HttpServer, app: str | None) -> None:
    for url in bound.urls:
        click.echo(f"{server.name} serves at {url}", err=True)
        if app is not None:
            click.echo(f"{app} serves the other paths there", err=True)
    if bound.urls and not bound.urls[0].startswith("unix:"):
        config = json.dumps({"mcpServers": {server.name: {"url": bound.urls[0]}}}, indent=2)
        click.echo(f"For the configuration of a host:\n\n{config}\n", err=True)
    click.echo("Ctrl-C ends the server.", err=True)


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
        f"{server.name} serves on standard input and output. For the configuration of a host:\n\n{config}\n", err=True
    )
    click.echo("Waiting for messages, one JSON object a line. Ctrl-C ends the server.", err=True)
