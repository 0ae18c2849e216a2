"""For tests: of this project, and of servers built on it."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from .wire import RawPeer, modern_meta, open_raw, request

if TYPE_CHECKING:
    from .shared_task_store import SharedTaskStoreContract
    from .task_store import TaskStoreContract

__all__ = ["RawPeer", "SharedTaskStoreContract", "TaskStoreContract", "modern_meta", "open_raw", "request"]

# Loaded when they are first used: these need pytest and Hypothesis, the others do not.
_MODULES = {"SharedTaskStoreContract": "shared_task_store", "TaskStoreContract": "task_store"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # So that a test that fails shows the values that it compared.
    modules = [f"{__name__}.{module}" for module in ("task_rows", "task_store", "shared_task_store")]
    new = [module for module in modules if module not in sys.modules]
    importlib.import_module("pytest").register_assert_rewrite(*new)
    value = getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
