"""`docs/supported-protocol.md` has a table for each page of the specification, and names only what exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import trio_mcp

ROOT = Path(__file__).parents[2]
# What is installed need not be beside the tests.
FOLDERS = {"trio_mcp": Path(trio_mcp.__file__).parent, "tests": ROOT / "tests"}
TEXT = (ROOT / "docs" / "supported-protocol.md").read_text()

SPECIFICATION = (
    "index",
    "architecture/index",
    "changelog",
    "deprecated",
    "schema",
    "basic/index",
    "basic/versioning",
    "basic/patterns/index",
    "basic/patterns/cancellation",
    "basic/patterns/mrtr",
    "basic/patterns/progress",
    "basic/patterns/subscriptions",
    "basic/transports/index",
    "basic/transports/stdio",
    "basic/transports/streamable-http",
    "basic/authorization/index",
    "basic/authorization/authorization-server-discovery",
    "basic/authorization/client-registration",
    "basic/authorization/security-considerations",
    "server/index",
    "server/discover",
    "server/tools",
    "server/resources",
    "server/prompts",
    "server/utilities/caching",
    "server/utilities/completion",
    "server/utilities/logging",
    "server/utilities/pagination",
    "client/elicitation",
    "client/sampling",
    "client/roots",
)

EXTENSIONS = ("io.modelcontextprotocol/tasks", "io.modelcontextprotocol/ui")
"""The pages of revision 2026-07-28."""

SESSIONS = (
    "index",
    "architecture/index",
    "changelog",
    "schema",
    "basic/index",
    "basic/lifecycle",
    "basic/transports",
    "basic/authorization",
    "basic/utilities/cancellation",
    "basic/utilities/ping",
    "basic/utilities/progress",
    "basic/utilities/tasks",
    "client/elicitation",
    "client/roots",
    "client/sampling",
    "server/index",
    "server/prompts",
    "server/resources",
    "server/tools",
    "server/utilities/completion",
    "server/utilities/logging",
    "server/utilities/pagination",
)
"""The pages of revision 2025-11-25."""

HEADINGS = ["section", "what we do", "module", "tests"]


def tables() -> dict[str, list[list[str]]]:
    """The rows below each heading that is a page of the specification, with the head of the table."""
    # What comes behind the last page is no page.
    text = TEXT.partition("\n## Older revisions\n")[0]
    parts = re.split(r"^### `([^`]+)`$", text, flags=re.MULTILINE)[1:]
    out: dict[str, list[list[str]]] = {}
    for page, body in zip(parts[::2], parts[1::2], strict=True):
        assert page not in out, f"{page} comes twice"
        lines = [line for line in body.splitlines() if line.startswith("|") and not set(line) <= set("|-: ")]
        out[page] = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    return out


TABLES = tables()


def test_each_page_of_the_specification_has_its_table() -> None:
    assert tuple(TABLES) == (*SPECIFICATION, *EXTENSIONS, *(f"2025-11-25/{page}" for page in SESSIONS))


@pytest.mark.parametrize("page", TABLES)
def test_a_table_is_whole(page: str) -> None:
    head, *rows = TABLES[page]
    assert head == HEADINGS
    assert rows, "it says nothing"
    for row in rows:
        assert len(row) == len(HEADINGS), row
        section, says, modules, tests = row
        assert section and says, row
        # What is done is held by tests; what has none says so.
        assert bool(modules) == (bool(tests) or "no test yet" in says), row


@pytest.mark.parametrize("page", TABLES)
def test_what_is_named_exists(page: str) -> None:
    for _, _, modules, tests in TABLES[page][1:]:
        for column, folder in ((modules, "trio_mcp"), (tests, "tests")):
            names = re.findall(r"`([^`]+)`", column)
            assert ", ".join(f"`{name}`" for name in names) == column, "names in backticks, with commas between"
            for name in names:
                assert (FOLDERS[folder] / f"{name}.py").is_file(), f"there is no {folder}/{name}.py"


def test_what_holds_the_older_revisions_exists() -> None:
    [sentence] = re.findall(r"^These are held by (.+)\.$", TEXT, re.MULTILINE)
    names = re.findall(r"`([^`]+)`", sentence)
    assert len(names) > 1
    assert [name for name in names if not (FOLDERS["tests"] / f"{name}.py").is_file()] == []
