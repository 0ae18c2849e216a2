"""Tasks in an SQLite file: they outlive the server, and several server processes on one machine may share them.

One thread at a time writes, and everything that waits to be written goes into one transaction, so that many tasks cost one
flush to the disk. A process that owns tasks holds an exclusive lock on a small file beside the database for as long as it
lives; the system gives the lock back when the process ends, however it ends, and that is how others know.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

import trio

from ..errors import ParseError
from ..limits import DEFAULT, Limits
from ..protocol.jsontext import dumps, loads
from ..protocol.tasks import Signal, Task
from ..scopes.groups import unwrapped
from .store import TaskCount, TaskStore, TaskStoreError

__all__ = ["SQLiteTaskStore"]

logger: logging.Logger = logging.getLogger("trio_mcp.tasks")

T = TypeVar("T")

_BATCH: Final = 256
"""Most writes in one transaction, so that the first of them does not wait long for its flush."""

_BUSY: Final = 5.0
"""Seconds that a write waits for another process to finish its own."""

_PATIENCE: Final = 2 * _BUSY
"""Seconds that the end of the store waits for a thread of its own, which waits for other processes no longer than that."""

_APPLICATION: Final = 0x4D435054
"""Says in the head of a file that it is one of ours: MCPT."""

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

_STORED: Final[Limits] = replace(DEFAULT, message_bytes=1 << 40, json_depth=1_000)
"""Bounds of what is read back: it was within those of the server when it was written."""

_making: Final = threading.Lock()


class _Write:
    """A write that waits for its transaction."""

    __slots__ = ("done", "error", "fn", "value")

    def __init__(self, fn: Callable[[sqlite3.Connection], Any]) -> None:
        self.fn = fn
        self.done = trio.Event()
        self.value: Any = None
        self.error: Exception | None = None


class SQLiteTaskStore(TaskStore):
    """Keeps tasks in a file.

    Args:
        path: The file; made when it is not there, readable by its owner only. Beside it stand files of SQLite's own, and
            one for each server process that runs.
        poll: Seconds between two looks for what other processes have changed.
    """

    def __init__(self, path: str | os.PathLike[str], *, poll: float = 0.1) -> None:
        # Whoever comes by another name of the file has to find the same files beside it.
        self.path: str = os.path.realpath(os.fspath(path))
        self._poll = poll
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._pending: dict[_Write, None] = {}
        self._work = trio.lowlevel.ParkingLot()
        # A connection is used by one thread at a time.
        self._writing = trio.Lock()
        self._reading = trio.Lock()
        self._threads = trio.CapacityLimiter(2)
        self._in_use = False
        self._seen = -1

    def __repr__(self) -> str:
        return f"<SQLiteTaskStore {self.path}>"

    # -- opening

    def open(self, owner: str) -> AbstractAsyncContextManager[None]:
        return self._open(owner)

    @asynccontextmanager
    async def _open(self, owner: str) -> AsyncIterator[None]:
        if self._in_use:
            raise TaskStoreError(f"{self!r} is open already; give each server a store of its own")
        self._in_use = True
        try:
            opened = await self._thread(self._start, owner)
            try:
                with unwrapped():
                    async with trio.open_nursery() as nursery:
                        # Whatever is cancelled inside the block may still want to write, in a shield of its own.
                        writing = trio.CancelScope(shield=True)
                        nursery.start_soon(self._write_loop, writing)
                        try:
                            yield
                        finally:
                            writing.cancel()
            finally:
                await self._close(opened)
        finally:
            self._in_use = False

    async def _close(self, opened: ExitStack) -> None:
        self._writer = self._reader = None
        for write in self._pending:
            write.error = sqlite3.ProgrammingError("the store was closed")
            write.done.set()
        # Somebody outside the block may still read in a thread, and a thread is not left behind.
        with trio.move_on_after(_PATIENCE, shield=True):
            async with self._reading, self._writing:
                # Quick, and the last thing that happens: closing needs no thread.
                opened.close()

    def _start(self, owner: str) -> ExitStack:
        """In a thread: open the file, bring it up to date, and take the lock that says that this process is alive."""
        with ExitStack() as stack:
            _make_private(self.path)
            writer = stack.enter_context(closing(_connect(self.path)))
            # Before anything is written: a file of another program stays as it is.
            self._check_ours(writer)
            _use_wal(writer)
            # A handle is given out for what is on the disk, not for what is about to be.
            writer.execute("PRAGMA synchronous = FULL")
            reader = stack.enter_context(closing(_connect(self.path)))
            reader.execute("PRAGMA query_only = ON")
            # The files of owners are made and removed by whoever holds the lock of the database, so that nobody removes one
            # that was made and is about to be locked.
            writer.execute("BEGIN IMMEDIATE")
            self._migrate(writer)
            self._tidy()
            file = self._owner_file(owner)
            stack.callback(_unlink, file)
            _make_private(file)
            alive = stack.enter_context(closing(_connect(file)))
            # The lock is all that is wanted, without one more file beside it.
            alive.execute("PRAGMA journal_mode = OFF")
            alive.execute("BEGIN EXCLUSIVE")
            writer.execute("COMMIT")
            self._writer, self._reader, self._seen = writer, reader, -1
            return stack.pop_all()

    def _check_ours(self, connection: sqlite3.Connection) -> None:
        """A file is ours that says so, that is empty, or that holds our tables alone: from before it said so."""
        ((application,),) = _rows(connection, "PRAGMA application_id", ())
        ((version,),) = _rows(connection, "PRAGMA user_version", ())
        names = {name for (name,) in _rows(connection, "SELECT name FROM sqlite_master WHERE type = 'table'", ())}
        old = version > 0 and names - {"sqlite_sequence"} == {"tasks", "signals"}
        if application != _APPLICATION and not (application == 0 and (old or (not names and version == 0))):
            raise TaskStoreError(
                f"{self.path} is the database of another program; expected one of trio_mcp, or a file that is not there yet"
            )

    def _migrate(self, connection: sqlite3.Connection) -> None:
        ((version,),) = _rows(connection, "PRAGMA user_version", ())
        if version > len(_MIGRATIONS):
            raise TaskStoreError(
                f"{self.path} was written by a newer version of trio_mcp (format {version}; this one knows {len(_MIGRATIONS)})"
            )
        for migration in _MIGRATIONS[version:]:
            for statement in migration.split(";"):
                connection.execute(statement)
        if version < len(_MIGRATIONS):
            connection.execute(f"PRAGMA user_version = {len(_MIGRATIONS)}")
        if _rows(connection, "PRAGMA application_id", ()) != [(_APPLICATION,)]:
            connection.execute(f"PRAGMA application_id = {_APPLICATION}")

    def _tidy(self) -> None:
        """Remove what processes have left that were killed and had no task to adopt."""
        folder, prefix = os.path.split(self._owner_file(""))
        for file in os.listdir(folder):
            if file.startswith(prefix) and not self._is_alive(file.removeprefix(prefix)):
                _unlink(os.path.join(folder, file))

    def _owner_file(self, owner: str) -> str:
        return f"{self.path}-owner-{owner}"

    # -- threads

    async def _thread(self, fn: Callable[..., T], *args: Any) -> T:
        try:
            return await trio.to_thread.run_sync(fn, *args, limiter=self._threads)
        except (sqlite3.Error, OSError, ParseError, ValueError) as exc:
            raise self._error(exc) from exc

    def _error(self, exc: Exception) -> TaskStoreError:
        return TaskStoreError(f"tasks cannot be kept in {self.path}: {exc}")

    async def _read(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        async with self._reading:
            return await self._thread(fn, _opened(self._reader))

    async def _write(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        _opened(self._writer)
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

    async def _write_loop(self, scope: trio.CancelScope) -> None:
        with scope:
            while True:
                while not self._pending:
                    await self._work.park()
                async with self._writing:
                    batch = list(self._pending)[:_BATCH]
                    for write in batch:
                        del self._pending[write]
                    # What was taken is done, so that nobody waits for it in vain.
                    with trio.move_on_after(_PATIENCE, shield=True):
                        await trio.to_thread.run_sync(_commit, _opened(self._writer), batch, limiter=self._threads)
                for write in batch:
                    write.done.set()

    # -- what a store does

    async def create(self, task: Task) -> None:
        row = (task.id, task.owner, task.principal, task.final, task.expires, self._dump(task))
        await self._write(lambda db: db.execute("INSERT INTO tasks VALUES (?, ?, ?, ?, ?, ?)", row).close())

    async def save(self, task: Task) -> bool:
        values = (task.principal, task.final, task.expires, self._dump(task), task.id, task.owner)
        sql = "UPDATE tasks SET principal = ?, final = ?, expires = ?, row = ? WHERE id = ? AND owner = ? AND final = 0"
        return await self._write(lambda db: _changed(db, sql, values) == 1)

    async def get(self, task_id: str) -> Task | None:
        sql = "SELECT owner, row FROM tasks WHERE id = ?"
        found = await self._read(lambda db: [_load(*row) for row in _rows(db, sql, (task_id,))])
        return found[0] if found else None

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
            sql = "SELECT id, principal, expires, row FROM tasks WHERE owner = ? AND final = 0"
            out += [self._load_left(owner, *row) for row in _rows(db, sql, (other,))]
            _changed(db, "UPDATE tasks SET owner = ? WHERE owner = ? AND final = 0", (owner, other))
            _unlink(self._owner_file(other))
        return out

    def _load_left(self, owner: str, task_id: str, principal: str, expires: float, row: bytes) -> Task:
        """A row of a process that has ended. One that cannot be read is a task of which nothing is known: its new owner can
        only end it, and the others go on."""
        try:
            return _load(owner, row)
        except (ParseError, ValueError) as exc:
            logger.error("%s", self._error(exc))
            logger.error("task %s cannot be read, and is given up", task_id)
            now = time.time()
            return Task(
                id=task_id,
                owner=owner,
                principal=principal,
                params={},
                meta={},
                created=now,
                updated=now,
                ttl=max(0.0, expires - now),
                poll_interval=DEFAULT.task_poll,
            )

    def _is_alive(self, owner: str) -> bool:
        """Whether somebody holds the lock of an owner."""
        file = self._owner_file(owner)
        # Looking takes a lock that others who look can hold as well, and makes no file where there is none any more.
        try:
            with closing(_connect(f"{Path(file).as_uri()}?mode=ro", 0, uri=True)) as connection:
                _rows(connection, "SELECT 1 FROM sqlite_master", ())
        except sqlite3.OperationalError:
            return os.path.exists(file)
        return False

    async def send(self, signal: Signal) -> None:
        values = (signal.task_id, signal.kind, self._dumps(signal.payload))
        same = "SELECT 1 FROM signals WHERE (task, kind, payload) = (?1, ?2, ?3)"
        sql = f"INSERT INTO signals (task, kind, payload) SELECT id, ?2, ?3 FROM tasks WHERE id = ?1 AND NOT EXISTS ({same})"
        await self._write(lambda db: _changed(db, sql, values))

    async def receive(self, owner: str) -> list[Signal]:
        sql = "SELECT number, task, kind, payload FROM signals JOIN tasks ON id = task WHERE owner = ? ORDER BY number"
        rows = await self._read(lambda db: _rows(db, sql, (owner,)))
        signals = [self._signal(*row) for row in rows]
        if bad := [number for (number, *_), signal in zip(rows, signals, strict=True) if signal is None]:
            await self._forget(bad)
        return [signal for signal in signals if signal is not None]

    async def acknowledge(self, signals: Sequence[Signal]) -> None:
        await self._forget([signal.number for signal in signals])

    async def _forget(self, numbers: list[int]) -> None:
        sql = "DELETE FROM signals WHERE number = ?"
        await self._write(lambda db: [_changed(db, sql, (number,)) for number in numbers])

    def _signal(self, number: int, task_id: str, kind: Any, payload: bytes) -> Signal | None:
        try:
            value = loads(payload, _STORED)
            if kind not in ("cancel", "answer") or not isinstance(value, dict):
                raise ValueError(f"not a signal: {kind!r} with {type(value).__name__}")
        except (ParseError, ValueError) as exc:
            # Left by a newer version, or damaged: the others still count.
            logger.error("a signal for task %s is ignored: %s", task_id, exc)
            return None
        return Signal(task_id, kind, value, number)

    async def wait_change(self) -> None:
        seen = self._seen
        while True:
            _opened(self._writer)
            await trio.sleep(self._poll)
            async with self._writing:
                # Counts what other connections have committed, so the writer's own writes do not wake us.
                ((version,),) = await self._thread(_rows, _opened(self._writer), "PRAGMA data_version", ())
            # By what was seen when this call began: another that waits beside it takes nothing away.
            if version != seen:
                self._seen = version
                return

    # -- rows

    def _dump(self, task: Task) -> bytes:
        return self._dumps(task.to_row())

    def _dumps(self, value: object) -> bytes:
        try:
            return dumps(value)
        except ValueError as exc:
            raise self._error(exc) from exc


def _make_private(path: str) -> None:
    """Make a file that only its owner may read, unless it is there.

    One that is there is not touched: when a process closes any descriptor of a file, it loses every lock that it has on that
    file, and another connection of this process may have some.
    """
    with _making, suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _connect(path: str, timeout: float = _BUSY, *, uri: bool = False) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False, uri=uri)


def _use_wal(db: sqlite3.Connection) -> None:
    """Readers and the writer do not wait for each other."""
    end = time.monotonic() + _BUSY
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as exc:
            # SQLite itself does not wait here when two open a new file at once.
            if exc.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(0.01)


def _opened(connection: sqlite3.Connection | None) -> sqlite3.Connection:
    if connection is None:
        raise TaskStoreError("this task store is not open")
    return connection


def _commit(db: sqlite3.Connection, batch: list[_Write]) -> None:
    """In a thread: do all of these in one transaction. One that fails leaves the others alone."""
    try:
        db.execute("BEGIN IMMEDIATE")
    except sqlite3.Error as exc:
        _fail(db, batch, exc)
        return
    try:
        for write in batch:
            _do(db, write)
        db.execute("COMMIT")
    except Exception as exc:
        _fail(db, batch, exc)
        # One asked too much of the disk and has taken all down with it; which one shows when each goes alone.
        for write in batch if len(batch) > 1 else ():
            _commit(db, [write])


def _fail(db: sqlite3.Connection, batch: list[_Write], exc: Exception) -> None:
    for write in batch:
        write.error = exc
    with suppress(sqlite3.Error):
        if db.in_transaction:
            db.execute("ROLLBACK")


def _do(db: sqlite3.Connection, write: _Write) -> None:
    write.error = None
    db.execute("SAVEPOINT one")
    try:
        write.value = write.fn(db)
    except Exception as exc:
        if not db.in_transaction:
            # SQLite takes everything back by itself where it has to, for instance when the disk is full.
            raise
        write.error = exc
        db.execute("ROLLBACK TO one")
    db.execute("RELEASE one")


def _rows(db: sqlite3.Connection, sql: str, values: tuple[Any, ...]) -> list[Any]:
    with closing(db.execute(sql, values)) as cursor:
        return cursor.fetchall()


def _changed(db: sqlite3.Connection, sql: str, values: tuple[Any, ...]) -> int:
    with closing(db.execute(sql, values)) as cursor:
        return cursor.rowcount


def _load(owner: str, row: bytes) -> Task:
    return replace(Task.from_row(loads(row, _STORED)), owner=owner)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
