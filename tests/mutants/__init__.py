"""Small faults of the heart that the tests must notice: `mutants.toml` keeps them, `python -m tests.mutants` plays them.

A mutant is one change of one file, and the tests that must fail with it. One that survives is a line that is run and not
tested. Changes that nobody can see from outside are not kept.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ROOT", "Mutant", "load"]

ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True)
class Mutant:
    """One fault.

    Attributes:
        id: Its name.
        file: The file that it changes, from the root.
        old: Text that is in the file exactly once.
        new: What it becomes.
        why: What is wrong then.
        tests: Files and node ids of which one must fail.
    """

    id: str
    file: str
    old: str
    new: str
    why: str
    tests: tuple[str, ...]


def load() -> list[Mutant]:
    """All of them, as they are kept."""
    with open(Path(__file__).parent / "mutants.toml", "rb") as file:
        kept = tomllib.load(file)
    return [Mutant(id, **{**what, "tests": tuple(what["tests"])}) for id, what in kept.items()]
