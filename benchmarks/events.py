"""What the `slow` tool of a server under test says about its calls: when each started, and how it ended."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Final

__all__ = ["CANCELS", "SLOW_SECONDS", "Events"]

CANCELS: Final = 10
"""Cancellations of each server in a round, each way."""
SLOW_SECONDS: Final = 1.5


class Events:
    """The file that a server writes to. A context manager; `env` goes to the server."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "log"
        path.touch()
        self._file = path.open()
        self.env = {"SLOW_LOG": str(path)}

    def __enter__(self) -> Events:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()
        self._folder.cleanup()

    def next_of(self, tag: str, timeout: float) -> tuple[str, int] | None:
        """The next event of a call, with its time on the monotonic clock (nanoseconds), which both sides read."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            line = self._file.readline()
            if not line:
                time.sleep(0.001)
                continue
            event, of, moment = line.split()
            if of == tag:
                return event, int(moment)
        return None

    def await_start(self, tag: str) -> None:
        """Wait until a call runs, and a little longer: nothing of its start is left to be done then.

        Raises:
            RuntimeError: it does not.
        """
        if self.next_of(tag, 5) is None:
            raise RuntimeError("the slow tool did not start")
        time.sleep(0.02)

    def until_cancelled(self, tag: str, since: int) -> float | None:
        """Milliseconds from `since` until the clean-up of a call ran; None when it was not cancelled."""
        event = self.next_of(tag, SLOW_SECONDS + 1.5)
        return (event[1] - since) / 1e6 if event is not None and event[0] == "cancelled" else None
