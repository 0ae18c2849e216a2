"""Options of `trio-mcp serve` that cannot be: refused with status 2, and what was expected, before the file is loaded."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from trio_mcp.testing import request

from .inside import inside

SERVER = """
from trio_mcp import Server

server = Server("s"{eras})
"""
APP = """
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"the application"})
"""
OLD = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}

HTTP = ("--http", "127.0.0.1:0")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (
            ["--http", "127.0.0.1:99999"],
            "--http: '127.0.0.1:99999' is no address: expected HOST:PORT with a port up to 65535",
        ),
        (["--http", "127.0.0.1:abc"], "--http: '127.0.0.1:abc' is no address: expected HOST:PORT"),
        (["--http", "127.0.0.1:\u0661"], "is no address: expected HOST:PORT"),
        (["--http", ":8000"], "--http: ':8000' is no address: expected HOST:PORT, as in 127.0.0.1:8000"),
        (["--http", "8000"], "--http: '8000' is no address: expected HOST:PORT"),
        (
            ["--http", "http://127.0.0.1:8000"],
            "--http: 'http://127.0.0.1:8000' is no address: expected HOST:PORT, as in 127.0.0.1:8000, without a scheme",
        ),
        (["--http", "127.0.0.1:8000/mcp"], "expected HOST:PORT, as in 127.0.0.1:8000, without a scheme or a path"),
        (["--http", "unix:"], "--http: 'unix:' is no address"),
        (["--http", "unix:/tmp/x"], "expected HOST:PORT, as in 127.0.0.1:8000, or --uds PATH"),
        (["--http", "fd:x"], "--http: 'fd:x' is no address: expected fd:NUMBER, as in fd:3"),
        (["--uds", ""], "--uds: the path of the socket is empty; expected a file name, as in /run/shop.sock"),
        (["--path", "/mcp"], "--path needs --http or --uds"),
        ([*HTTP, "--path", "mcp"], "--path: path must start with a slash and have no query, got 'mcp'"),
        ([*HTTP, "--path", ""], "--path: path must start with a slash and have no query, got ''"),
        (["--eras", "old"], "--eras: 'old' is not known; expected modern, legacy, or modern,legacy"),
        (["--eras", ""], "--eras: '' is not known"),
        (["--eras", "modern,,legacy"], "--eras: 'modern,,legacy' is not known"),
        *[([option], f"{option} needs --http or --uds") for option in ("--sse", "--simple", "--no-delete")],
        ([*HTTP, "--sse", "--simple"], "--sse and --simple exclude each other: with --simple there are no sessions"),
        ([*HTTP, "--no-delete", "--simple"], "--no-delete and --simple exclude each other"),
        *[
            (
                [*HTTP, option, "--eras", "modern"],
                f"{option} is for revisions with sessions, and none is spoken; expected --eras legacy or modern,legacy",
            )
            for option in ("--sse", "--no-delete")
        ],
        ([*HTTP, "--sse", "--path", "/messages/"], "--path: path: with sse, /messages/ belongs to HTTP+SSE"),
        *[
            (
                [*HTTP, "--allowed-host", host],
                f"--allowed-host: {host!r} is no name of a host; expected one without a scheme",
            )
            for host in ("http://x", "x/y", "", "*", "a b")
        ],
        *[
            ([*HTTP, "--allowed-origin", origin], f"--allowed-origin: {origin!r} is no origin; expected SCHEME://HOST")
            for origin in ("x", "x:80", "", "https://", "https://x/y", "https://x?y")
        ],
    ],
)
def test_an_option_that_cannot_be_is_refused_before_the_file_is_loaded(
    args: list[str], words: str, tmp_path: Path
) -> None:
    path = tmp_path / "loud.py"
    path.write_text("raise SystemExit('the file was loaded')\n")
    status, out, errors = inside("serve", str(path), *args)
    assert (status, out) == (2, "")
    assert words in errors


@pytest.mark.parametrize(
    "args", [("--allowed-host", "[::1]:80"), ("--allowed-host", "::1"), ("--allowed-host", "Shop.example:1")]
)
@pytest.mark.parametrize("origin", ["https://app.example", "http://[::1]:80/", "chrome-extension://abc", "null"])
def test_names_and_origins_that_can_be_pass(args: tuple[str, str], origin: str, tmp_path: Path) -> None:
    status, _, errors = inside("serve", str(tmp_path / "none.py"), *HTTP, *args, "--allowed-origin", origin)
    assert status == 2
    assert "there is no file" in errors


def test_sessions_are_not_wanted_of_a_server_that_has_none(tmp_path: Path) -> None:
    path = tmp_path / "server.py"
    path.write_text(SERVER.format(eras=", eras=['modern']"))
    status, _, errors = inside("serve", str(path), *HTTP, "--sse")
    assert status == 2
    assert "--sse is for revisions with sessions, and none is spoken, since" in errors
    assert "says eras=['modern']" in errors


@pytest.mark.parametrize(
    ("said", "eras", "old", "new"),
    [
        ("", "legacy", True, False),
        ("", "modern", False, True),
        (", eras=['modern']", "modern,legacy", True, True),
        (", eras=['legacy']", "modern", False, True),
    ],
)
def test_eras_says_which_revisions_are_spoken(said: str, eras: str, old: bool, new: bool, tmp_path: Path) -> None:
    path = tmp_path / "server.py"
    path.write_text(SERVER.format(eras=said))
    lines = [json.dumps(OLD), json.dumps(request(2, "server/discover"))]
    done = subprocess.run(
        [sys.executable, "-m", "trio_mcp", "serve", str(path), "--eras", eras],
        input="\n".join([*lines, ""]),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    answers: dict[Any, Any] = {one["id"]: one for one in map(json.loads, done.stdout.splitlines())}
    assert ("result" in answers[1], "result" in answers[2]) == (old, new)


@contextmanager
def serving(path: Path, *args: str) -> Iterator[httpx2.Client]:
    """A process that serves; it ends by SIGTERM with status 0."""
    command = [sys.executable, "-m", "trio_mcp", "serve", str(path), *HTTP, *args]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        try:
            first = child.stderr.readline()
            base = first.partition("serves at ")[2].strip().removesuffix("/mcp")
            with httpx2.Client(base_url=base, timeout=30) as http:
                yield http
                child.send_signal(signal.SIGTERM)
                assert child.wait(60) == 0
        finally:
            child.kill()


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "with --app"])
def test_the_pair_is_served_beside_the_endpoint(beside: bool, tmp_path: Path) -> None:
    path = tmp_path / "server.py"
    path.write_text(SERVER.format(eras=""))
    (tmp_path / "web.py").write_text(APP)
    app = ("--app", f"{tmp_path / 'web.py'}:app") if beside else ()
    with serving(path, "--sse", "--no-delete", *app) as http, http.stream("GET", "/sse") as stream:
        lines = stream.iter_lines()
        assert next(lines) == "event: endpoint"
        target = next(lines).removeprefix("data: ")
        assert http.post(target, json=OLD).status_code == 202
        assert json.loads([next(lines) for _ in range(3)][-1].removeprefix("data: "))["id"] == 1
        other = http.get("/other")
        assert (other.status_code, other.text == "the application") == ((200, True) if beside else (404, False))
        assert http.delete("/mcp").status_code == 405


def test_simple_has_one_verb(tmp_path: Path) -> None:
    path = tmp_path / "server.py"
    path.write_text(SERVER.format(eras=""))
    with serving(path, "--simple") as http:
        assert http.get("/mcp").status_code == 405
        answer = http.post("/mcp", json=OLD)
        assert (answer.status_code, "mcp-session-id" in answer.headers) == (200, False)
