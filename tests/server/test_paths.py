"""Paths that come from a client."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from trio_mcp import InvalidParams, Server, open_client
from trio_mcp.server import safe_join


def test_what_is_below_the_folder_is_found(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    base = tmp_path.resolve()
    assert safe_join(tmp_path, "a/b.txt") == base / "a" / "b.txt"
    assert safe_join(str(tmp_path), "a/../c") == base / "c"
    assert safe_join(tmp_path, ".") == base
    (tmp_path / "inside").symlink_to(tmp_path / "a")
    assert safe_join(tmp_path, "inside/b") == base / "a" / "b"


@pytest.mark.parametrize("value", ["", "..", "../x", "a/../../x", "/etc/passwd", "a\0b", "out/x", "out", "loop/x"])
def test_what_leads_out_is_refused(tmp_path: Path, value: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "rooted").mkdir()
    (root / "out").symlink_to(tmp_path / "rooted")
    (root / "loop").symlink_to(root / "loop")
    with pytest.raises(InvalidParams, match="Invalid params"):
        safe_join(root, value)


def test_an_absolute_path_is_refused_even_below_the_folder(tmp_path: Path) -> None:
    with pytest.raises(InvalidParams, match="leads out of the folder"):
        safe_join(tmp_path, str(tmp_path / "a"))


async def test_a_tool_tells_the_model_and_a_resource_or_prompt_the_caller(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("s")

    @server.tool
    async def read(path: str) -> str:
        return safe_join(tmp_path, path).read_text()

    @server.tool
    def list_folder(path: str) -> list[str]:
        return [item.name for item in safe_join(tmp_path, path).iterdir()]

    @server.tool
    async def nested(path: str) -> None:
        async with trio.open_nursery():
            safe_join(tmp_path, path)

    @server.resource("files:///{+path}")
    async def file(path: str) -> str:
        return safe_join(tmp_path, path).read_text()

    @server.prompt
    async def review(path: str) -> str:
        return safe_join(tmp_path, path).read_text()

    said = 'Invalid params: the path "../x" leads out of the folder'
    async with open_client(server) as client:
        for name in ("read", "list_folder", "nested"):
            result = await client.call_tool(name, {"path": "../x"})
            assert (result.is_error, result.text) == (True, said)
        result = await client.call_tool("read", {"path": ""})
        assert (result.is_error, result.text) == (True, 'Invalid params: "" is not a path')
        for call in (client.read_resource("files:///../x"), client.get_prompt("review", {"path": "../x"})):
            with pytest.raises(InvalidParams) as caught:
                await call
            assert (caught.value.code, caught.value.message) == (-32602, said)
    # It says nothing about the server.
    assert caplog.records == []


async def test_other_errors_of_that_kind_go_to_the_caller_from_a_tool_too() -> None:
    server = Server("s")

    @server.tool
    async def read() -> str:
        raise InvalidParams("for the program")

    async with open_client(server) as client:
        with pytest.raises(InvalidParams, match="for the program"):
            await client.call_tool("read")
