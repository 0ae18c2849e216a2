"""The command line and tasks: calls that go on, and looking after them."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from .inside import inside

SERVER = '''
from pathlib import Path

import trio
from trio_mcp import Context, Server, ToolError

server = Server("kitchen", task_inline_ms=100)
ended = []
done = Path(__file__).with_name("done")

@server.tool(task_support="optional", restartable=True)
async def cook(seconds: float, ctx: Context) -> str:
    """Cook for a while."""
    await trio.sleep(seconds)
    if seconds == 0.33:
        raise ToolError("burnt")
    return "cooked"

@server.tool(task_support="optional", task_inline_ms=0, restartable=True)
async def simmer(ctx: Context) -> str:
    """Cook until the file `done` is there."""
    try:
        await ctx.report_progress(1, 2, "[b]stirring[/b]")
        while not done.exists():
            await trio.sleep(0.01)
    except trio.Cancelled:
        ended.append("cancelled")
        raise
    return "cooked"

@server.tool
async def waste() -> list[str]:
    """What was cancelled."""
    return ended
'''


class Kitchen:
    """A server process, and the command line in an environment of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "kitchen.py"
        self.file.write_text(SERVER)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self.env = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "trio_mcp", "serve", str(self.file), "--http", f"127.0.0.1:{self.port}"]
        command += ["--tasks", str(self.folder / "tasks.db")]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        assert "serves at" in self.process.stderr.readline()

    def stop(self, how: int = signal.SIGTERM) -> None:
        self.process.send_signal(how)
        self.process.wait(20)
        assert self.process.stderr is not None
        self.process.stderr.close()

    def popen(self, *args: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "trio_mcp", *args]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.env, start_new_session=True
        )

    def run(self, *args: str) -> tuple[int, str, str]:
        """In this process: exit status, standard output, standard error."""
        return inside(*args, env=self.env)

    def detach(self) -> str:
        status, out, err = self.run("call", self.url, "simmer", "--detach")
        assert status == 0, err
        return out.strip()

    def cooked(self) -> None:
        """Let everything that simmers end."""
        (self.folder / "done").touch()

    def wait(self, what: str, count: int = 1) -> None:
        """Wait until so many tasks in the file are of that kind."""
        end = time.monotonic() + 60
        with closing(sqlite3.connect(self.folder / "tasks.db")) as connection:
            while connection.execute(f"SELECT COUNT(*) FROM tasks WHERE {what}").fetchone() != (count,):
                assert time.monotonic() < end, connection.execute("SELECT row FROM tasks").fetchall()
                time.sleep(0.01)

    def wait_stirring(self) -> None:
        """Wait until a task has stored its progress: it was handed over long ago, and its caller was told."""
        self.wait("instr(row, 'stirring') > 0")


@pytest.fixture
def kitchen(tmp_path: Path) -> Iterator[Kitchen]:
    kitchen = Kitchen(tmp_path)
    yield kitchen
    kitchen.stop()


def test_call_waits_for_a_task_as_for_any_result(kitchen: Kitchen) -> None:
    assert kitchen.run("call", kitchen.url, "cook", "seconds=0") == (0, "cooked\n", "")
    assert kitchen.run("call", kitchen.url, "cook", "seconds=0.4") == (0, "cooked\n", "")
    assert kitchen.run("call", kitchen.url, "cook", "seconds=0.33") == (1, "", "burnt\n")
    # Nothing is written down of what was waited for.
    assert not (kitchen.folder / "state").exists()


def test_detached_tasks_can_be_found_and_looked_at(kitchen: Kitchen) -> None:
    status, out, err = kitchen.run("call", kitchen.url, "simmer", "--detach")
    task = out.strip()
    assert status == 0
    assert re.fullmatch(r"[0-9a-f]{32}", task)
    assert err == f"task {task}; 'trio-mcp tasks {kitchen.url} get {task}' shows it\n"
    status, out, _ = kitchen.run("tasks", kitchen.url)
    assert re.fullmatch(rf"{task}  working +simmer.*\n", out)
    process = kitchen.popen("tasks", kitchen.url, "watch")
    assert process.stdout is not None
    assert process.stdout.readline().split()[:3] == [task, "working", "simmer"]
    kitchen.cooked()
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert out.splitlines()[-1].split() == [task, "completed", "simmer"]
    assert kitchen.run("tasks", kitchen.url, "get", task) == (0, "cooked\n", f"{task}  completed\n")
    status, out, _ = kitchen.run("tasks", kitchen.url, "get", task, "--json")
    assert json.loads(out)["result"]["content"] == [{"type": "text", "text": "cooked"}]
    assert (kitchen.folder / "state/trio-mcp/tasks.json").stat().st_mode & 0o777 == 0o600


def test_what_was_quick_is_not_detached(kitchen: Kitchen) -> None:
    assert kitchen.run("call", kitchen.url, "cook", "seconds=0", "--detach") == (0, "cooked\n", "")
    assert kitchen.run("tasks", kitchen.url)[2].startswith("no tasks of this server are known here")


def test_cancel_ends_tasks(kitchen: Kitchen) -> None:
    first, second = kitchen.detach(), kitchen.detach()
    status, out, _ = kitchen.run("tasks", kitchen.url, "cancel", first, second)
    assert (status, len(out.splitlines())) == (0, 2)
    kitchen.wait("final = 1", 2)
    status, out, _ = kitchen.run("tasks", kitchen.url, "list")
    assert [line.split()[1] for line in out.splitlines()] == ["cancelled", "cancelled"]
    assert kitchen.run("tasks", kitchen.url, "get", first)[1] == f"{first}  cancelled       Cancelled by the client\n"


def test_ctrl_c_cancels_a_call_and_leaves_a_task(kitchen: Kitchen) -> None:
    process = kitchen.popen("call", kitchen.url, "simmer")
    kitchen.wait_stirring()
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (130, "trio-mcp: interrupted; the server was told to stop 'simmer'\n")
    assert json.loads(kitchen.run("call", kitchen.url, "waste", "--json")[1])["structuredContent"] == ["cancelled"]

    process = kitchen.popen("call", kitchen.url, "simmer", "--task")
    assert process.stderr is not None
    assert process.stderr.readline().startswith("task ")
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    kitchen.wait("final = 0")
    kitchen.cooked()
    advice = re.search(r"interrupted; the task goes on: trio-mcp (tasks .* watch \S+)\n", err)
    assert advice is not None, err
    status, out, _ = kitchen.run(*advice[1].split())
    assert (status, out.splitlines()[-1].split()[1]) == (0, "completed")


def test_following_a_task_shows_its_states(kitchen: Kitchen) -> None:
    process = kitchen.popen("call", kitchen.url, "simmer", "--task")
    assert process.stderr is not None
    seen = ""
    while "working: 1 of 2: [b]stirring[/b]\n" not in seen:
        line = process.stderr.readline()
        assert line, seen
        seen += line
    kitchen.cooked()
    out, _ = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, "cooked\n")


def test_a_call_outlives_the_server(kitchen: Kitchen) -> None:
    process = kitchen.popen("call", kitchen.url, "simmer")
    kitchen.wait_stirring()
    kitchen.stop(signal.SIGKILL)
    kitchen.start()
    kitchen.cooked()
    assert (*process.communicate(timeout=40), process.returncode) == ("cooked\n", "", 0)


def test_a_terminal_gets_a_table(kitchen: Kitchen) -> None:
    task = kitchen.detach()
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "trio_mcp", "tasks", kitchen.url, "watch"]
    process = subprocess.Popen(command, stdout=slave, stderr=slave, env={**kitchen.env, "COLUMNS": "120"})
    os.close(slave)
    shown = b""
    try:
        while data := os.read(master, 65_536):
            shown += data
            if b"[b]stirring[/b]" in shown:
                kitchen.cooked()
    except OSError:
        pass  # the end of a terminal
    os.close(master)
    assert process.wait(20) == 0
    text = shown.decode()
    assert task in text
    assert "working" in text
    assert "completed" in text
    assert "[b]stirring[/b]" in text


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["fetch"], "no action named 'fetch'; did you mean 'watch'? There is: list, get, cancel, watch"),
        (["get"], "get takes one ID"),
        (["get", "a", "b"], "get takes one ID"),
        (["cancel"], "cancel takes at least one ID"),
        (["list", "a"], "list takes no ID"),
    ],
)
def test_a_mistake_is_told_without_asking_the_server(args: list[str], text: str, tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path)}
    status, out, errors = inside("tasks", "http://127.0.0.1:9/mcp", *args, env=env)
    assert (status, out) == (2, "")
    assert text in errors


def test_tasks_that_are_gone_are_crossed_out(kitchen: Kitchen) -> None:
    kitchen.detach()
    kitchen.stop(signal.SIGKILL)
    for file in kitchen.folder.glob("tasks.db*"):
        file.unlink()
    kitchen.start()
    status, out, err = kitchen.run("tasks", kitchen.url)
    assert (status, out) == (0, "")
    assert "gone: the server does not know it" in err
    assert kitchen.run("tasks", kitchen.url)[2].startswith("no tasks of this server are known here")
    status, _, err = kitchen.run("tasks", kitchen.url, "get", "nope")
    assert (status, err) == (
        3,
        'trio-mcp: Unknown task: "nope"; there is none with this id, or it has expired (code -32602)\n',
    )


@pytest.mark.parametrize("option", ["--task", "--detach"])
def test_a_server_that_ends_with_the_call_keeps_no_task(tmp_path: Path, option: str) -> None:
    file = tmp_path / "kitchen.py"
    file.write_text(SERVER)
    status, _, err = inside("call", str(file), "cook", "seconds=1", option)
    assert status == 2
    assert "--task and --detach need the URL of a server" in err


def test_a_file_that_cannot_hold_tasks_is_told(tmp_path: Path) -> None:
    file = tmp_path / "kitchen.py"
    file.write_text(SERVER)
    for path, text in (("no/such/folder/t.db", "No such file or directory"), (str(file), "not a database")):
        command = [sys.executable, "-m", "trio_mcp", "serve", str(file), "--http", "127.0.0.1:0", "--tasks", path]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert text in done.stderr
        assert "Traceback" not in done.stderr


def test_several_commands_at_once_lose_no_task(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from trio_mcp.cli.book import remember, forget\n"
        "for n in range(20):\n"
        "    remember('t', f'{sys.argv[1]}-{n}', 'x')\n"
        "    forget({f'{sys.argv[1]}-{n - 1}'} if n % 2 else set())\n"
    )
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    running = [subprocess.Popen([sys.executable, "-c", program, str(n)], env=env) for n in range(4)]
    assert [process.wait(60) for process in running] == [0] * 4
    kept = {entry[1] for entry in json.loads((tmp_path / "trio-mcp" / "tasks.json").read_text())}
    assert kept == {f"{process}-{n}" for process in range(4) for n in range(1, 20, 2)}
