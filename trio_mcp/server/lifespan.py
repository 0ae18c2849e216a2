"""The type of a server's lifespan value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["LifespanT"]

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # The default lets people write `Server("name")` and `Context` without a type; at run time it is not needed.
    LifespanT = TypeVar("LifespanT", default=Any)
else:
    from typing import TypeVar

    LifespanT = TypeVar("LifespanT")
