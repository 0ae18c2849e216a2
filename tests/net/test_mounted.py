"""`trio-mcp serve FILE --http HOST:PORT --app MODULE:NAME`: somebody's application with the endpoint in it, as a process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import httpx2
import pytest
import trio

from trio_mcp import MCPError, open_client
from trio_mcp.cli.load import load_app

from ..cli.inside import inside
from .helpers import SERVERS


class Web:
    """The process.

    Attributes:
        url: The endpoint.
        page: The address of the application.
    """

    def __init__(self, folder: Path, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._folder = folder
        self.url = ""
        self.page = ""

    def notes(self) -> list[str]:
        log = self._folder / "log"
        return log.read_text().splitlines() if log.exists() else []

    def errors(self) -> str:
        return (self._folder / "errors").read_text()

    async def wait(self, note: str) -> None:
        with trio.fail_after(30):
            while note not in self.notes():
                await trio.sleep(0.01)

    def end(self, number: signal.Signals = signal.SIGTERM) -> float:
        """Send a signal; gives how long the process took to end, with status 0."""
        begin = time.monotonic()
        self.process.send_signal(number)
        assert self.process.wait(30) == 0, self.errors()
        return time.monotonic() - begin


@contextmanager
def serving(folder: Path, *args: str, app: str = "web:app", **env: str) -> Iterator[Web]:
    command = [sys.executable, "-m", "trio_mcp", "serve", "web.py", "--http", "127.0.0.1:0", "--app", app, *args]
    with (folder / "errors").open("w") as errors:
        process = subprocess.Popen(
            command, stderr=errors, stdout=errors, cwd=SERVERS, env={**os.environ, "LOG": str(folder / "log"), **env}
        )
    web = Web(folder, process)
    try:
        end = time.monotonic() + 60
        while "Ctrl-C ends the server." not in web.errors():
            assert process.poll() is None and time.monotonic() < end, web.errors()
            time.sleep(0.01)
        web.url = web.errors().partition("serves at ")[2].partition("\n")[0]
        web.page = web.url.rpartition("/mcp")[0] + "/"
        yield web
    finally:
        process.kill()
        process.wait(30)


@pytest.mark.parametrize(("app", "number"), [("web:app", signal.SIGTERM), ("web.py:app", signal.SIGINT)])
async def test_the_application_and_the_endpoint_share_an_address_and_a_process(
    tmp_path: Path, app: str, number: signal.Signals
) -> None:
    with serving(tmp_path, "--debug", app=app, LIMITS='{"drain_timeout": 60}') as web:
        assert f"{app} serves the other paths there" in web.errors()
        async with httpx2.AsyncClient() as browser:
            for path in ("", "mcpx", "mcp/x"):
                assert (await browser.get(web.page + path)).text == "hello"
            # The endpoint, with a slash and without.
            for path in ("mcp", "mcp/"):
                assert (await browser.get(web.page + path)).status_code == 400
        async with open_client(web.url) as client:
            assert (await client.call_tool("visits")).data == 3
        assert web.end(number) < 20
        assert web.notes() == ["up", "/", "/mcpx", "/mcp/x", "down"]
        # Neither a log of accesses nor a second handler.
        assert "GET /" not in web.errors() and "hypercorn.access" not in web.errors()
        assert web.errors().count("Running on") == 1


async def test_the_path_and_who_may_call(tmp_path: Path) -> None:
    options = ("--path", "/tools", "--allowed-host", "shop.example")
    with serving(tmp_path, *options, LIMITS='{"drain_timeout": 60}') as web:
        url = web.errors().partition("serves at ")[2].partition("\n")[0]
        assert url.endswith("/tools")
        async with httpx2.AsyncClient(headers={"host": "shop.example"}) as http, open_client(url, http=http) as client:
            assert (await client.call_tool("visits")).data == 0
        with pytest.raises(MCPError, match=r"is not served here"):
            async with open_client(url):
                pass
        assert web.end() < 20


async def test_a_listener_gets_its_result_and_a_running_call_its_answer(tmp_path: Path) -> None:
    with serving(tmp_path) as web:
        with trio.fail_after(20):
            async with (
                open_client(web.url) as client,
                client.listen(tools=True) as changes,
                trio.open_nursery() as nursery,
            ):
                answers: list[str] = []

                async def call() -> None:
                    answers.append((await client.call_tool("sleep", {"seconds": 0.5})).text)

                nursery.start_soon(call)
                await web.wait("sleeping")
                web.process.send_signal(signal.SIGTERM)
                # Without an error: the server has said that it ends.
                assert [change async for change in changes] == []
        assert answers == ["slept"]
        assert web.process.wait(30) == 0
        assert web.notes() == ["up", "sleeping", "tool over", "down"]


async def test_the_end_has_a_bound(tmp_path: Path) -> None:
    with serving(tmp_path) as web:
        async with trio.open_nursery() as nursery:

            async def get() -> None:
                async with httpx2.AsyncClient(timeout=30) as browser:
                    with pytest.raises(httpx2.HTTPError):
                        await browser.get(web.page + "sleep")

            async def call() -> None:
                with pytest.raises(MCPError):
                    async with open_client(web.url) as client:
                        await client.call_tool("sleep", {"seconds": 60})

            nursery.start_soon(get)
            nursery.start_soon(call)
            await web.wait("/sleep")
            await web.wait("sleeping")
            # `limits.drain_timeout` is 2 seconds.
            assert 1.8 < await trio.to_thread.run_sync(web.end) < 20
        assert web.notes()[-2:] == ["tool over", "down"]


async def test_the_lifespan_of_the_application_may_take_longer_than_the_requests(tmp_path: Path) -> None:
    with serving(tmp_path, CLOSE="6") as web:
        assert web.end() > 5.8
        assert web.notes() == ["up", "down"]
        assert "did not end" not in web.errors()


# -- what is wrong


@pytest.fixture
def own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is added to the path of imports is gone afterwards."""
    monkeypatch.setattr(sys, "path", [*sys.path])


def test_what_is_no_application_is_said(own_path: None) -> None:
    for spec, words in {
        "web": "'web' names no application; expected MODULE:NAME or FILE.py:NAME, as in web:app",
        ":app": "':app' names no application",
        "no_such_module:app": "there is no module 'no_such_module', here or installed",
        "os.nothing:app": "there is no module 'os.nothing', here or installed",
        "nix.py:app": "there is no file 'nix.py'",
        "os.path:nix": "os.path has no 'nix'",
        "os:sep": "os:sep is no application, but str '/'",
        "os.path:split": "os.path:split is no ASGI application: it takes (p), expected (scope, receive, send)",
    }.items():
        with pytest.raises(click.UsageError) as info:
            load_app(spec)
        assert info.value.message.startswith(f"--app: {words}"), spec


def test_an_application_whose_module_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_path: None) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "failing_web.py").write_text("import no_such_module\n")
    with pytest.raises(click.ClickException) as info:
        load_app("failing_web:app")
    assert info.value.message.startswith("failing_web: ModuleNotFoundError: No module named 'no_such_module'")
    with pytest.raises(click.ClickException, match=r"failing_web\.py: ModuleNotFoundError: .* \(line 1\)"):
        load_app("failing_web.py:app")


def test_an_application_needs_an_address() -> None:
    for args in ((), ("--uds", "socket")):
        status, _, errors = inside("serve", "web.py", "--app", "web:app", *args)
        assert (status, errors.splitlines()[-1]) == (2, "Error: --app needs --http HOST:PORT")


def run(*args: str, **env: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "trio_mcp", "serve", "web.py", *args]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=30, check=False, cwd=SERVERS, env={**os.environ, **env}
    )
    return done.returncode, done.stderr


def test_an_address_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        status, errors = run("--http", address, "--app", "web:app")
    assert (status, errors) == (1, f"shop: cannot listen on {address}: Address already in use\n")


def test_an_application_that_does_not_start() -> None:
    status, errors = run("--http", "127.0.0.1:0", "--app", "web:app", FAIL="1")
    assert (status, errors) == (1, "shop: the application did not start: no database\n")
