"""The command line in the process of the test: for what is said and decided, where no signal, terminal or descriptor counts."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click
import click.testing

from trio_mcp import cli


class _Program(click.Command):
    """The whole program, with what stands behind `--`, in the form that click's runner takes."""

    def main(self, args: Any = None, prog_name: Any = None, *more: Any, **options: Any) -> Any:
        cli.main(list(args))


@contextmanager
def _imports_undone() -> Iterator[None]:
    """`serve` imports the file of a server, and the next file has the same name."""
    path, known = list(sys.path), set(sys.modules)
    try:
        yield
    finally:
        new = [folder for folder in sys.path if folder not in path]
        sys.path[:] = path
        for name in set(sys.modules) - known:
            if any((getattr(sys.modules[name], "__file__", None) or "").startswith(folder) for folder in new):
                del sys.modules[name]


def invoke(*args: str, env: Mapping[str, str] | None = None) -> click.testing.Result:
    """Run it; an exception that it should not raise comes out."""
    with _imports_undone():
        return click.testing.CliRunner(env=env).invoke(_Program("trio-mcp"), args, catch_exceptions=False)


def inside(*args: str, env: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    """Exit status, standard output, standard error."""
    done = invoke(*args, env=env)
    return done.exit_code, done.stdout, done.stderr
