"""A server process that fails: what it says, and its status."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from .helpers import SERVERS

FILE = str(SERVERS / "failing.py")
SERVE = [sys.executable, "-m", "trio_mcp", "serve", FILE]
WAYS = {"run": [sys.executable, FILE], "stdio": SERVE, "http": [*SERVE, "--http", "127.0.0.1:0"]}


def run(command: list[str], log: Path, **env: str) -> tuple[int, str]:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "LOG": str(log), **env},
    )
    return done.returncode, done.stderr


def line_of(text: str) -> int:
    return 1 + [line.strip() for line in Path(FILE).read_text().splitlines()].index(text)


RAISE = 'raise ERROR("no database")'


@pytest.mark.parametrize("kind", ["RuntimeError", "ValueError", "MCPError"])
@pytest.mark.parametrize("way", list(WAYS))
def test_a_lifespan_that_fails_at_the_start_is_told_by_its_own_lines(way: str, kind: str, tmp_path: Path) -> None:
    status, errors = run(WAYS[way], tmp_path / "log", HOW="start", KIND=kind)
    assert status == 1
    named = "trio_mcp.errors.MCPError" if kind == "MCPError" else kind
    calls = [i + 1 for i, line in enumerate(Path(FILE).read_text().splitlines()) if line.strip() == "connect()"]
    assert errors.splitlines() == [
        f"failing: {named}: no database",
        f"  {FILE}:{calls[1]}, in life: connect()",
        f"  {FILE}:{line_of(RAISE)}, in connect: {RAISE}",
        "(the log at level debug has the whole traceback)",
    ]


@pytest.mark.parametrize("how", ["end", "middle"])
def test_a_lifespan_that_fails_later_is_told_by_its_own_lines(how: str, tmp_path: Path) -> None:
    status, errors = run(WAYS["stdio"], tmp_path / "log", HOW=how)
    assert status == 1
    assert len(errors.splitlines()) <= 12, errors
    assert "Traceback" not in errors and "site-packages" not in errors
    assert f"  {FILE}:{line_of(RAISE)}, in connect: {RAISE}" in errors
    if how == "middle":
        assert "because of RuntimeError: no database" in errors


def test_debug_shows_the_whole_traceback(tmp_path: Path) -> None:
    status, errors = run([*WAYS["stdio"], "--debug"], tmp_path / "log", HOW="start")
    assert status == 1
    assert "Traceback (most recent call last)" in errors
    assert errors.count("RuntimeError: no database") == 2


def test_an_address_that_is_taken_is_found_before_the_lifespan_begins(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        status, errors = run([*SERVE, "--http", address], log, HOW="never")
    assert (status, errors) == (1, f"failing: cannot listen on {address}: Address already in use\n")
    assert not log.exists()


def test_an_application_that_ends_the_process_is_named_in_one_line(tmp_path: Path) -> None:
    command = [*SERVE, "--http", "127.0.0.1:0", "--app", f"{FILE}:app"]
    status, errors = run(command, tmp_path / "log", HOW="never")
    assert (status, errors) == (1, "failing: the application ended the process in its lifespan (status 4)\n")


def test_what_is_no_code_of_the_users_keeps_its_traceback(tmp_path: Path) -> None:
    """A fault of this package, or of a library: nothing shorter would say where."""
    code = """
import os, trio
from trio_mcp import Server
from trio_mcp.running.process import OwnProcess, run_alone
serve = eval(compile("lambda own, begin: trio.sleep('x')", "<string>", "eval"))
raise SystemExit(run_alone(Server("s", version="1"), serve, OwnProcess))
"""
    status, errors = run([sys.executable, "-c", code], tmp_path / "log")
    assert status == 1
    assert "Traceback (most recent call last)" in errors
