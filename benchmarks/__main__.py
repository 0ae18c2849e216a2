"""`python -m benchmarks` measures, over a pipe and over HTTP; `profile` behind it shows where the time goes, and `page`
writes the page of the documentation."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from . import http, http2, legacy, page, processes, profiling, stdio, table
from .environments import Environments, SetupError
from .machine import Setting, day_and_commit
from .processes import Cores
from .results import Result
from .servers import (
    HTTP_SERVERS,
    LEGACY_HTTP_SERVERS,
    LEGACY_STDIO_SERVERS,
    OURS,
    STDIO_SERVERS,
    VERSION_SERVERS,
    Ready,
    Row,
)


@dataclass(frozen=True)
class _Benchmark:
    title: str
    rows: Mapping[str, Row]
    measures: Sequence[table.Measure]
    measure: Callable[[Mapping[str, Ready], Cores, int, float], dict[str, Result]]
    targets: Callable[[Mapping[str, Result]], list[table.Target]] | None = None
    base: str = OURS


_BENCHMARKS = {
    "stdio": _Benchmark(
        "trio_mcp beside its peers, over a pipe", STDIO_SERVERS, stdio.MEASURES, stdio.measure, stdio.targets
    ),
    "http": _Benchmark("trio_mcp beside its peers, over HTTP", HTTP_SERVERS, http.MEASURES, http.measure, http.targets),
    "http2": _Benchmark("HTTP/2 beside HTTP/1.1", VERSION_SERVERS, http2.MEASURES, http2.measure, base=http2.BASE),
    "legacy_stdio": _Benchmark(
        "trio_mcp beside its peers, in a session over a pipe",
        LEGACY_STDIO_SERVERS,
        legacy.STDIO_MEASURES,
        legacy.measure_stdio,
        legacy.stdio_targets,
    ),
    "legacy_http": _Benchmark(
        "trio_mcp beside its peers, in sessions over HTTP",
        LEGACY_HTTP_SERVERS,
        legacy.HTTP_MEASURES,
        legacy.measure_http,
        legacy.http_targets,
    ),
}
_WINDOW = 32


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    era = "the kind of revision; legacy ones (2025-11-25) have sessions"
    for name, what in {
        "all": "all of these, one after the other; what runs without a command",
        "stdio": "start, memory, echo and cancellation over a pipe, beside the peers",
        "http": "start, memory, echo, lists, cancellation and open streams over HTTP, beside the peers",
    }.items():
        measure = commands.add_parser(name, help=what)
        measure.add_argument("--rounds", type=int, default=3)
        measure.add_argument("--duration", type=float, default=2.5, help="seconds of each load run")
        measure.add_argument("--only", help="servers, separated by commas")
        measure.add_argument("--json", type=Path, metavar="FILE", help="write every figure there as well")
        if name == "all":
            measure.add_argument("--page", type=Path, metavar="FILE", help="write the page, and keep its figures")
        else:
            measure.add_argument("--era", choices=["modern", "legacy"], default="modern", help=era)
        if name == "http":
            measure.add_argument("--http2", action="store_true", help="our server over HTTP/2 beside HTTP/1.1 instead")
    again = commands.add_parser("page", help="write the page from the figures that are kept, without a run")
    again.add_argument("page", type=Path, metavar="FILE")
    profile = commands.add_parser("profile", help="where the time of one echo call goes in our server")
    profile.add_argument("--http", action="store_true", help="over HTTP instead of a pipe")
    profile.add_argument("--era", choices=["modern", "legacy"], default="modern", help=era)
    profile.add_argument("--duration", type=float, default=12.0, help="seconds of each of the three runs")
    profile.add_argument("--window", type=int, default=_WINDOW, help="calls in flight; over HTTP, connections")
    profile.add_argument("--top", type=int, default=25, help="rows of the longer tables")
    profile.add_argument("--server", choices=[OURS, "floor"], default=OURS)
    return parser.parse_args(argv)


def _prepare(
    rows: Mapping[str, Row], names: Sequence[str], environments: Environments
) -> tuple[dict[str, Ready], dict[str, str]]:
    servers: dict[str, Ready] = {}
    missing: dict[str, str] = {}
    for name in names:
        try:
            servers[name] = rows[name].prepare(environments)
        except SetupError as exc:
            missing[name] = str(exc)
    return servers, missing


def _kinds(args: argparse.Namespace) -> list[str]:
    if args.command == "all":
        return list(_BENCHMARKS)
    if args.era == "legacy":
        return [f"legacy_{args.command}"]
    return ["http2"] if args.command == "http" and args.http2 else [args.command]


def _chosen(args: argparse.Namespace) -> dict[str, list[str]]:
    """The servers of each part."""
    known = {kind: _BENCHMARKS[kind].rows for kind in _kinds(args)}
    only = args.only.split(",") if args.only else None
    names = dict.fromkeys(name for rows in known.values() for name in rows)
    unknown = [name for name in only or () if name not in names]
    if unknown:
        raise SystemExit(f"no such server: {', '.join(unknown)}; there are {', '.join(names)}")
    return {
        kind: [name for name, row in rows.items() if (row.usual if only is None else name in only)]
        for kind, rows in known.items()
    }


def _measure(args: argparse.Namespace) -> None:
    if args.rounds < 1 or args.duration <= 0:
        raise SystemExit("--rounds and --duration must be positive")
    target: Path | None = args.page if args.command == "all" else None
    if target is not None and args.only:
        raise SystemExit("--page shows all of the usual servers, so it does not go with --only")
    made = day_and_commit()
    cores = processes.Cores.choose()
    environments = Environments()
    # All set-up comes first: what this process starts later inherits its core and its precedence.
    prepared = {
        kind: _prepare(_BENCHMARKS[kind].rows, names, environments) for kind, names in _chosen(args).items() if names
    }
    setting = Setting.here(cores, processes.pin_load(cores), args.rounds, args.duration)
    everything: dict[str, Any] = {"made": made, "setting": asdict(setting)}
    for kind, (servers, missing) in prepared.items():
        one = _BENCHMARKS[kind]
        results = one.measure(servers, cores, args.rounds, args.duration)
        print(f"# {one.title}", "", *setting.lines(), _versions(servers), "", sep="\n")
        print(table.report(one.rows, one.measures, results, missing, one.base))
        if one.targets is not None and OURS in results:
            print("", table.verdicts(one.targets(results)), sep="\n")
        print(flush=True)
        everything[kind] = {
            "versions": {name: ready.versions for name, ready in servers.items()},
            "missing": missing,
            "results": {name: asdict(result) for name, result in results.items()},
        }
    if target is not None:
        everything["profile"] = profiling.parts(prepared["stdio"][0][OURS], cores, _WINDOW, 4 * args.duration)
        page.save(everything)
        target.write_text(page.render(page.load()))
    if args.json is not None:
        args.json.write_text(json.dumps(everything, indent=1) + "\n")


def _versions(servers: Mapping[str, Ready]) -> str:
    return "- " + ", ".join(dict.fromkeys(f"{k} {v}" for ready in servers.values() for k, v in ready.versions.items()))


def _profile(args: argparse.Namespace) -> None:
    cores = processes.Cores.choose()
    rows = HTTP_SERVERS if args.http else STDIO_SERVERS
    servers, missing = _prepare(rows, [args.server], Environments())
    if missing:
        raise SystemExit(f"{args.server} was not set up: {missing[args.server]}")
    priorities = processes.pin_load(cores)
    setting = Setting.here(cores, priorities, 1, args.duration)
    print("# Where the time of a call goes", "", *setting.lines(), _versions(servers), "", sep="\n")
    print(
        profiling.report(
            servers[args.server], cores, args.window, args.duration, args.top, args.http, args.era == "legacy"
        )
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Run one benchmark, or all."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or (words[0].startswith("-") and words[0] not in ("-h", "--help")):
        words.insert(0, "all")
    args = _arguments(words)
    if args.command == "profile":
        _profile(args)
    elif args.command == "page":
        args.page.write_text(page.render(page.load()))
    else:
        _measure(args)


if __name__ == "__main__":
    main()
