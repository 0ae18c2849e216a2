"""The servers under test, by name. A new one is a script in `peers/` and a row in `STDIO_SERVERS` or `HTTP_SERVERS`.

Every server has the same tools, `echo`, `add` and `slow`, written the way its library's first page shows.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from .environments import PEERS, Environments, SetupError

__all__ = [
    "HTTP_SERVERS",
    "LEGACY_HTTP_SERVERS",
    "LEGACY_STDIO_SERVERS",
    "OURS",
    "STDIO_SERVERS",
    "VERSION_SERVERS",
    "Ready",
    "Row",
]

OURS: Final = "ours"
_TYPESCRIPT: Final = "@modelcontextprotocol/server"
_TYPESCRIPT_SESSIONS: Final = "@modelcontextprotocol/sdk"


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
        peer: Whether it is a server that one could use instead, and not a bound.
        slow: Whether it has the `slow` tool.
        streams: Whether it answers as an event stream when there is progress to tell.
    """

    title: str
    prepare: Callable[[Environments], Ready]
    usual: bool = True
    peer: bool = True
    slow: bool = True
    streams: bool = True


def _ours(script: str, *packages: str, arguments: tuple[str, ...] = ()) -> Callable[[Environments], Ready]:
    def prepare(environments: Environments) -> Ready:
        try:
            versions = {name: importlib.metadata.version(name) for name in packages}
        except importlib.metadata.PackageNotFoundError as exc:
            raise SetupError(f"{exc.name} is not installed") from None
        return Ready((sys.executable, str(PEERS / script), *arguments), versions)

    return prepare


def _python(script: str, packages: str, *arguments: str) -> Callable[[Environments], Ready]:
    def prepare(environments: Environments) -> Ready:
        made = environments.python()
        versions = {name: version or "?" for name, version in made.versions(packages.split()).items()}
        return Ready((str(made.python), str(PEERS / script), *arguments), versions)

    return prepare


def _node(script: str, package: str, *arguments: str, from_path: bool = False) -> Callable[[Environments], Ready]:
    def prepare(environments: Environments) -> Ready:
        made = environments.node(from_path)
        version = made.versions([package])[package] or "?"
        return Ready(
            (str(made.node), str(made.folder / script), *arguments), {package: version, "Node": made.node_version}
        )

    return prepare


STDIO_SERVERS: Final = {
    OURS: Row("trio_mcp", _ours("trio_mcp_server.py", "trio-mcp", "trio", "orjson")),
    "mcp": Row("mcp", _python("mcp_server.py", "mcp", "high")),
    "fastmcp": Row("fastmcp", _python("fastmcp_server.py", "fastmcp")),
    "typescript": Row("TypeScript", _node("typescript_server.mjs", _TYPESCRIPT)),
    "typescript-path": Row(
        "TypeScript, Node of the PATH", _node("typescript_server.mjs", _TYPESCRIPT, from_path=True), usual=False
    ),
    "mcp-low": Row("mcp, low level", _python("mcp_server.py", "mcp", "low"), usual=False),
    "floor": Row("floor", _ours("floor_server.py", "trio", "orjson"), usual=False, peer=False),
}
"""`typescript` runs on the newest Node, which comes from PyPI; `typescript-path` on the one on the PATH, which may be
old. `mcp-low` is the official SDK without its conveniences. `floor` is trio and orjson alone, with a task and a cancel
scope a call: what a server of this shape cannot be faster than."""

HTTP_SERVERS: Final = {
    OURS: Row("trio_mcp", _ours("trio_mcp_server.py", "trio-mcp", "trio", "orjson", "httptools", arguments=("http",))),
    "mcp": Row("mcp", _python("mcp_server.py", "mcp uvicorn", "high", "http", "default", "plain")),
    "mcp-json": Row("mcp, JSON", _python("mcp_server.py", "mcp", "high", "http", "json", "plain"), streams=False),
    "mcp-low-json-fast": Row(
        "mcp, low level, JSON, uvloop",
        _python("mcp_server.py", "mcp uvicorn uvloop httptools", "low", "http", "json", "fast"),
        streams=False,
    ),
    "fastmcp": Row("fastmcp", _python("fastmcp_server.py", "fastmcp", "http", "default", "plain")),
    "typescript": Row("TypeScript", _node("typescript_server.mjs", _TYPESCRIPT, "http")),
    "ceiling": Row("bare Hypercorn", _python("ceiling_server.py", "hypercorn trio orjson", "hypercorn"), peer=False),
    "mcp-json-fast": Row(
        "mcp, JSON, uvloop",
        _python("mcp_server.py", "mcp", "high", "http", "json", "fast"),
        usual=False,
        streams=False,
    ),
    "fastmcp-json-fast": Row(
        "fastmcp, JSON, uvloop",
        _python("fastmcp_server.py", "fastmcp", "http", "json", "fast"),
        usual=False,
        streams=False,
    ),
    "typescript-path": Row(
        "TypeScript, Node of the PATH",
        _node("typescript_server.mjs", _TYPESCRIPT, "http", from_path=True),
        usual=False,
    ),
    "floor": Row("bare trio", _python("ceiling_server.py", "trio orjson", "trio"), False, peer=False, slow=False),
}
"""Their commands take the port as the last argument. `mcp` and `fastmcp` answer as event streams by default; JSON is an
option of theirs. uvloop stands for uvicorn on uvloop and httptools. `ceiling` is stock Hypercorn on trio with an
application that checks nothing and has the answers ready; `floor` is trio alone, without an HTTP parser and without
cancellation."""

_BOTH_VERSIONS: Final = ("trio-mcp", "trio", "orjson", "httptools", "hypercorn", "h2")
VERSION_SERVERS: Final = {
    "http2": Row("HTTP/2", _ours("trio_mcp_server.py", *_BOTH_VERSIONS, arguments=("http",))),
    "http1": Row("HTTP/1.1", _ours("trio_mcp_server.py", *_BOTH_VERSIONS, arguments=("http",))),
}
"""Our server twice: it is the load that speaks another version of HTTP."""

LEGACY_STDIO_SERVERS: Final = {
    OURS: STDIO_SERVERS[OURS],
    "mcp": STDIO_SERVERS["mcp"],
    "typescript": Row("TypeScript", _node("typescript_sessions.mjs", _TYPESCRIPT_SESSIONS)),
}
LEGACY_HTTP_SERVERS: Final = {
    OURS: HTTP_SERVERS[OURS],
    "mcp": HTTP_SERVERS["mcp"],
    "typescript": Row("TypeScript", _node("typescript_sessions.mjs", _TYPESCRIPT_SESSIONS, "http", "default")),
    "typescript-json": Row(
        "TypeScript, JSON", _node("typescript_sessions.mjs", _TYPESCRIPT_SESSIONS, "http", "json"), streams=False
    ),
}
"""The same in sessions: trio_mcp and mcp serve both kinds of revisions; of TypeScript it is the SDK 1.x."""
