"""Docstrings in three styles."""

from __future__ import annotations

import pytest

from trio_mcp.server.declare.docstring import parse_docstring

GOOGLE = """Index a folder.

    Walks it once.

    Args:
        folder: Where to look,
            on disk.
        *names: Which files.
        depth (int, optional): How deep: 0 is all.

    Returns:
        A report.

    Raises:
        OSError: The folder cannot be read.

    Example:
        index(".")
    """

NUMPY = """Index a folder.

    Walks it once.

    Parameters
    ----------
    folder : str
        Where to look,
        on disk.
    names
        Which files.
    depth : int, optional
        How deep: 0 is all.

    Returns
    -------
    Report
        A report.
    """

REST = """Index a folder.

    Walks it once.

    :param folder: Where to look,
        on disk.
    :param names: Which files.
    :param int depth: How deep: 0 is all.
    :returns: A report.
    :raises OSError: The folder cannot be read.
    """

PARAMETERS = {"folder": "Where to look, on disk.", "names": "Which files.", "depth": "How deep: 0 is all."}


@pytest.mark.parametrize("doc", [GOOGLE, NUMPY, REST], ids=["google", "numpy", "rest"])
def test_three_styles_say_the_same(doc: str) -> None:
    parsed = parse_docstring(doc)
    assert parsed.parameters == PARAMETERS
    assert parsed.text.startswith("Index a folder.\n\nWalks it once.")
    for word in ("Args", "Parameters", ":param", "Returns", ":returns", "Raises", "A report", "OSError"):
        assert word not in parsed.text


def test_examples_stay_for_the_model() -> None:
    assert parse_docstring(GOOGLE).text == 'Index a folder.\n\nWalks it once.\n\nExample:\n    index(".")'


@pytest.mark.parametrize("doc", [None, "", "   \n  "])
def test_nothing_says_nothing(doc: str | None) -> None:
    parsed = parse_docstring(doc)
    assert (parsed.text, parsed.parameters) == ("", {})


def test_a_word_with_a_colon_is_text() -> None:
    assert parse_docstring("Note: this is: text.").text == "Note: this is: text."
