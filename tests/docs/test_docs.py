"""The documentation runs and agrees with the code.

In a page, every block that begins with ```python is executed, in order and in one namespace, in an empty working
directory that has the examples in it. The rest of that line says more:

- `no-run`: not executed, only compiled.
- `title="notes.py"`: also saved under this name first, for later blocks that start it.
- `await` outside a function is allowed; such a block runs inside trio.
- A block ```text output behind it is exactly what it printed.
"""

from __future__ import annotations

import ast
import dataclasses
import datetime
import decimal
import enum
import inspect
import json
import math
import pathlib
import re
import sys
import textwrap
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import pytest
import trio

import trio_mcp.cli
from trio_mcp import Context, Limits, PromptOptions, ResourceOptions, Server, ToolOptions, errors, open_client
from trio_mcp.protocol.uri_template import UriTemplate

ROOT = Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [*DOCS, ROOT / "README.md"]


def name_of(path: Path) -> str:
    """A page as messages name it: `docs/how-to/completion.md`."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


page = pytest.mark.parametrize("path", PAGES, ids=name_of)


@dataclass
class Block:
    info: str
    text: str
    line: int

    @property
    def language(self) -> str:
        return self.info.partition(" ")[0]


def blocks(path: Path) -> Iterator[Block]:
    info: str | None = None
    lines: list[str] = []
    fence, start = "", 0
    for number, line in enumerate(path.read_text().splitlines(), 1):
        found = re.match(r"\s*(`{3,})(.*)$", line)
        if info is None and found:
            fence, info, lines, start = found[1], found[2].strip(), [], number
        elif info is not None and line.strip() == fence:
            yield Block(info, textwrap.dedent("\n".join(lines)).rstrip(), start)
            info = None
        elif info is not None:
            lines.append(line)
    assert info is None, f"{name_of(path)}:{start}: the block does not end"


def compiled(block: Block, path: Path) -> Any:
    # Line numbers are those of the page, so that a traceback leads there.
    source = "\n" * block.line + block.text
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    return compile(source, name_of(path), "exec", flags=flags, dont_inherit=True)


def run(code: Any, namespace: dict[str, Any]) -> None:
    if not code.co_flags & inspect.CO_COROUTINE:
        exec(code, namespace)
        return

    async def main() -> None:
        with trio.fail_after(20):
            await eval(code, namespace)

    trio.run(main)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the blocks of a page run. They may import what they saved; no other page finds it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(f"{tmp_path}/"):
            del sys.modules[name]


@page
def test_every_python_block_runs(path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, Any] = {"__name__": "page"}
    printed: str | None = None
    for block in blocks(path):
        where = f"{name_of(path)}:{block.line}"
        if block.info == "text output":
            assert printed is not None, f"{where}: nothing ran before this output"
            assert printed.strip() == block.text.strip(), where
        if block.language != "python":
            continue
        code = compiled(block, path)
        if "no-run" in block.info.split():
            printed = None
            continue
        if title := re.search(r'title="([^"]+)"', block.info):
            (folder / title[1]).write_text(block.text + "\n")
        try:
            run(code, namespace)
        except (Exception, SystemExit) as exc:
            raise AssertionError(f"{where}: {type(exc).__name__}: {exc}") from exc
        printed = capsys.readouterr().out


@page
def test_every_json_block_is_json(path: Path) -> None:
    for block in blocks(path):
        if block.language == "json":
            json.loads(block.text)


@page
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if "://" in target:
            continue
        name, _, heading = target.partition("#")
        file = path.parent / name if name else path
        assert file.exists(), f"{name_of(path)} links to {target}"
        if heading:
            headings = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE)
            anchors = [re.sub(r"[^\w\- ]", "", text).strip().lower().replace(" ", "-") for text in headings]
            assert heading in anchors, f"{name_of(path)} links to {target}"


def test_the_index_leads_to_every_page() -> None:
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / target).resolve() for target in re.findall(r"\]\(([^)\s#]+)\)", index.read_text())}
    assert [name_of(path) for path in DOCS if path.resolve() not in linked] == ["docs/index.md"]


def rows(path: Path, *header: str) -> list[list[str]]:
    """The rows of every table with these headings."""
    out: list[list[str]] = []
    inside = False
    for line in path.read_text().splitlines():
        cells = [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells == list(header):
            inside = True
        elif not cells:
            inside = False
        elif inside and not set(line) <= set("|-: "):
            out.append(cells)
    return out


def test_limits_md_lists_every_bound_with_its_default() -> None:
    listed = rows(ROOT / "docs" / "limits.md", "name", "default", "unit", "why")
    shown = [
        (name.strip("`"), math.inf if default == "inf" else ast.literal_eval(default.replace(",", "")))
        for name, default, _, _ in listed
    ]
    assert shown == [(field.name, field.default) for field in dataclasses.fields(Limits)]
    assert [type(value) for _, value in shown] == [type(field.default) for field in dataclasses.fields(Limits)]
    assert all(unit and why for _, _, unit, why in listed)


# -- server.md


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: int = 0


class Named(TypedDict):
    name: str


TYPES: dict[str, Any] = {
    "Any": Any,
    "Annotated": Annotated,
    "Color": Color,
    "Decimal": decimal.Decimal,
    "Literal": Literal,
    "Named": Named,
    "Path": pathlib.Path,
    "Pattern": re.Pattern,
    "Point": Point,
    "UUID": uuid.UUID,
    "date": datetime.date,
    "datetime": datetime.datetime,
    "time": datetime.time,
    "timedelta": datetime.timedelta,
}


async def test_the_types_table_of_server_md() -> None:
    listed = rows(ROOT / "docs" / "server.md", "type", "schema", "notes")
    assert len(listed) > 20
    for annotation, schema, _ in listed:
        server = Server("types")

        async def tool(value: Any) -> None: ...

        tool.__annotations__["value"] = eval(annotation.strip("`"), dict(TYPES))
        server.tool(tool)
        async with open_client(server) as client:
            [found] = await client.list_tools()
        expected = found.input_schema["properties"]["value"]
        if "$ref" in expected:
            expected = found.input_schema["$defs"][expected["$ref"].rpartition("/")[2]]
        assert json.loads(schema.strip("`")) == expected, annotation


def test_the_templates_table_of_server_md() -> None:
    listed = rows(ROOT / "docs" / "server.md", "template", "matches", "values")
    assert len(listed) >= 5
    for template, uri, values in listed:
        expected = {name: ast.literal_eval(value) for name, value in re.findall(r'(\w+)=(".*?"|\[.*?\])', values)}
        assert UriTemplate(template.strip("`")).match(uri.strip("`")) == expected, template


def test_server_md_names_every_member_of_a_context() -> None:
    listed = [re.findall(r"ctx\.(\w+)", row[0])[0] for row in rows(ROOT / "docs" / "server.md", "member", "is")]
    # Without what the server calls.
    assert sorted(listed) == sorted(name for name in dir(Context) if not name.startswith("_") and name != "begin")


@pytest.mark.parametrize(
    ("decorator", "options"), [("tool", ToolOptions), ("resource", ResourceOptions), ("prompt", PromptOptions)]
)
def test_server_md_names_every_option_of_a_decorator(decorator: str, options: Any) -> None:
    text = (ROOT / "docs" / "server.md").read_text()
    heading = {"tool": "Tools", "resource": "Resources and templates", "prompt": "Prompts"}[decorator]
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    for name in options.__annotations__:
        assert f"`{name}`" in section, f"server.md, {heading}: {name}"


def test_the_errors_table_names_every_error() -> None:
    listed = [row[0].strip("`") for row in rows(ROOT / "docs" / "client.md", "exception", "code", "when")]
    assert sorted(listed) == sorted(errors.__all__)
    for name, code, _ in rows(ROOT / "docs" / "client.md", "exception", "code", "when"):
        cls = getattr(errors, name.strip("`"))
        expected = str(cls.code) if issubclass(cls, errors.ProtocolError) and cls is not errors.ProtocolError else ""
        assert code == expected, name


# -- cli.md


def test_cli_md_names_every_command_and_option() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    for name in trio_mcp.cli._COMMANDS:
        command = trio_mcp.cli._Commands().get_command(None, name)  # type: ignore[arg-type]
        assert command is not None
        section = re.search(rf"^## {name}$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
        assert section is not None, f"cli.md has no section {name}"
        for param in command.params:
            for option in param.opts:
                if option.startswith("--"):
                    assert f"`{option}" in section[1], f"cli.md: {name} {option}"


def test_cli_md_lists_the_exit_statuses() -> None:
    listed = [int(row[0]) for row in rows(ROOT / "docs" / "cli.md", "status", "meaning")]
    cli = trio_mcp.cli
    assert listed == [0, cli.EXIT_TOOL_ERROR, cli.EXIT_USAGE, cli.EXIT_SERVER, cli.EXIT_INTERRUPTED]
