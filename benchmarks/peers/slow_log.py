"""Timestamps that a `slow` tool leaves for the load: one line `event tag monotonic_ns` each, in `$SLOW_LOG`."""

from __future__ import annotations

import os
import time

_fd: int | None = None


def mark(event: str, tag: str) -> None:
    """Write one line."""
    global _fd
    if _fd is None:
        _fd = os.open(os.environ.get("SLOW_LOG", os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(_fd, f"{event} {tag} {time.monotonic_ns()}\n".encode())
