"""A progress bar on standard error."""

from __future__ import annotations

from types import TracebackType
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from .show import safe

__all__ = ["Bar"]

_MOST: Final = 1e15


class Bar:
    """Shown while a call runs, gone when it ends."""

    def __init__(self, what: str) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            # A server says it, so markup in it is text.
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._what = what
        self._task = self._progress.add_task(safe(what), total=None)

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def update(self, progress: float, total: float | None, message: str | None) -> None:
        """Show a progress notification."""
        text = safe(f"{self._what}: {message}" if message else self._what).replace("\n", " ")
        self._progress.update(
            self._task, completed=_drawn(progress), total=None if total is None else _drawn(total), description=text
        )


def _drawn(number: float) -> float:
    """A number that can be drawn: JSON has some that no float can hold."""
    return max(-_MOST, min(number, _MOST))
