"""From functions to definitions: every kind of callable, and what is refused with which words."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
import trio

from trio_mcp import Context, RegistrationError, Server, open_client

from .decorators import logged, sync_wrapper


@dataclass
class Point:
    """A point of the plane."""

    x: int
    y: int = 0


def tools_of(server: Server[Any]) -> dict[str, dict[str, Any]]:
    return {name: tool.wire for name, tool in server.registry.tools.items()}


def test_a_definition_comes_from_the_signature_and_the_docstring() -> None:
    server = Server("s")

    @server.tool
    async def move_point(
        point: Point, by: Annotated[int, "How far."] = 1, *, mode: Literal["fast", "slow"] = "fast", ctx: Context
    ) -> Point:
        """Move a point.

        Args:
            point: What to move.
            mode: How.
        """
        return point

    assert tools_of(server) == {
        "move_point": {
            "name": "move_point",
            "title": "Move point",
            "description": "Move a point.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "point": {"$ref": "#/$defs/Point", "description": "What to move."},
                    "by": {"type": "integer", "default": 1, "description": "How far."},
                    "mode": {"enum": ["fast", "slow"], "type": "string", "default": "fast", "description": "How."},
                },
                "required": ["point"],
                "additionalProperties": False,
                "$defs": {
                    "Point": {
                        "type": "object",
                        "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
                        "required": ["x"],
                        "additionalProperties": False,
                        "description": "A point of the plane.",
                    }
                },
            },
            "outputSchema": {
                "type": "object",
                "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
                "required": ["x"],
                "additionalProperties": False,
                "description": "A point of the plane.",
            },
        }
    }


def test_the_decorators_work_with_and_without_parentheses_and_leave_the_function_alone() -> None:
    server = Server("s")

    @server.tool
    def one() -> int:
        return 1

    @server.tool()
    def two() -> int:
        return 2

    @server.tool(name="tool.three", title="Three!", description="A third.", annotations={"readOnlyHint": True})
    def three() -> int:
        return 3

    def four() -> int:
        return 4

    assert server.tool(four, name="4") is four
    assert server.prompt(one) is one
    assert server.prompt()(two) is two
    assert (one(), two(), three(), four()) == (1, 2, 3, 4)
    assert list(tools_of(server)) == ["one", "two", "tool.three", "4"]
    assert tools_of(server)["tool.three"] == {
        "name": "tool.three",
        "title": "Three!",
        "description": "A third.",
        "inputSchema": {"type": "object", "additionalProperties": False},
        "outputSchema": {"type": "integer"},
        "annotations": {"readOnlyHint": True},
    }


class Things:
    """An object with methods of every kind."""

    factor = 10

    def bound(self, n: int) -> int:
        """Multiply."""
        return self.factor * n

    @staticmethod
    def static(n: int) -> int:
        return n

    @classmethod
    async def of_class(cls, n: int) -> int:
        return cls.factor + n

    async def __call__(self, n: int) -> int:
        """Call the thing."""
        return self.factor - n


class PlainCallable:
    def __call__(self, n: int) -> int:
        return n + 1


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


async def test_methods_partials_callables_and_wrapped_functions_run_as_tools() -> None:
    server = Server("s")
    things = Things()
    server.tool(things.bound)
    server.tool(Things.static)
    server.tool(Things.of_class)
    server.tool(things, name="thing")
    server.tool(PlainCallable())
    server.tool(functools.partial(add, b=5))
    server.tool(lambda n: n, name="same")

    @server.tool
    @logged
    async def wrapped(point: Point, kind: Literal["a"], ctx: Context) -> str:
        return f"{point.x}{kind}{ctx.request_id is not None}"

    @server.tool
    @sync_wrapper
    async def hidden(n: int) -> int:
        await trio.lowlevel.checkpoint()
        return n * 2

    expected = {
        "bound": ({"n": 2}, 20),
        "static": ({"n": 2}, 2),
        "of_class": ({"n": 2}, 12),
        "thing": ({"n": 2}, 8),
        "PlainCallable": ({"n": 2}, 3),
        "add": ({"a": 2}, 7),
        "same": ({"n": 2}, 2),
        "wrapped": ({"point": {"x": 1}, "kind": "a"}, "1aTrue"),
        "hidden": ({"n": 2}, 4),
    }
    async with open_client(server) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
        assert list(tools) == list(expected)
        for name, (arguments, value) in expected.items():
            result = await client.call_tool(name, arguments, raise_on_error=True)
            assert result.data == value, name
    for tool in tools.values():
        assert not {"self", "cls", "ctx"} & set(tool.input_schema.get("properties", {}))
    assert tools["bound"].description == "Multiply."
    assert tools["thing"].description == "Call the thing."
    assert tools["add"].input_schema["properties"]["b"] == {"type": "integer", "default": 5}


async def test_local_types_are_found_under_postponed_annotations() -> None:
    @dataclass
    class Local:
        n: int
        next: Local | None = None

    server = Server("s")

    @server.tool
    async def total(item: Local) -> int:
        return item.n + (item.next.n if item.next else 0)

    async with open_client(server) as client:
        result = await client.call_tool("total", {"item": {"n": 1, "next": {"n": 2}}})
    assert result.data == 3


def positional(a: int, /, b: int) -> int:
    return a + b


def variable(*args: int) -> int:
    return sum(args)


def keywords(**kwargs: int) -> int:
    return sum(kwargs.values())


def callback(then: Callback) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def opaque(thing: threading.Lock) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def function_type(then: functools.partial[int]) -> None: ...


@dataclass
class Holder:
    inner: functools.partial[int]


def nested(items: list[Holder]) -> None: ...


def object_result() -> Holder: ...


def two_contexts(a: Context, b: Context) -> None: ...


def bytes_keys(table: dict[float, int]) -> None: ...


def gen() -> Any:
    yield 1


async def agen() -> Any:
    yield 1


def no_type(a: [int]) -> str:  # type: ignore[valid-type]
    return str(a)


REFUSED = [
    (no_type, "tool 'no_type': parameter 'a': [<class 'int'>] is not a type"),
    (
        Things.bound,
        "tool 'bound': Things.bound is a method that is not bound to an object; register the bound method, as in "
        "server.tool(instance.bound)",
    ),
    (positional, "tool 'positional': parameter 'a' is positional-only; arguments come by name"),
    (variable, "tool 'variable': parameter '*args': a variable number of arguments cannot be described"),
    (
        keywords,
        "tool 'keywords': parameter '**kwargs': arguments of any name cannot be described; input_schema=… says what they are",
    ),
    (callback, "tool 'callback': parameter 'then': the name 'Callback' in 'Callback' cannot be resolved"),
    (opaque, "tool 'opaque': parameter 'thing': the name 'threading' in 'threading.Lock' cannot be resolved"),
    (function_type, "tool 'function_type': parameter 'then': functools.partial[int] cannot be expressed as JSON"),
    (
        nested,
        "tool 'nested': parameter 'items' → Holder.inner: functools.partial[int] cannot be expressed as JSON",
    ),
    (
        object_result,
        "tool 'object_result': the return type → Holder.inner: functools.partial[int] cannot be expressed as JSON",
    ),
    (two_contexts, "tool 'two_contexts': parameter 'b': a second Context"),
    (
        bytes_keys,
        "tool 'bytes_keys': parameter 'table': a mapping with keys of float cannot be expressed as JSON",
    ),
    (gen, "tool 'gen': a generator cannot be a handler; return a list, and report progress as it grows"),
    (agen, "tool 'agen': a generator cannot be a handler; return a list, and report progress as it grows"),
    (lambda: 1, "tool: a lambda has no name of its own; pass name=…"),
]


@pytest.mark.parametrize(("fn", "message"), REFUSED, ids=[str(getattr(fn, "__name__", fn)) for fn, _ in REFUSED])
def test_what_cannot_be_a_tool_is_refused_with_the_reason(fn: Any, message: str) -> None:
    server = Server("s")
    with pytest.raises(RegistrationError) as caught:
        server.tool(fn)
    assert str(caught.value) == message
    assert tools_of(server) == {}


def test_names_are_unique_and_sane() -> None:
    server = Server("s")
    server.tool(add)
    with pytest.raises(RegistrationError, match="tool 'add': a tool of this name is registered already"):
        server.tool(add)
    for name in ("", "x" * 129, "a\nb"):
        with pytest.raises(RegistrationError, match="a name has 1 to 128 characters"):
            server.tool(add, name=name)
    with pytest.raises(RegistrationError, match="expected a text that is not empty"):
        Server("")
    with pytest.raises(RegistrationError, match="timeout must be a positive number"):
        server.tool(add, name="b", timeout=0)


def test_resources_and_their_templates_are_checked() -> None:
    server = Server("s")

    def item(name: str) -> str:
        return name

    for uri, message in {
        "no scheme": "resource 'no scheme': not a URI; it needs a scheme, as in 'notes://no scheme'",
        "x://{name": "resource 'x://{name': unbalanced '{' in 'x://{name'",
        "x://{name:3}": "resource 'x://{name:3}': {name:3}: a prefix length (:n) cannot be matched back",
        "x://{other}": "resource 'item': 'x://{other}' has the variable 'other', the function has no such parameter",
        "x://fixed": "resource 'item': parameter 'name' is not a variable of 'x://fixed'",
        "x://a{?name}": "resource 'item': parameter 'name' needs a default: 'x://a{?name}' lets a URI leave it out",
    }.items():
        with pytest.raises(RegistrationError) as caught:
            server.resource(uri)(item)
        assert str(caught.value) == message
    server.resource("x://{name}")(item)
    with pytest.raises(RegistrationError, match="registered already"):
        server.resource("x://{name}")(item)
    with pytest.raises(RegistrationError, match="needs the URI"):
        server.resource(item)  # type: ignore[arg-type]


def test_the_registry_is_a_snapshot() -> None:
    server = Server("s")
    before = server.registry
    assert server.registry is before
    server.tool(add)
    assert before.tools == {}
    assert list(server.registry.tools) == ["add"]


def test_an_option_that_there_is_not_is_refused_with_the_one_that_was_meant() -> None:
    server = Server("s")
    options: dict[str, Any] = {"structured_output": True}
    with pytest.raises(
        RegistrationError, match=r"@server.tool\(structured_output=…\).*did you mean structured=…\? There is"
    ):
        server.tool(**options)
    with pytest.raises(RegistrationError, match=r"@server.resource\(mimetype=…\).*did you mean mime_type=…"):
        server.resource("notes://a", mimetype="text/plain")  # type: ignore[call-arg]
    with pytest.raises(RegistrationError, match=r"@server.prompt\(zzz=…\): no such option. There is: description"):
        server.prompt(zzz=1)  # type: ignore[call-overload]


def test_a_context_without_a_type_and_one_of_another_package_are_no_arguments() -> None:
    server = Server("s")

    def untyped(x: int, ctx) -> int:  # type: ignore[no-untyped-def]
        return x

    class Context:
        """As other packages have one."""

    Context.__module__, Context.__qualname__ = "mcp.server.fastmcp.server", "Context"

    def foreign(x: int, c: Context) -> int:
        return x

    with pytest.raises(RegistrationError, match="'ctx' has no type; write ctx: Context"):
        server.tool(untyped)
    with pytest.raises(RegistrationError, match=r"'c' is a mcp\.server\.fastmcp\.server\.Context; this server gives"):
        server.tool(foreign)
    assert not server.registry.tools
