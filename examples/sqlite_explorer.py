"""Read-only questions to any SQLite file.

export SQLITE_EXPLORER_DB=music.db
trio-mcp call examples/sqlite_explorer.py tables
trio-mcp call examples/sqlite_explorer.py query sql='SELECT * FROM album WHERE year > ?' parameters='[1970]'

SQLite blocks, so every function here is a plain `def`: each call runs in a thread, with a connection of its own. Nobody
can stop a thread from outside. SQLite asks a progress handler every so many steps, and that one asks `ctx`: so a query
that would run for an hour ends a few milliseconds after its caller went away.
"""

import itertools
import math
import os
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import trio

from trio_mcp import Context, EmbeddedResource, MCPError, ResourceContents, ResourceNotFound, Server, Text, ToolError

STEPS_PER_TICK = 200_000  # steps of SQLite's machine between two looks at the caller: a few milliseconds
TICKS_PER_REPORT = 25
MAX_ROWS = 1_000
MAX_CELL = 1_000  # characters of one value
MAX_RESULT = 200_000  # characters of one result: what a model can still read

Value = str | int | float | bool | None
Cell = str | int | float | None


@dataclass
class Rows:
    """What a query found. `truncated` says that there is more."""

    columns: list[str]
    rows: list[list[Cell]]
    truncated: bool


@dataclass
class Table:
    """A table or a view: its columns with their types, and the SQL that made it."""

    name: str
    columns: dict[str, str]
    sql: str


@asynccontextmanager
async def database(server: Server[Path]) -> AsyncIterator[Path]:
    """Find the database once, before the first request: a wrong setting is an error at the start, not in each call."""
    name = os.environ.get("SQLITE_EXPLORER_DB")
    if not name:
        raise MCPError("SQLITE_EXPLORER_DB is not set; it names the database file")
    try:
        path = await trio.to_thread.run_sync(find, name)
    except sqlite3.Error as exc:
        raise MCPError(f"SQLITE_EXPLORER_DB: cannot read {name!r}: {exc}") from None
    yield path


server = Server(
    "sqlite-explorer",
    version="1.0",
    instructions="Answers SQL queries over one SQLite database. Nothing can be changed. Read sqlite://schema first.",
    lifespan=database,
)


def open_readonly(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=1)
    connection.execute("PRAGMA query_only = ON")
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)  # ATTACH and VACUUM INTO would reach other files
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 64_000_000)  # bytes of one value
    connection.text_factory = lambda raw: raw.decode(errors="replace")
    return connection


def find(name: str) -> Path:
    path = Path(name).resolve()
    with closing(open_readonly(path)) as connection:
        connection.execute("SELECT count(*) FROM sqlite_schema")
    return path


@contextmanager
def connect(ctx: Context[Path]) -> Iterator[sqlite3.Connection]:
    """A connection for one call. Its SQL reports progress, and stops when the call is cancelled."""
    ticks = itertools.count(1)

    def tick() -> None:
        ctx.check_cancelled()  # what it raises makes SQLite interrupt the statement
        count = next(ticks)
        if ctx.wants_progress and count % TICKS_PER_REPORT == 0:
            steps = count * STEPS_PER_TICK
            trio.from_thread.run(ctx.report_progress, steps, None, f"{steps:,} steps")

    with closing(open_readonly(ctx.lifespan)) as connection:
        connection.set_progress_handler(tick, STEPS_PER_TICK)
        try:
            yield connection
        except (sqlite3.Error, sqlite3.Warning, OverflowError) as exc:
            ctx.check_cancelled()  # "interrupted" is how SQLite puts it; the call itself ends as cancelled
            code = getattr(exc, "sqlite_errorcode", None)
            if code is not None and code & 0xFF == sqlite3.SQLITE_READONLY:
                raise ToolError(f"This database is read-only: only queries are possible ({exc})") from None
            raise ToolError(f"SQLite says: {exc}") from None


def cell(value: bytes | Cell) -> Cell:
    """A value as JSON can hold it and a model can read it."""
    if isinstance(value, bytes):
        cut = f"…' ({len(value):,} bytes)" if len(value) * 2 > MAX_CELL else "'"
        return f"x'{value[: MAX_CELL // 2].hex()}{cut}"
    if isinstance(value, str) and len(value) > MAX_CELL:
        return f"{value[:MAX_CELL]}… ({len(value):,} characters)"
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def describe(connection: sqlite3.Connection) -> list[Table]:
    made = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type IN ('table', 'view') AND sql IS NOT NULL")
    columns = "SELECT name, type FROM pragma_table_info(?)"
    return [Table(name, dict(connection.execute(columns, [name])), sql) for name, sql in made.fetchall()]


@server.tool(annotations={"readOnlyHint": True, "openWorldHint": False})
def tables(ctx: Context[Path]) -> list[Table]:
    """The tables and views of the database."""
    with connect(ctx) as connection:
        return describe(connection)


@server.tool(annotations={"readOnlyHint": True, "openWorldHint": False})
def query(
    sql: str, ctx: Context[Path], parameters: list[Value] | dict[str, Value] | None = None, limit: int = 100
) -> Rows:
    """Run one SQL query. Blobs come as x'…'; long values are cut, with their length behind them.

    Args:
        sql: One statement that reads: SELECT, WITH, VALUES, EXPLAIN or a PRAGMA.
        parameters: Values for ?, as a list, or for :name, as an object.
        limit: The most rows to return, up to 1000.
    """
    if not 1 <= limit <= MAX_ROWS:
        raise ToolError(f"limit must be from 1 to {MAX_ROWS}, not {limit}")
    rows: list[list[Cell]] = []
    with connect(ctx) as connection, closing(connection.execute(sql, parameters or ())) as cursor:
        columns = [item[0] for item in cursor.description or ()]
        size = 0
        for row in cursor:
            rows.append([cell(value) for value in row])
            size += sum(len(str(value)) for value in rows[-1])
            if len(rows) > limit or size > MAX_RESULT:
                return Rows(columns, rows[:-1], truncated=True)
    return Rows(columns, rows, truncated=False)


@server.resource("sqlite://schema", mime_type="application/sql")
def schema(ctx: Context[Path]) -> str:
    """The SQL that made the database."""
    with connect(ctx) as connection:
        found = connection.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid")
        return "\n".join(f"{sql};" for (sql,) in found)


@server.resource("sqlite://tables/{table}")
def table_schema(table: str, ctx: Context[Path]) -> Table:
    """One table or view."""
    with connect(ctx) as connection:
        for found in describe(connection):
            if found.name == table:
                return found
    raise ResourceNotFound(f"sqlite://tables/{quote(table, safe='')}")


@server.prompt
def ask(question: str, ctx: Context[Path]) -> list[Text | EmbeddedResource]:
    """Ask a question about the data, in plain words.

    Args:
        question: What you want to know.
    """
    return [
        Text(f"Answer from the database, with the tool 'query'; show the SQL that you used. The question: {question}"),
        EmbeddedResource(ResourceContents(schema(ctx), "sqlite://schema", "application/sql")),
    ]


if __name__ == "__main__":
    server.run()
