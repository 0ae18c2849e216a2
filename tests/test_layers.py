"""The shape of the house: which floor may import which, no cycles, no module over 500 lines."""

from __future__ import annotations

import ast
from pathlib import Path

import trio_mcp

# It may be installed, and not lie beside the tests.
PACKAGE = Path(trio_mcp.__file__).parent

# A floor imports itself and the floors before it. `cli` and `testing` stand side by side on top.
FLOORS = [
    {"errors", "limits"},
    {"protocol"},
    {"wire"},
    {"convert"},
    {"scopes"},
    {"tasks"},
    {"server"},
    {"client"},
    {"transports"},
    {"running"},
    {"serve", "connect"},
    {"testing"},
    {""},  # trio_mcp/__init__.py
    {"cli", "__main__"},
]
LEVEL = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}
# Inside of `server` the same again.
SERVER_FLOORS = [{"failures", "paths"}, {"peer"}, {"declare"}, {"ask"}, {"tasks"}, {"serve"}, {""}]
SERVER_LEVEL = {room: level for level, rooms in enumerate(SERVER_FLOORS) for room in rooms}
LONGEST = 12
"""Folders in the longest chain of imports: whoever changes the first may have to look at all of them."""
PURE = {"errors", "limits", "protocol", "wire", "convert"}
NOT_IN_PURE = {"trio", "socket", "time", "random", "secrets", "logging"}
FOREIGN = {"asyncio", "anyio", "requests", "aiohttp", "hypercorn"}
HOST = ("trio_mcp.running.mounted", "hypercorn")
"""The one module that serves somebody's application in a host of somebody else's, and is loaded for that only."""
MODULES = sorted(PACKAGE.rglob("*.py"))


def module_name(path: Path) -> str:
    parts = list(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def imports(path: Path) -> list[tuple[str, bool]]:
    """The modules that a file imports, and whether only for the type checker."""
    name = module_name(path)
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    tree = ast.parse(path.read_text())
    checked: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            checked.update(inner for statement in node.body for inner in ast.walk(statement))
    out: list[tuple[str, bool]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            out += [(alias.name, node in checked) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package.rsplit(".", node.level - 1)[0] if node.level > 1 else package
            source = f"{base}.{node.module}" if node.level and node.module else (base if node.level else node.module)
            assert source is not None
            for alias in node.names:
                inner = PACKAGE.parent / Path(*source.split("."), alias.name)
                is_module = inner.with_suffix(".py").exists() or inner.is_dir()
                out.append((f"{source}.{alias.name}" if is_module else source, node in checked))
    return out


IMPORTS = {module_name(path): imports(path) for path in MODULES}


def test_a_module_imports_its_own_floor_and_those_below() -> None:
    above = [
        f"{module} imports {target}, which stands above it"
        for module, targets in IMPORTS.items()
        for target, checking in targets
        if target.split(".")[0] == "trio_mcp" and LEVEL[room(target)] > LEVEL[room(module)]
        # The package itself stands above all but the command line; it may name that for the type checker.
        if not (checking and room(module) == "")
    ]
    assert above == []


def test_no_module_knows_a_foreign_event_loop_and_the_pure_floors_know_none_and_no_clock() -> None:
    strange = [
        f"{module} imports {target}"
        for module, targets in IMPORTS.items()
        for target, _ in targets
        if target.split(".")[0] in (FOREIGN | NOT_IN_PURE if room(module) in PURE else FOREIGN)
        if (module, target.split(".")[0]) != HOST
    ]
    assert strange == []


def test_inside_the_server_floors_run_one_way_too() -> None:
    def level(module: str) -> int:
        return SERVER_LEVEL[module.removeprefix("trio_mcp.server").removeprefix(".").split(".")[0]]

    above = [
        f"{module} imports {target}, which stands above it"
        for module, targets in IMPORTS.items()
        for target, _ in targets
        if module.startswith("trio_mcp.server")
        and target.startswith("trio_mcp.server")
        and level(target) > level(module)
    ]
    assert above == []


def longest_chain(arrows: dict[str, set[str]]) -> tuple[str, ...]:
    """The longest way along the arrows. A circle fails."""
    chains: dict[str, tuple[str, ...]] = {}

    def longest(one: str, trail: tuple[str, ...]) -> tuple[str, ...]:
        assert one not in trail, " -> ".join((*trail, one))
        if one not in chains:
            behind = [longest(target, (*trail, one)) for target in sorted(arrows.get(one, ()))]
            chains[one] = (one, *max(behind, key=len, default=()))
        return chains[one]

    return max((longest(one, ()) for one in arrows), key=len)


def test_no_module_knows_itself_through_others() -> None:
    """Imports for the type checker count: what has to be read together is a circle, whatever runs."""
    # The package itself names everything.
    longest_chain(
        {module: {target for target, _ in IMPORTS[module] if target in IMPORTS} - {"trio_mcp"} for module in IMPORTS}
    )


def test_no_chain_of_folders_is_long() -> None:
    def folder(module: str) -> str:
        parts = module.split(".")[1:]
        return ".".join(parts[:2] if parts[0] == "server" else parts[:1])

    arrows: dict[str, set[str]] = {}
    for module, targets in IMPORTS.items():
        if module != "trio_mcp":
            inner = {folder(target) for target, _ in targets if target in IMPORTS and target != "trio_mcp"}
            arrows.setdefault(folder(module), set()).update(inner - {folder(module)})
    chain = longest_chain(arrows)
    assert len(chain) <= LONGEST, " -> ".join(chain)


def test_no_module_has_over_500_lines_no_function_over_100_or_an_import_inside() -> None:
    wrong: list[str] = []
    for path in MODULES:
        text = path.read_text()
        if (lines := len(text.splitlines())) > 500:
            wrong.append(f"{module_name(path)} has {lines} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                if any(isinstance(item, ast.Import | ast.ImportFrom) for item in ast.walk(node)):
                    wrong.append(f"{module_name(path)}: {node.name} imports inside")
                if (node.end_lineno or 0) - node.lineno >= 100:
                    wrong.append(f"{module_name(path)}: {node.name} is over 100 lines long")
    assert wrong == []
