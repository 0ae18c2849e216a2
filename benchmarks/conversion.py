"""`python -m benchmarks.conversion` measures how long the event loop stands while a large value is converted.

For each kind of type: the time of the whole, and of its longest piece, of a value of so many bytes and of a quarter of them.
Where four times the bytes take much more than four times as long, the cost is not linear.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import time
from collections.abc import Callable, Generator
from typing import Any, Literal, TypedDict

import msgspec
import pydantic

from trio_mcp.convert.codec import Codec, Mismatch, Pace
from trio_mcp.convert.compiler import Compiler
from trio_mcp.convert.json_schema import CheckedCodec, GivenSchema
from trio_mcp.convert.pieces import is_large


@dataclasses.dataclass
class Row:
    """One element, as a dataclass."""

    id: int
    name: str
    tags: list[str]
    score: float = 0.0


class RowDict(TypedDict):
    """One element, as a TypedDict."""

    id: int
    name: str
    tags: list[str]
    score: float


class RowStruct(msgspec.Struct):
    """One element, as a struct of msgspec."""

    id: int
    name: str
    tags: list[str]
    score: float = 0.0


class RowModel(pydantic.BaseModel):
    """One element, as a model of pydantic."""

    id: int
    name: str
    tags: list[str]
    score: float = 0.0


class Rows(pydantic.BaseModel):
    """All elements in one model of pydantic, which is read in one go."""

    rows: list[RowModel]


@dataclasses.dataclass
class And:
    """A node of a tree, with others."""

    op: Literal["and"]
    args: list[And | Eq]


@dataclasses.dataclass
class Eq:
    """A node of a tree, with a row."""

    op: Literal["eq"]
    args: list[Row]


GIVEN = {
    "$defs": {
        "tree": {
            "anyOf": [
                {
                    "type": "object",
                    "properties": {
                        "id": {"type": "integer"},
                        "name": {"type": "string"},
                        "tags": {"type": "array", "items": {"type": "string"}},
                        "score": {"type": "number"},
                    },
                    "required": ["id", "name", "tags", "score"],
                },
                {"type": "array", "items": {"$ref": "#/$defs/tree"}},
            ]
        }
    },
    "$ref": "#/$defs/tree",
}


def rows(size: int, wrong: bool) -> list[Any]:
    """Elements that come to so many bytes of JSON; one in a hundred has text for a number where they are to be wrong."""
    out: list[Any] = []
    room = size
    while room > 0:
        number = len(out)
        row = {"id": number, "name": f"row {number}", "tags": ["red", "green"], "score": number / 2}
        if wrong and number % 100 == 99:
            row["score"] = "high"
        out.append(row)
        room -= len(json.dumps(row, separators=(",", ":"))) + 1
    return out


def trees(size: int, wrong: bool) -> Any:
    """The same elements, ten in a leaf and ten in a node."""
    level: list[Any] = rows(size, wrong)
    op = "eq"
    while len(level) > 1:
        level = [{"op": op, "args": level[start : start + 10]} for start in range(0, len(level), 10)]
        op = "and"
    return level[0]


def by_name(size: int, wrong: bool) -> dict[str, Any]:
    """The same elements, by their names."""
    return {row["name"]: row for row in rows(size, wrong)}


Case = tuple[Callable[[bool], Codec], Callable[[int, bool], Any]]


def compiled(annotation: Any) -> Callable[[bool], Codec]:
    """Makes the codec of a type, for what goes out or what comes in."""
    return lambda out: Compiler(output=out).compile(annotation)


CASES: dict[str, Case] = {
    "list[dataclass]": (compiled(list[Row]), rows),
    "list[TypedDict]": (compiled(list[RowDict]), rows),
    "list[msgspec.Struct]": (compiled(list[RowStruct]), rows),
    "list[pydantic.BaseModel]": (compiled(list[RowModel]), rows),
    "dict[str, pydantic.BaseModel]": (compiled(dict[str, RowModel]), by_name),
    "pydantic.BaseModel of a list": (compiled(Rows), lambda size, wrong: {"rows": rows(size, wrong)}),
    "recursive union of dataclasses": (compiled(And | Eq), trees),
    "dict[str, dataclass] | dict[str, int]": (compiled(dict[str, Row] | dict[str, int]), by_name),
    "given schema that refers to itself": (lambda out: CheckedCodec(Compiler().compile(Any), GivenSchema(GIVEN)), rows),
    "given schema, not recursive": (
        lambda out: CheckedCodec(
            Compiler().compile(Any),
            GivenSchema({"type": "array", "items": GIVEN["$defs"]["tree"]["anyOf"][0]}),  # type: ignore[index]
        ),
        rows,
    ),
}


def run(steps: Generator[None, None, Any]) -> tuple[Any, float, float]:
    """What a conversion comes to, how long it took, and how long its longest piece."""
    whole = longest = 0.0
    while True:
        began = time.perf_counter()
        try:
            next(steps)
            made, done = None, False
        except StopIteration as exc:
            made, done = exc.value, True
        except Mismatch:
            made, done = None, True
        took = time.perf_counter() - began
        whole, longest = whole + took, max(longest, took)
        if done:
            return made, whole, longest


def measure(case: Case, size: int, wrong: bool) -> list[tuple[str, float, float]]:
    """The times of loading a value, and of dumping what was loaded."""
    make, values = case
    value = values(size, wrong)
    gc.collect()
    began = time.perf_counter()
    is_large(value)
    looked = time.perf_counter() - began
    made, whole, longest = run(make(False).pieces(value, False, Pace()))
    found = [("in, wrong" if wrong else "in", whole, max(longest, looked))]
    if not wrong:
        _, whole, longest = run(make(True).pieces(made, True, Pace()))
        found.append(("out", whole, longest))
    return found


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.conversion", description=__doc__)
    parser.add_argument("--bytes", type=int, default=2_000_000, help="of JSON in the larger value")
    parser.add_argument("--rounds", type=int, default=3, help="of which the best counts")
    parser.add_argument(
        "--no-gc", action="store_true", help="without Python's garbage collector, whose turns are in the pieces"
    )
    options = parser.parse_args()
    if options.no_gc:
        gc.disable()
    print(f"{'type':38} {'way':9} {'whole':>8} {'of ÷ 4':>7} {'longest piece':>14}")
    for name, case in CASES.items():
        for wrong in (False, True):
            large = best([measure(case, options.bytes, wrong) for _ in range(options.rounds)])
            small = best([measure(case, options.bytes // 4, wrong) for _ in range(options.rounds)])
            for (way, whole, longest), (_, part, _) in zip(large, small, strict=True):
                print(
                    f"{name:38} {way:9} {whole * 1e3:5.0f} ms {whole / part:6.1f}× {longest * 1e3:11.1f} ms", flush=True
                )


def best(found: list[list[tuple[str, float, float]]]) -> list[tuple[str, float, float]]:
    """The least times of several rounds."""
    return [(ways[0][0], min(way[1] for way in ways), min(way[2] for way in ways)) for ways in zip(*found, strict=True)]


if __name__ == "__main__":
    main()
