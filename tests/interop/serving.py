"""Programs of these tests, and the wire between them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from trio_mcp import StdioCommand

from .wire_log import Message, Schema, read_log

__all__ = ["Wire", "opened", "serving", "wait_for"]

HERE = Path(__file__).parent


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


@dataclass
class Wire:
    """What is between a client and a server, written down.

    Attributes:
        log: Where it is written.
        schema: What it must agree with.
        certfile: The certificate of servers on HTTP/2.
        node: The program that runs `*.mjs`.
        scripts: Where they are.
    """

    log: Path
    schema: Schema
    certfile: Path
    node: Path
    scripts: Path

    def command(self, program: str) -> list[str]:
        """How to start a program of this folder."""
        if program.endswith(".mjs"):
            return [str(self.node), str(self.scripts / program)]
        return [sys.executable, str(HERE / program)]

    @property
    def tap(self) -> list[str]:
        """A command that starts a server with the tap before it, when the server's own command is added."""
        return [*self.command("tap.py"), str(self.log), "--"]

    @contextmanager
    def target(self, over: str, program: str) -> Iterator[list[str]]:
        """What a client is opened on, for a server: a command, or a URL. Over HTTP/2 the client writes the log itself."""
        server = self.command(program)
        if over == "stdio":
            yield [*self.tap, *server]
        elif over == "http2":
            with serving([*server, "--http", str(self.certfile)]) as url:
                yield [url, str(self.certfile), str(self.log)]
        else:
            with serving([*server, "--http"]) as url, self.tapped(url) as proxy:
                yield [proxy]

    def tapped(self, url: str) -> AbstractContextManager[str]:
        """A proxy with a tap before a server on HTTP/1.1; the value is its URL."""
        return serving([*self.command("http_tap.py"), str(self.log), url])

    def messages(self) -> list[Message]:
        """All that was said, and none of it is wrong."""
        messages = read_log(self.log)
        assert self.schema.problems(messages) == []
        return messages


def opened(target: list[str]) -> StdioCommand | str:
    """What our client opens, of what `Wire.target` gives."""
    return target[0] if target[0].startswith("http") else StdioCommand(target)


def wait_for(condition: Callable[[], bool]) -> bool:
    """Whether something becomes true within 10 seconds."""
    for _ in range(1000):
        if condition():
            return True
        time.sleep(0.01)
    return False
