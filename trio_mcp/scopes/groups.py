"""Exception groups: one policy for every `open_*` and `serve_*`.

Our background tasks record their errors and do not raise, so what crosses one of our nurseries is nearly always a single
error of the body or of user code. It is raised as itself; a group only when there really are several.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio

__all__ = ["only_exception", "unwrapped"]


@contextmanager
def unwrapped() -> Iterator[None]:
    """Raise the one exception inside nested one-element groups, with its own cause and context.

    Cancellations beside a real error are noise and are dropped: the scope that sent them has already done its work.
    """
    try:
        yield
    except BaseExceptionGroup as group:
        single = only_exception(group)
        if single is None:
            raise
        cause, context, suppress = single.__cause__, single.__context__, single.__suppress_context__
        try:
            raise single
        finally:
            single.__cause__, single.__context__, single.__suppress_context__ = cause, context, suppress
            del single, group


def only_exception(group: BaseExceptionGroup[BaseException]) -> BaseException | None:
    """The only real exception in a group, or None."""
    _, real = group.split(trio.Cancelled)
    exc: BaseException = group if real is None else real
    while isinstance(exc, BaseExceptionGroup):
        if len(exc.exceptions) != 1:
            return None
        exc = exc.exceptions[0]
    return exc
