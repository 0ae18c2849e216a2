"""How much longer a deep run looks: `TRIO_MCP_DEEP=20 HYPOTHESIS_PROFILE=deep pytest` plays twenty times as much."""

from __future__ import annotations

import os

FACTOR = float(os.environ.get("TRIO_MCP_DEEP", "1"))


def scaled(number: int) -> int:
    """A number of examples or rounds, times the factor. A number in a decorator hides that of the profile."""
    return max(1, round(number * FACTOR))
