"""Extensions: settings, methods, types of results, `_meta`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest
import trio

from trio_mcp import (
    Context,
    Extension,
    ExtensionResult,
    InvalidParams,
    InvalidResponse,
    MethodNotFound,
    MissingClientCapability,
    ProtocolError,
    RegistrationError,
    Server,
    ToolError,
    open_client,
)

AUDIT = "com.example/audit"
DECLARED: dict[str, dict[str, Any]] = {AUDIT: {"level": "full"}}


@dataclass
class Line:
    number: int
    text: str


def shop() -> tuple[Server[Any], Extension]:
    audit = Extension(AUDIT, {"keepDays": 30})
    server = Server("shop", extensions=[audit])

    @audit.method("com.example/audit/line")
    async def line(number: int, ctx: Context, upper: bool = False) -> Line:
        await trio.lowlevel.checkpoint()
        settings = ctx.extension(AUDIT) or {}
        text = f"line {number} {settings.get('level')} {ctx.meta.get('com.example/audit-tag')}"
        return Line(number, text.upper() if upper else text)

    @audit.method("com.example/audit/clear")
    def clear() -> None:
        """In a thread."""

    @audit.method("com.example/audit/receipt")
    async def receipt() -> ExtensionResult:
        return audit.result("com.example/receipt", {"number": 7})

    @audit.method("com.example/audit/bad")
    async def bad() -> Any:
        return [1, 2]

    @audit.method("com.example/audit/failing")
    async def failing() -> None:
        raise ToolError("not now")

    @server.tool
    async def order() -> ExtensionResult:
        return audit.result("com.example/receipt", {"number": 1})

    @server.resource("shop://order")
    async def order_resource() -> ExtensionResult:
        return audit.result("com.example/receipt", {"number": 2})

    @server.prompt
    async def order_prompt() -> ExtensionResult:
        return audit.result("com.example/receipt", {"number": 3})

    return server, audit


async def test_settings_stand_in_the_capabilities() -> None:
    server, _ = shop()
    async with open_client(server) as client:
        assert client.capabilities["extensions"] == {AUDIT: {"keepDays": 30}}


async def test_a_server_without_extensions_says_nothing_of_them() -> None:
    async with open_client(Server("s")) as client:
        assert "extensions" not in client.capabilities


async def test_a_method_takes_parameters_and_returns_an_object() -> None:
    server, _ = shop()
    async with open_client(server, extensions=DECLARED) as client:
        result = await client.request(
            "com.example/audit/line", {"number": 3, "upper": True}, meta={"com.example/audit-tag": "x"}
        )
        assert (result["number"], result["text"]) == (3, "LINE 3 FULL X")
        assert result["resultType"] == "complete"
        empty = await client.request("com.example/audit/clear")
        assert set(empty) <= {"resultType", "_meta"}


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({}, "number"),
        ({"number": "x"}, "number"),
        ({"number": 1, "nimber": 2}, "nimber"),
    ],
)
async def test_wrong_parameters_are_invalid_params(params: dict[str, Any], text: str) -> None:
    server, _ = shop()
    async with open_client(server, extensions=DECLARED) as client:
        with pytest.raises(InvalidParams, match=f"com.example/audit/line:\n.*{text}"):
            await client.request("com.example/audit/line", params)


async def test_what_is_no_object_is_an_internal_error() -> None:
    server, _ = shop()
    async with open_client(server, extensions=DECLARED) as client:
        with pytest.raises(ProtocolError) as caught:
            await client.request("com.example/audit/bad")
        assert caught.value.code == -32603
        with pytest.raises(ProtocolError, match="not now") as caught:
            await client.request("com.example/audit/failing")
        assert caught.value.code == -32603


@pytest.mark.parametrize(
    ("method", "params", "number"),
    [
        ("com.example/audit/receipt", {}, 7),
        ("tools/call", {"name": "order"}, 1),
        ("resources/read", {"uri": "shop://order"}, 2),
        ("prompts/get", {"name": "order_prompt"}, 3),
    ],
)
async def test_results_of_its_own_types_go_to_those_who_declared_it(
    method: str, params: dict[str, Any], number: int
) -> None:
    server, _ = shop()
    async with open_client(server, extensions=DECLARED) as client:
        result = await client.request(method, params, result_types=["com.example/receipt"])
        assert (result["resultType"], result["number"]) == ("com.example/receipt", number)
        with pytest.raises(InvalidResponse, match="resultType"):
            await client.request(method, params)
    async with open_client(server) as client:
        with pytest.raises(MissingClientCapability, match=re.escape(AUDIT)) as caught:
            await client.request(method, params, result_types=["com.example/receipt"])
        assert caught.value.data == {"requiredCapabilities": {"extensions": {AUDIT: {}}}}


async def test_a_method_of_no_extension_here_is_not_found() -> None:
    server, _ = shop()
    async with open_client(server, extensions=DECLARED) as client:
        with pytest.raises(MethodNotFound, match=re.escape("com.example/audit/nothing")):
            await client.request("com.example/audit/nothing")
    async with open_client(Server("s"), extensions=DECLARED) as client:
        with pytest.raises(MethodNotFound, match=re.escape("com.example/audit/line")):
            await client.request("com.example/audit/line", {"number": 1})
        with pytest.raises(MethodNotFound, match=re.escape("tasks/get; this server has no extension")):
            await client.request("tasks/get", {"taskId": "x"})


@pytest.mark.parametrize("settings", [None, True, [], "full"])
async def test_settings_that_are_no_object_declare_nothing(settings: Any) -> None:
    server, _ = shop()
    async with open_client(server, extensions={AUDIT: settings}) as client:
        with pytest.raises(MissingClientCapability):
            await client.request("com.example/audit/clear")


async def test_one_may_come_later() -> None:
    server = Server("s")
    async with open_client(server, extensions=DECLARED) as client:
        _, audit = shop()
        server.add_extension(audit)
        await client.discover()
        assert client.capabilities["extensions"] == {AUDIT: {"keepDays": 30}}
        assert (await client.request("com.example/audit/line", {"number": 1}))["number"] == 1


# -- registration


@pytest.mark.parametrize(
    "identifier",
    [
        "",
        "audit",
        "/audit",
        "com.example/",
        "com..example/audit",
        "1com/audit",
        "com.example/a b",
        "com.example/-a",
        None,
    ],
)
def test_an_identifier_has_a_prefix_and_a_name(identifier: Any) -> None:
    with pytest.raises(RegistrationError, match="expected a prefix and a name"):
        Extension(identifier)


def test_tasks_are_built_in() -> None:
    with pytest.raises(RegistrationError, match="built in"):
        Extension("io.modelcontextprotocol/tasks")


def test_settings_are_json() -> None:
    with pytest.raises(RegistrationError, match=r"settings.*float|number"):
        Extension(AUDIT, {"x": float("nan")})


@pytest.mark.parametrize("name", ["", "notifications/x", "with space", None])
def test_a_method_has_the_name_of_a_request(name: Any) -> None:
    with pytest.raises(RegistrationError, match="name of a request"):
        Extension(AUDIT).method(name)


def test_a_method_is_there_once() -> None:
    _, audit = shop()
    for name in ("tools/call", "tasks/get", "com.example/audit/line"):
        with pytest.raises(RegistrationError, match="there already"):
            audit.method(name)(lambda: None)
    other = Extension("com.example/other")
    other.method("com.example/audit/line")(lambda: None)
    server = Server("s", extensions=[audit])
    with pytest.raises(RegistrationError, match="there already"):
        server.add_extension(audit)
    with pytest.raises(RegistrationError, match=re.escape("com.example/audit/line")):
        server.add_extension(other)
    with pytest.raises(RegistrationError, match="expected an Extension"):
        server.add_extension("com.example/third")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["", "complete", "input_required", "task"])
def test_a_type_of_the_protocol_is_none_of_an_extension(kind: str) -> None:
    with pytest.raises(ValueError, match="protocol's own"):
        Extension(AUDIT).result(kind)
