"""What the documentation names is there: modules, members of classes, functions, loggers, and files."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest

import trio_mcp

from .test_docs import ROOT, name_of, page

# What is installed need not be beside the tests.
FOLDERS = {name: ROOT / name for name in ("tests", "examples", "benchmarks")}
FOLDERS["trio_mcp"] = Path(trio_mcp.__file__).parent
SOURCES = {path: path.read_text() for path in FOLDERS["trio_mcp"].rglob("*.py")}
LOGGERS = {name for text in SOURCES.values() for name in re.findall(r'getLogger\("([\w.]+)"\)', text)}
FUNCTIONS = {name for text in SOURCES.values() for name in re.findall(r"\bdef (\w+)", text)}
# What the pages call an object of a class.
VARIABLES = {
    "ctx": "Context",
    "server": "Server",
    "client": "Client",
    "limits": "Limits",
    "endpoint": "HttpEndpoint",
    "exchange": "HttpExchange",
}
# Of Python and trio.
FOREIGN = {"started", "field", "Doc"}
FILES = {"py", "js", "toml", "json"}


def classes() -> dict[str, list[type]]:
    """The classes of the package by their names."""
    found: dict[str, list[type]] = {}
    for module in pkgutil.walk_packages(trio_mcp.__path__, "trio_mcp."):
        if not module.name.endswith("__main__"):
            for name, value in vars(importlib.import_module(module.name)).items():
                if inspect.isclass(value) and value.__module__ == module.name:
                    found.setdefault(name, []).append(value)
    return found


CLASSES = classes()


def has(owner: Any, name: str) -> bool:
    """Whether a module, or an object of a class, has something of this name."""
    if hasattr(owner, name):
        return True
    ours = [base for base in getattr(owner, "__mro__", ()) if base.__module__.startswith("trio_mcp")]
    return any(
        name in vars(base).get("__annotations__", ()) or re.search(rf"\bself\.{name}\b", inspect.getsource(base))
        for base in ours
    )


def exists(dotted: str) -> bool:
    """Whether `trio_mcp.x.y` is something."""
    if dotted in LOGGERS:
        return True
    owner: Any = trio_mcp
    for number, name in enumerate(parts := dotted.split(".")[1:], 1):
        if not has(owner, name):
            try:
                importlib.import_module(".".join(["trio_mcp", *parts[:number]]))
            except ImportError:
                return False
        owner = getattr(owner, name, None)
    return True


def wrong_names(text: str) -> list[str]:
    """What a page names that is not there."""
    wrong = [name for name in re.findall(r"(?<![\w./-])trio_mcp(?:\.[A-Za-z_]\w*)+", text) if not exists(name)]
    prose = re.sub(r"^\s*(`{3,}).*?^\s*\1\s*$", "", text, flags=re.MULTILINE | re.DOTALL)
    for code in re.findall(r"`([^`\n]+)`", prose):
        for head, name in re.findall(r"(?<![\w./])(\w+)\.([A-Za-z]\w*)", code):
            owners = CLASSES.get(VARIABLES.get(head, head), [])
            if owners and name not in FILES and not any(has(owner, name) for owner in owners):
                wrong.append(f"{head}.{name}")
        if (call := re.fullmatch(r"(\w+)\(.*\)", code)) and call[1] not in FUNCTIONS | CLASSES.keys() | FOREIGN:
            wrong.append(code)
        if (path := re.fullmatch(r"(\w+)/(\S*)", code)) and path[1] in FOLDERS:
            folder, rest = FOLDERS[path[1]], path[2]
            if not (folder / rest).exists() and not (folder / f"{rest}.py").exists():
                wrong.append(code)
    return wrong


@page
def test_names_of_code_and_files_exist(path: Path) -> None:
    assert wrong_names(path.read_text()) == [], name_of(path)


@pytest.mark.parametrize(
    "name",
    [
        *("trio_mcp.clients", "trio_mcp.client.nobody", "trio_mcp.testing.TaskStoreContracts", "trio_mcp.Server.tools"),
        *("ctx.progress", "Call.settles", "server.runs()", "limits.places", "HttpError.uri", "open_clients()"),
        *("tests/net/test_edge", "examples/quickstart2.py", "trio_mcp/wires/"),
    ],
)
def test_a_name_that_is_not_there_is_found(name: str) -> None:
    assert len(wrong_names(f"See `{name}`.")) == 1
