"""What every test shares."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"

# The clock of a shared machine says nothing about an example; the deadline of the whole test does (pyproject.toml).
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", settings.get_profile("default"), max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture
def examples() -> Path:
    """The folder of examples."""
    return EXAMPLES


@pytest.fixture
def python() -> str:
    """The interpreter that runs the tests, for child processes."""
    return sys.executable
