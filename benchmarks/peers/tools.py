"""How many tools a server has, besides echo, add and slow: `$BENCH_TOOLS` in all, so that a list can be long."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

EXTRA_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "count": {"type": "integer", "default": 1}},
    "required": ["text"],
}


def extra_tools() -> Iterator[tuple[str, str]]:
    """Names and descriptions of the others."""
    for number in range(int(os.environ.get("BENCH_TOOLS", "3")) - 3):
        yield f"tool_{number}", f"Extra tool number {number}"


async def extra(text: str, count: int = 1) -> str:
    """What each of them does."""
    return text * count
