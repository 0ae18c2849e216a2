"""The page with the benchmarks is what its generator makes of the figures that are kept: nothing on it is written by hand."""

from __future__ import annotations

from pathlib import Path

from benchmarks import http, http2, page, stdio

ROOT = Path(__file__).parents[2]


def test_the_page_is_what_the_generator_writes() -> None:
    assert (ROOT / "docs" / "benchmarks.md").read_text() == page.render(page.load())


def test_the_figures_that_are_kept_are_those_of_the_tables() -> None:
    figures = page.load()
    for kind, measures in {"stdio": stdio.MEASURES, "http": http.MEASURES, "http2": http2.MEASURES}.items():
        found = {key for result in figures[kind]["results"].values() for key in result["figures"]}
        assert {measure.key for measure in measures} <= found
