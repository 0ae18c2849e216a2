"""`python -m benchmarks` measures, over a pipe and over HTTP; `profile` behind it shows where the time goes."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from . import http, processes, profiling, stdio, table
from .environments import Environments, SetupError
from .processes import Cores
from .results import Result
from .servers import HTTP_SERVERS, OURS, STDIO_SERVERS, Ready, Row


@dataclass(frozen=True)
class _Benchmark:
    title: str
    rows: Mapping[str, Row]
    measures: Sequence[table.Measure]
    measure: Callable[[Mapping[str, Ready], Cores, int, float], dict[str, Result]]
    targets: Callable[[Mapping[str, Result]], list[table.Target]]


_BENCHMARKS = {
    "stdio": _Benchmark("over a pipe", STDIO_SERVERS, stdio.MEASURES, stdio.measure, stdio.targets),
    "http": _Benchmark("over HTTP", HTTP_SERVERS, http.MEASURES, http.measure, http.targets),
}


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, what in {
        "all": "both of these, one after the other; what runs without a command",
        "stdio": "start, memory, echo and cancellation over a pipe, beside the peers",
        "http": "start, memory, echo, lists, cancellation and open streams over HTTP, beside the peers",
    }.items():
        measure = commands.add_parser(name, help=what)
        measure.add_argument("--rounds", type=int, default=3)
        measure.add_argument("--duration", type=float, default=2.5, help="seconds of each load run")
        rows = {row: None for kind, one in _BENCHMARKS.items() if name in (kind, "all") for row in one.rows}
        measure.add_argument("--only", help=f"servers, separated by commas: {', '.join(rows)}")
        measure.add_argument("--json", type=Path, metavar="FILE", help="write every figure there as well")
        measure.set_defaults(known=list(rows))
    profile = commands.add_parser("profile", help="where the time of one echo call goes in our server")
    profile.add_argument("--http", action="store_true", help="over HTTP instead of a pipe")
    profile.add_argument("--duration", type=float, default=12.0, help="seconds of each of the three runs")
    profile.add_argument("--window", type=int, default=32, help="calls in flight; over HTTP, connections")
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


def _measure(args: argparse.Namespace) -> None:
    if args.rounds < 1 or args.duration <= 0:
        raise SystemExit("--rounds and --duration must be positive")
    only = args.only.split(",") if args.only else None
    unknown = [name for name in only or () if name not in args.known]
    if unknown:
        raise SystemExit(f"no such server: {', '.join(unknown)}; there are {', '.join(args.known)}")
    cores = processes.Cores.choose()
    environments = Environments()
    # All set-up comes first: what this process starts later inherits its core and its precedence.
    prepared = {}
    for kind in ["stdio", "http"] if args.command == "all" else [args.command]:
        rows = _BENCHMARKS[kind].rows
        names = [name for name, row in rows.items() if (name in only if only else row.usual)]
        if names:
            prepared[kind] = _prepare(rows, names, environments)
    priorities = processes.pin_load(cores)
    everything = {}
    for kind, (servers, missing) in prepared.items():
        one = _BENCHMARKS[kind]
        results = one.measure(servers, cores, args.rounds, args.duration)
        title = f"trio_mcp beside its peers, {one.title}"
        print(table.header(title, servers, cores, priorities, args.rounds, args.duration))
        print()
        print(table.report(one.rows, one.measures, results, missing, one.targets(results)))
        print(flush=True)
        everything[kind] = {
            "versions": {name: ready.versions for name, ready in servers.items()},
            "missing": missing,
            "results": {name: asdict(result) for name, result in results.items()},
        }
    if args.json is not None:
        args.json.write_text(json.dumps(everything, indent=1) + "\n")


def _profile(args: argparse.Namespace) -> None:
    cores = processes.Cores.choose()
    rows = HTTP_SERVERS if args.http else STDIO_SERVERS
    servers, missing = _prepare(rows, [args.server], Environments())
    if missing:
        raise SystemExit(f"{args.server} was not set up: {missing[args.server]}")
    priorities = processes.pin_load(cores)
    print(table.header("Where the time of a call goes", servers, cores, priorities, 1, args.duration))
    print()
    print(profiling.report(servers[args.server], cores, args.window, args.duration, args.top, args.http))


def main(argv: Sequence[str] | None = None) -> None:
    """Run one benchmark, or all."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or (words[0].startswith("-") and words[0] not in ("-h", "--help")):
        words.insert(0, "all")
    args = _arguments(words)
    if args.command == "profile":
        _profile(args)
    else:
        _measure(args)


if __name__ == "__main__":
    main()
