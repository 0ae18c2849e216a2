"""Finding the server in a Python file, and an application beside it."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import click

from .. import RegistrationError, Server

__all__ = ["load_app", "load_server"]


def load_server(spec: str, *, debug: bool = False) -> Server[object]:
    """The server in `FILE.py` or `FILE.py:NAME`.

    Args:
        spec: The file, and the name of the variable when there are several servers in it.
        debug: Whether an error in the file comes with its whole traceback.

    Raises:
        click.ClickException: with what is wrong and what was expected.
    """
    path, _, name = spec.partition(".py:") if ".py:" in spec else (spec.removesuffix(".py"), "", "")
    path += ".py" if ".py:" in spec or spec.endswith(".py") else ""
    if not os.path.isfile(path):
        raise click.UsageError(f"there is no file {path!r}" + ("" if path.endswith(".py") else " (expected FILE.py)"))
    module = _import(path, debug, f"'trio-mcp serve {path} --debug'")
    servers = {key: value for key, value in vars(module).items() if isinstance(value, Server)}
    if name:
        if name in servers:
            return servers[name]
        there = f"; its servers are: {', '.join(servers)}" if servers else "; it has no Server at all"
        raise click.UsageError(f"{path} has no Server named {name!r}{there}")
    different = {id(value): key for key, value in reversed(servers.items())}
    if len(different) == 1:
        return next(iter(servers.values()))
    if not servers:
        raise click.UsageError(f"{path} has no Server: expected a line such as: server = Server('name')")
    names = ", ".join(servers)
    raise click.UsageError(f"{path} has several servers: {names}; name one, as in {path}:{next(iter(servers))}")


def load_app(spec: str, *, debug: bool = False) -> Any:
    """The ASGI application in `MODULE:NAME` or `FILE.py:NAME`. Modules are looked for in the working directory, too.

    Args:
        spec: Where it is.
        debug: Whether an error in the module comes with its whole traceback.

    Raises:
        click.ClickException: with what is wrong and what was expected.
    """
    where, _, name = spec.rpartition(":")
    if not where or not name:
        raise click.UsageError(
            f"--app: {spec!r} names no application; expected MODULE:NAME or FILE.py:NAME, as in web:app"
        )
    if where.endswith(".py"):
        if not os.path.isfile(where):
            raise click.UsageError(f"--app: there is no file {where!r}")
        found: Any = _loaded(where) or _import(where, debug, "--debug")
    else:
        found = _import_module(where, debug)
    for part in name.split("."):
        if not hasattr(found, part):
            raise click.UsageError(f"--app: {where} has no {name!r}")
        found = getattr(found, part)
    if not callable(found):
        raise click.UsageError(f"--app: {spec} is no application, but {type(found).__name__} {found!r:.80}")
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return found
    try:
        signature.bind(None, None, None)
    except TypeError:
        raise click.UsageError(
            f"--app: {spec} is no ASGI application: it takes {signature}, expected (scope, receive, send)"
        ) from None
    return found


def _loaded(path: str) -> ModuleType | None:
    """The module of a file that was loaded: the application may be in the file of the server."""
    full = os.path.abspath(path)
    return next((module for module in list(sys.modules.values()) if getattr(module, "__file__", None) == full), None)


def _import_module(name: str, debug: bool) -> ModuleType:
    sys.path.insert(0, os.getcwd())
    try:
        with _explained(name, "", debug, "--debug"):
            return importlib.import_module(name)
    except click.ClickException as exc:
        missing = exc.__context__
        if isinstance(missing, ModuleNotFoundError) and f"{name}.".startswith(f"{missing.name}."):
            raise click.UsageError(f"--app: there is no module {missing.name!r}, here or installed") from None
        raise


def _import(path: str, debug: bool, traced: str) -> ModuleType:
    full = os.path.abspath(path)
    name = os.path.basename(full).removesuffix(".py")
    # As `python FILE` does: modules beside the file can be imported.
    sys.path.insert(0, os.path.dirname(full))
    if name in sys.modules:
        name = f"__trio_mcp_{name}"
    spec = importlib.util.spec_from_file_location(name, full)
    if spec is None or spec.loader is None:
        raise click.UsageError(f"{path!r} is not a Python file (expected FILE.py)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with _explained(path, full, debug, traced):
        spec.loader.exec_module(module)
    return module


@contextmanager
def _explained(path: str, full: str, debug: bool, traced: str) -> Iterator[None]:
    """What goes wrong when somebody's code is loaded, in the words of the command line.

    Args:
        path: What is loaded, as it was named.
        full: Its file, if lines in it are to be told.
        debug: Whether the traceback is shown.
        traced: What shows it otherwise.
    """
    try:
        yield
    except RegistrationError as exc:
        raise click.ClickException(f"{path}: {exc}{_where(exc, full)}") from None
    except SyntaxError as exc:
        raise click.ClickException(f"{exc.filename}:{exc.lineno}: {exc.msg}") from None
    except Exception as exc:
        if debug:
            traceback.print_exc()
        hint = "" if debug else f"; {traced} shows the traceback"
        raise click.ClickException(f"{path}: {type(exc).__name__}: {exc}{_where(exc, full)}{hint}") from None
    except SystemExit as exc:
        raise click.ClickException(f"{path} ended the process when it was imported (status {exc.code})") from None


def _where(exc: BaseException, full: str) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(exc.__traceback__) if frame.filename == full]
    return f" (line {lines[-1]})" if lines else ""
