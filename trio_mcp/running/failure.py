"""What is said of somebody's code that ends the process: the message and the lines of that code, not those of what called it."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ..errors import MCPError

__all__ = ["explained"]

_MOST: Final = 10
"""Frames, causes and members of a group that are told: who reads this looks for one line."""

_OTHERS: Final = (
    str(Path(__file__).parents[1]),
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
)


def explained(exc: BaseException) -> str | None:
    """The text for an exception: what it is and, with file and line, where in the user's own code it came from.

    Returns:
        Lines without a last line end; None where no code of the user's was under way.
    """
    if isinstance(exc, MCPError | ValueError) and not _frames(exc):
        # Of this package, whose words are enough, whatever it was caused by.
        return None
    lines = [*_lines(exc)]
    return "\n".join(lines) if any(line.startswith("  ") for line in lines) else None


def _lines(exc: BaseException, depth: int = 0) -> Iterator[str]:
    yield "".join(traceback.format_exception_only(exc)).rstrip()
    for frame in _frames(exc)[-_MOST:]:
        yield f"  {frame.filename}:{frame.lineno}, in {frame.name}: {frame.line}"
    if depth == _MOST:
        return
    if isinstance(exc, BaseExceptionGroup):
        for one in exc.exceptions[:_MOST]:
            yield from _lines(one, depth + 1)
    cause = exc.__cause__ or (None if exc.__suppress_context__ else exc.__context__)
    if cause is not None:
        first, *rest = _lines(cause, depth + 1)
        yield f"because of {first}"
        yield from rest


def _frames(exc: BaseException) -> list[traceback.FrameSummary]:
    return [frame for frame in traceback.extract_tb(exc.__traceback__) if _is_users(frame.filename)]


def _is_users(filename: str) -> bool:
    return not filename.startswith("<") and not any(filename.startswith(f"{folder}/") for folder in _OTHERS)
