"""Paths that come from a client."""

from __future__ import annotations

import errno
from os import PathLike
from pathlib import Path

from ..errors import InvalidParams
from ..protocol.jsontext import shorten

__all__ = ["UnsafePath", "safe_join"]


class UnsafePath(InvalidParams):
    """A path that is none, or leads out of its folder. Raised in a tool it is for the model to read, since that wrote it."""


def safe_join(root: str | PathLike[str], value: str) -> Path:
    """A path below a folder, from a text that a client sent; for templates with `{+path}` and tools that touch files.

    Symbolic links are followed before it is judged, so one that leads out counts as outside. The file need not exist.

    Args:
        root: The folder.
        value: A relative path.

    Raises:
        UnsafePath: it is empty, absolute, holds a NUL or leads out of the folder. Not caught, it is an `InvalidParams` (-32602)
            for the client, and in a tool a failed result.
    """
    base = Path(root).resolve()
    if not value or "\0" in value:
        raise UnsafePath(f"Invalid params: {shorten(value)} is not a path")
    try:
        path = (base / value).resolve()
        _refuse_circle(path)
    except (OSError, RuntimeError) as exc:
        raise UnsafePath(f"Invalid params: {shorten(value)} is not a path: {exc}") from None
    if Path(value).is_absolute() or not path.is_relative_to(base):
        raise UnsafePath(f"Invalid params: the path {shorten(value)} leads out of the folder")
    return path


def _refuse_circle(path: Path) -> None:
    """Since Python 3.13 `resolve` leaves a circle of links in the path."""
    try:
        path.stat()
    except OSError as exc:
        if exc.errno == errno.ELOOP:
            raise
