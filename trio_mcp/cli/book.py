"""The tasks that were started with `trio-mcp call --task` or `--detach`, by server: the protocol lists none, since a server
cannot know who asks."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

__all__ = ["Entry", "entries", "forget", "remember"]

_MOST: Final = 1_000
"""Entries that are kept; the oldest go first."""


class Entry(NamedTuple):
    """One task.

    Attributes:
        target: The server, as it was named.
        id: The task.
        tool: What was called.
        started: Seconds since the epoch.
    """

    target: str
    id: str
    tool: str
    started: float


def _file() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(state, "trio-mcp", "tasks.json")


def _read() -> list[Entry]:
    try:
        found: Any = orjson.loads(_file().read_bytes())
    except (FileNotFoundError, orjson.JSONDecodeError):
        return []
    if not isinstance(found, list):
        return []
    return [Entry(*item) for item in found if isinstance(item, list) and len(item) == len(Entry._fields)]


def _write(book: list[Entry]) -> None:
    file = _file()
    other = file.with_suffix(f".{os.getpid()}")
    # Ids are all that protects a task where nobody logs in.
    descriptor = os.open(other, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        out.write(orjson.dumps([list(entry) for entry in book[-_MOST:]]))
    os.replace(other, file)


@contextmanager
def _locked() -> Iterator[None]:
    """Alone with the file: whoever reads and writes it meanwhile would lose what the other has written."""
    file = _file()
    file.parent.mkdir(parents=True, exist_ok=True)
    # The file itself is replaced each time, so another one is locked. The lock ends with the descriptor, however that ends,
    # and is held for one read and one write.
    with open(file.with_suffix(".lock"), "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def entries(target: str) -> list[Entry]:
    """The tasks that are known of a server, the oldest first."""
    return [entry for entry in _read() if entry.target == target]


def remember(target: str, id: str, tool: str) -> None:
    """Write a task down.

    Raises:
        OSError: that is not possible.
    """
    with _locked():
        _write([*(entry for entry in _read() if entry.id != id), Entry(target, id, tool, time.time())])


def forget(ids: set[str]) -> None:
    """Cross tasks out.

    Raises:
        OSError: that is not possible.
    """
    if not ids:
        return
    with _locked():
        book = _read()
        left = [entry for entry in book if entry.id not in ids]
        if len(left) < len(book):
            _write(left)
