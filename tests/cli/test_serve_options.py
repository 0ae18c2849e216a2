"""Options of `trio-mcp serve` that cannot be: refused with status 2, and what was expected, before the file is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from .inside import inside

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
