"""Real servers over real pipes, driven from plain code."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from trio_mcp.testing import request

SERVERS = Path(__file__).parent / "servers"


class Running:
    """A server process with pipes.

    Args:
        argv: Its command line; a file name stands for a server in `servers/`.
        env: More variables.
        stdin: Its standard input, if that is no pipe of ours.
        stderr: Its standard error, if that is no pipe of ours.
    """

    def __init__(
        self,
        *argv: str,
        env: dict[str, str] | None = None,
        stdin: Any = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
    ) -> None:
        command = [sys.executable, str(SERVERS / argv[0]), *argv[1:]] if argv[0].endswith(".py") else list(argv)
        self.process = subprocess.Popen(
            command,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
            bufsize=0,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
        self._buffer = b""

    def __enter__(self) -> Running:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(10)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def send(self, *messages: Any) -> None:
        assert self.process.stdin is not None
        data = b"".join(json.dumps(message).encode() + b"\n" for message in messages)
        view = memoryview(data)
        while view:
            view = view[self.process.stdin.write(view) :]

    def call(self, id: Any, tool: str, **arguments: Any) -> None:
        self.send(request(id, "tools/call", name=tool, arguments=arguments))

    def cancel(self, id: Any) -> None:
        self.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})

    def line(self, timeout: float = 30) -> bytes | None:
        """The next line of output; None at its end.

        Raises:
            TimeoutError: nothing came.
        """
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            end = time.monotonic() + timeout
            while b"\n" not in self._buffer:
                if not selector.select(max(0, end - time.monotonic())):
                    raise TimeoutError(f"no line within {timeout} s; so far: {self._buffer[:200]!r}")
                data = os.read(self.process.stdout.fileno(), 1 << 16)
                if not data:
                    return None
                self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def remainder(self) -> bytes:
        """What came after the last line that was asked for."""
        return self._buffer

    def message(self, timeout: float = 30) -> Any:
        line = self.line(timeout)
        assert line is not None, f"the server closed its output: {self.errors()}"
        return json.loads(line)

    def close_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def errors(self) -> str:
        """All of standard error, after the end."""
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()
