"""The mutants fit the code that there is, so that what is kept cannot rot in silence. `nox -s mutants` plays them."""

from __future__ import annotations

from pathlib import Path

import trio_mcp
from tests.mutants import ROOT, load

# The package may be installed, and not lie beside the tests.
CODE = Path(trio_mcp.__file__).parent.parent


def test_each_mutant_changes_one_place_that_is_there() -> None:
    wrong = [
        f"{one.id}: {times} times in {one.file}"
        for one in load()
        if (times := (CODE / one.file).read_text().count(one.old)) != 1 or one.old == one.new
    ]
    assert wrong == []


def test_each_mutant_has_tests_that_are_there() -> None:
    missing = [
        f"{one.id}: {test}" for one in load() for test in one.tests or ("none",) if not is_there(*test.split("::")[:2])
    ]
    assert missing == []


def is_there(file: str, name: str | None = None) -> bool:
    path = ROOT / file
    if name is None:
        return path.exists()
    # What a class of tests inherits is not looked for.
    return path.is_file() and any(f"{kind} {name}(" in path.read_text() for kind in ("def", "class"))
