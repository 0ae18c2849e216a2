"""How the run of the suite judges and counts; the suite itself is not needed."""

from __future__ import annotations

from typing import Any

import pytest

from .run import NOT_RUN, Outcome, Requirements, outcome_of, report

GOOD = Outcome(True, 2, ())
BAD = Outcome(False, 1, ("failure a: b",))
ASKED = Requirements(("one", "two"), ("three",))


def check(status: str, **more: Any) -> dict[str, Any]:
    return {"id": "a", "status": status, "description": "what", **more}


@pytest.mark.parametrize(
    "checks, outcome",
    [
        ([], Outcome(False, 0, ())),
        ([check("SUCCESS"), check("SKIPPED"), check("INFO")], Outcome(True, 1, ())),
        ([check("SKIPPED", errorMessage="why")], Outcome(False, 0, ("skipped a: why",))),
        ([check("SUCCESS"), check("FAILURE", errorMessage="why")], Outcome(False, 1, ("failure a: why",))),
        ([check("SUCCESS"), check("WARNING")], Outcome(False, 1, ("warning a: what",))),
    ],
)
def test_a_scenario_passes_when_something_succeeded_and_nothing_failed(
    checks: list[dict[str, Any]], outcome: Outcome
) -> None:
    assert outcome_of(checks) == outcome


@pytest.mark.parametrize(
    "outcomes, claims, counts, good",
    [
        ({"one": GOOD, "two": GOOD, "three": GOOD}, {"one", "two"}, "2/2 required, 1/1 others", True),
        ({"one": GOOD, "two": BAD, "three": BAD}, {"one"}, "1/2 required, 0/1 others", True),
        ({"one": GOOD, "two": BAD, "three": GOOD}, {"one", "two"}, "1/2 required, 1/1 others", False),
        ({"one": GOOD, "two": GOOD, "three": BAD}, {"three"}, "2/2 required, 0/1 others", False),
        ({"one": GOOD, "three": GOOD}, {"one"}, "1/2 required, 1/1 others", False),  # not all was run
        ({"one": GOOD, "two": GOOD, "three": GOOD}, {"four"}, "2/2 required, 1/1 others", False),
    ],
)
def test_what_is_claimed_decides(outcomes: dict[str, Outcome], claims: set[str], counts: str, good: bool) -> None:
    lines, success = report("server X", ASKED, claims, outcomes)
    assert lines[-1] == f"conformance server X: {counts}"
    assert success is good


def test_what_is_wrong_is_shown() -> None:
    outcomes = {"one": BAD, "two": NOT_RUN, "three": BAD}
    lines, _ = report("server X", ASKED, {"one", "four"}, outcomes)
    assert lines == [
        "four: claimed, but the suite has no such scenario",
        "FAIL  one (required, claimed): 1 checks succeeded",
        "      failure a: b",
        "fail  two (required): 0 checks succeeded",
        "      the suite has no results of it",
        "fail  three (other): 1 checks succeeded",
        "not as claimed: four, one, two",
        "conformance server X: 0/2 required, 0/1 others",
    ]
