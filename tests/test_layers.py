"""The shape of the house: which floor may import which, no cycles, no module over 500 lines."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "trio_mcp"

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
    {"serve", "connect"},
    {"testing"},
    {""},  # trio_mcp/__init__.py
    {"cli", "__main__"},
]
LEVEL = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}
PURE = {"errors", "limits", "protocol", "wire", "convert"}
NOT_IN_PURE = {"trio", "socket", "time", "random", "secrets", "logging", "asyncio", "anyio"}
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


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_a_module_imports_its_own_floor_and_those_below(path: Path) -> None:
    own = room(module_name(path))
    for target, type_checking in imports(path):
        if target.split(".")[0] != "trio_mcp" or (type_checking and own == ""):
            continue
        assert LEVEL[room(target)] <= LEVEL[own], f"{module_name(path)} imports {target}, which stands above it"


@pytest.mark.parametrize("path", [path for path in MODULES if room(module_name(path)) in PURE], ids=module_name)
def test_the_pure_floors_know_no_event_loop_and_no_clock(path: Path) -> None:
    used = {target.split(".")[0] for target, _ in imports(path)}
    assert used & NOT_IN_PURE == set()


def test_no_module_imports_itself_through_others() -> None:
    graph = {
        module_name(path): {
            target for target, checking in imports(path) if target.startswith("trio_mcp") and not checking
        }
        for path in MODULES
    }
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join((*trail, module))
        if module not in done:
            for target in sorted(graph.get(module, ())):
                visit(target, (*trail, module))
            done.add(module)

    for module in graph:
        visit(module, ())


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_a_module_has_at_most_500_lines_and_no_import_in_a_function(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 500
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = [item for item in ast.walk(node) if isinstance(item, ast.Import | ast.ImportFrom)]
            assert inside == [], f"{node.name} imports inside"
            assert (node.end_lineno or 0) - node.lineno < 100, f"{node.name} is over 100 lines long"


def test_no_foreign_event_loop_and_no_other_server_in_the_package() -> None:
    used = {target.split(".")[0] for path in MODULES for target, _ in imports(path)}
    assert used & {"asyncio", "anyio", "requests", "aiohttp", "hypercorn"} == set()
