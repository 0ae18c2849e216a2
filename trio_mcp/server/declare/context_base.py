"""What a signature must know of a `Context`: that a parameter is one, and that tasks of the handler belong to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

import trio

from ...errors import RegistrationError

__all__ = ["ContextBase", "LifespanT", "is_context"]

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # The default lets people write `Server("name")` and `Context` without a type; at run time it is not needed.
    LifespanT = TypeVar("LifespanT", default=Any)
else:
    from typing import TypeVar

    LifespanT = TypeVar("LifespanT")


class ContextBase(Generic[LifespanT]):
    """A parameter of this type is filled in by the server, and is not an argument."""

    __slots__ = ("_nursery",)

    def __init__(self) -> None:
        self._nursery: trio.Nursery | None = None

    def begin(self, nursery: trio.Nursery) -> None:
        """Called by the server: the handler runs, and what it starts belongs to this nursery."""
        self._nursery = nursery

    @property
    def nursery(self) -> trio.Nursery:
        """For tasks that work for this call, in an `async def` handler.

        They are cancelled when the handler returns, and when the call ends in any other way; a crash in one of them is the
        error of the call. When the call becomes a task they go along.

        Raises:
            RuntimeError: the handler is a plain `def`.
        """
        if self._nursery is None:
            raise RuntimeError("ctx.nursery is for 'async def' handlers, while they run")
        return self._nursery


def is_context(annotation: Any) -> bool:
    """Whether an annotation is `Context`, `Context[...]` or either of them or None."""
    kind = getattr(annotation, "__origin__", annotation)
    if isinstance(kind, type) and issubclass(kind, ContextBase):
        return True
    args = getattr(annotation, "__args__", ())
    if type(None) in args and any(is_context(arg) for arg in args):
        if len(args) == 2:
            return True
        raise RegistrationError(f"{annotation}: a Context can only be combined with None")
    return False
