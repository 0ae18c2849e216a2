"""`python -m benchmarks stdio` measures; `python -m benchmarks profile` shows where the time of a call goes."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from . import processes, profiling, stdio, table
from .environments import Environments, SetupError
from .servers import OURS, SERVERS, Ready


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    measure = commands.add_parser("stdio", help="start, memory, echo and cancellation over a pipe, beside the peers")
    measure.add_argument("--rounds", type=int, default=3)
    measure.add_argument("--duration", type=float, default=2.5, help="seconds of each load run")
    measure.add_argument("--only", help=f"servers, separated by commas: {', '.join(SERVERS)}")
    measure.add_argument("--json", type=Path, metavar="FILE", help="write every figure there as well")
    profile = commands.add_parser("profile", help="where the time of one echo call goes in our server")
    profile.add_argument("--duration", type=float, default=12.0, help="seconds of each of the three runs")
    profile.add_argument("--window", type=int, default=32, help="calls in flight")
    profile.add_argument("--top", type=int, default=25, help="rows of the longer tables")
    profile.add_argument("--server", choices=[OURS, "floor"], default=OURS)
    return parser.parse_args(argv)


def _prepare(names: Sequence[str]) -> tuple[dict[str, Ready], dict[str, str]]:
    environments = Environments()
    servers: dict[str, Ready] = {}
    missing: dict[str, str] = {}
    for name in names:
        try:
            servers[name] = SERVERS[name].prepare(environments)
        except SetupError as exc:
            missing[name] = str(exc)
    return servers, missing


def _stdio(args: argparse.Namespace) -> None:
    if args.rounds < 1 or args.duration <= 0:
        raise SystemExit("--rounds and --duration must be positive")
    names = args.only.split(",") if args.only else [name for name, row in SERVERS.items() if row.usual]
    unknown = [name for name in names if name not in SERVERS]
    if unknown:
        raise SystemExit(f"no such server: {', '.join(unknown)}; there are {', '.join(SERVERS)}")
    cores = processes.Cores.choose()
    servers, missing = _prepare(names)
    priorities = processes.pin_load(cores)
    results = stdio.measure(servers, cores, args.rounds, args.duration)
    print(
        table.header("trio_mcp beside its peers, over a pipe", servers, cores, priorities, args.rounds, args.duration)
    )
    print()
    print(table.stdio_report(results, missing))
    if args.json is not None:
        everything = {
            "versions": {name: ready.versions for name, ready in servers.items()},
            "missing": missing,
            "results": {name: asdict(result) for name, result in results.items()},
        }
        args.json.write_text(json.dumps(everything, indent=1) + "\n")


def _profile(args: argparse.Namespace) -> None:
    cores = processes.Cores.choose()
    servers, _ = _prepare([args.server])
    ready = servers[args.server]
    priorities = processes.pin_load(cores)
    print(table.header("Where the time of a call goes", servers, cores, priorities, 1, args.duration))
    print()
    print(profiling.report(ready, cores, args.window, args.duration, args.top))


def main(argv: Sequence[str] | None = None) -> None:
    """Run one benchmark."""
    args = _arguments(argv)
    if args.command == "stdio":
        _stdio(args)
    else:
        _profile(args)


if __name__ == "__main__":
    main()
