"""What handlers may return, and what becomes of a value that is not what was promised."""

from __future__ import annotations

import base64
import math
from typing import Any, TypedDict

import pytest
import trio
import trio.testing

from trio_mcp import (
    Audio,
    CallToolResult,
    EmbeddedResource,
    GetPromptResult,
    Image,
    InternalError,
    InvalidParams,
    Limits,
    PromptMessage,
    ProtocolError,
    ReadResourceResult,
    ResourceContents,
    ResourceLink,
    ResourceNotFound,
    Server,
    Text,
    ToolError,
    open_client,
)


class Count(TypedDict):
    n: int


async def call(fn: Any, **arguments: Any) -> CallToolResult:
    server = Server("s")
    server.tool(fn, name="t")
    async with open_client(server) as client:
        return await client.call_tool("t", arguments)


async def test_content_blocks_lists_that_mix_and_whole_results() -> None:
    link = ResourceLink("x://a", "a", description="An a", mime_type="text/plain", size=3)
    embedded = EmbeddedResource(ResourceContents("inside", "x://b", "text/plain"))
    blob = EmbeddedResource(ResourceContents(b"\x00\xff", "x://c"))
    audio = Audio(b"RIFF", annotations={"audience": ["user"]})

    async def mixed() -> list[Any]:
        return ["text", Image(b"\x89PNG"), audio, link, embedded, blob, {"n": 1}]

    async def one() -> Image:
        return Image(b"\x89PNG", "image/x")

    async def whole() -> CallToolResult:
        return CallToolResult([Text("failed")], structured_content={"why": 1}, is_error=True, meta={"x/y": 1})

    async def nothing() -> None:
        return None

    result = await call(mixed)
    assert list(result.content) == [Text("text"), Image(b"\x89PNG"), audio, link, embedded, blob, Text('{"n":1}')]
    assert (await call(one)).content == (Image(b"\x89PNG", "image/x"),)
    result = await call(whole)
    assert (result.text, result.structured_content, result.is_error) == ("failed", {"why": 1}, True)
    assert result.meta["x/y"] == 1
    assert "io.modelcontextprotocol/serverInfo" in result.meta
    result = await call(nothing)
    assert (result.content, result.data, result.is_error) == ((), None, False)


async def test_a_typed_result_is_structured_and_text_is_not() -> None:
    async def number() -> int:
        return 3

    async def text() -> str:
        return "3"

    async def unknown():  # type: ignore[no-untyped-def]
        return {"b": [1, (2, 3)], "s": {4}}

    result = await call(number)
    assert (result.text, result.structured_content) == ("3", 3)
    result = await call(text)
    assert (result.text, result.data) == ("3", "3")
    assert "structuredContent" not in result.to_wire()
    assert (await call(unknown)).data == {"b": [1, [2, 3]], "s": [4]}


async def wrong_key() -> Count:
    return {"m": 1}  # type: ignore[typeddict-unknown-key, typeddict-item]


async def a_set() -> Count:
    return {1}  # type: ignore[return-value]


async def none() -> Count:
    return None  # type: ignore[return-value]


async def nan() -> float:
    return math.nan


async def inf_in_dict() -> dict[str, Any]:
    return {"a": [1, math.inf]}


async def inf_untyped():  # type: ignore[no-untyped-def]
    return {"a": [1, -math.inf]}


async def opaque():  # type: ignore[no-untyped-def]
    return {"f": open}


async def surrogate() -> str:
    return "a\udc80"


async def surrogate_block() -> Text:
    return Text("a\udc80")


async def recursive():  # type: ignore[no-untyped-def]
    value: list[Any] = []
    value.append(value)
    return value


BROKEN = [
    (wrong_key, "n: missing, expected integer\nm: unexpected; Count has n"),
    (a_set, "expected object Count, got set {1}"),
    (none, "expected object Count, got null"),
    (nan, "nan is not a JSON number"),
    (inf_in_dict, "a[1]: inf is not a JSON number"),
    (inf_untyped, "a[1]: -inf is not a JSON number"),
    (opaque, "f: a value of type builtin_function_or_method cannot be sent as JSON"),
    (surrogate, "text with a lone surrogate cannot be sent as UTF-8"),
    (surrogate_block, "cannot be sent as JSON: content[0].text: text with a lone surrogate cannot be sent as UTF-8"),
]


@pytest.mark.parametrize(("fn", "why"), BROKEN, ids=[fn.__name__ for fn, _ in BROKEN])
async def test_a_result_that_breaks_its_promise_is_an_error_and_is_logged(
    fn: Any, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    result = await call(fn)
    assert result.is_error
    assert result.text == f"Tool 't' returned a result that is not valid:\n{why}"
    (record,) = caplog.records
    assert why in record.getMessage()


async def test_a_value_that_refers_to_itself_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    result = await call(recursive)
    assert result.is_error
    assert "nested too deep" in result.text


async def test_integers_of_any_size_go_both_ways() -> None:
    async def double(n: int) -> int:
        return n * 2

    assert (await call(double, n=2**80)).structured_content == 2**81


async def test_wrong_arguments_are_listed_one_a_line() -> None:
    async def book(name: str, seats: list[int], when: Count, vip: bool = False) -> str:
        return "booked"

    result = await call(book, nmae="x", seats=[1, "2", None], when={"n": "x", "k": 1}, vip="yes")
    assert result.is_error
    assert result.text.splitlines() == [
        "Invalid arguments for tool 't':",
        "name: missing, expected string",
        'seats[1]: expected integer, got string "2"',
        "seats[2]: expected integer, got null",
        'when.n: expected integer, got string "x"',
        "when.k: unexpected; Count has n",
        'vip: expected boolean, got string "yes"',
        "nmae: unexpected, t takes name, seats, when, vip; did you mean 'name'?",
    ]


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ('["a"]', 'x: expected array of string, got string "[\\"a\\"]" (JSON text in a string: pass the value itself)'),
        ("a", 'x: expected array of string, got string "a"'),
    ],
)
async def test_json_text_is_not_taken_for_a_list_but_the_error_says_so(value: str, line: str) -> None:
    async def join(x: list[str]) -> str:
        return "".join(x)

    assert (await call(join, x=value)).text.splitlines()[1:] == [line]


@pytest.mark.parametrize("value", ['{"a":1}', "null", "3", "true", ""])
async def test_text_is_never_touched(value: str) -> None:
    async def same(x: str) -> str:
        return x

    async def maybe(x: str | None) -> str:
        return repr(x)

    assert (await call(same, x=value)).text == value
    assert (await call(maybe, x=value)).text == repr(value)


async def test_arguments_may_be_missing_or_null_where_nothing_is_required() -> None:
    server = Server("s")

    @server.tool
    async def none_at_all() -> str:
        return "ok"

    @server.tool
    async def optional(n: int = 1) -> int:
        return n

    @server.tool
    async def required(n: int) -> int:
        return n

    async with open_client(server) as client:
        for params in ({}, {"arguments": None}, {"arguments": {}}):
            for name, error in (("none_at_all", False), ("optional", False), ("required", True)):
                result = await client.request("tools/call", {"name": name, **params})
                assert result.get("isError", False) is error
        with pytest.raises(InvalidParams):
            await client.request("tools/call", {"name": "optional", "arguments": []})


async def test_a_tool_error_passes_as_written() -> None:
    async def fails() -> int:
        raise ToolError("Try again tomorrow: no é left")

    result = await call(fails)
    assert (result.is_error, result.text) == (True, "Try again tomorrow: no é left")
    server = Server("s")
    server.tool(fails)
    async with open_client(server) as client:
        with pytest.raises(ToolError, match="Try again tomorrow"):
            await client.call_tool("fails", raise_on_error=True)


async def test_errors_are_exposed_only_when_asked_to() -> None:
    server = Server("s", expose_errors=True)

    @server.tool
    def broken() -> int:
        raise RuntimeError("the details")

    async with open_client(server) as client:
        result = await client.call_tool("broken")
    assert result.text.startswith("Internal error in tool 'broken' (error id ")
    assert result.text.endswith("): RuntimeError: the details")


async def test_resources_of_every_kind() -> None:
    server = Server("s")

    @server.resource("x://text")
    def text() -> str:
        return "text"

    @server.resource("x://bytes", mime_type="image/png")
    def data() -> bytes:
        return b"\x89\x00"

    @server.resource("x://json")
    async def value() -> dict[str, Any]:
        return {"a": [1]}

    @server.resource("x://many")
    async def many() -> list[ResourceContents]:
        return [ResourceContents("one", "x://many/1"), ResourceContents(b"two", mime_type="a/b")]

    @server.resource("x://whole")
    async def whole() -> ReadResourceResult:
        return ReadResourceResult([ResourceContents("w", "x://elsewhere")], {"k/k": 1})

    @server.resource("x://rows/{table}/{id}")
    async def row(table: str, id: int) -> str:
        return f"{table}:{id + 1}"

    @server.resource("tree://{top}/{+rest}")
    async def tree(top: str, rest: str) -> str:
        return f"{top}|{rest}"

    @server.resource("gone://{id}")
    async def gone(id: str) -> str:
        raise ResourceNotFound(f"gone://{id}")

    @server.resource("fails://it")
    async def fails() -> str:
        raise ToolError("for a person")

    @server.resource("nan://it")
    async def nan_value() -> float:
        return math.nan

    async with open_client(server) as client:
        read = client.read_resource
        assert (await read("x://text")).contents == (ResourceContents("text", "x://text", "text/plain"),)
        assert (await read("x://bytes")).contents == (ResourceContents(b"\x89\x00", "x://bytes", "image/png"),)
        assert (await read("x://json")).contents == (ResourceContents('{"a":[1]}', "x://json", "application/json"),)
        assert (await read("x://many")).contents == (
            ResourceContents("one", "x://many/1"),
            ResourceContents(b"two", "x://many", "a/b"),
        )
        result = await read("x://whole")
        assert result.contents == (ResourceContents("w", "x://elsewhere"),)
        assert result.meta["k/k"] == 1
        assert (await read("x://rows/t%20x/41")).text == "t x:42"
        assert (await read("tree://a/x/y/z")).text == "a|x/y/z"
        raw = await client.request("resources/read", {"uri": "x://text"})
        assert (raw["ttlMs"], raw["cacheScope"]) == (0, "private")

        for uri in ("x://nope", "gone://7"):
            with pytest.raises(InvalidParams) as missing:
                await read(uri)
            assert (missing.value.message, missing.value.data) == (f"Resource not found: {uri}", {"uri": uri})
        with pytest.raises(InvalidParams, match="id: expected integer, got string"):
            await read("x://rows/t/seven")
        with pytest.raises(InternalError, match="for a person"):
            await read("fails://it")
        with pytest.raises(InternalError, match="not valid"):
            await read("nan://it")
        uris = [item.uri for item in await client.list_resources()]
        assert uris == ["x://text", "x://bytes", "x://json", "x://many", "x://whole", "fails://it", "nan://it"]
        templates = [item.uri_template for item in await client.list_resource_templates()]
        assert templates == ["x://rows/{table}/{id}", "tree://{top}/{+rest}", "gone://{id}"]


@pytest.mark.parametrize(
    "uri",
    [
        "note://box/..%2F..%2Fsecret",
        "note://box/%2e%2e%2fsecret",
        "note://box/..%5Csecret",
        "note://box/%252e%252e%252fsecret",
        "note://box/a%00b",
        "note://box/%2Fetc%2Fpasswd",
        "note://box/..",
        "note://box/%ff",
    ],
)
async def test_a_value_that_climbs_out_never_reaches_user_code(uri: str) -> None:
    server = Server("s")
    seen: list[str] = []

    @server.resource("note://box/{name}")
    async def note(name: str) -> str:
        seen.append(name)
        return name

    async with open_client(server) as client:
        with pytest.raises(InvalidParams):
            await client.read_resource(uri)
        assert (await client.read_resource("note://box/a%20b")).text == "a b"
    assert seen == ["a b"]


async def test_prompts_of_every_kind() -> None:
    server = Server("s")

    @server.prompt
    def text(name: str, times: int = 1, tags: list[str] | None = None) -> str:
        """Greet.

        Args:
            name: Whom.
        """
        return f"Hi {name}" * times + "".join(tags or [])

    @server.prompt
    async def talk() -> list[Any]:
        return [PromptMessage(Text("Q"), "user"), PromptMessage(Image(b"x"), "assistant"), "more"]

    @server.prompt
    async def whole() -> GetPromptResult:
        return GetPromptResult([PromptMessage(Text("x"))], "About x")

    async with open_client(server) as client:
        prompts = {item.name: item for item in await client.list_prompts()}
        assert prompts["text"].raw == {
            "name": "text",
            "title": "Text",
            "description": "Greet.",
            "arguments": [
                {"name": "name", "description": "Whom.", "required": True},
                {"name": "times", "required": False},
                {"name": "tags", "required": False},
            ],
        }
        result = await client.get_prompt("text", {"name": "3", "times": "2", "tags": '["a"]'})
        assert result.messages == (PromptMessage(Text("Hi 3Hi 3a")),)
        assert (await client.get_prompt("talk")).messages == (
            PromptMessage(Text("Q")),
            PromptMessage(Image(b"x"), "assistant"),
            PromptMessage(Text("more")),
        )
        assert (await client.get_prompt("whole")).description == "About x"
        for arguments, why in (
            ({}, "name: missing, expected string"),
            ({"name": "x", "times": "often"}, 'times: expected integer, got string "often"'),
            ({"name": "x", "who": "y"}, "who: unexpected, text takes name, times, tags"),
        ):
            with pytest.raises(InvalidParams) as caught:
                await client.get_prompt("text", arguments)
            assert caught.value.message == f"Invalid arguments for prompt 'text':\n{why}"
        with pytest.raises(InvalidParams) as unknown:
            await client.get_prompt("txt")
        assert unknown.value.message == "Unknown prompt: txt; did you mean 'text'? There is: text, talk, whole"


def test_base64_on_the_wire() -> None:
    assert Image(b"\x00\x01").to_wire()["data"] == base64.b64encode(b"\x00\x01").decode()


async def test_errors_name_what_failed_as_it_is_called(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("s", limits=Limits(request_timeout=5))

    @server.tool(name="readAll")
    async def read_all(wait: bool) -> int:
        if wait:
            await trio.sleep_forever()
        return "x"  # type: ignore[return-value]

    @server.resource("x://A", name="readA")
    async def resource() -> str:
        await trio.sleep_forever()
        return ""

    @server.prompt(name="askFor")
    async def prompt(Name: str) -> Any:
        return [None]

    @server.completion("askFor", "Name")
    async def complete(value: str) -> Any:
        if value:
            await trio.sleep_forever()
        return [1]

    async with open_client(server) as client:
        late = (await client.call_tool("readAll", {"wait": True})).text
        wrong = (await client.call_tool("readAll", {"wait": False})).text
        assert late == "Tool 'readAll' did not finish within 5 s"
        assert wrong.startswith("Tool 'readAll' returned a result that is not valid:")
        for call, said in (
            (client.read_resource("x://A"), 'Resource "x://A" did not finish within 5 s'),
            (client.get_prompt("askFor", {"Name": "A"}), "Prompt 'askFor' returned a result that is not valid"),
            (client.complete("askFor", "Name"), "completion/complete returned a result that is not valid"),
            (client.complete("askFor", "Name", "A"), "completion/complete did not finish within 5 s"),
        ):
            with pytest.raises(ProtocolError) as caught:
                await call
            assert caught.value.message == said


async def test_what_was_filled_in_by_hand_is_json_as_well() -> None:
    server, meta = Server("s"), {"x/y": math.nan}
    server.tool(lambda: CallToolResult([Text("x")], meta=meta), name="t")
    server.resource("x://y", name="r")(lambda: ReadResourceResult([ResourceContents("x")], meta))
    server.prompt(name="p")(lambda: GetPromptResult([PromptMessage(Text("x"))], meta=meta))
    async with open_client(server) as client:
        result = await client.call_tool("t")
        assert result.is_error
        assert "x/y: nan is not a JSON number" in result.text
        with pytest.raises(InternalError, match="not valid"):
            await client.read_resource("x://y")
        with pytest.raises(InternalError, match="not valid"):
            await client.get_prompt("p")
