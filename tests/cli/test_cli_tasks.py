"""The command line and tasks: calls that go on, and looking after them."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

SERVER = '''
import trio
from trio_mcp import Context, Server, ToolError

server = Server("kitchen", task_inline_ms=100)
ended = []

@server.tool(task_support="optional", restartable=True)
async def cook(seconds: float, ctx: Context) -> str:
    """Cook for a while."""
    try:
        await trio.sleep(seconds / 2)
        await ctx.report_progress(1, 2, "[b]stirring[/b]")
        await trio.sleep(seconds / 2)
    except trio.Cancelled:
        ended.append("cancelled")
        raise
    if seconds == 0.33:
        raise ToolError("burnt")
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
        """Exit status, standard output, standard error."""
        process = self.popen(*args)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def detach(self, seconds: float) -> str:
        status, out, err = self.run("call", self.url, "cook", f"seconds={seconds}", "--detach")
        assert status == 0, err
        return out.strip()


@pytest.fixture
def kitchen(tmp_path: Path) -> Iterator[Kitchen]:
    kitchen = Kitchen(tmp_path)
    yield kitchen
    kitchen.stop()


def test_call_waits_for_a_task_as_for_any_result(kitchen: Kitchen) -> None:
    assert kitchen.run("call", kitchen.url, "cook", "seconds=0") == (0, "cooked\n", "")
    assert kitchen.run("call", kitchen.url, "cook", "seconds=1") == (0, "cooked\n", "")
    assert kitchen.run("call", kitchen.url, "cook", "seconds=0.33") == (1, "", "burnt\n")
    # Nothing is written down of what was waited for.
    assert not (kitchen.folder / "state").exists()


def test_detached_tasks_can_be_found_and_looked_at(kitchen: Kitchen) -> None:
    status, out, err = kitchen.run("call", kitchen.url, "cook", "seconds=6", "--detach")
    task = out.strip()
    assert status == 0
    assert re.fullmatch(r"[0-9a-f]{32}", task)
    assert err == f"task {task}; 'trio-mcp tasks {kitchen.url} get {task}' shows it\n"
    status, out, _ = kitchen.run("tasks", kitchen.url)
    assert re.fullmatch(rf"{task}  working +cook.*\n", out)
    status, out, _ = kitchen.run("tasks", kitchen.url, "watch")
    assert status == 0
    assert out.splitlines()[-1].split() == [task, "completed", "cook"]
    assert kitchen.run("tasks", kitchen.url, "get", task) == (0, "cooked\n", f"{task}  completed\n")
    status, out, _ = kitchen.run("tasks", kitchen.url, "get", task, "--json")
    assert json.loads(out)["result"]["content"] == [{"type": "text", "text": "cooked"}]
    assert (kitchen.folder / "state/trio-mcp/tasks.json").stat().st_mode & 0o777 == 0o600


def test_what_was_quick_is_not_detached(kitchen: Kitchen) -> None:
    assert kitchen.run("call", kitchen.url, "cook", "seconds=0", "--detach") == (0, "cooked\n", "")
    assert kitchen.run("tasks", kitchen.url)[2].startswith("no tasks of this server are known here")


def test_cancel_ends_tasks(kitchen: Kitchen) -> None:
    first, second = kitchen.detach(60), kitchen.detach(60)
    status, out, _ = kitchen.run("tasks", kitchen.url, "cancel", first, second)
    assert (status, len(out.splitlines())) == (0, 2)
    time.sleep(0.5)
    status, out, _ = kitchen.run("tasks", kitchen.url, "list")
    assert [line.split()[1] for line in out.splitlines()] == ["cancelled", "cancelled"]
    assert kitchen.run("tasks", kitchen.url, "get", first)[1] == f"{first}  cancelled       Cancelled by the client\n"


def test_ctrl_c_cancels_a_call_and_leaves_a_task(kitchen: Kitchen) -> None:
    process = kitchen.popen("call", kitchen.url, "cook", "seconds=60")
    time.sleep(2)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (130, "trio-mcp: interrupted; the server was told to stop 'cook'\n")
    assert json.loads(kitchen.run("call", kitchen.url, "waste", "--json")[1])["structuredContent"] == ["cancelled"]

    process = kitchen.popen("call", kitchen.url, "cook", "seconds=6", "--task")
    time.sleep(2)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    advice = re.search(r"interrupted; the task goes on: trio-mcp (tasks .* watch \S+)\n", err)
    assert advice is not None, err
    status, out, _ = kitchen.run(*advice[1].split())
    assert (status, out.splitlines()[-1].split()[1]) == (0, "completed")


def test_following_a_task_shows_its_states(kitchen: Kitchen) -> None:
    status, out, err = kitchen.run("call", kitchen.url, "cook", "seconds=4", "--task")
    assert (status, out) == (0, "cooked\n")
    assert "working: 1 of 2: [b]stirring[/b]\n" in err


def test_a_call_outlives_the_server(kitchen: Kitchen) -> None:
    process = kitchen.popen("call", kitchen.url, "cook", "seconds=6")
    time.sleep(2)
    kitchen.stop(signal.SIGKILL)
    time.sleep(0.5)
    kitchen.start()
    assert (*process.communicate(timeout=40), process.returncode) == ("cooked\n", "", 0)


def test_a_terminal_gets_a_table(kitchen: Kitchen) -> None:
    task = kitchen.detach(6)
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "trio_mcp", "tasks", kitchen.url, "watch"]
    process = subprocess.Popen(command, stdout=slave, stderr=slave, env={**kitchen.env, "COLUMNS": "120"})
    os.close(slave)
    shown = b""
    try:
        while data := os.read(master, 65_536):
            shown += data
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
    command = [sys.executable, "-m", "trio_mcp", "tasks", "http://127.0.0.1:9/mcp", *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert text in done.stderr


def test_tasks_that_are_gone_are_crossed_out(kitchen: Kitchen) -> None:
    kitchen.detach(60)
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
def test_a_server_that_ends_with_the_call_keeps_no_task(kitchen: Kitchen, option: str) -> None:
    status, _, err = kitchen.run("call", str(kitchen.file), "cook", "seconds=1", option)
    assert status == 2
    assert "--task and --detach need the URL of a server" in err


def test_a_file_that_cannot_hold_tasks_is_told(kitchen: Kitchen) -> None:
    for path, text in (("no/such/folder/t.db", "No such file or directory"), (str(kitchen.file), "not a database")):
        status, out, err = kitchen.run("serve", str(kitchen.file), "--http", "127.0.0.1:0", "--tasks", path)
        assert (status, out) == (1, "")
        assert text in err
        assert "Traceback" not in err
