"""A live table of tasks on a terminal."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from .. import TaskState
from .show import safe

__all__ = ["TaskTable"]

_STYLES = {"completed": "green", "failed": "red", "cancelled": "yellow", "input_required": "magenta"}


class TaskTable:
    """Stays on the screen as it was last.

    Args:
        tools: The tool that each task is a call of, as far as that is known.
    """

    def __init__(self, tools: dict[str, str]) -> None:
        self._tools = tools
        self._live = Live(console=Console(), auto_refresh=False)

    def __enter__(self) -> TaskTable:
        self._live.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.stop()

    def update(self, states: list[TaskState]) -> None:
        """Show how the tasks stand."""
        table = Table("task", "tool", "status", "updated", "message")
        for state in states:
            message = f"asks for {', '.join(state.requests)}" if state.requests else state.message or ""
            parts = (state.id, self._tools.get(state.id, ""), state.status, state.updated_at[11:19], message)
            # Text, so that markup in what a server sends is not read.
            row = [Text(safe(part)) for part in parts]
            row[2].stylize(_STYLES.get(state.status, ""))
            table.add_row(*row)
        self._live.update(table, refresh=True)
