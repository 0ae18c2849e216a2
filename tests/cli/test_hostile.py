"""What a server says reaches a terminal without effect and a pipe as it is, and nothing ends in a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .evil import BAD, ODD
from .test_cli import terminal

SERVER = [sys.executable, str(Path(__file__).with_name("evil.py"))]
UNSAFE = [
    *map(chr, range(0x20)),
    *map(chr, range(0x7F, 0xA0)),
    *"\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069",
]
# rich colours its own words and moves its own bar; a title, a cleared screen, a C1 or a bidirectional sign is not its own.
NEVER = ["PWNED\x07", "\x1b]", "\x1b[2J", "\x07", "\x08", *UNSAFE[0x20:]]

COMMANDS = {
    "tools": (["tools"], 0, "d<\\x1b]0;PWNED\\x07\\x1b[2J\\u009b31m\\u007f\\u202e\\u2066\\x08\\x0d>"),
    "tools as JSON": (["tools", "--json"], 0, "\\u009b31m"),
    "a result": (["call", "t", "--log", "info"], 0, "result<\\x1b]0;PWNED"),
    "a result as JSON": (["call", "t", "--json"], 0, "\\u009b31m"),
    "data": (["call", "data"], 0, "\\u009b31m"),
    "links": (["call", "links"], 0, "[link u:<\\x1b]0;"),
    "a failure": (["call", "fails"], 1, "result<\\x1b]0;PWNED"),
    "a failure without words": (["call", "silent"], 1, "does not say why"),
    "an error": (["call", "refuses"], 3, "refused<\\x1b]0;PWNED"),
    "no such tool": (["call", "nothing"], 2, "There is: t, t<\\x1b]0;PWNED"),
    "no such argument": (["call", "t", "nothing=1"], 2, "<\\x1b]0;PWNED"),
    "resources": (["read"], 0, "r:<\\x1b]0;PWNED"),
    "a resource": (["read", "x:"], 0, "contents<\\x1b]0;PWNED"),
    "bytes": (["read", "bytes:"], 0, "redirect the output"),
    "no such resource": (["read", "no:"], 2, "There is: r:<\\x1b]0;PWNED"),
    "prompts": (["prompt"], 0, "p<\\x1b]0;PWNED"),
    "a prompt": (["prompt", "p"], 0, "prompt<\\x1b]0;PWNED"),
    "no such prompt": (["prompt", "nothing"], 2, "There is: p<\\x1b]0;PWNED"),
    "a task": (["tasks", "get", "x"], 0, "<\\x1b]0;PWNED"),
    "tasks in a table": (["tasks", "watch", "x"], 0, "completed"),
    **{f"an odd schema {n}": (["call", f"odd{n}", "a=1", "--json"], None, "") for n in range(len(ODD))},
}


def everything(master: int) -> str:
    seen = b""
    while True:
        try:
            data = os.read(master, 65_536)
        except OSError:
            data = b""
        if not data:
            return seen.decode()
        seen += data


@pytest.mark.parametrize("what", COMMANDS)
def test_a_terminal(what: str) -> None:
    words, status, expected = COMMANDS[what]
    process, master = terminal(*words, "--", *SERVER)
    try:
        shown = everything(master)
        ended = process.wait(20)
    finally:
        process.kill()
        process.wait(10)
        os.close(master)
    # The terminal itself makes CR LF of a line end.
    shown = shown.replace("\r\n", "\n")
    assert "Traceback" not in shown, shown
    assert [sign for sign in NEVER if sign in shown] == [], shown
    if "call" not in words and "watch" not in words:
        # Nothing is drawn there, so nothing is allowed.
        assert [sign for sign in UNSAFE if sign in shown and sign not in "\n\t"] == [], shown
    assert "started<\\x1b]0;PWNED" in shown, "what the server writes to standard error"
    assert expected in shown, shown
    assert ended == status if status is not None else ended in (0, 2), shown


def piped(*words: str, env: dict[str, str] | None = None) -> tuple[int, bytes, bytes]:
    command = [sys.executable, "-m", "trio_mcp", *words, "--", *SERVER]
    done = subprocess.run(command, capture_output=True, timeout=30, check=False, env={**os.environ, **(env or {})})
    return done.returncode, done.stdout, done.stderr


def test_a_pipe_gets_what_the_server_said() -> None:
    assert piped("call", "t")[:2] == (0, f"result{BAD}\n\tnext\n".encode())
    assert piped("read", "x:")[:2] == (0, f"contents{BAD}\n".encode())
    assert piped("read", "bytes:")[:2] == (0, b"\xff\xff")
    assert json.loads(piped("call", "data")[1]) == {"a": BAD}
    assert f"d{BAD.replace(chr(13), chr(10) + '    ')}".encode() in piped("tools")[1]
    status, out, errors = piped("call", "refuses")
    assert (status, out) == (3, b"")
    assert f"refused{BAD}".encode() in errors
    assert f"started{BAD[:20]}".encode() in errors


def test_a_terminal_without_a_letter_gets_it_escaped() -> None:
    status, out, errors = piped("prompt", "p", env={"PYTHONIOENCODING": "latin-1:strict", "PYTHONUTF8": "0"})
    assert (status, b"Traceback" in errors) == (0, False)
    assert b"prompt<\x1b]0;PWNED\x07\x1b[2J\x9b31m\x7f\\u202e\\u2066" in out


@pytest.mark.parametrize("closed", ["1", "2"])
def test_an_output_that_is_closed_is_no_traceback(closed: str) -> None:
    for words in (
        ["tools"],
        ["call", "t", "--log", "info"],
        ["read", "bytes:"],
        ["call", "refuses"],
        ["tasks", "get", "x"],
    ):
        line = f'"$@" {closed}>&-'
        command = ["/bin/sh", "-c", line, "sh", sys.executable, "-m", "trio_mcp", *words, "--", *SERVER]
        done = subprocess.run(command, capture_output=True, timeout=30, check=False)
        assert b"Traceback" not in done.stderr + done.stdout, done
        assert done.returncode == (3 if words[-1] == "refuses" else 0), done
