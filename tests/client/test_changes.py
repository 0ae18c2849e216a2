"""Listening, as a server that is not ours may end it."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio

from trio_mcp import Change, open_client

from ..net.servers.http_peers import H1Peer, faked
from .test_client import result, scripted

ID = "io.modelcontextprotocol/subscriptionId"


def notification(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def acknowledged(id: Any) -> dict[str, Any]:
    return notification(
        "notifications/subscriptions/acknowledged", _meta={ID: id}, notifications={"toolsListChanged": True}
    )


@pytest.mark.parametrize("with_result", [False, True])
async def test_a_cancellation_by_the_server_ends_the_iteration(with_result: bool) -> None:
    sent: list[str] = []

    def reply(message: dict[str, Any]) -> Any:
        sent.append(message["method"])
        if message["method"] == "tools/list":
            return [result(message, tools=[])]
        if message["method"] != "subscriptions/listen":
            return None
        id = message["id"]
        return [
            acknowledged(id),
            notification("notifications/tools/list_changed", _meta={ID: id}),
            notification("notifications/cancelled", requestId=id, reason="maintenance"),
            *([result(message)] if with_result else []),
        ]

    async with scripted(reply) as stream, open_client(stream) as client:
        with trio.fail_after(20):
            async with client.listen(tools=True) as changes:
                assert [change async for change in changes] == [Change("tools")]
            # The connection goes on, and nobody cancels what has ended.
            assert await client.list_tools() == []
    assert sent == ["server/discover", "subscriptions/listen", "tools/list"]


@pytest.mark.parametrize("target", [None, "2", 99, [2], True])
async def test_a_cancellation_of_something_else_ends_nothing(target: Any) -> None:
    def reply(message: dict[str, Any]) -> Any:
        if message["method"] == "tools/call":
            # Servers may cancel streams only, and this is none.
            return [notification("notifications/cancelled", requestId=message["id"]), result(message, content=[])]
        if message["method"] != "subscriptions/listen":
            return None
        id = message["id"]
        return [
            acknowledged(id),
            notification("notifications/cancelled", requestId=target),
            notification("notifications/cancelled"),
            notification("notifications/tools/list_changed", _meta={ID: id}),
        ]

    async with scripted(reply) as stream, open_client(stream) as client:
        with trio.fail_after(20):
            async with client.listen(tools=True) as changes:
                assert await anext(changes) == Change("tools")
                assert (await client.call_tool("a")).content == ()


async def test_over_http_a_stream_that_was_cancelled_by_the_server_has_ended_well() -> None:
    async def answer(peer: H1Peer, path: str, message: dict[str, Any]) -> None:
        id = message["id"]
        events = [
            acknowledged(id),
            notification("notifications/cancelled", requestId=id + 1),
            notification("notifications/tools/list_changed", _meta={ID: id}),
            notification("notifications/cancelled", requestId=id),
        ]
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        for event in events:
            await peer.send(b"data: " + json.dumps(event).encode() + b"\n\n")

    async with faked(answer) as url, open_client(url) as client:
        with trio.fail_after(20):
            async with client.listen(tools=True) as changes:
                assert [change async for change in changes] == [Change("tools")]
