"""What every test shares."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from .scaled import FACTOR, scaled

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"

# `default` is for a person: what failed once is tried first the next time. The other two begin anew each time, with a
# seed that the header of the run tells. Both are TRIO_MCP_DEEP times as long: a small sample in CI, twenty times in depth.
# The clock of a shared machine says nothing about an example; the deadline of the whole test does (pyproject.toml).
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "default")
BASE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=False)
settings.register_profile("default", BASE)
settings.register_profile("ci", BASE, database=None, print_blob=True, max_examples=scaled(100))
settings.register_profile("deep", settings.get_profile("ci"))
settings.load_profile(PROFILE)


# Before the plugin of Hypothesis, which reads the option.
@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if PROFILE != "default" and config.option.hypothesis_seed is None:
        given = getattr(config, "workerinput", {}).get("hypothesis_seed")
        config.option.hypothesis_seed = given or str(random.SystemRandom().randrange(1 << 32))
    if FACTOR > 1 and config.option.timeout is None:
        config.option.timeout = float(config.getini("timeout")) * FACTOR


# With pytest-xdist one seed is drawn, by the process that prints it; each worker is given it.
@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["hypothesis_seed"] = node.config.option.hypothesis_seed


def pytest_report_header(config: pytest.Config) -> str:
    seed = config.option.hypothesis_seed
    again = "" if seed is None else f", again with --hypothesis-seed={seed}"
    return f"examples: profile {PROFILE}, {FACTOR:g} times as many{again}"


@pytest.fixture
def examples() -> Path:
    """The folder of examples."""
    return EXAMPLES


@pytest.fixture
def python() -> str:
    """The interpreter that runs the tests, for child processes."""
    return sys.executable
