"""Tasks as revision 2025-11-25 tells of them (basic/utilities/tasks)."""

from __future__ import annotations

from typing import Any, Final

from ...protocol.legacy import RELATED_TASK, Dialect
from ...protocol.meta import SERVER_INFO
from ...protocol.tasks import Task

__all__ = ["TASK_STATUS", "asked_ttl", "related", "session_result", "session_row"]

TASK_STATUS: Final = "notifications/tasks/status"

_SHORTEST: Final = 1.0
"""Seconds that a task can be found at the least: its end has to be read by somebody."""


def asked_ttl(task: Any, most: float) -> float:
    """How long a task can be found: as long as its client asks for, within what it would be without."""
    asked = task.get("ttl") if type(task) is dict else None
    return min(max(asked / 1000, _SHORTEST), most) if isinstance(asked, int | float) else most


def session_row(row: Task) -> dict[str, Any]:
    """The `Task` object. A tool that failed has failed there, though it has a result."""
    wire = row.to_wire(row.updated)
    out: dict[str, Any] = {
        name: wire[name] for name in ("taskId", "status", "statusMessage", "createdAt", "lastUpdatedAt") if name in wire
    }
    if row.status == "completed" and (row.result or {}).get("isError") is True:
        out["status"] = "failed"
    return {**out, "ttl": round(row.ttl * 1000), "pollInterval": max(1, round(row.poll_interval * 1000))}


def related(task_id: str) -> dict[str, Any]:
    """The `_meta` of what belongs to a task."""
    return {RELATED_TASK: {"taskId": task_id}}


def session_result(row: Task, dialect: Dialect, wrapped: bool) -> dict[str, Any]:
    """What the call would have answered, of a task that is completed."""
    result = dialect.result("tools/call", dict(row.result or {}), wrapped=wrapped)
    meta = {name: value for name, value in result.get("_meta", {}).items() if name != SERVER_INFO}
    return {**result, "_meta": {**meta, **related(row.id)}}
