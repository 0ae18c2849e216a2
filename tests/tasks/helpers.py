"""Stores in files, and other processes at them."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import trio

from tests.net.helpers import Running

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
    """The first value that a connection of its own finds."""
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
        return connection.execute(sql).fetchone()[0]


def put(path: Path, text: str = "") -> None:
    path.write_text(text)


def text_of(path: Path) -> str:
    return path.read_text()


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def owner_files(path: Path) -> list[str]:
    return sorted(file.name.partition("-owner-")[2] for file in path.parent.glob(f"{path.name}-owner-*"))
