"""Web pages of other origins: what a browser asks, and what it lets a script read (Fetch, section CORS protocol)."""

from __future__ import annotations

import functools
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
import trio

from trio_mcp import Context, Server, serve_http
from trio_mcp.testing import request

PAGE = "https://app.example"
ASKED = "content-type, mcp-protocol-version, Mcp-Method, mcp-name, mcp-param-x, authorization, x-other"


def site() -> Server[Any]:
    server = Server("s")

    @server.tool
    async def work(ctx: Context) -> str:
        await ctx.report_progress(1)
        return "done"

    return server


@pytest.fixture(params=[False, True], ids=["http/1.1", "http/2"])
async def http(request: pytest.FixtureRequest) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(http1=not request.param, http2=request.param) as client:
        yield client


@pytest.fixture
async def url(nursery: trio.Nursery) -> str:
    serve = functools.partial(serve_http, site(), "127.0.0.1:0", allowed_origins=[PAGE])
    found: str = (await nursery.start(serve)).urls[0]
    return found


async def ask(http: httpx2.AsyncClient, url: str, origin: str) -> httpx2.Response:
    headers = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": ASKED,
    }
    return await http.request("OPTIONS", url, headers=headers)


async def post(
    http: httpx2.AsyncClient, url: str, *, origin: str, progress: bool = False, **more: str
) -> httpx2.Response:
    body = request(1, "tools/call", name="work", arguments={}, meta={"progressToken": 1} if progress else {})
    headers = {
        "origin": origin,
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "work",
    }
    return await http.post(url, content=json.dumps(body), headers={**headers, **more})


async def test_a_page_that_is_allowed_hears_so(http: httpx2.AsyncClient, url: str) -> None:
    answer = await ask(http, url, PAGE)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert answer.headers["access-control-allow-methods"] == "GET, POST, DELETE"
    allowed = answer.headers["access-control-allow-headers"].split(", ")
    assert allowed == ["authorization", "content-type", "mcp-method", "mcp-name", "mcp-param-x", "mcp-protocol-version"]


@pytest.mark.parametrize("progress", [False, True], ids=["json", "stream"])
async def test_its_script_may_read_the_answers(http: httpx2.AsyncClient, url: str, progress: bool) -> None:
    answer = await post(http, url, origin=PAGE, progress=progress)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == ("text/event-stream" if progress else "application/json")
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert "www-authenticate" in answer.headers["access-control-expose-headers"]
    assert answer.headers["vary"] == "origin"


async def test_its_script_may_read_errors_too(http: httpx2.AsyncClient, url: str) -> None:
    for more, status in (
        ({"content-type": "text/plain"}, 415),
        ({"mcp-name": "other"}, 400),
        ({"accept": "image/png"}, 406),
    ):
        answer = await post(http, url, origin=PAGE, **more)
        assert answer.status_code == status
        assert answer.headers["access-control-allow-origin"] == PAGE


async def test_other_pages_are_refused_and_told_nothing(http: httpx2.AsyncClient, url: str) -> None:
    for answer in (await ask(http, url, "https://evil.example"), await post(http, url, origin="https://evil.example")):
        assert answer.status_code == 403
        assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_without_allowed_origins_there_is_nothing_of_it(http: httpx2.AsyncClient, nursery: trio.Nursery) -> None:
    url = (await nursery.start(serve_http, site(), "127.0.0.1:0")).urls[0]
    own = url.removesuffix("/mcp")
    asked, answered = await ask(http, url, own), await post(http, url, origin=own)
    assert (asked.status_code, answered.status_code) == (405, 200)
    for answer in (asked, answered):
        assert not [name for name in answer.headers if name.startswith("access-control")]
