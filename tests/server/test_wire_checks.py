"""What would go out against the schema of the specification is refused when it is registered, with what, where and expected."""

from __future__ import annotations

import datetime
import logging
import math
import re
from typing import Any

import pydantic
import pytest

from trio_mcp import RegistrationError, Server, open_client


class ToolAnnotations(pydantic.BaseModel):
    """As in `mcp.types`."""

    model_config = pydantic.ConfigDict(extra="allow", populate_by_name=True)
    title: str | None = None
    read_only: bool | None = pydantic.Field(None, alias="readOnlyHint")
    destructive: bool | None = pydantic.Field(None, alias="destructiveHint")


class Icon(pydantic.BaseModel):
    src: pydantic.AnyUrl
    mime_type: str | None = pydantic.Field(None, alias="mimeType")


class Broken:
    def model_dump(self, **_: Any) -> Any:
        raise RuntimeError("no")


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


ALL: dict[str, tuple[dict[str, Any], str]] = {
    "title": ({"title": 5}, "title: expected a text, got 5"),
    "description": ({"description": b"x"}, "description: expected a text, got"),
    "surrogate": ({"description": "\ud800"}, "description: text with a lone surrogate"),
    "name": ({"name": 5}, "name: expected a text, got 5"),
    "icons of text": ({"icons": "https://x/y.png"}, "icons: expected a list of icons, as in [{'src': "),
    "one icon": ({"icons": {"src": "https://x"}}, "icons: expected a list of icons"),
    "icon without src": ({"icons": [{"mimeType": "image/png"}]}, "icons[0]: an icon needs 'src'"),
    "icon of text": ({"icons": [{"src": "https://x"}, "https://x"]}, "icons[1]: expected a dict, got"),
    "src": ({"icons": [{"src": 5}]}, "icons[0]: src: expected a text, got 5"),
    "src without scheme": ({"icons": [{"src": "icon.png"}]}, "icons[0]: src: expected a URL (https: or data:), got"),
    "sizes": ({"icons": [{"src": "https://x", "sizes": "48x48"}]}, "icons[0]: sizes: expected a list of text"),
    "theme": (
        {"icons": [{"src": "https://x", "theme": "blue"}]},
        "icons[0]: theme: expected 'light' or 'dark', got 'blue'",
    ),
    "meta": ({"meta": {"when": datetime.date(2024, 1, 1)}}, "meta: when: date is not a JSON value"),
    "meta list": ({"meta": [1]}, "meta: expected a dict, got [1]"),
    "meta model": ({"meta": Broken()}, "meta: Broken.model_dump failed: no"),
    "deep meta": ({"meta": {"x": nested(126)}}, "its definition cannot be sent: nested deeper than 125 levels"),
    "timeout true": ({"timeout": True}, "timeout must be a positive number of seconds, got True"),
    "timeout text": ({"timeout": "5"}, "timeout must be a positive number of seconds, got '5'"),
    "timeout nan": ({"timeout": math.nan}, "timeout must be a positive number of seconds, got nan"),
}
TOOLS: dict[str, tuple[dict[str, Any], str]] = {
    "hint": ({"annotations": {"readOnlyHint": "yes"}}, "annotations: readOnlyHint: expected True or False, got 'yes'"),
    "spelling": ({"annotations": {"read_only_hint": True}}, "annotations: 'read_only_hint' is spelled 'readOnlyHint'"),
    "title": ({"annotations": {"title": 1}}, "annotations: title: expected a text, got 1"),
    "list": ({"annotations": ["readOnlyHint"]}, "annotations: expected a dict"),
    "no json": ({"annotations": {"x": {1}}}, "annotations: x: set is not a JSON value"),
}
RESOURCES: dict[str, tuple[dict[str, Any], str]] = {
    "audience": (
        {"annotations": {"audience": "user"}},
        "annotations: audience: expected a list of 'user' and 'assistant'",
    ),
    "priority": ({"annotations": {"priority": 2}}, "annotations: priority: expected a number from 0 to 1, got 2"),
    "modified": ({"annotations": {"lastModified": 5}}, "annotations: lastModified: expected a text, got 5"),
    "mime type": ({"mime_type": 5}, "mime_type: expected a text, got 5"),
    "size": ({"size": -1}, "size: expected a number of bytes, 0 or more, got -1"),
    "size true": ({"size": True}, "size: expected a number of bytes, 0 or more, got True"),
    "ttl": ({"cache_ttl": "1"}, "expected cache_ttl in seconds"),
    "ttl true": ({"cache_ttl": True}, "expected cache_ttl in seconds"),
}
SERVERS: dict[str, tuple[dict[str, Any], str]] = {
    "title": ({"title": 5}, "Server(title=…): expected a text, got 5"),
    "description": ({"description": "\ud800"}, "Server(description=…): text with a lone surrogate"),
    "instructions": ({"instructions": ["x"]}, "Server(instructions=…): expected a text"),
    "website": ({"website_url": object()}, "Server(website_url=…): expected a text"),
    "no url": ({"website_url": "example.com"}, "Server(website_url=…): expected a URL, as in 'https://example.com'"),
    "icons": ({"icons": [1]}, "Server(icons=…)[0]: expected a dict, got 1"),
    "page size": ({"page_size": 1.5}, "Server(page_size=…): expected at least 1, got 1.5"),
    "ttl": ({"cache_ttl": "1"}, "Server: expected cache_ttl in seconds"),
}


def refused(message: str) -> Any:
    return pytest.raises(RegistrationError, match=re.escape(message))


@pytest.mark.parametrize("kind", ["tool", "prompt", "resource"])
@pytest.mark.parametrize(("options", "message"), ALL.values(), ids=ALL)
def test_what_all_have_is_checked(kind: str, options: dict[str, Any], message: str) -> None:
    server = Server("s")
    decorate = server.resource("x://y", **options) if kind == "resource" else getattr(server, kind)(**options)
    with refused(message) as caught:
        decorate(lambda: "x") if "name" in options else decorate(named)
    assert str(caught.value).startswith(kind)
    assert not server.registry.tools and not server.registry.prompts and not server.registry.resources


def named() -> str:
    return "x"


@pytest.mark.parametrize(("options", "message"), TOOLS.values(), ids=TOOLS)
def test_annotations_of_tools_are_checked(options: dict[str, Any], message: str) -> None:
    with refused(f"tool 'named': {message}"):
        Server("s").tool(named, **options)


@pytest.mark.parametrize(("options", "message"), RESOURCES.values(), ids=RESOURCES)
def test_what_resources_have_is_checked(options: dict[str, Any], message: str) -> None:
    with refused(message):
        Server("s").resource("x://y", **options)(named)


@pytest.mark.parametrize(("options", "message"), SERVERS.values(), ids=SERVERS)
def test_what_a_server_says_of_itself_is_checked(options: dict[str, Any], message: str) -> None:
    with refused(message):
        Server("s", **options)


async def test_models_of_other_packages_are_taken() -> None:
    icon = Icon.model_validate({"src": "https://example.com/i.png", "mimeType": "image/png"})
    server = Server("s", icons=[icon])
    server.tool(
        named, annotations=ToolAnnotations(readOnlyHint=True, other=1), icons=[icon], meta=ToolAnnotations(title="t")
    )
    wire = {"src": "https://example.com/i.png", "mimeType": "image/png"}
    async with open_client(server) as client:
        (tool,) = (await client.request("tools/list"))["tools"]
        assert tool["annotations"] == {"readOnlyHint": True, "other": 1}
        assert tool["icons"] == [wire]
        assert tool["_meta"] == {"title": "t"}
    assert server.info()["icons"] == [wire]


def test_a_name_that_hosts_may_refuse_is_told_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("s")
    server.tool(named, name="a_b-c.9")
    assert caplog.text == ""
    with caplog.at_level(logging.WARNING):
        server.tool(named, name="ä tool")
    assert "tool 'ä tool': hosts may refuse this name" in caplog.text
