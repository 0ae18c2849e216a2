"""Finding the server in a Python file."""

from __future__ import annotations

import importlib.util
import os
import sys
import traceback
from types import ModuleType

import click

from .. import RegistrationError, Server

__all__ = ["load_server"]


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
    module = _import(path, debug)
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


def _import(path: str, debug: bool) -> ModuleType:
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
    try:
        spec.loader.exec_module(module)
    except RegistrationError as exc:
        raise click.ClickException(f"{path}: {exc}{_where(exc, full)}") from None
    except SyntaxError as exc:
        raise click.ClickException(f"{exc.filename}:{exc.lineno}: {exc.msg}") from None
    except Exception as exc:
        if debug:
            traceback.print_exc()
        hint = "" if debug else f"; 'trio-mcp serve {path} --debug' shows the traceback"
        raise click.ClickException(f"{path}: {type(exc).__name__}: {exc}{_where(exc, full)}{hint}") from None
    except SystemExit as exc:
        raise click.ClickException(f"{path} ended the process when it was imported (status {exc.code})") from None
    return module


def _where(exc: BaseException, full: str) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(exc.__traceback__) if frame.filename == full]
    return f" (line {lines[-1]})" if lines else ""
