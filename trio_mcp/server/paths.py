"""Paths that come from a client."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from ..errors import InvalidParams
from ..protocol.jsontext import shorten

__all__ = ["safe_join"]


def safe_join(root: str | PathLike[str], value: str) -> Path:
    """A path below a folder, from a text that a client sent; for templates with `{+path}` and tools that touch files.

    Symbolic links are followed before it is judged, so one that leads out counts as outside. The file need not exist.

    Args:
        root: The folder.
        value: A relative path.

    Raises:
        InvalidParams: it is empty, absolute, holds a NUL or leads out of the folder.
    """
    base = Path(root).resolve()
    if not value or "\0" in value:
        raise InvalidParams(f"Invalid params: {shorten(value)} is not a path")
    try:
        path = (base / value).resolve()
    except (OSError, RuntimeError) as exc:
        raise InvalidParams(f"Invalid params: {shorten(value)} is not a path: {exc}") from None
    if Path(value).is_absolute() or not path.is_relative_to(base):
        raise InvalidParams(f"Invalid params: the path {shorten(value)} leads out of the folder")
    return path
