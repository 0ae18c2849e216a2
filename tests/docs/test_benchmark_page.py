"""The page with the benchmarks is what its generator makes of the figures that are kept: nothing on it is written by hand."""

from __future__ import annotations

from pathlib import Path

from benchmarks import http, http2, legacy, page, stdio

ROOT = Path(__file__).parents[2]


def test_the_page_is_what_the_generator_writes() -> None:
    assert (ROOT / "docs" / "benchmarks.md").read_text() == page.render(page.load())


def test_the_figures_that_are_kept_are_those_of_the_tables() -> None:
    figures = page.load()
    for kind, measures in {"stdio": stdio.MEASURES, "http": http.MEASURES, "http2": http2.MEASURES}.items():
        found = {key for result in figures[kind]["results"].values() for key in result["figures"]}
        assert {measure.key for measure in measures} <= found


def test_a_run_in_sessions_has_a_part_of_the_page() -> None:
    measures = {"legacy_stdio": legacy.STDIO_MEASURES, "legacy_http": legacy.HTTP_MEASURES}
    parts = {
        kind: {
            "versions": {"ours": {"trio-mcp": "1"}, "typescript": {"SDK of sessions": "9"}},
            "missing": {"mcp": "there is none"},
            "results": {
                name: {"problem": None, "figures": {one.key: [number] for one in rows}, "runs": []}
                for name, number in (("ours", 8765.0), ("typescript", 876.5))
            },
        }
        for kind, rows in measures.items()
    }
    text = page.render({**page.load(), **parts})
    part = text.partition("## In sessions\n")[2].partition("## What is wanted\n")[0]
    assert all(part.count(f"| {one.title} ") for rows in measures.values() for one in rows)
    # As those of ours and those of another are told.
    assert part.count(" 8,765 ") and part.count("(10.00 ×)") and part.count("there is none") == 2
    assert "| calls/s in 32 sessions, ÷ TypeScript's" in text and "SDK of sessions 9" in text
    assert "{{" not in text
    # A run without it has a page all the same.
    without = {name: value for name, value in page.load().items() if name not in parts}
    assert "## In sessions" not in page.render(without)
