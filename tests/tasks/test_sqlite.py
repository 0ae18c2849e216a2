"""The file of tasks: who may read it, what it costs to write, and what happens when it cannot be used."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from tests.tasks.helpers import commits, mode, open_with_writer, owner_files, put, query, text_of
from trio_mcp import Signal, SQLiteTaskStore, Task, TaskStoreError
from trio_mcp.testing.task_rows import assert_usable, make_task


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another connection writes."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


async def create_all(store: SQLiteTaskStore, owner: str, count: int) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(store.create, make_task(owner))


def content(path: Path) -> bytes:
    return path.read_bytes()


async def assert_unusable(store: SQLiteTaskStore, text: str) -> None:
    """It cannot be opened, for this reason, and nothing is left of the attempt."""
    with pytest.raises(TaskStoreError, match=re.escape(text)):
        async with store.open("me"):
            raise AssertionError("opened")
    with trio.fail_after(20), pytest.raises(TaskStoreError, match="not open"):
        await store.create(make_task("me"))


# -- the files


async def test_only_the_owner_of_the_files_may_read_them(path: Path) -> None:
    before = os.umask(0)
    try:
        async with SQLiteTaskStore(path).open("me"):
            modes = {file.name: mode(file) for file in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(["tasks.db", "tasks.db-wal", "tasks.db-shm", "tasks.db-owner-me"], 0o600)
    assert [file.name for file in path.parent.iterdir()] == ["tasks.db"]


async def test_what_is_acknowledged_is_on_the_disk_and_readers_do_not_wait(path: Path) -> None:
    async with open_with_writer(SQLiteTaskStore(path), "me") as writer:
        assert query(path, "PRAGMA journal_mode") == "wal"
        full = 2
        assert writer.execute("PRAGMA synchronous").fetchone() == (full,)


async def test_many_writes_at_once_cost_few_commits(path: Path) -> None:
    store = SQLiteTaskStore(path)
    async with store.open("me"):
        before = commits(path)
        await create_all(store, "me", 600)
        assert query(path, "SELECT COUNT(*) FROM tasks") == 600
        # At most 256 in one; the first may go alone.
        assert 3 <= commits(path) - before <= 5


async def test_looking_costs_no_commit(path: Path) -> None:
    store = SQLiteTaskStore(path)
    async with store.open("me"):
        await store.create(task := make_task("me"))
        before = commits(path)
        with locked(path):
            # Nor does it wait for the lock of who writes.
            await store.get(task.id)
            await store.count(task.principal)
            assert await store.expire(task.expires + 1) == 0
            assert await store.adopt("me") == []
            assert await store.receive("me") == []
        assert commits(path) == before > 0


@pytest.mark.parametrize("name", ["a b.db", "100%?mode=ro#x&y.db", "ö\udcff.db", "[t]*.db", "file:t.db"])
async def test_the_file_may_have_any_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    one, other = SQLiteTaskStore(path), SQLiteTaskStore(path)
    (tmp_path / f"{name}-owner-dead").touch()
    async with other.open("other"):
        assert owner_names(tmp_path, name) == {"other"}
        async with one.open("one"):
            await one.create(task := make_task("one"))
            assert await other.adopt("other") == []
            assert owner_names(tmp_path, name) == {"one", "other"}
        assert await other.adopt("other") == [replace(task, owner="other")]
    assert os.listdir(tmp_path) == [name]


def owner_names(folder: Path, name: str) -> set[str]:
    prefix = f"{name}-owner-"
    return {file.removeprefix(prefix) for file in os.listdir(folder) if file.startswith(prefix)}


async def test_a_file_with_two_names_is_one_store(path: Path) -> None:
    link = path.parent / "elsewhere" / "link.db"
    link.parent.mkdir()
    link.symlink_to(path)
    one, other = SQLiteTaskStore(link), SQLiteTaskStore(path)
    async with one.open("one"), other.open("other"):
        await one.create(task := make_task("one"))
        assert await other.adopt("other") == []
        assert await one.save(replace(task, status="completed")) is True
    assert mode(path) == 0o600


async def test_files_of_owners_that_are_gone_are_removed_and_others_are_not(path: Path) -> None:
    for name in ("dead", "gone"):
        (path.parent / f"tasks.db-owner-{name}").touch()
    for name in ("tasks.db-owner", "other.db-owner-dead", "x-tasks.db-owner-dead"):
        (path.parent / name).touch()
    async with SQLiteTaskStore(path).open("one"), SQLiteTaskStore(path).open("two"):
        assert owner_files(path) == ["one", "two"]
    assert owner_files(path) == []
    assert sorted(os.listdir(path.parent)) == [
        "other.db-owner-dead",
        "tasks.db",
        "tasks.db-owner",
        "x-tasks.db-owner-dead",
    ]


async def test_looking_for_an_owner_makes_no_file_and_disturbs_nobody_who_looks_as_well(path: Path) -> None:
    one, other = SQLiteTaskStore(path), SQLiteTaskStore(path)
    async with one.open("one"), other.open("other"):
        await one.create(nobodys := make_task("nobody"))
        await other.create(make_task("other"))
        assert await one.adopt("one") == [replace(nobodys, owner="one")]
        assert owner_files(path) == ["one", "other"]
        await one.create(task := make_task("dead"))
        file = path.parent / "tasks.db-owner-dead"
        put(file)
        with closing(sqlite3.connect(file, isolation_level=None)) as looking:
            looking.execute("BEGIN")
            looking.execute("SELECT 1 FROM sqlite_master").fetchall()
            assert await one.adopt("one") == [replace(task, owner="one")]
        assert owner_files(path) == ["one", "other"]


# -- formats


@pytest.mark.parametrize("there", ["nothing", "an empty file", "an empty database"])
async def test_a_new_file_is_brought_up_to_date_once(path: Path, there: str) -> None:
    if there != "nothing":
        put(path)
    if there == "an empty database":
        query(path, "PRAGMA journal_mode = WAL")
    store = SQLiteTaskStore(path)
    task = make_task("me")
    async with store.open("me"):
        await store.create(task)
    assert query(path, "PRAGMA user_version") == 1
    async with store.open("heir"):
        before = commits(path)
        assert await store.get(task.id) == task
        assert commits(path) == before
    assert query(path, "PRAGMA user_version") == 1


async def test_the_file_of_a_newer_version_is_refused_and_left_as_it_is(path: Path) -> None:
    async with SQLiteTaskStore(path).open("me"):
        pass
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 7")
    store = SQLiteTaskStore(path)
    await assert_unusable(store, f"{path} was written by a newer version of trio_mcp (format 7; this one knows 1)")
    assert query(path, "PRAGMA user_version") == 7
    # Only the last connection to a file can switch that off: nothing is left open.
    assert query(path, "PRAGMA journal_mode = DELETE") == "delete"
    assert owner_files(path) == []


@pytest.mark.parametrize("version", [0, 1, 5])
@pytest.mark.parametrize("application", [0, 77])
@pytest.mark.parametrize("table", ["customers", "tasks", None])
async def test_the_database_of_another_program_is_refused_and_left_as_it_is(
    path: Path, table: str | None, application: int, version: int
) -> None:
    with closing(sqlite3.connect(path)) as connection:
        if table is not None:
            connection.execute(f"CREATE TABLE {table} (a)")
        elif (application, version) == (0, 0):
            # That is a file like an empty one.
            return
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute(f"PRAGMA application_id = {application}")
    before = content(path)
    await assert_unusable(SQLiteTaskStore(path), f"{path} is the database of another program")
    assert content(path) == before
    assert os.listdir(path.parent) == ["tasks.db"]


async def test_a_file_of_ours_from_before_it_said_so_is_taken(path: Path) -> None:
    store = SQLiteTaskStore(path)
    async with store.open("me"):
        await store.create(task := make_task("me"))
    said = query(path, "PRAGMA application_id")
    assert said
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA application_id = 0")
    async with store.open("heir"):
        assert await store.get(task.id) == task
    assert query(path, "PRAGMA application_id") == said


# -- what cannot be used


async def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(path: Path) -> None:
    text = "my notes\n" * 500
    put(path, text)
    await assert_unusable(SQLiteTaskStore(path), f"tasks cannot be kept in {path}: file is not a database")
    assert text_of(path) == text
    assert os.listdir(path.parent) == ["tasks.db"]


async def test_a_folder_that_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "tasks.db"
    store = SQLiteTaskStore(path)
    await assert_unusable(store, f"tasks cannot be kept in {path}: [Errno 2] No such file or directory")
    path.parent.mkdir()
    async with store.open("me"):
        await assert_usable(store, "me")


@pytest.mark.parametrize("name", ["tasks.db", "tasks.db-wal", "tasks.db-owner-me"])
async def test_a_folder_in_the_place_of_a_file(path: Path, name: str) -> None:
    (path.parent / name).mkdir()
    store = SQLiteTaskStore(path)
    await assert_unusable(store, f"tasks cannot be kept in {path}: ")
    (path.parent / name).rmdir()
    async with store.open("me"):
        await assert_usable(store, "me")


@contextmanager
def read_only_folder() -> Iterator[Path]:
    """A folder in which this process may not write, also when root runs it."""
    folder = Path(tempfile.mkdtemp()).resolve()
    folder.chmod(0o555)
    root = os.geteuid() == 0
    try:
        if root:
            os.seteuid(65534)
        yield folder
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o755)
        shutil.rmtree(folder)


async def test_a_folder_that_is_read_only() -> None:
    with read_only_folder() as folder:
        path = folder / "tasks.db"
        await assert_unusable(SQLiteTaskStore(path), f"tasks cannot be kept in {path}: [Errno 13] Permission denied")
        assert os.listdir(folder) == []


async def test_a_store_that_is_open_is_not_opened_again(path: Path) -> None:
    store = SQLiteTaskStore(path)
    async with store.open("me"):
        with pytest.raises(TaskStoreError, match="is open already; give each server a store of its own"):
            async with store.open("other"):
                raise AssertionError("opened")
        await assert_usable(store, "me")
        assert owner_files(path) == ["me"]
    async with store.open("heir"):
        await assert_usable(store, "heir")


def test_a_store_may_be_used_in_one_run_after_another(path: Path) -> None:
    store = SQLiteTaskStore(path)

    async def use(owner: str) -> None:
        async with store.open(owner):
            await assert_usable(store, owner)

    trio.run(use, "first")
    trio.run(use, "second")


# -- writes that fail


async def test_a_write_that_fails_leaves_the_others_of_its_transaction_alone(path: Path) -> None:
    store = SQLiteTaskStore(path)
    async with store.open("me"):
        await store.create(known := make_task("me"))
        failed: list[int] = []
        tasks = [known if number % 10 == 5 else make_task("me") for number in range(60)]

        async def create(number: int) -> None:
            try:
                await store.create(tasks[number])
            except TaskStoreError as exc:
                assert "UNIQUE constraint failed" in str(exc)
                failed.append(number)

        before = commits(path)
        async with trio.open_nursery() as nursery:
            for number in range(60):
                nursery.start_soon(create, number)
        assert sorted(failed) == [5, 15, 25, 35, 45, 55]
        assert 1 <= commits(path) - before <= 3
        for task in tasks:
            assert await store.get(task.id) == task


async def test_a_full_disk_fails_what_needs_room_and_not_the_store(path: Path) -> None:
    store = SQLiteTaskStore(path)
    errors: list[str] = []

    async def fails(task: Task) -> None:
        with pytest.raises(TaskStoreError) as caught:
            await store.create(task)
        errors.append(str(caught.value))

    async with open_with_writer(store, "me") as writer:
        await store.create(known := make_task("me"))
        await store.create(gone := make_task("me"))
        pages = query(path, "PRAGMA page_count")
        writer.execute(f"PRAGMA max_page_count = {pages + 4}")
        large = [make_task("me", params={"x": "y" * 100_000}) for _ in range(3)]
        small = make_task("me")
        # All of these are in one transaction; SQLite takes all of it back when the disk is full.
        async with trio.open_nursery() as nursery:
            for task in large:
                nursery.start_soon(fails, task)
            nursery.start_soon(store.create, small)
            nursery.start_soon(store.delete, gone.id)
            nursery.start_soon(fails, known)
        assert sorted(errors) == sorted(
            f"tasks cannot be kept in {path}: {why}"
            for why in (*["database or disk is full"] * 3, "UNIQUE constraint failed: tasks.id")
        )
        assert [await store.get(task.id) for task in (*large, gone)] == [None] * 4
        assert [await store.get(task.id) for task in (known, small)] == [known, small]
        assert await store.count(large[0].principal) == (0, 0)
        writer.execute(f"PRAGMA max_page_count = {pages + 1000}")
        await store.create(large[0])
        assert await store.get(large[0].id) == large[0]
    assert query(path, "PRAGMA integrity_check") == "ok"


BROKEN: dict[str, bytes] = {
    "no JSON": b"\x00",
    "cut": b'{"id": "x", "params": {',
    "an array": b"[1]",
    "empty": b"{}",
    "a field of another kind": b'{"id":"x","owner":"dead","principal":"p","params":1,"meta":{},"created":1,"updated":1,'
    b'"ttl":1,"poll_interval":1}',
    "a status that is unknown": b'{"id":"x","owner":"dead","principal":"p","params":{},"meta":{},"created":1,"updated":1,'
    b'"ttl":1,"poll_interval":1,"status":"resting"}',
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
async def test_a_row_that_cannot_be_read_costs_itself_alone(
    path: Path, text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    store = SQLiteTaskStore(path)
    async with store.open("dead"):
        await store.create(before := make_task("dead"))
        await store.create(broken := make_task("dead"))
        await store.create(after := make_task("dead"))
        await store.send(Signal(broken.id, "answer", {"x": 1}))
    async with store.open("me"):
        query(path, f"UPDATE tasks SET row = x'{text.hex()}' WHERE id = '{broken.id}' RETURNING 1")
        with pytest.raises(TaskStoreError, match=f"tasks cannot be kept in {path}"):
            await store.get(broken.id)
        adopted = {task.id: task for task in await store.adopt("me")}
        assert adopted[before.id] == replace(before, owner="me")
        assert adopted[after.id] == replace(after, owner="me")
        left = adopted[broken.id]
        assert (left.owner, left.principal, left.params, left.final) == ("me", broken.principal, {}, False)
        assert f"task {broken.id} cannot be read" in caplog.text
        assert await store.save(replace(left, status="failed"))
        assert (await store.get(broken.id)) == replace(left, status="failed")
        await assert_usable(store, "me")


async def test_what_a_newer_version_has_written_is_kept(path: Path) -> None:
    store = SQLiteTaskStore(path)
    async with store.open("dead"):
        await store.create(task := make_task("dead"))
    row = json.loads(query(path, "SELECT row FROM tasks"))
    text = json.dumps({**row, "priority": {"level": 3}, "later": None}).encode().hex()
    query(path, f"UPDATE tasks SET row = x'{text}' RETURNING 1")
    async with store.open("me"):
        (left,) = await store.adopt("me")
        assert left == replace(task, owner="me", unknown={"priority": {"level": 3}, "later": None})
        assert await store.save(replace(left, message="half"))
    stored = json.loads(query(path, "SELECT row FROM tasks"))
    assert (stored["priority"], stored["later"], stored["message"]) == ({"level": 3}, None, "half")
    assert "unknown" not in stored


async def test_what_a_row_does_not_have_is_as_it_was_before_there_was_such_a_thing(path: Path) -> None:
    store = SQLiteTaskStore(path)
    async with store.open("me"):
        await store.create(task := make_task("me"))
        row = json.loads(query(path, "SELECT row FROM tasks"))
        for name in ("recorded", "attempts", "restartable", "requests"):
            del row[name]
        query(path, f"UPDATE tasks SET row = x'{json.dumps(row).encode().hex()}' RETURNING 1")
        assert await store.get(task.id) == replace(task, recorded={}, attempts=1, restartable=False, requests={})


@pytest.mark.parametrize(("kind", "payload"), [("answer", b"{"), ("answer", b"[]"), ("pause", b"{}")])
async def test_a_signal_that_cannot_be_read_keeps_no_other_back(path: Path, kind: str, payload: bytes) -> None:
    store = SQLiteTaskStore(path)
    async with store.open("me"):
        await store.create(task := make_task("me"))
        query(
            path,
            f"INSERT INTO signals (task, kind, payload) VALUES ('{task.id}', '{kind}', x'{payload.hex()}') RETURNING 1",
        )
        await store.send(Signal(task.id, "cancel"))
        assert await store.receive("me") == [Signal(task.id, "cancel")]
        assert query(path, "SELECT COUNT(*) FROM signals") == 1


@pytest.mark.parametrize("value", [{1}, float, "\ud800", 10**1001])
async def test_what_is_no_json_is_refused(path: Path, value: object) -> None:
    store = SQLiteTaskStore(path)
    async with store.open("me"):
        with pytest.raises(TaskStoreError, match=re.escape(f"tasks cannot be kept in {path}: $.params.x: ")):
            await store.create(make_task("me", params={"x": value}))
        await assert_usable(store, "me")
