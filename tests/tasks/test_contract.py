"""The stores of this project keep the contract that stores of users keep, and users can test theirs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from trio_mcp import MemoryTaskStore, SQLiteTaskStore, TaskStore
from trio_mcp.testing import SharedTaskStoreContract, TaskStoreContract


class TestMemoryTaskStore(TaskStoreContract):
    def make_store(self) -> TaskStore:
        return MemoryTaskStore()


class TestSQLiteTaskStore(SharedTaskStoreContract):
    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "tasks.db"

    def make_store(self) -> TaskStore:
        return SQLiteTaskStore(self.path, poll=0.01)


SUITE = """
from trio_mcp import MemoryTaskStore
from trio_mcp.testing import TaskStoreContract


class TestGood(TaskStoreContract):
    def make_store(self):
        return MemoryTaskStore()


class Forgetful(MemoryTaskStore):
    async def delete(self, task_id: str) -> None:
        pass


class TestForgetful(TaskStoreContract):
    def make_store(self):
        return Forgetful()
"""


def test_a_suite_of_a_user_needs_no_settings_and_shows_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "test_store.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", "-k", "deleting", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=50,
    )
    outcomes = [line.split(" - ")[0] for line in done.stdout.splitlines() if line.startswith(("PASSED", "FAILED"))]
    deleting = "test_deleting_forgets_one_task_and_may_be_repeated"
    assert sorted(outcomes) == [
        f"FAILED test_store.py::TestForgetful::{deleting}",
        f"PASSED test_store.py::TestGood::{deleting}",
    ]
    # The values, not only the line.
    assert "assert Task(" in done.stdout


def test_the_peers_for_tests_need_neither_pytest_nor_hypothesis() -> None:
    script = "import sys, trio_mcp.testing; print({'pytest', 'hypothesis'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=50, check=True)
    assert done.stdout == "set()\n"
