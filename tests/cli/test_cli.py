"""The command line: every command, what it prints where, and with which status it ends."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ..net.needs import need
from .inside import inside, invoke

SERVER = '''
import trio
from trio_mcp import Context, Image, Limits, ResourceContents, Server, ToolError

# A tool that nobody stops is killed with the process, and says nothing.
server = Server("shop", version="2", instructions="Sells things.", limits=Limits(drain_timeout=60))

@server.tool
async def add(a: int, b: int = 10) -> int:
    """Add two numbers.

    Exactly.
    """
    return a + b

@server.tool
async def describe(text: str, tags: list[str] | None = None, ratio: float = 1, note: str | int | None = None) -> str:
    return repr((text, tags, ratio, note))

@server.tool
async def refuse() -> str:
    raise ToolError("not today")

@server.tool
async def picture() -> Image:
    return Image(b"12345")

@server.tool
async def much() -> str:
    return "much " * 200_000

@server.tool
async def slow(seconds: float, ctx: Context) -> str:
    """Sleep, and say when it is over."""
    import sys
    try:
        for step in range(int(seconds * 10)):
            await ctx.report_progress(step, total=seconds * 10, message=f"step [{step}]")
            await ctx.log("info", f"at {step}")
            await trio.sleep(0.1)
    finally:
        print("the tool ended", file=sys.stderr, flush=True)
    return "slept"

@server.resource("text://fixed")
def fixed() -> str:
    """A fixed text."""
    return "fixed text"

@server.resource("bytes://{name}")
def data(name: str) -> bytes:
    return name.encode() + b"\\x00"

@server.prompt
def greet(name: str, mood: str = "fine") -> str:
    """Greet somebody."""
    return f"Hello {name}, {mood}?"
'''


@pytest.fixture
def shop(tmp_path: Path) -> str:
    path = tmp_path / "shop.py"
    path.write_text(SERVER)
    return str(path)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The same server, which runs already: for what does not depend on how it is started."""
    path = tmp_path_factory.mktemp("shop") / "shop.py"
    path.write_text(SERVER)
    log = path.with_name("log")
    command = [sys.executable, "-m", "trio_mcp", "serve", str(path), "--http", "127.0.0.1:0"]
    with log.open("w") as errors:
        process = subprocess.Popen(command, stderr=errors)
    try:
        end = time.monotonic() + 60
        while "Ctrl-C ends the server." not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.01)
        yield log.read_text().splitlines()[0].partition("serves at ")[2]
    finally:
        process.terminate()
        process.wait(10)


def run(*args: str) -> tuple[int, str, str]:
    """The same as `inside`, as a process of its own."""
    command = [sys.executable, "-m", "trio_mcp", *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return done.returncode, done.stdout, done.stderr


# -- calling


def test_call_prints_the_result(shop: str, url: str) -> None:
    assert run("call", shop, "add", "a=1", "b=2") == (0, "3\n", "")
    assert inside("call", f"{shop}:server", "add", "a=1") == (0, "11\n", "")
    assert inside("call", url, "add", "a=-1") == (0, "9\n", "")
    assert inside("call", url, "picture") == (0, "[image image/png, 5 bytes]\n", "")


def test_values_are_read_as_the_tool_wants_them(url: str) -> None:
    assert inside("call", url, "describe", "text=3", 'tags=["a", "b"]', "ratio=0.5", "note=7") == (
        0,
        "('3', ['a', 'b'], 0.5, 7)\n",
        "",
    )
    assert inside("call", url, "describe", 'text={"a": "=b"}', "note=null")[1] == '(\'{"a": "=b"}\', None, 1, None)\n'
    assert inside("call", url, "describe", "text=", "note=seven")[1] == "('', None, 1, 'seven')\n"


def test_arguments_as_json_and_the_result_as_json(url: str) -> None:
    assert inside("call", url, "add", "--json", '{"a": 1, "b": 4}') == (0, "5\n", "")
    assert inside("call", url, "add", "--json", '{"a": 1, "b": 4}', "b=5") == (0, "6\n", "")
    json_first = [["--json", url, "add", "a=1", "b=2"], [url, "--json", "add", "a=1", "b=2"]]
    json_later = [["a=1", "b=2", "--json"], ["--json", "a=1", "b=2"], ["--json", '{"a": 1, "b": 2}', "--json"]]
    for args in (*json_first, *([url, "add", *words] for words in json_later)):
        status, out, _ = inside("call", *args)
        assert (status, json.loads(out)["structuredContent"]) == (0, 3)
    for bad, why in (("--json [1]", "expected an object"), ("--json {", "not JSON"), ("--json=x", "not JSON")):
        status, out, errors = inside("call", url, "add", *bad.split())
        assert (status, out) == (2, "")
        assert why in errors


def test_a_tool_that_fails_is_status_1_and_speaks_on_standard_error(shop: str, url: str) -> None:
    assert run("call", shop, "refuse") == (1, "", "not today\n")
    status, out, errors = inside("call", url, "add", "a=x")
    assert (status, out) == (1, "")
    assert errors == "Invalid arguments for tool 'add':\na: expected integer, got string \"x\"\n"
    status, out, _ = inside("call", url, "refuse", "--json")
    assert (status, json.loads(out)["isError"]) == (1, True)


def test_a_command_behind_two_dashes_is_a_target(shop: str) -> None:
    server = [sys.executable, "-m", "trio_mcp", "serve", shop]
    assert run("call", "add", "a=1", "b=2", "--", *server) == (0, "3\n", "")
    assert inside("tools", "--json", "--", *server)[0] == 0


def test_log_lines_are_shown_when_asked_for(url: str) -> None:
    status, out, errors = inside("call", url, "slow", "seconds=0.2", "--log", "info")
    assert (status, out) == (0, "slept\n")
    assert errors.splitlines()[:2] == ["info: at 0", "info: at 1"]


def test_a_timeout_is_status_3(shop: str) -> None:
    # Over a pipe, where the server goes with the call.
    status, out, errors = inside("call", shop, "slow", "seconds=30", "--timeout", "0.5")
    assert (status, out) == (3, "")
    assert "trio-mcp: tools/call: no answer from" in errors
    assert "within 0.5 s" in errors


# -- lists, resources, prompts


def test_tools_are_listed_with_their_arguments(url: str) -> None:
    status, out, errors = inside("tools", url)
    assert (status, errors) == (0, "")
    assert out.startswith("add(a: integer, [b: integer]) -> integer\n    Add two numbers.\n\n    Exactly.\n")
    assert "describe(text: string, [tags: array of string or null], [ratio: number]," in out
    names = [tool["name"] for tool in json.loads(inside("tools", url, "--json")[1])]
    assert names == ["add", "describe", "refuse", "picture", "much", "slow"]


def test_read(url: str) -> None:
    assert inside("read", url, "text://fixed") == (0, "fixed text\n", "")
    assert inside("read", url) == (0, "text://fixed\n    A fixed text.\nbytes://{name}\n", "")
    done = invoke("read", url, "bytes://ab")
    assert (done.exit_code, done.stdout_bytes) == (0, b"ab\x00")
    assert json.loads(inside("read", url, "text://fixed", "--json")[1])["contents"][0]["text"] == "fixed text"
    status, out, errors = inside("read", url, "text://other")
    assert (status, out) == (2, "")
    assert errors.endswith("Resource not found: text://other. There is: text://fixed, bytes://{name}\n")


def test_prompt(url: str) -> None:
    assert inside("prompt", url, "greet", "name=Bo") == (0, "user: Hello Bo, fine?\n", "")
    assert inside("prompt", url) == (0, "greet(name, [mood])\n    Greet somebody.\n", "")
    status, out, errors = inside("prompt", url, "greet")
    assert (status, out) == (2, "")
    assert errors.endswith("Error: prompt 'greet' needs name\n")


# -- mistakes


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["call", "{url}", "ad", "a=1"], "no tool named 'ad'; did you mean 'add'? There is: add, describe, refuse"),
        (["call", "{url}", "add", "c=1"], "no argument of add(a: integer, [b: integer]) named 'c'. There is: a, b"),
        (["call", "{url}", "refuse", "c=1"], "tool 'refuse' takes no arguments, got 'c'"),
        (["call", "{shop}", "add", "a"], "'a' is not an argument; expected name=value"),
        (["call", "{shop}", "add", "a=1", "a=2"], "argument 'a' is given twice"),
        (["call", "{shop}"], "missing TOOL; 'trio-mcp tools TARGET' lists them"),
        (["call"], "missing TARGET: a URL, a Python file with a server in it, or a command behind --"),
        (["call", "{shop}", "add", "a=1", "--log", "loud"], "no log level named 'loud'"),
        (["tools", "nowhere.py"], "there is no file 'nowhere.py'"),
        (["tools", "localhost:8000/mcp"], "did you mean http://localhost:8000/mcp?"),
        (["tools", "http:///mcp"], "Error: 'http:///mcp' is no URL of a server; expected http://HOST:PORT/mcp"),
        (["tools", "http://h:99999/mcp"], "Error: 'http://h:99999/mcp' is no URL of a server"),
        (["tools", "ftp://h/mcp"], "'ftp://h/mcp' is no URL of a server: expected http://, https:// or unix:PATH"),
        (["tools", "--"], "nothing behind --"),
        (["tools", "{shop}", "more"], "unexpected 'more'"),
        (["prompt", "{url}", "gret"], "no prompt named 'gret'; did you mean 'greet'?"),
        (["prompt", "{url}", "greet", "nam=x"], "no argument of prompt 'greet' named 'nam'; did you mean 'name'?"),
        (["serve", "{shop}:other"], "has no Server named 'other'; its servers are: server"),
        (["serve", "nowhere.py"], "there is no file 'nowhere.py'"),
        (["serve", "nowhere"], "there is no file 'nowhere' (expected FILE.py)"),
        (["serve"], "Missing argument 'FILE[:NAME]'"),
        (["sreve", "{shop}"], "no command 'sreve'; there is: serve, tools, call, tasks, read, prompt"),
        (["tools", "--jsn", "{shop}"], "No such option"),
    ],
)
def test_a_mistake_says_what_there_is_and_is_status_2(args: list[str], words: str, shop: str, url: str) -> None:
    status, out, errors = inside(*[arg.replace("{shop}", shop).replace("{url}", url) for arg in args])
    assert (status, out) == (2, "")
    assert words in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["call", "{shop}", "ad", "a=1"], "no tool named 'ad'; did you mean 'add'? There is: add, describe, refuse"),
        (["sreve", "{shop}"], "no command 'sreve'; there is: serve, tools, call, tasks, read, prompt"),
    ],
)
def test_a_mistake_is_the_same_in_a_process_of_its_own(args: list[str], words: str, shop: str) -> None:
    status, out, errors = run(*[arg.replace("{shop}", shop) for arg in args])
    assert (status, out) == (2, "")
    assert words in errors
    assert "Traceback" not in errors


def test_a_server_that_cannot_be_started_is_status_3(tmp_path: Path) -> None:
    need("/bin/sh")
    assert inside("tools", "--", "no-such-program") == (
        3,
        "",
        "trio-mcp: cannot start the server (no-such-program): No such file or directory\n",
    )
    status, _, errors = inside("tools", "--", "sh", "-c", "echo why >&2; exit 4")
    assert status == 3
    # Twice: one of an older revision may end at the first question, and is started anew for its own.
    assert errors.splitlines() == [
        "why",
        "why",
        "trio-mcp: the server process (sh -c 'echo why >&2; exit 4') exited with status 4",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import nothing_of_the_kind", "ModuleNotFoundError: No module named 'nothing_of_the_kind' (line 1)"),
        ("x = (", "broken.py:1: '(' was never closed"),
        ("x = 1\n1 / 0", "ZeroDivisionError: division by zero (line 2); 'trio-mcp serve "),
        ("x = 1", "has no Server: expected a line such as: server = Server('name')"),
        (
            "from trio_mcp import Server\na = Server('a')\nb = Server('b')",
            "has several servers: a, b; name one, as in",
        ),
        (
            "from trio_mcp import Server\ns = Server('s')\n@s.tool\ndef f(*a): ...",
            "tool 'f': parameter '*a': a variable number of arguments cannot be described (line",
        ),
        ("raise SystemExit(9)", "ended the process when it was imported (status 9)"),
    ],
)
def test_a_file_that_cannot_be_served_says_why(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text(text)
    # What ends a process is tried in one.
    status, out, errors = (run if "SystemExit" in text else inside)("serve", str(path))
    assert status == 2
    assert out == ""
    assert words in errors
    assert "Traceback" not in errors


def test_help_and_version() -> None:
    status, out, _ = inside("--help")
    assert status == 0
    for command in ("serve", "tools", "call", "read", "prompt"):
        assert f"\n  {command}" in out
        assert inside(command, "--help")[0] == 0
    assert run("--version")[1].startswith("trio-mcp, version ")
    # Without a command there is the same help, as the answer to wrong usage.
    status, printed, errors = inside()
    assert (status, printed) == (2, "")
    assert errors.rstrip() == out.rstrip()


# -- terminals and interrupts


def terminal(*args: str) -> tuple[subprocess.Popen[bytes], int]:
    """The command on a pseudo terminal; gives the process and the master side."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "trio_mcp", *args],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(slave)
    return process, master


def read_until(master: int, words: str, timeout: float = 30) -> str:
    """What a terminal shows, up to and with these words."""
    seen = b""
    end = time.monotonic() + timeout
    while words.encode() not in seen:
        assert select.select([master], [], [], max(0, end - time.monotonic()))[0], f"not seen: {words!r} in {seen!r}"
        try:
            data = os.read(master, 4096)
        except OSError:
            data = b""
        assert data, f"ended without {words!r}: {seen!r}"
        seen += data
    return seen.decode()


def test_an_interrupt_stops_the_tool_on_the_server_and_says_so(shop: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "trio_mcp", "call", shop, "slow", "seconds=60", "--log", "info"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "info: at 0\n"
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert time.monotonic() - begin < 20
    assert out == ""
    assert "trio-mcp: interrupted; the server was told to stop 'slow'" in errors
    assert "the tool ended" in errors
    assert "Traceback" not in errors


def test_progress_is_a_bar_on_a_terminal(shop: str) -> None:
    process, master = terminal("call", shop, "slow", "seconds=1")
    shown = read_until(master, "slept")
    assert process.wait(30) == 0
    os.close(master)
    # Which steps are drawn depends on the machine; a server's text in brackets is no markup.
    assert any(f"step [{step}]" in shown for step in range(10))
    assert "/10" in shown


def test_serve_on_a_terminal_prints_the_configuration_and_ends_with_an_interrupt(shop: str) -> None:
    process, master = terminal("serve", shop)
    shown = read_until(master, "Ctrl-C ends the server.")
    config = json.loads(shown[shown.index("{") : shown.rindex("}") + 1])
    entry = config["mcpServers"]["shop"]
    assert entry["args"][-2:] == ["serve", shop]
    assert Path(entry["command"]).is_absolute()
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    os.close(master)


def test_the_printed_configuration_starts_the_server(shop: str) -> None:
    process, master = terminal("serve", shop)
    shown = read_until(master, "Ctrl-C ends the server.")
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    os.close(master)
    entry = json.loads(shown[shown.index("{") : shown.rindex("}") + 1])["mcpServers"]["shop"]
    assert inside("call", "add", "a=1", "--", entry["command"], *entry["args"]) == (0, "11\n", "")


def test_serve_debug_shows_the_error_to_the_client(tmp_path: Path) -> None:
    path = tmp_path / "leaky.py"
    path.write_text(
        "from trio_mcp import Server\ns = Server('s')\n@s.tool\ndef f() -> int:\n    raise RuntimeError('the reason')\n"
    )
    server = [sys.executable, "-m", "trio_mcp", "serve", str(path)]
    status, _, errors = inside("call", "f", "--", *server)
    assert status == 1
    assert "RuntimeError: the reason" in errors, "the log of the server, on its standard error, has it"
    # The log and the answer come in any order.
    [answer] = [line for line in errors.splitlines() if line.startswith("Internal error in tool 'f'")]
    assert not answer.endswith("the reason")
    status, _, errors = inside("call", "f", "--", *server, "--debug")
    [answer] = [line for line in errors.splitlines() if line.startswith("Internal error in tool 'f'")]
    assert answer.endswith("RuntimeError: the reason")


@contextmanager
def piped(*args: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The command with its output in a pipe; gives the process and the end that reads."""
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "trio_mcp", *args], stdin=subprocess.DEVNULL, stdout=writing, stderr=subprocess.PIPE
    )
    os.close(writing)
    try:
        yield process, reading
    finally:
        process.kill()
        process.communicate()


def test_output_into_a_closed_pipe_is_quiet(url: str) -> None:
    # As in `trio-mcp tools … | true`.
    with piped("tools", url) as (process, reading):
        os.close(reading)
        _, errors = process.communicate(timeout=20)
        assert (process.returncode, errors) == (0, b"")


def test_a_reader_that_has_seen_enough_ends_the_output_quietly(url: str) -> None:
    # As in `… | head -c 5`; more than a pipe holds is still to come.
    with piped("call", url, "much") as (process, reading):
        assert os.read(reading, 5) == b"much "
        os.close(reading)
        _, errors = process.communicate(timeout=20)
        assert (process.returncode, errors) == (0, b"")
