"""Tasks in an SQLite file: they outlive the server, and several server processes on one machine may share them.

One thread at a time writes, and everything that waits to be written goes into one transaction, so that many tasks cost one
flush to the disk. A process that owns tasks holds an exclusive lock on a small file beside the database for as long as it
lives; the system gives the lock back when the process ends, however it ends, and that is how others know.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from dataclasses import fields
from typing import Any, Final, TypeVar

import trio

from ..protocol.jsontext import dumps, loads_own
from ..protocol.tasks import Signal, Task
from ..scopes.groups import unwrapped
from .store import TaskCount, TaskStore, TaskStoreError

__all__ = ["SQLiteTaskStore"]

T = TypeVar("T")

_BATCH: Final = 256
"""Most writes in one transaction, so that the first of them does not wait long for its flush."""

_BUSY: Final = 5.0
"""Seconds that a write waits for another process to finish its own."""

_MIGRATIONS: Final[tuple[str, ...]] = (
    """
    CREATE TABLE tasks (
        id TEXT PRIMARY KEY,
        owner TEXT NOT NULL,
        principal TEXT NOT NULL,
        final INTEGER NOT NULL,
        expires REAL NOT NULL,
        row BLOB NOT NULL
    );
    CREATE INDEX tasks_by_principal ON tasks (principal, final);
    CREATE INDEX tasks_by_owner ON tasks (owner) WHERE final = 0;
    CREATE INDEX tasks_by_expiry ON tasks (expires) WHERE final = 1;
    CREATE TABLE signals (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        task TEXT NOT NULL,
        kind TEXT NOT NULL,
        payload BLOB NOT NULL
    );
    """,
)
"""What makes each version of the file out of the one before. Only ever appended to."""


_COLUMNS: Final = tuple(field.name for field in fields(Task))


class _Write:
    """A write that waits for its transaction."""

    __slots__ = ("done", "error", "fn", "value")

    def __init__(self, fn: Callable[[sqlite3.Connection], Any]) -> None:
        self.fn = fn
        self.done = trio.Event()
        self.value: Any = None
        self.error: sqlite3.Error | None = None


class SQLiteTaskStore(TaskStore):
    """Keeps tasks in a file.

    Args:
        path: The file; made when it is not there, readable by its owner only. Beside it stand files of SQLite's own, and
            one for each server process that runs.
        poll: Seconds between two looks for what other processes have changed.
    """

    def __init__(self, path: str | os.PathLike[str], *, poll: float = 0.1) -> None:
        self.path: str = os.path.abspath(os.fspath(path))
        self._poll = poll
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._pending: dict[_Write, None] = {}
        self._work = trio.lowlevel.ParkingLot()
        # A connection is used by one thread at a time.
        self._writing = trio.Lock()
        self._reading = trio.Lock()
        self._threads = trio.CapacityLimiter(2)
        self._seen = -1

    def __repr__(self) -> str:
        return f"<SQLiteTaskStore {self.path}>"

    # -- opening

    def open(self, owner: str) -> AbstractAsyncContextManager[None]:
        return self._open(owner)

    @asynccontextmanager
    async def _open(self, owner: str) -> AsyncIterator[None]:
        alive = await self._thread(self._start, owner)
        try:
            with unwrapped():
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write_loop)
                    yield
                    nursery.cancel_scope.cancel()
        finally:
            # Quick, and the last thing that happens: closing needs no thread.
            for connection in (self._writer, self._reader, alive):
                if connection is not None:
                    connection.close()
            self._writer = self._reader = None
            _unlink(self._owner_file(owner))

    def _start(self, owner: str) -> sqlite3.Connection:
        """In a thread: open the file, bring it up to date, and take the lock that says that this process is alive."""
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        self._writer = _connect(self.path)
        self._writer.execute("PRAGMA journal_mode = WAL")
        # A handle is given out for what is on the disk, not for what is about to be.
        self._writer.execute("PRAGMA synchronous = FULL")
        self._migrate(self._writer)
        self._reader = _connect(self.path)
        self._reader.execute("PRAGMA query_only = ON")
        alive = _connect(self._owner_file(owner))
        alive.execute("BEGIN EXCLUSIVE")
        return alive

    def _migrate(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        with closing(connection.execute("PRAGMA user_version")) as cursor:
            (version,) = cursor.fetchone()
        if version > len(_MIGRATIONS):
            connection.execute("ROLLBACK")
            raise TaskStoreError(
                f"{self.path} was written by a newer version of trio_mcp (format {version}; this one knows {len(_MIGRATIONS)})"
            )
        for migration in _MIGRATIONS[version:]:
            for statement in migration.split(";"):
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(_MIGRATIONS)}")
        connection.execute("COMMIT")

    def _owner_file(self, owner: str) -> str:
        return f"{self.path}-owner-{owner}"

    # -- threads

    async def _thread(self, fn: Callable[..., T], *args: Any) -> T:
        try:
            return await trio.to_thread.run_sync(fn, *args, limiter=self._threads)
        except (sqlite3.Error, OSError) as exc:
            raise self._error(exc) from exc

    def _error(self, exc: Exception) -> TaskStoreError:
        return TaskStoreError(f"tasks cannot be kept in {self.path}: {exc}")

    async def _read(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        async with self._reading:
            return await self._thread(fn, _open_one(self._reader))

    async def _write(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        write = _Write(fn)
        self._pending[write] = None
        self._work.unpark()
        try:
            await write.done.wait()
        finally:
            # Cancelled before it was begun: then it is not done at all.
            self._pending.pop(write, None)
        if write.error is not None:
            raise self._error(write.error) from write.error
        value: T = write.value
        return value

    async def _write_loop(self) -> None:
        while True:
            while not self._pending:
                await self._work.park()
            batch = list(self._pending)[:_BATCH]
            for write in batch:
                del self._pending[write]
            async with self._writing:
                await trio.to_thread.run_sync(_commit, _open_one(self._writer), batch, limiter=self._threads)
            for write in batch:
                write.done.set()

    # -- what a store does

    async def create(self, task: Task) -> None:
        row = (task.id, task.owner, task.principal, task.final, task.expires, _dump(task))
        await self._write(lambda db: db.execute("INSERT INTO tasks VALUES (?, ?, ?, ?, ?, ?)", row).close())

    async def save(self, task: Task) -> bool:
        values = (task.final, task.expires, _dump(task), task.id, task.owner)
        sql = "UPDATE tasks SET final = ?, expires = ?, row = ? WHERE id = ? AND owner = ? AND final = 0"
        return await self._write(lambda db: _changed(db, sql, values) == 1)

    async def get(self, task_id: str) -> Task | None:
        rows = await self._read(lambda db: _rows(db, "SELECT owner, row FROM tasks WHERE id = ?", (task_id,)))
        return _load(*rows[0]) if rows else None

    async def delete(self, task_id: str) -> None:
        def forget(db: sqlite3.Connection) -> None:
            _changed(db, "DELETE FROM tasks WHERE id = ?", (task_id,))
            _changed(db, "DELETE FROM signals WHERE task = ?", (task_id,))

        await self._write(forget)

    async def count(self, principal: str) -> TaskCount:
        sql = "SELECT COUNT(*) - SUM(final), COUNT(*) FROM tasks WHERE principal = ?"
        ((active, stored),) = await self._read(lambda db: _rows(db, sql, (principal,)))
        return TaskCount(active or 0, stored)

    async def expire(self, now: float) -> int:
        def forget(db: sqlite3.Connection) -> int:
            gone = _changed(db, "DELETE FROM tasks WHERE final = 1 AND expires <= ?", (now,))
            _changed(db, "DELETE FROM signals WHERE task NOT IN (SELECT id FROM tasks)", ())
            return gone

        sql = "SELECT 1 FROM tasks WHERE final = 1 AND expires <= ? LIMIT 1"
        # Most of the time there is nothing, and a look costs no flush.
        if not await self._read(lambda db: _rows(db, sql, (now,))):
            return 0
        return await self._write(forget)

    async def adopt(self, owner: str) -> list[Task]:
        sql = "SELECT DISTINCT owner FROM tasks WHERE final = 0 AND owner <> ?"
        dead = await self._read(
            lambda db: [other for (other,) in _rows(db, sql, (owner,)) if not self._is_alive(other)]
        )
        return await self._write(lambda db: self._take_over(db, dead, owner)) if dead else []

    def _take_over(self, db: sqlite3.Connection, dead: list[str], owner: str) -> list[Task]:
        out: list[Task] = []
        for other in dead:
            rows = _rows(db, "SELECT row FROM tasks WHERE owner = ? AND final = 0", (other,))
            out += [_load(owner, row) for (row,) in rows]
            _changed(db, "UPDATE tasks SET owner = ? WHERE owner = ? AND final = 0", (owner, other))
            _unlink(self._owner_file(other))
        return out

    def _is_alive(self, owner: str) -> bool:
        """Whether somebody holds the lock of an owner."""
        file = self._owner_file(owner)
        if not os.path.exists(file):
            return False
        with closing(_connect(file, 0)) as connection:
            try:
                connection.execute("BEGIN EXCLUSIVE")
            except sqlite3.OperationalError:
                return True
        return False

    async def send(self, signal: Signal) -> None:
        values = (signal.kind, dumps(signal.payload), signal.task_id)
        sql = "INSERT INTO signals (task, kind, payload) SELECT id, ?, ? FROM tasks WHERE id = ?"
        await self._write(lambda db: _changed(db, sql, values))

    async def receive(self, owner: str) -> list[Signal]:
        sql = (
            "SELECT number, task, kind, payload FROM signals JOIN tasks ON tasks.id = signals.task "
            "WHERE tasks.owner = ? ORDER BY number"
        )

        def take(db: sqlite3.Connection) -> list[Signal]:
            rows = _rows(db, sql, (owner,))
            for number, *_ in rows:
                _changed(db, "DELETE FROM signals WHERE number = ?", (number,))
            return [Signal(task, kind, loads_own(payload)) for _, task, kind, payload in rows]

        if not await self._read(lambda db: _rows(db, f"{sql} LIMIT 1", (owner,))):
            return []
        return await self._write(take)

    async def wait_change(self) -> None:
        while True:
            await trio.sleep(self._poll)
            async with self._writing:
                # Counts what other connections have committed, so the writer's own writes do not wake us.
                ((version,),) = await self._thread(_rows, _open_one(self._writer), "PRAGMA data_version", ())
            if version != self._seen:
                self._seen = version
                return


def _connect(path: str, timeout: float = _BUSY) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)


def _open_one(connection: sqlite3.Connection | None) -> sqlite3.Connection:
    if connection is None:
        raise TaskStoreError("this task store is not open")
    return connection


def _commit(db: sqlite3.Connection, batch: list[_Write]) -> None:
    """In a thread: do all of these in one transaction. One that fails leaves the others alone."""
    try:
        db.execute("BEGIN IMMEDIATE")
        for write in batch:
            db.execute("SAVEPOINT one")
            try:
                write.value = write.fn(db)
            except sqlite3.Error as exc:
                write.error = exc
                db.execute("ROLLBACK TO one")
            db.execute("RELEASE one")
        db.execute("COMMIT")
    except sqlite3.Error as exc:
        for write in batch:
            write.error = exc
        if db.in_transaction:
            db.execute("ROLLBACK")


def _rows(db: sqlite3.Connection, sql: str, values: tuple[Any, ...]) -> list[Any]:
    with closing(db.execute(sql, values)) as cursor:
        return cursor.fetchall()


def _changed(db: sqlite3.Connection, sql: str, values: tuple[Any, ...]) -> int:
    with closing(db.execute(sql, values)) as cursor:
        return cursor.rowcount


def _dump(task: Task) -> bytes:
    return dumps({name: getattr(task, name) for name in _COLUMNS})


def _load(owner: str, row: bytes) -> Task:
    return Task(**{**loads_own(row), "owner": owner})


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
