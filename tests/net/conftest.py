"""What the tests over real sockets share."""

from __future__ import annotations

import gc


def pytest_collection_finish() -> None:
    """They look for garbage often; what was imported until now is none, and need not be looked through each time."""
    gc.collect()
    gc.freeze()
