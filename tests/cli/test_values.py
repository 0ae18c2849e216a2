"""Arguments of a command line, by the schema of the tool."""

from __future__ import annotations

import time
from typing import Any

import click
import pytest

from trio_mcp.cli.session import no_such
from trio_mcp.cli.values import typed_arguments

TEXT = {"type": "string"}
SCHEMAS: list[tuple[dict[str, Any], dict[str, Any], Any]] = [
    (TEXT, {}, "1"),
    ({"type": "integer"}, {}, 1),
    ({"$ref": "#/$defs/T"}, {"$defs": {"T": TEXT}}, "1"),
    ({"$ref": "#/definitions/T"}, {"definitions": {"T": TEXT}}, "1"),
    ({"$ref": "#/properties/b"}, {"properties": {"b": TEXT}}, "1"),
    ({"$ref": "#/$defs/a~1b%20c/T"}, {"$defs": {"a/b c": {"T": TEXT}}}, "1"),
    ({"allOf": [{"description": "x"}, {"$ref": "#/$defs/T"}]}, {"$defs": {"T": TEXT}}, "1"),
    ({"enum": ["1", 2]}, {}, "1"),
    ({"enum": [1, "2"]}, {}, 1),
    ({"anyOf": [{"const": "1"}, {"type": "integer"}]}, {}, "1"),
    ({"$ref": "#/$defs/nowhere"}, {}, 1),
    ({"$ref": "#/properties/a"}, {}, 1),
    ({"anyOf": [{"$ref": "#/$defs/T"}] * 60}, {"$defs": {"T": {"oneOf": [{"$ref": "#/$defs/T"}] * 60}}}, 1),
]


@pytest.mark.parametrize(("schema", "root", "value"), SCHEMAS)
def test_a_value_is_text_where_the_tool_wants_text(schema: dict[str, Any], root: dict[str, Any], value: Any) -> None:
    begin = time.process_time()
    properties = {**root.get("properties", {}), "a": schema}
    got = typed_arguments("t", {"type": "object", **root, "properties": properties}, {"a": "1"}, {})
    assert got == {"a": value}
    assert type(got["a"]) is type(value)
    assert time.process_time() - begin < 1


def test_what_there_is_when_there_is_nothing_or_very_much() -> None:
    assert no_such("tool", "x", []).message == "no tool named 'x': the server has none"
    assert no_such("tool", "x", ["a"]).message == "no tool named 'x'. There is: a"
    many = no_such("tool", "zzz", [f"tool{n}" for n in range(1_000)]).message
    assert many.endswith("tool28, tool29 and 970 more")
    with pytest.raises(click.UsageError, match="tool 't' takes no arguments, got 'a'"):
        typed_arguments("t", {"properties": None}, {"a": "1"}, {})
