"""What the tests of the examples share: loading one, running one, and the command lines of its docstring."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio

from ..conftest import EXAMPLES


def load(name: str) -> Any:
    """The module of an example, loaded from its file."""
    spec = importlib.util.spec_from_file_location(f"{name}_example", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@asynccontextmanager
async def running(name: str) -> AsyncIterator[tuple[trio.Process, str]]:
    """An example as a process, with the URL that it printed."""
    command = [sys.executable, "-u", str(EXAMPLES / f"{name}.py"), "127.0.0.1:0"]
    run = partial(trio.run_process, command, stdout=subprocess.PIPE, check=False)
    async with trio.open_nursery() as nursery:
        process: trio.Process = await nursery.start(run)
        assert process.stdout is not None
        with trio.fail_after(60):
            line = b""
            while not line.endswith(b"\n"):
                line += await process.stdout.receive_some()
        yield process, line.decode().strip()
        nursery.cancel_scope.cancel()


async def answers_of_docstring(name: str, instead: dict[str, str]) -> dict[str, str]:
    """What each command line of an example's docstring prints, by the name of what it calls.

    Args:
        name: The example.
        instead: What takes the place of what: an address that of `URL`, say.
    """
    answers: dict[str, str] = {}
    for line in (EXAMPLES / f"{name}.py").read_text().splitlines():
        if line.startswith("trio-mcp "):
            for old, new in instead.items():
                line = line.replace(old, new)
            words = line.split()
            command = [sys.executable, "-m", "trio_mcp", *words[1:]]
            done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
            assert (done.returncode, done.stderr) == (0, b""), words
            answers[words[3]] = done.stdout.decode()
    return answers
