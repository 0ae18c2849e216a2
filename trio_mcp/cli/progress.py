"""A progress bar on standard error."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

__all__ = ["Bar"]


class Bar:
    """Shown while a call runs, gone when it ends."""

    def __init__(self, what: str) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._what = what
        self._task = self._progress.add_task(what, total=None)

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def update(self, progress: float, total: float | None, message: str | None) -> None:
        """Show a progress notification."""
        text = f"{self._what}: {message}" if message else self._what
        # Markup in a server's message is text.
        self._progress.update(self._task, completed=progress, total=total, description=escape(text))
