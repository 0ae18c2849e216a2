"""Listening for changes (basic/patterns/subscriptions), on the wire, in the client and over HTTP."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_mcp import (
    Change,
    Client,
    ConnectionClosed,
    InvalidParams,
    Limits,
    Server,
    ServerBusy,
    open_client,
    open_server,
    serve_http,
    serve_stream,
)
from trio_mcp.testing import RawPeer, open_raw, request

ID = "io.modelcontextprotocol/subscriptionId"
ALL = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
}


def shop(**options: Any) -> Server[Any]:
    server = Server("shop", **options)

    @server.tool
    async def price(item: str) -> int:
        return len(item)

    @server.resource("shop://{item}")
    async def item(item: str) -> str:
        return item

    return server


async def listen(peer: RawPeer, id: Any, **wanted: Any) -> dict[str, Any]:
    await peer.send(request(id, "subscriptions/listen", notifications=wanted))
    message: dict[str, Any] = await peer.receive()
    return message


# -- on the wire


async def test_the_acknowledgement_comes_first_and_everything_carries_the_id() -> None:
    server = shop()
    async with open_raw(server) as peer:
        wanted = {
            "toolsListChanged": True,
            "promptsListChanged": True,
            "resourceSubscriptions": ["shop://a", "shop://a"],
        }
        assert await listen(peer, "l-1", **wanted) == {
            "jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged",
            "params": {
                "_meta": {ID: "l-1"},
                # There are no prompts here.
                "notifications": {"toolsListChanged": True, "resourceSubscriptions": ["shop://a"]},
            },
        }
        server.notify_resource_updated("shop://a")
        server.notify_resource_updated("shop://b")
        server.tool(lambda: None, name="another")
        server.resource("shop://fixed", name="fixed")(lambda: "")
        assert [await peer.receive(), await peer.receive()] == [
            {
                "jsonrpc": "2.0",
                "method": "notifications/resources/updated",
                "params": {"_meta": {ID: "l-1"}, "uri": "shop://a"},
            },
            {"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {"_meta": {ID: "l-1"}}},
        ]


async def test_changes_in_one_go_are_one_notification() -> None:
    server = shop()
    async with open_raw(server) as peer:
        await listen(peer, 1, toolsListChanged=True, resourceSubscriptions=["shop://a"])
        for number in range(10):
            server.tool(lambda: None, name=f"t{number}")
            server.notify_resource_updated("shop://a")
        server.remove_tool("t3")
        await wait_all_tasks_blocked()
        await peer.send(request(2, "tools/list"))
        messages = [await peer.receive() for _ in range(3)]
        assert [message.get("method") for message in messages] == [
            "notifications/tools/list_changed",
            "notifications/resources/updated",
            None,
        ]
        names = [tool["name"] for tool in messages[2]["result"]["tools"]]
        assert "t9" in names
        assert "t3" not in names


async def test_several_streams_share_a_channel() -> None:
    server = shop()
    async with open_raw(server) as peer:
        await listen(peer, 1, toolsListChanged=True)
        await listen(peer, "two", resourceSubscriptions=["shop://a"])
        server.notify_resource_updated("shop://a")
        message = await peer.receive()
        assert message["params"] == {"_meta": {ID: "two"}, "uri": "shop://a"}
        await peer.cancel("two")
        await wait_all_tasks_blocked()
        server.notify_resource_updated("shop://a")
        server.tool(lambda: None, name="another")
        message = await peer.receive()
        assert message["method"] == "notifications/tools/list_changed"
        assert message["params"]["_meta"] == {ID: 1}


@pytest.mark.parametrize("wanted", [{}, {"toolsListChanged": False}, {"promptsListChanged": True}])
async def test_a_filter_of_which_nothing_can_be_told_ends_at_once(wanted: dict[str, Any]) -> None:
    async with open_raw(shop()) as peer:
        acknowledged = await listen(peer, 5, **wanted)
        assert acknowledged["params"]["notifications"] == {}
        answer = await peer.receive()
        assert answer["id"] == 5
        assert answer["result"]["resultType"] == "complete"
        assert answer["result"]["_meta"][ID] == 5


async def test_streams_take_no_place_and_have_no_deadline(autojump_clock: MockClock) -> None:
    server = shop(limits=Limits(running=1, waiting=1, connection_running=1, connection_waiting=1, request_timeout=1.0))
    async with open_raw(server) as peer:
        for id in range(20):
            await listen(peer, id, toolsListChanged=True)
        await trio.sleep(10_000)
        await peer.send(request("call", "tools/call", name="price", arguments={"item": "pear"}))
        assert (await peer.receive())["result"]["content"][0]["text"] == "4"


async def test_there_is_a_most_of_streams_and_a_place_comes_back() -> None:
    async with open_raw(shop(limits=Limits(listeners=2))) as peer:
        for id in (1, 2):
            await listen(peer, id, toolsListChanged=True)
        refused = await listen(peer, 3, toolsListChanged=True)
        assert refused["error"]["code"] == ServerBusy.code
        assert "2 streams are listening already" in refused["error"]["message"]
        assert refused["error"]["data"] == {"retryAfter": 1.0}
        await peer.cancel(1)
        await wait_all_tasks_blocked()
        assert (await listen(peer, 4, toolsListChanged=True))["params"]["_meta"] == {ID: 4}


async def test_one_connection_has_a_most_of_its_own() -> None:
    server = shop(limits=Limits(connection_listeners=2, retry_after=3))
    async with open_server(server) as running, open_raw(running) as peer, open_raw(running) as other:
        for id in (1, 2):
            await listen(peer, id, toolsListChanged=True)
        refused = await listen(peer, 3, toolsListChanged=True)
        assert refused["id"] == 3
        assert refused["error"] == {
            "code": ServerBusy.code,
            "message": "Server busy: 2 streams of this connection are listening already; try again in 3 s",
            "data": {"retryAfter": 3},
        }
        # Others have theirs, and so do calls.
        assert (await listen(other, 3, toolsListChanged=True))["params"]["_meta"] == {ID: 3}
        await peer.send(request(4, "tools/list"))
        assert "result" in await peer.receive()
        # A place comes back, however a stream ends.
        await peer.cancel(1)
        await wait_all_tasks_blocked()
        assert (await listen(peer, 5, toolsListChanged=True))["params"]["_meta"] == {ID: 5}
        await peer.cancel(2)
        await wait_all_tasks_blocked()
        for id in range(10, 20):
            assert (await listen(peer, id))["method"] == "notifications/subscriptions/acknowledged"
            assert (await peer.receive())["id"] == id


async def test_by_default_one_connection_does_not_take_all_streams_of_a_server() -> None:
    async with open_raw(shop()) as peer:
        for id in range(32):
            assert "error" not in await listen(peer, id, toolsListChanged=True)
        assert (await listen(peer, 32, toolsListChanged=True))["error"]["code"] == ServerBusy.code


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({}, "missing notifications"),
        ({"notifications": []}, "notifications must be object"),
        ({"notifications": {"toolsListChanged": "yes"}}, "notifications.toolsListChanged must be boolean"),
        ({"notifications": {"resourceSubscriptions": [1]}}, "must be string"),
        ({"notifications": {"resourceSubscriptions": [f"a:{n}" for n in range(1001)]}}, "the limit is 1000"),
        ({"notifications": {"resourceSubscriptions": ["a:" + "x" * 9000]}}, "over 8192 characters"),
    ],
)
async def test_a_bad_filter_is_refused(params: dict[str, Any], said: str) -> None:
    async with open_raw(shop()) as peer:
        await peer.send(request(1, "subscriptions/listen", **params))
        error = (await peer.receive())["error"]
        assert error["code"] == InvalidParams.code
        assert said in error["message"]


async def test_at_the_end_of_input_each_stream_gets_its_result(autojump_clock: MockClock) -> None:
    async with open_raw(shop()) as peer:
        await listen(peer, 1, toolsListChanged=True)
        await listen(peer, 2, toolsListChanged=True)
        start = trio.current_time()
        await peer.close_input()
        messages = await peer.receive_all()
        assert trio.current_time() - start < 0.1
    assert sorted(message["id"] for message in messages if "id" in message) == [1, 2]
    ended = [message["params"]["requestId"] for message in messages if "method" in message]
    assert sorted(ended) == [1, 2]


async def test_when_the_scope_around_the_server_is_cancelled_each_stream_gets_its_result(
    autojump_clock: MockClock,
) -> None:
    async with open_raw(shop()) as peer:
        await listen(peer, 1, toolsListChanged=True)
        peer.serving.cancel()
        messages = await peer.receive_all()
    assert messages[0]["result"]["_meta"][ID] == 1
    assert messages[1]["method"] == "notifications/cancelled"


class Late(trio.abc.ReceiveStream):
    """Gives one piece when it is told to, also to a reader that is being cancelled: it had come already."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.now = trio.Event()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        if not self._data:
            await trio.sleep_forever()
        with trio.CancelScope(shield=True):
            await self.now.wait()
        data, self._data = self._data, b""
        return data

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


async def test_a_stream_that_is_asked_for_while_the_server_ends_ends_too(autojump_clock: MockClock) -> None:
    message = request(1, "subscriptions/listen", notifications={"toolsListChanged": True})
    # In any order of the reader and what it has begun.
    for _ in range(12):
        late = Late(json.dumps(message).encode() + b"\n")
        ours, theirs = trio.testing.memory_stream_pair()
        async with trio.open_nursery() as nursery:
            await nursery.start(serve_stream, shop(), trio.StapledStream(theirs, late))
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await wait_all_tasks_blocked()
                late.now.set()
        await ours.aclose()
    # None of them waited for the time of the drain to be over.
    assert trio.current_time() == 0


async def test_notify_is_callable_from_a_thread_and_before_and_after_serving() -> None:
    server = shop()
    server.notify_resource_updated("shop://a")
    async with open_raw(server) as peer:
        await listen(peer, 1, resourceSubscriptions=["shop://a"])
        await trio.to_thread.run_sync(server.notify_resource_updated, "shop://a")
        assert (await peer.receive())["params"]["uri"] == "shop://a"
    server.notify_resource_updated("shop://a")


# -- the client


@pytest.fixture(params=["memory", "http"])
def transport(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


async def serve(transport: str, server: Server[Any], nursery: trio.Nursery) -> Any:
    if transport == "memory":
        return server
    http = await nursery.start(functools.partial(serve_http, server, "127.0.0.1:0"))
    return http.urls[0]


async def test_the_client_hears_changes_beside_its_calls(transport: str) -> None:
    server = shop()
    async with trio.open_nursery() as nursery:
        async with open_client(await serve(transport, server, nursery)) as client:
            async with client.listen(tools=True, prompts=True, resources=True, uris=["shop://a"]) as changes:
                assert changes.agreed == {
                    "toolsListChanged": True,
                    "resourcesListChanged": True,
                    "resourceSubscriptions": ["shop://a"],
                }
                server.notify_resource_updated("shop://a")
                assert await anext(changes) == Change("resource", "shop://a")
                server.tool(lambda: None, name="another")
                assert await anext(changes) == Change("tools")
                assert "another" in [tool.name for tool in await client.list_tools()]
                server.resource("shop://fixed", name="fixed")(lambda: "")
                assert await anext(changes) == Change("resources")
                assert len(server.notices) == 1
            with trio.fail_after(20):
                while len(server.notices):
                    await trio.sleep(0.001)
            assert (await client.call_tool("price", {"item": "pear"})).data == 4
        nursery.cancel_scope.cancel()


async def test_the_iteration_ends_when_the_server_ends_it() -> None:
    serving = trio.CancelScope()

    async def serve_it(task_status: trio.TaskStatus[Any]) -> None:
        with serving:
            await serve_http(shop(limits=Limits(drain_timeout=60)), "127.0.0.1:0", task_status=task_status)

    async with trio.open_nursery() as nursery:
        http = await nursery.start(serve_it)
        async with open_client(http.urls[0]) as client, client.listen(tools=True) as changes:
            serving.cancel()
            with trio.fail_after(20):
                assert [change async for change in changes] == []


async def test_a_client_that_asks_for_nothing_hears_the_end() -> None:
    async with open_client(shop()) as client, client.listen() as changes:
        assert changes.agreed == {}
        assert [change async for change in changes] == []


async def test_a_refusal_is_raised_where_the_block_begins(transport: str) -> None:
    server = shop(limits=Limits(listeners=1))

    async def twice(client: Client) -> None:
        async with client.listen(tools=True), client.listen(tools=True):
            raise AssertionError("two streams where there may be one")

    async with trio.open_nursery() as nursery:
        async with open_client(await serve(transport, server, nursery)) as client:
            with pytest.raises(ServerBusy, match="1 streams are listening already") as caught:
                await twice(client)
            assert caught.value.retry_after == 1
        nursery.cancel_scope.cancel()


async def test_an_abrupt_end_is_an_error() -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_stream, shop(), theirs)
        async with open_client(ours) as client, client.listen(tools=True) as changes:
            await theirs.aclose()
            with pytest.raises(ConnectionClosed):
                await anext(changes)
        nursery.cancel_scope.cancel()


async def test_a_peer_that_asks_and_never_reads_is_left(autojump_clock: MockClock) -> None:
    async with open_raw(shop(limits=Limits(write_buffer=10_000))) as peer:
        with pytest.raises(trio.BrokenResourceError):
            for id in range(3_000):
                await peer.send(request(id, "subscriptions/listen", notifications={}))
        with trio.fail_after(5):
            await peer.ended.wait()
