"""Tasks, without I/O: what a task is, its form on the wire, and when a call becomes one
(extension `io.modelcontextprotocol/tasks`, SEP-2663)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final, Literal

from .revisions import Era

__all__ = [
    "FINAL",
    "MODES",
    "TASKS",
    "TASK_CHANGED",
    "Mode",
    "Signal",
    "Status",
    "Task",
    "TaskClock",
    "TaskSupport",
    "mode_of",
    "readable_for",
]

TASKS: Final = "io.modelcontextprotocol/tasks"
"""The identifier of the extension."""

TASK_CHANGED: Final = "notifications/tasks"

_SOONEST: Final = 0.1
"""Seconds until the first look at a task."""

_READABLE: Final = 10.0
"""Seconds for which what has ended can be read at the least, so that a client that asks in between finds it."""

_JUMP: Final = 1.0
"""Seconds by which a clock may be ahead of what has passed, until that is a jump."""

TaskSupport = Literal["forbidden", "optional", "required"]
Status = Literal["working", "input_required", "completed", "failed", "cancelled"]

FINAL: Final[frozenset[Status]] = frozenset({"completed", "failed", "cancelled"})
"""Statuses that never change again."""


class Mode(Enum):
    """What happens to a call."""

    INLINE = "inline"
    REFUSED = "refused"
    """The tool works as a task only, and the client takes none."""
    WINDOW = "window"
    """Inline for a while, then a task."""
    TASK = "task"
    """A task from the start."""


MODES: Final[dict[tuple[TaskSupport, bool, Era], Mode]] = {
    ("forbidden", False, Era.MODERN): Mode.INLINE,
    ("forbidden", False, Era.LEGACY): Mode.INLINE,
    ("forbidden", True, Era.MODERN): Mode.INLINE,
    ("forbidden", True, Era.LEGACY): Mode.INLINE,
    ("optional", False, Era.MODERN): Mode.INLINE,
    ("optional", False, Era.LEGACY): Mode.INLINE,
    ("optional", True, Era.MODERN): Mode.WINDOW,
    ("optional", True, Era.LEGACY): Mode.TASK,
    ("required", False, Era.MODERN): Mode.REFUSED,
    ("required", False, Era.LEGACY): Mode.REFUSED,
    ("required", True, Era.MODERN): Mode.WINDOW,
    ("required", True, Era.LEGACY): Mode.TASK,
}
"""By what the tool supports, whether the client takes tasks for this request, and the era."""


def mode_of(support: TaskSupport, declared: bool, era: Era) -> Mode:
    """What happens to a call of a tool.

    Args:
        support: What the tool declares.
        declared: Whether the client takes a task for this request.
        era: Of the request.
    """
    return MODES[support, declared, era]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One state of a task, as a store keeps it.

    Attributes:
        id: Unguessable, for it may be all that protects a task.
        owner: The process that runs it.
        principal: Who made the call; nobody else finds the task.
        params: Of the request: `name` and `arguments`.
        meta: Of the request: its revision and what the client declared.
        created: Seconds since the epoch.
        updated: The same.
        ttl: Seconds from `created` for which the task can be found.
        poll_interval: Seconds between two looks that make sense, for a task that has run for a while.
        status: How it stands.
        message: For a person, or None.
        result: What the request would have answered; only when it is completed.
        error: The JSON-RPC error; only when it failed.
        requests: Questions that wait for an answer, by key.
        recorded: Answers and values of `once`, for a tool that can be run again.
        restartable: Whether it may be run again after its process has ended.
        attempts: How often it was begun.
        unknown: What a newer version has written into its row, by name; kept when it is stored again.
    """

    id: str
    owner: str
    principal: str
    params: dict[str, Any]
    meta: dict[str, Any]
    created: float
    updated: float
    ttl: float
    poll_interval: float
    status: Status = "working"
    message: str | None = None
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    requests: dict[str, Any] = field(default_factory=dict)
    recorded: dict[str, Any] = field(default_factory=dict)
    restartable: bool = False
    attempts: int = 1
    unknown: dict[str, Any] = field(default_factory=dict)

    def to_row(self) -> dict[str, Any]:
        """The task as JSON, for a store."""
        known = {name: getattr(self, name) for name in _KINDS}
        return {**self.unknown, **known}

    @staticmethod
    def from_row(row: Any) -> Task:
        """The task of such JSON, whichever version has written it: what is unknown is kept, what is missing has its default.

        Raises:
            ValueError: it is not the row of a task; the text says why.
        """
        if not isinstance(row, Mapping):
            raise ValueError(f"not the row of a task: {type(row).__name__} instead of an object")
        known = {name: row[name] for name in _KINDS if name in row}
        for name, value in known.items():
            if not isinstance(value, _KINDS[name]) or (type(value) is bool) != (_KINDS[name] is bool):
                raise ValueError(f"not the row of a task: {name} is {type(value).__name__}")
        if missing := [name for name in _NEEDED if name not in known]:
            raise ValueError(f"not the row of a task: it has no {', '.join(missing)}")
        if known.get("status", "working") not in _STATUSES:
            raise ValueError(f"not the row of a task: the status {known['status']!r} is unknown")
        return Task(**known, unknown={name: value for name, value in row.items() if name not in _KINDS})

    def lasting(self, now: float) -> float:
        """The time to live of a task that ends now, so that its end can be read: its own, or longer.

        Args:
            now: Seconds since the epoch.
        """
        return max(self.ttl, now - self.created + readable_for(self.poll_interval))

    @property
    def final(self) -> bool:
        """Whether it will not change any more."""
        return self.status in FINAL

    @property
    def expires(self) -> float:
        """Seconds since the epoch, after which it cannot be found."""
        return self.created + self.ttl

    def to_wire(self, now: float) -> dict[str, Any]:
        """The `Task` object: what is told when the task is created (section Tasks).

        A young task is worth a look soon, an old one is not: most that become a task at all are over in a second.

        Args:
            now: Seconds since the epoch.
        """
        wire: dict[str, Any] = {"taskId": self.id, "status": self.status}
        if self.message is not None:
            wire["statusMessage"] = self.message
        wire["createdAt"] = _timestamp(self.created)
        wire["lastUpdatedAt"] = _timestamp(self.updated)
        wire["ttlMs"] = max(1, round(self.ttl * 1000))
        interval = min(self.poll_interval, max(_SOONEST, (now - self.created) / 2))
        wire["pollIntervalMs"] = max(1, round(interval * 1000))
        return wire

    def detailed(self, now: float) -> dict[str, Any]:
        """The `DetailedTask` object: with the result, the error or the questions (section Task Status).

        Args:
            now: Seconds since the epoch.
        """
        wire = self.to_wire(now)
        if self.status == "completed":
            wire["result"] = self.result
        elif self.status == "failed":
            wire["error"] = self.error
        elif self.status == "input_required":
            wire["inputRequests"] = self.requests
        return wire


_STATUSES: Final[frozenset[str]] = FINAL | {"working", "input_required"}
_NUMBER: Final = (int, float)
_TEXT: Final = (str, type(None))
_OBJECT: Final = (dict, type(None))
_KINDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("id", "owner", "principal", "status"), str),
    **dict.fromkeys(("params", "meta", "requests", "recorded"), dict),
    **dict.fromkeys(("created", "updated", "ttl", "poll_interval"), _NUMBER),
    "message": _TEXT,
    "result": _OBJECT,
    "error": _OBJECT,
    "restartable": bool,
    "attempts": int,
}
"""What each field of a row is."""
_NEEDED: Final = ("id", "owner", "principal", "params", "meta", "created", "updated", "ttl", "poll_interval")


@dataclass(frozen=True, slots=True)
class Signal:
    """What another process has to tell the one that runs a task.

    Args:
        task_id: The task.
        kind: `cancel`, or `answer` with the answers by key.
        payload: The answers.
        number: What the store knows it by; two signals are the same without it.
    """

    task_id: str
    kind: Literal["cancel", "answer"]
    payload: dict[str, Any] = field(default_factory=dict)
    number: int = field(default=0, compare=False)


def readable_for(poll_interval: float) -> float:
    """Seconds for which the end of a task can be read, for a client that polls as it was told."""
    return max(3 * poll_interval, _READABLE)


class TaskClock:
    """Seconds since the epoch, by which tasks expire.

    A clock that jumps ahead (it was set; the machine was asleep) has let no time pass in which somebody could have read what
    had ended. So a jump counts only after a while.

    Args:
        clock: Seconds since the epoch.
        steady: Seconds since some moment, of a clock that never jumps.
        patience: Seconds after which a jump counts.
    """

    __slots__ = ("_ahead", "_clock", "_patience", "_since", "_steady")

    def __init__(self, clock: Callable[[], float], steady: Callable[[], float], patience: float) -> None:
        self._clock = clock
        self._steady = steady
        self._patience = patience
        self._ahead: float | None = None
        self._since: float | None = None

    def __call__(self) -> float:
        """Now."""
        steady = self._steady()
        ahead = self._clock() - steady
        if self._ahead is None or ahead <= self._ahead + _JUMP:
            self._since = None
        else:
            if self._since is None:
                self._since = steady
            if steady - self._since < self._patience:
                return steady + self._ahead
            self._since = None
        self._ahead = ahead
        return steady + ahead


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
