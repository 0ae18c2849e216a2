"""Run the official conformance suite against our server.

    python -m tests.conformance.run server 2026-07-28 [--http2] [--verbose]
    python -m tests.conformance.run all

`all` is every revision over HTTP/1.1 and over HTTP/2. For each of the two there is one server, which is asked in all revisions
at the same time, as a server is that old and new clients use.

Prints a line for each scenario that the revision requires, then for each other one that the suite has for it, and a
closing line with the counts. The exit status is 0 when every scenario in `claims.py` passed and every required one was
run.

A scenario passes when at least one of its checks succeeded and none failed or warned; the checks of each message
against the schema are among them. This is stricter than the suite itself, where a warning does no harm.

The suite speaks HTTP/1.1. With `--http2` a bridge stands between (`h2_bridge.mjs`, on Node's own HTTP/2), so everything
reaches our server over HTTP/2.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..interop.packages import Missing, find_node, install_packages
from .claims import CLAIMS

__all__ = ["Outcome", "Requirements", "main", "outcome_of", "report"]

HERE: Final = Path(__file__).parent
SUITE: Final = Path("node_modules/@modelcontextprotocol/conformance")
DEADLINE: Final = 300

# Prints the requirements of a revision as JSON: `node -e READ FILE`. The suite brings the parser.
READ: Final = """
const file = process.argv[1];
const { parse } = require('node:module').createRequire(file)('yaml');
process.stdout.write(JSON.stringify(parse(require('node:fs').readFileSync(file, 'utf8'))));
"""


@dataclass(frozen=True, slots=True)
class Requirements:
    """What a revision asks for, in the order of the suite.

    Attributes:
        required: The scenarios that count.
        others: Those that are run too and do not count.
    """

    required: tuple[str, ...]
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a scenario went.

    Attributes:
        passed: Whether it passed.
        succeeded: How many checks succeeded.
        problems: A line for each check that failed or warned.
    """

    passed: bool
    succeeded: int
    problems: tuple[str, ...]


NOT_RUN: Final = Outcome(False, 0, ("the suite has no results of it",))


def outcome_of(checks: Sequence[Mapping[str, Any]]) -> Outcome:
    """Judge a scenario by its checks, as the suite wrote them down."""
    succeeded = sum(check["status"] == "SUCCESS" for check in checks)
    problems = tuple(
        f"{check['status'].lower()} {check['id']}: {check.get('errorMessage') or check.get('description', '')}"
        for check in checks
        if check["status"] in ("FAILURE", "WARNING")
    )
    if not succeeded and not problems:
        # The suite itself leaves some scenarios out, and says why.
        problems = tuple(
            f"{check['status'].lower()} {check['id']}: {check.get('errorMessage', '')}" for check in checks
        )
    return Outcome(succeeded > 0 and not problems, succeeded, problems)


def report(
    title: str,
    requirements: Requirements,
    claims: AbstractSet[str],
    outcomes: Mapping[str, Outcome],
    *,
    verbose: bool = False,
) -> tuple[list[str], bool]:
    """Put the outcomes into words.

    Args:
        title: What was tested, for the closing line.
        requirements: What the revision asks for.
        claims: What must pass.
        outcomes: How each scenario went.
        verbose: Whether to show what is wrong with scenarios that are not claimed.

    Returns:
        The lines, and whether the run is a success.
    """
    lines: list[str] = []
    broken = sorted(claims - {*requirements.required, *requirements.others})
    lines += [f"{name}: claimed, but the suite has no such scenario" for name in broken]
    for group, names in (("required", requirements.required), ("other", requirements.others)):
        for name in names:
            outcome = outcomes.get(name, NOT_RUN)
            verdict = "pass" if outcome.passed else "FAIL" if name in claims else "fail"
            claimed = ", claimed" if name in claims else ""
            lines.append(f"{verdict}  {name} ({group}{claimed}): {outcome.succeeded} checks succeeded")
            if verdict == "FAIL" or (verbose and verdict == "fail") or outcome is NOT_RUN:
                lines += [f"      {problem}" for problem in outcome.problems]
            if verdict == "FAIL" or (group == "required" and outcome is NOT_RUN):
                broken.append(name)

    def passed(names: Sequence[str]) -> int:
        return sum(outcomes.get(name, NOT_RUN).passed for name in names)

    if broken:
        lines.append(f"not as claimed: {', '.join(broken)}")
    required, others = requirements.required, requirements.others
    lines.append(
        f"conformance {title}: {passed(required)}/{len(required)} required, {passed(others)}/{len(others)} others"
    )
    return lines, not broken


def read_requirements(node: Path, suite: Path, role: str, revision: str) -> Requirements:
    """What the suite says that a revision requires.

    Raises:
        Missing: it knows no such revision.
    """
    file = suite / "requirements" / f"{revision}.yaml"
    if not file.exists():
        known = ", ".join(sorted(path.stem for path in file.parent.glob("*.yaml")))
        raise Missing(f"the suite has no requirements of revision {revision}; it has: {known}")
    done = subprocess.run([node, "-e", READ, str(file)], capture_output=True, text=True, timeout=60, check=True)
    found = json.loads(done.stdout)
    others = [entry["scenario"] for entry in found["not_scored"] if entry["leg"] == role]
    return Requirements(tuple(found[role]), tuple(others))


@contextmanager
def started(command: Sequence[str | Path]) -> Iterator[str]:
    """A program that prints its URL when it listens; the value is the URL."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            if not url:
                raise Missing(f"{command[1]} did not start (exit status {process.wait(10)})")
            yield url
        finally:
            process.terminate()


@contextmanager
def running_server(bridge: Path | None) -> Iterator[str]:
    """Our server in a process of its own, on a free port; the value is its URL.

    Args:
        bridge: Node, when it is to be reached over HTTP/2.
    """
    with started([sys.executable, HERE / "everything_server.py", "--port", "0"]) as url:
        if bridge is None:
            yield url
        else:
            with started([bridge, HERE / "h2_bridge.mjs", url]) as front:
                yield front


def run_suite(
    node: Path, suite: Path, url: str, revision: str, folder: Path, names: Sequence[str]
) -> dict[str, Outcome]:
    """Run everything that a revision requires against a server; the outcome of each scenario that has results."""
    program = suite / "dist" / "index.js"
    command: list[str | Path] = [node, program, "server", "--url", url, "--requirements", revision, "-o", folder]
    # Its exit status is about all scenarios, and what it prints is in the results.
    with (folder / "output.txt").open("w") as output:
        subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, timeout=DEADLINE, check=False)
    outcomes = {}
    for name in names:
        # The folder of a scenario ends in the time of its run.
        for file in folder.glob(f"server-{name}-????-??-??T*/checks.json"):
            outcomes[name] = outcome_of(json.loads(file.read_text()))
    return outcomes


def run(suites: Sequence[tuple[str, str]], *, http2: bool, verbose: bool) -> list[tuple[list[str], bool]]:
    """Run the suite of each role and revision against one server, all at once; a report for each.

    Raises:
        Missing: something that this needs is not there.
    """
    node = find_node()
    suite = install_packages(node) / SUITE

    def run_one(role: str, revision: str, url: str) -> tuple[list[str], bool]:
        requirements = read_requirements(node, suite, role, revision)
        names = (*requirements.required, *requirements.others)
        with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
            outcomes = run_suite(node, suite, url, revision, Path(folder), names)
        title = f"{role} {revision}{' over HTTP/2' if http2 else ''}"
        return report(title, requirements, CLAIMS[role, revision], outcomes, verbose=verbose)

    with running_server(node if http2 else None) as url, ThreadPoolExecutor(len(suites)) as threads:
        reports = [threads.submit(run_one, role, revision, url) for role, revision in suites]
        return [one.result() for one in reports]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, and return the exit status."""
    parser = argparse.ArgumentParser(prog="conformance", description="The official conformance suite against us.")
    roles = sorted({role for role, _ in CLAIMS})
    parser.add_argument("role", choices=["all", *roles], help="what is tested; all: everything, at the same time")
    revisions = sorted({revision for _, revision in CLAIMS})
    parser.add_argument("revision", nargs="?", choices=revisions, default=revisions[-1], help="of the protocol")
    parser.add_argument("--http2", action="store_true", help="reach the server over HTTP/2")
    parser.add_argument("--verbose", action="store_true", help="show what is wrong with scenarios that are not claimed")
    given = parser.parse_args(arguments)
    suites, transports = [(given.role, given.revision)], [given.http2]
    if given.role == "all":
        suites, transports = sorted(CLAIMS), [False, True]
    with ThreadPoolExecutor(len(transports)) as threads:
        runs = [threads.submit(run, suites, http2=http2, verbose=given.verbose) for http2 in transports]
        try:
            results = [one for each in runs for one in each.result()]
        except Missing as exc:
            print(f"conformance: {exc}", file=sys.stderr)
            return 2
    print("\n".join(line for lines, _ in results for line in lines))
    return 0 if all(good for _, good in results) else 1


if __name__ == "__main__":
    sys.exit(main())
