"""A plugin for pytest: the tests must import the tree that they lie in, and not an installed package."""

from __future__ import annotations

from pathlib import Path

import pytest

import trio_mcp


def pytest_configure(config: pytest.Config) -> None:
    found = Path(trio_mcp.__file__)
    if not found.is_relative_to(config.rootpath):
        raise pytest.UsageError(f"trio_mcp is {found}, and not in {config.rootpath}")
