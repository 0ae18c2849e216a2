"""The SQLite example over a real process and in memory: what it answers, what it refuses, and that a cancelled query
really stops."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio

from trio_mcp import (
    Client,
    ConnectionClosed,
    EmbeddedResource,
    InvalidParams,
    OpenServer,
    StdioCommand,
    Text,
    ToolError,
    open_client,
    open_server,
)

from .helpers import load

FOREVER = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT count(*) FROM c"

SCRIPT = """
CREATE TABLE album (id INTEGER PRIMARY KEY, title TEXT NOT NULL, year INT, cover BLOB);
CREATE VIEW old AS SELECT title FROM album WHERE year < 1980;
INSERT INTO album (title, year, cover) VALUES ('Blue', 1971, x'00ff'), ('Low', 1977, NULL), ('Vespertine', 2001, NULL);
CREATE TABLE "odd name/x?" (a);
"""


@pytest.fixture
def database(tmp_path: Path) -> Path:
    # A name that is not a URI as it stands.
    path = tmp_path / "music #1?.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(SCRIPT)
    return path


@pytest.fixture
def module() -> Any:
    return load("sqlite_explorer")


@pytest.fixture(params=["memory", "file", "command"])
def target(
    request: pytest.FixtureRequest, examples: Path, database: Path, python: str, monkeypatch: pytest.MonkeyPatch
) -> Any:
    file = examples / "sqlite_explorer.py"
    if request.param == "command":
        return StdioCommand([python, file], env={"SQLITE_EXPLORER_DB": str(database)})
    monkeypatch.setenv("SQLITE_EXPLORER_DB", str(database))
    return str(file) if request.param == "file" else request.getfixturevalue("module").server


async def ask(client: Client, sql: str, **arguments: Any) -> Any:
    result = await client.call_tool("query", {"sql": sql, **arguments}, raise_on_error=True)
    return result.structured_content


# -- answers


async def test_tables_and_their_types(target: Any) -> None:
    with trio.fail_after(20):
        async with open_client(target) as client:
            found = {table["name"]: table for table in (await client.call_tool("tables")).data}
            assert list(found) == ["album", "old", "odd name/x?"]
            assert found["album"]["columns"] == {"id": "INTEGER", "title": "TEXT", "year": "INT", "cover": "BLOB"}
            assert found["old"]["sql"] == "CREATE VIEW old AS SELECT title FROM album WHERE year < 1980"
            listed = {tool.name: tool for tool in await client.list_tools()}
            assert list(listed) == ["tables", "query"]
            assert listed["query"].annotations["readOnlyHint"] is True
            assert listed["query"].input_schema["required"] == ["sql"]
            assert listed["query"].output_schema is not None
            assert listed["query"].output_schema["required"] == ["columns", "rows", "truncated"]


async def test_queries_with_parameters(target: Any) -> None:
    with trio.fail_after(20):
        async with open_client(target) as client:
            by_place = await ask(client, "SELECT title, cover FROM album WHERE year < ?", parameters=[1975])
            assert by_place == {"columns": ["title", "cover"], "rows": [["Blue", "x'00ff'"]], "truncated": False}
            by_name = await ask(client, "SELECT title FROM album WHERE title = :t", parameters={"t": "Low"})
            assert by_name["rows"] == [["Low"]]
            types = await ask(client, "SELECT ?, ?, ?, ?, ?", parameters=[1, 1.5, "ü", None, True])
            assert types["rows"] == [[1, 1.5, "ü", None, 1]]
            large = await ask(client, "SELECT 9223372036854775807")
            assert large["rows"] == [[9223372036854775807]]


async def test_the_limit_and_what_is_cut(target: Any) -> None:
    with trio.fail_after(20):
        async with open_client(target) as client:
            two = await ask(client, "SELECT id FROM album", limit=2)
            assert (two["rows"], two["truncated"]) == ([[1], [2]], True)
            three = await ask(client, "SELECT id FROM album", limit=3)
            assert (len(three["rows"]), three["truncated"]) == (3, False)
            # The limit holds for a query without an end, too.
            endless = await ask(client, FOREVER.replace("count(*)", "x"))
            assert (len(endless["rows"]), endless["truncated"]) == (100, True)
            for limit in (0, -1, 1001):
                with pytest.raises(ToolError, match=f"limit must be from 1 to 1000, not {limit}"):
                    await ask(client, "SELECT 1", limit=limit)


async def test_values_that_json_or_a_model_cannot_hold(target: Any) -> None:
    with trio.fail_after(20):
        async with open_client(target) as client:
            [[text, blob, infinite, broken]] = (
                await ask(client, "SELECT printf('%.*c', 5000, 'a'), zeroblob(2000), -9e999, CAST(x'61ff' AS TEXT)")
            )["rows"]
            assert text == "a" * 1000 + "… (5,000 characters)"
            assert blob == f"x'{'00' * 500}…' (2,000 bytes)"
            assert infinite == "-inf"
            assert broken == "a\ufffd"
            wide = await ask(client, FOREVER.replace("count(*)", "printf('%.*c', 5000, 'a')"), limit=1000)
            assert wide["truncated"] and 150 < len(wide["rows"]) < 200
            with pytest.raises(ToolError, match="too big"):
                await ask(client, "SELECT zeroblob(900000000)")


async def test_resources_and_the_prompt(target: Any) -> None:
    with trio.fail_after(20):
        async with open_client(target) as client:
            [schema] = (await client.read_resource("sqlite://schema")).contents
            assert schema.mime_type == "application/sql"
            assert "CREATE TABLE album" in schema.text and "CREATE VIEW old" in schema.text
            [album] = (await client.read_resource("sqlite://tables/album")).contents
            assert album.mime_type == "application/json" and '"title":"TEXT"' in album.text
            odd = await client.read_resource("sqlite://tables/odd%20name%2Fx%3F")
            assert '"odd name/x?"' in odd.text
            with pytest.raises(InvalidParams) as info:
                await client.read_resource("sqlite://tables/no%2Fne")
            assert info.value.data == {"uri": "sqlite://tables/no%2Fne"}
            words, attached = (
                message.content for message in (await client.get_prompt("ask", {"question": "How many?"})).messages
            )
            assert isinstance(words, Text) and words.text.endswith("How many?")
            assert isinstance(attached, EmbeddedResource) and attached.resource.data == schema.data


# -- refusals


def titles(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [title for (title,) in connection.execute("SELECT title FROM album ORDER BY id")]


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO album (title) VALUES ('x')",
        "DROP TABLE album",
        "CREATE TEMP TABLE t (a)",
        "PRAGMA user_version = 7",
    ],
)
async def test_writes_are_refused(target: Any, database: Path, sql: str) -> None:
    with trio.fail_after(20):
        async with open_client(target) as client:
            with pytest.raises(ToolError, match="This database is read-only: only queries are possible"):
                await ask(client, sql)
            # Switched off by a clever caller, the file is still opened for reading only, and the next call starts anew.
            await ask(client, "PRAGMA query_only = OFF")
            with pytest.raises(ToolError, match="read-only"):
                await ask(client, sql)
    assert titles(database) == ["Blue", "Low", "Vespertine"]


async def test_other_files_are_out_of_reach(target: Any, tmp_path: Path) -> None:
    with trio.fail_after(20):
        async with open_client(target) as client:
            for sql in (f"ATTACH '{tmp_path}/other.db' AS other", f"VACUUM INTO '{tmp_path}/copy.db'"):
                with pytest.raises(ToolError, match="too many attached databases"):
                    await ask(client, sql)
            with pytest.raises(ToolError, match=r"not authorized|no such function"):
                await ask(client, "SELECT load_extension('x')")
    assert not (tmp_path / "other.db").exists() and not (tmp_path / "copy.db").exists()


@pytest.mark.parametrize(
    ("sql", "arguments", "problem"),
    [
        ("SELEC 1", {}, 'near "SELEC": syntax error'),
        ("SELECT * FROM albums", {}, "no such table: albums"),
        ("SELECT 1; SELECT 2", {}, "one statement at a time"),
        ("SELECT ?", {"parameters": []}, "Incorrect number of bindings"),
        ("SELECT :a", {"parameters": {"b": 1}}, "binding"),
        ("SELECT ?", {"parameters": [2**64]}, "too large"),
        ("SELECT ?", {"parameters": [[1]]}, "parameters"),
        ("SELECT abs(-9223372036854775807 - 1)", {}, "integer overflow"),
    ],
)
async def test_bad_sql_is_explained(target: Any, sql: str, arguments: dict[str, Any], problem: str) -> None:
    with trio.fail_after(20):
        async with open_client(target) as client:
            with pytest.raises(ToolError, match=problem) as info:
                await ask(client, sql, **arguments)
            assert "Internal error" not in str(info.value)


@pytest.mark.parametrize("kind", ["unset", "missing", "other"])
async def test_a_wrong_setting_ends_the_server_with_the_reason(
    kind: str, examples: Path, tmp_path: Path, python: str
) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("This is not a database, whatever its name may be. " * 20)
    value, problem = {
        "unset": ("", "SQLITE_EXPLORER_DB is not set"),
        "missing": (str(tmp_path / "none.db"), "unable to open database file"),
        "other": (str(other), "file is not a database"),
    }[kind]
    command = StdioCommand([python, examples / "sqlite_explorer.py"], env={"SQLITE_EXPLORER_DB": value})
    with trio.fail_after(20), pytest.raises(ConnectionClosed, match=problem) as info:
        async with open_client(command):
            pass
    assert info.value.exit_status == 1
    assert not (tmp_path / "none.db").exists()


# -- cancelling


async def test_cancelling_interrupts_the_sql_in_another_process(examples: Path, database: Path, python: str) -> None:
    lines: list[str] = []
    # The server's own command, behind a line that tells its process id.
    command = StdioCommand(
        [
            "sh",
            "-c",
            'echo "pid $$" >&2; exec "$@"',
            "sh",
            python,
            "-m",
            "trio_mcp",
            "serve",
            examples / "sqlite_explorer.py",
        ],
        env={"SQLITE_EXPLORER_DB": str(database)},
        on_stderr=lines.append,
    )
    with trio.fail_after(55):
        async with open_client(command) as client:
            pid = next(int(line.split()[1]) for line in lines if line.startswith("pid "))
            heard: list[str | None] = []
            with trio.CancelScope() as scope:

                async def on_progress(progress: float, total: float | None, message: str | None) -> None:
                    heard.append(message)
                    if len(heard) == 2:
                        # It is the query that takes the processor: an amount of it and no share, for others want it too.
                        enough = cpu_seconds(pid) + 0.1
                        while cpu_seconds(pid) < enough:
                            await trio.sleep(0.02)
                        scope.cancel()

                await client.call_tool("query", {"sql": FOREVER}, on_progress=on_progress)
            assert scope.cancelled_caught
            assert heard[0] == "5,000,000 steps"
            with trio.fail_after(20):
                assert (await ask(client, "SELECT count(*) FROM album"))["rows"] == [[3]]
                # The thread has ended, not only its request: nothing uses the processor any more.
                while await cpu_seconds_within(pid, 0.3) > 0.05:
                    pass
    assert [line for line in lines if not line.startswith("pid ")] == []


async def cpu_seconds_within(pid: int, seconds: float) -> float:
    before = cpu_seconds(pid)
    await trio.sleep(seconds)
    return cpu_seconds(pid) - before


def cpu_seconds(pid: int) -> float:
    if sys.platform == "linux":
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    # [[days-]hours:]minutes:seconds
    text = subprocess.run(["ps", "-o", "cputime=", "-p", str(pid)], capture_output=True, text=True, check=True).stdout
    total = 0.0
    for part in text.strip().replace("-", ":").split(":"):
        total = total * 60 + float(part)
    return total


@pytest.mark.parametrize("progress", [True, False])
async def test_cancelling_gives_the_thread_back(
    module: Any, database: Path, monkeypatch: pytest.MonkeyPatch, progress: bool
) -> None:
    monkeypatch.setenv("SQLITE_EXPLORER_DB", str(database))
    with trio.fail_after(20):
        async with open_server(module.server) as running, open_client(running) as client:
            with trio.CancelScope() as scope:
                if progress:
                    await client.call_tool("query", {"sql": FOREVER}, on_progress=lambda *_: scope.cancel())
                else:
                    scope.deadline = trio.current_time() + 0.3
                    await client.call_tool("query", {"sql": FOREVER})
            assert scope.cancelled_caught
            with trio.fail_after(20):
                await threads_free(running)
            assert (await ask(client, "SELECT 1"))["rows"] == [[1]]


async def threads_free(running: OpenServer) -> None:
    """A thread counts until its function returns, whatever became of the call."""
    while running.threads.borrowed_tokens:
        await trio.sleep(0.01)
