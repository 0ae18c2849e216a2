"""The client's side of stdio: a server as a child process, always reaped.

The child leads a process group of its own. Leaving closes its standard input and waits; then the group is terminated, then
killed (basic/transports/stdio, section Shutdown). When the child ends by itself, so does what is left of its group. The group is
never signalled after its leader was reaped: its number may be another's by then. Standard error is read all the time, so the
child never waits for it; the last words are kept for the error message.
"""

from __future__ import annotations

import logging
import os
import shlex
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import trio

from ..errors import ConnectionClosed
from ..limits import Limits
from ..protocol.framing import LineFramer
from .line_channel import LineChannel, writing
from .link import Link

__all__ = ["StdioCommand", "open_process_channel"]

logger: logging.Logger = logging.getLogger("trio_mcp.client.stderr")


@dataclass(frozen=True, slots=True)
class StdioCommand:
    """How to start a server on stdio.

    Args:
        command: The program and its arguments; no shell is involved.
        cwd: Its working directory.
        env: Variables to add to this process's own.
        on_stderr: Called with each line that it writes to standard error; otherwise they go to the logger
            `trio_mcp.client.stderr` at level INFO.

    Raises:
        ValueError: the command is empty, or a text instead of a list.
    """

    command: Sequence[str | os.PathLike[str]]
    cwd: str | os.PathLike[str] | None = None
    env: Mapping[str, str] | None = None
    on_stderr: Callable[[str], object] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.command, str | bytes) or not self.command:
            raise ValueError(f"StdioCommand needs a list, as in ['python', 'server.py'], got {self.command!r}")

    def __str__(self) -> str:
        return shlex.join(os.fspath(part) for part in self.command)


class _Child:
    def __init__(self, process: trio.Process, command: StdioCommand, limits: Limits) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process: trio.Process = process
        self._command = command
        self._limits = limits
        fd = getattr(process.stdin, "fileno", lambda: None)()
        self.link = Link(process.stdout, process.stdin, limits, fd=fd, longest=limits.answer_bytes)
        self.channel = LineChannel(self.link, str(command), limits)
        self.status: int | None = None
        self._ended = trio.Event()
        self._reaped = False
        self._tail = b""
        self._stderr_lines = LineFramer(limits.message_bytes)
        self._stderr_done = trio.Event()
        self._stdout_done = trio.Event()

    # -- background tasks; none of them raises

    async def read(self) -> None:
        """Read answers. The end of output ends the connection."""
        try:
            await self.channel.read()
        finally:
            self._stdout_done.set()
        with trio.move_on_after(self._limits.child_reap):
            await self._ended.wait()
            await self._stderr_done.wait()
        self.channel.close(self._obituary(), self.status)

    async def watch(self) -> None:
        """The process may end while a grandchild holds its output open: then nothing more is to be expected either."""
        await self._wait_end()
        with trio.move_on_after(self._limits.child_reap):
            await self._stdout_done.wait()
        self.channel.close(self._obituary(), self.status)
        await self._end_group()
        self._reap()

    async def read_stderr(self) -> None:
        assert self.process.stderr is not None
        tell = self._command.on_stderr or (lambda line: logger.info("%s", line))
        try:
            async for data in self.process.stderr:
                self._tail = (self._tail + data)[-self._limits.stderr_tail :]
                self._tell(tell, self._stderr_lines.feed(data))
            self._tell(tell, self._stderr_lines.end())
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self._stderr_done.set()

    @staticmethod
    def _tell(tell: Callable[[str], object], lines: Sequence[object]) -> None:
        for line in lines:
            text = line.decode(errors="replace") if isinstance(line, bytes) else "(a line that is too long)"
            try:
                tell(text)
            except Exception:
                logging.getLogger("trio_mcp.client").exception("the on_stderr callback failed")

    def _obituary(self) -> str:
        status = self.status
        if status is None:
            how = "closed its output"
        elif status < 0:
            how = f"was ended by signal {_signal_name(-status)}"
        else:
            how = f"exited with status {status}"
        last = self._tail.decode(errors="replace").strip().splitlines()
        # Whoever listens to its standard error has read them already.
        unheard = bool(last) and self._command.on_stderr is None
        words = f"; the last it said: {' / '.join(line.strip() for line in last[-3:])}" if unheard else ""
        return f"the server process ({self._command}) {how}{words}"

    # -- the end

    async def end(self) -> None:
        """Close standard input, wait, terminate the group, kill the group. Bounded; leaves no process behind."""
        limits = self._limits
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._stdout_done = trio.Event()
        async with trio.open_nursery() as nursery:
            # Still read what it writes: a process that waits for a full pipe cannot exit.
            nursery.start_soon(_drain, self.process.stdout, self._stdout_done)
            nursery.start_soon(self.read_stderr)
            await self.link.send_eof()
            with trio.move_on_after(limits.child_exit):
                await self._wait_end()
            if not self._reaped:
                await self._end_group()
            with trio.move_on_after(limits.child_reap):
                await self._wait_end()
            self._reap()
            nursery.cancel_scope.cancel()
        await self.link.aclose()
        await self.process.stderr.aclose()

    async def _wait_end(self) -> None:
        """Wait until the process has ended. It is not reaped by this: until then its number, and the group's, is its own."""
        if self.status is None:
            try:
                self.status = await _wait_status(self.process.pid)
            except (AttributeError, ChildProcessError):
                # Not on this system; or its children are reaped by the system itself.
                self.status = await self.process.wait()
                self._reaped = True
            self._ended.set()

    async def _end_group(self) -> None:
        """End the whole group: at once where nothing is left of it, and that shows."""
        self._signal(signal.SIGTERM)
        with trio.move_on_after(self._limits.child_terminate):
            await self._wait_end()
            # Descendants that are left usually hold the output open; those that do not are killed below.
            await self._stdout_done.wait()
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        """Signal the whole group, if it is still the one that we began."""
        if not self._reaped:
            try:
                os.killpg(self.process.pid, number)
            except (ProcessLookupError, PermissionError):
                pass

    def _reap(self) -> None:
        if self.status is not None:
            self._reaped = True
            self.process.poll()


async def _wait_status(pid: int) -> int:
    """The exit status of a child, which stays there to be reaped.

    Raises:
        AttributeError: this system cannot wait so.
        ChildProcessError: there is no such child.
    """
    wait = partial(os.waitid, os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    try:
        handle = os.pidfd_open(pid)
    except (AttributeError, OSError):
        found = await trio.to_thread.run_sync(wait, abandon_on_cancel=True)
    else:
        try:
            await trio.lowlevel.wait_readable(handle)
        finally:
            os.close(handle)
        found = wait()
    assert found is not None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        # A real-time signal: most have no name.
        return str(number)


@asynccontextmanager
async def open_process_channel(command: StdioCommand, limits: Limits) -> AsyncIterator[LineChannel]:
    """Start a server and talk to it over its standard streams; end it when the block is left.

    Raises:
        ConnectionClosed: it cannot be started.
    """
    argv = [os.fspath(part) for part in command.command]
    try:
        process = await trio.lowlevel.open_process(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=command.cwd,
            env={**os.environ, **command.env} if command.env else None,
            start_new_session=True,
        )
    except OSError as exc:
        raise ConnectionClosed(f"cannot start the server ({command}): {exc.strerror or exc}") from exc
    child = _Child(process, command, limits)
    try:
        async with trio.open_nursery() as nursery, writing(child.link, nursery, limits):
            nursery.start_soon(child.read)
            nursery.start_soon(child.watch)
            nursery.start_soon(child.read_stderr)
            try:
                yield child.channel
            finally:
                child.channel.close("the client was closed")
                nursery.cancel_scope.cancel()
    finally:
        total = limits.child_exit + limits.child_terminate + 2 * limits.child_reap
        with trio.CancelScope(shield=True, deadline=trio.current_time() + total):
            await child.end()


async def _drain(stream: trio.abc.ReceiveStream, done: trio.Event) -> None:
    try:
        while await stream.receive_some():
            pass
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    finally:
        done.set()
