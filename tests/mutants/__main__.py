"""Play the mutants: `python -m tests.mutants [ID …] [-j N]`.

Each worker has a copy of the tree, into which it puts one mutant at a time. First the same tests run without any, so that
tests that fail anyway are not taken for kills. Exit status 1 when one survives.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TypeVar

from . import ROOT, Mutant, load

T = TypeVar("T")

# A mutant may well wait for ever; one test may so long, and all of them together.
ONE_TEST = 20
ALL_TESTS = 120

FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", re.MULTILINE)


class Broken(Exception):
    """Tests that could not be run, or that fail without a mutant."""


def copy_to(folder: Path) -> Path:
    """A copy of what tests need, without bytecode."""
    for name in ("trio_mcp", "tests", "examples"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".hypothesis"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def failing(tree: Path, tests: Iterable[str]) -> str | None:
    """The first test that fails in a copy; None when all pass.

    Raises:
        Broken: pytest did not get so far as to run them.
    """
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=short", f"--timeout={ONE_TEST}", "--hypothesis-seed=0"]
    plugins = ["-p", "no:cacheprovider", "-p", "tests.mutants.guard"]
    # The copy comes before whatever is installed, in child processes of the tests as well.
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    try:
        done = subprocess.run(
            [*command, *plugins, *tests], cwd=tree, env=environment, capture_output=True, text=True, timeout=ALL_TESTS
        )
    except subprocess.TimeoutExpired:
        return "(never ended)"
    if done.returncode == 0:
        return None
    if done.returncode != 1:
        raise Broken(done.stdout + done.stderr)
    found = FAILED.search(done.stdout)
    return found[1] if found else "(failed)"


def play(tree: Path, mutant: Mutant) -> str | None:
    """What kills a mutant; None when it survives."""
    file = tree / mutant.file
    source = file.read_text()
    if source.count(mutant.old) != 1:
        raise Broken(f"{mutant.id}: its text is {source.count(mutant.old)} times in {mutant.file}")
    bytecode = Path(importlib.util.cache_from_source(str(file)))
    try:
        # Bytecode goes by size and second of its source, and a mutant may share both with the file as it was.
        bytecode.unlink(missing_ok=True)
        file.write_text(source.replace(mutant.old, mutant.new))
        return failing(tree, mutant.tests)
    finally:
        file.write_text(source)
        bytecode.unlink(missing_ok=True)


def check(tree: Path, tests: list[str]) -> None:
    """Tests must pass without a mutant."""
    failed = failing(tree, tests)
    if failed is not None:
        raise Broken(f"fails without any mutant: {failed}")


def in_files(mutants: list[Mutant]) -> list[list[str]]:
    """All the tests that are named, those of a file together."""
    files: dict[str, set[str]] = defaultdict(set)
    for test in {test for mutant in mutants for test in mutant.tests}:
        files[test.partition("::")[0]].add(test)
    # Where a whole file is named, its name says it all.
    return [[file] if file in tests else sorted(tests) for file, tests in sorted(files.items())]


def run(mutants: list[Mutant], workers: int) -> list[Mutant]:
    """Play them; the survivors.

    Raises:
        Broken: tests fail without a mutant, or cannot be run with one.
    """
    survivors: list[Mutant] = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(workers) as pool:
        trees: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(workers):
            trees.put(copy_to(Path(folder, str(number))))

        def in_a_copy(fn: Callable[[Path], T]) -> T:
            tree = trees.get()
            try:
                return fn(tree)
            finally:
                trees.put(tree)

        def timed(mutant: Mutant) -> tuple[str | None, float]:
            began = time.monotonic()
            return in_a_copy(lambda tree: play(tree, mutant)), time.monotonic() - began

        began = time.monotonic()
        try:
            list(pool.map(lambda tests: in_a_copy(lambda tree: check(tree, tests)), in_files(mutants)))
            print(f"without a mutant everything passes ({time.monotonic() - began:.0f} s)\n", flush=True)
            width = max(len(mutant.id) for mutant in mutants)
            playing = {pool.submit(timed, mutant): mutant for mutant in mutants}
            for done in as_completed(playing):
                mutant, (killer, seconds) = playing[done], done.result()
                print(f"{mutant.id:{width}}  {seconds:5.1f} s  {killer or 'SURVIVED'}", flush=True)
                if killer is None:
                    survivors.append(mutant)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    print(f"\n{len(mutants)} mutants, {len(mutants) - len(survivors)} killed, {time.monotonic() - began:.0f} s")
    return survivors


def main() -> None:
    """The command."""
    kept = {mutant.id: mutant for mutant in load()}
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="Play the mutants.")
    parser.add_argument("ids", metavar="ID", nargs="*", help="play these alone")
    parser.add_argument("-j", metavar="N", type=int, default=os.cpu_count() or 1, help="so many at once")
    chosen = parser.parse_args()
    unknown = [id for id in chosen.ids if id not in kept]
    if unknown:
        parser.error(f"no mutant {', '.join(unknown)}")
    try:
        survivors = run([kept[id] for id in chosen.ids] or list(kept.values()), chosen.j)
    except Broken as exc:
        sys.exit(str(exc))
    if survivors:
        sys.exit("\n".join(["survived:", *(f"  {one.id}: {one.why} ({one.file})" for one in survivors)]))


if __name__ == "__main__":
    main()
