"""Programs that print where they listen."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from trio_mcp import StdioCommand

__all__ = ["opened", "serving", "tapped", "wait_for"]


@contextmanager
def serving(command: Sequence[str]) -> Iterator[str]:
    """Run a program for the time of a block; the value is the URL that it printed first."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert url, f"{command} ended with status {process.wait(10)}"
            yield url
        finally:
            process.terminate()


@contextmanager
def tapped(over: str, server: list[str], tap: list[str], http_tap: list[str]) -> Iterator[list[str]]:
    """What a client is opened on, for a server with a tap before it: a command, or one URL."""
    if over == "stdio":
        yield [*tap, *server]
    else:
        with serving([*server, "--http"]) as url, serving([*http_tap, url]) as proxy:
            yield [proxy]


def opened(target: list[str]) -> StdioCommand | str:
    """What our client opens, of what `tapped` gives."""
    return target[0] if target[0].startswith("http") else StdioCommand(target)


def wait_for(condition: Callable[[], bool]) -> bool:
    """Whether something becomes true within 10 seconds."""
    for _ in range(1000):
        if condition():
            return True
        time.sleep(0.01)
    return False
