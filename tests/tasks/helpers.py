"""Stores in files, and other processes at them."""

from __future__ import annotations

import sqlite3
import struct
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.net.helpers import Running
from trio_mcp import SQLiteTaskStore

PROCESS = Path(__file__).parent / "process.py"


def other_process(*arguments: object) -> Running:
    """`process.py` with these arguments."""
    return Running(sys.executable, str(PROCESS), *map(str, arguments))


async def next_line(process: Running) -> str:
    line = await trio.to_thread.run_sync(process.line)
    assert line is not None, process.errors()
    return line.decode()


def tell(process: Running, text: str = "") -> None:
    assert process.process.stdin is not None
    process.process.stdin.write(text.encode() + b"\n")


async def kill(process: Running) -> None:
    process.process.kill()
    await trio.to_thread.run_sync(process.process.wait)


def query(path: Path, sql: str) -> Any:
    """The first value that a connection of its own finds, if there is one."""
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
        row = connection.execute(sql).fetchone()
        return None if row is None else row[0]


def commits(path: Path) -> int:
    """How many transactions are in the log of a database: each ends with a frame that says how large the database is then.

    See "The WAL File Format" of SQLite: a head of 32 bytes; a head of 24 bytes before each page.
    """
    data = path.with_name(f"{path.name}-wal").read_bytes()
    if not data:
        return 0
    (page,) = struct.unpack_from(">I", data, 8)
    salt = data[16:24]
    heads = (data[at : at + 24] for at in range(32, len(data), 24 + page))
    return sum(head[8:16] == salt and head[4:8] != bytes(4) for head in heads)


@asynccontextmanager
async def open_with_writer(store: SQLiteTaskStore, owner: str) -> AsyncIterator[sqlite3.Connection]:
    """Open a store; the connection that it writes with, for what SQLite tells and takes on a connection alone."""
    opened: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def kept(file: str, **options: Any) -> sqlite3.Connection:
        connection = connect(file, **options)
        if file == store.path:
            opened.append(connection)
        return connection

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", kept)
        async with store.open(owner):
            patch.undo()
            (writer,) = [one for one in opened if one.execute("PRAGMA query_only").fetchone() == (0,)]
            yield writer


def put(path: Path, text: str = "") -> None:
    path.write_text(text)


def text_of(path: Path) -> str:
    return path.read_text()


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def owner_files(path: Path) -> list[str]:
    return sorted(file.name.partition("-owner-")[2] for file in path.parent.glob(f"{path.name}-owner-*"))
