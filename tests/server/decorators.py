"""A decorator from another module than the functions that it wraps."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def logged(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        return await fn(*args, **kwargs)

    return wrapper


def sync_wrapper(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Hides that the function is async."""

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return wrapper
