"""How much of the bodies of many connections may be held at once."""

from __future__ import annotations

__all__ = ["BodyBudget"]


class BodyBudget:
    """A number of bytes that bodies share.

    Args:
        limit: How many.

    Attributes:
        taken: How many are taken.
    """

    __slots__ = ("limit", "taken")

    def __init__(self, limit: int) -> None:
        self.limit: int = limit
        self.taken: int = 0

    def take(self, size: int) -> bool:
        """Take bytes; False, and nothing is taken, when there are not as many left."""
        if self.taken + size > self.limit:
            return False
        self.taken += size
        return True

    def give_back(self, size: int) -> None:
        """Give back what was taken."""
        self.taken -= size
