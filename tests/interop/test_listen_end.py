"""The end of a listen stream, between other people's clients and servers and ours (basic/patterns/subscriptions).

A server that ends of its own accord says so with a result, and each client tells that from a connection that is lost.
Every message is checked against the schema, and the rules of such streams, too.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from trio_mcp import Change, ConnectionClosed, open_client, serve_http

from .rounds_server import server as our_server
from .serving import Wire, opened, wait_for
from .wire_log import Message, changes, read_log

pytestmark = pytest.mark.timeout(300)

HONORED = {"toolsListChanged": True, "resourceSubscriptions": ["note://today"]}
CHANGED = [["ResourceUpdated", {"uri": "note://today"}]]
CHANGES = [
    ["notifications/subscriptions/acknowledged", None],
    ["notifications/resources/updated", "note://today"],
]


each_client = pytest.mark.parametrize("client", ["mcp_rounds_client.py", "ts_rounds_client.mjs"])
# They end in order at SIGTERM.
each_server = pytest.mark.parametrize("server", ["mcp_listen_server.py", "ts_rounds_server.mjs"])


@pytest.fixture(params=["stdio", "http", "http2"])
def target(request: pytest.FixtureRequest, wire: Wire, marks: Path) -> Iterator[list[str]]:
    """What a client is opened on, for our server."""
    with wire.target(request.param, "rounds_server.py") as found:
        yield found


@contextmanager
def started(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """Run a client for the time of a block."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def first(process: subprocess.Popen[str]) -> Any:
    """What a client prints when it listens."""
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def rest(process: subprocess.Popen[str]) -> Any:
    """What a client prints at its end, which is in order."""
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    return json.loads(out)


def is_url(target: list[str]) -> bool:
    """Whether a client is opened on a URL, and not on a command."""
    return target[0].startswith("http")


def listens(messages: list[Message]) -> list[Any]:
    """The ids of the requests to listen."""
    bodies = [message.body for message in messages if message.sender == "client" and not message.closed]
    return [body["id"] for body in bodies if body["method"] == "subscriptions/listen"]


def ends(messages: list[Message]) -> list[Any]:
    """Each answer to a request to listen."""
    bodies = [message.body for message in messages if message.sender == "server"]
    return [body for body in bodies if "method" not in body and body["id"] in listens(messages)]


def has_told(log: Path) -> bool:
    """Whether the server has told all that it tells: one that is killed tells nothing more."""
    return changes(read_log(log)) == CHANGES


def check_end(messages: list[Message], name: str, *told: list[Any]) -> None:
    """One client listened to the server of this name, which told one change and ended the stream, and told this."""
    assert changes(messages) == [*CHANGES, *told]
    [key] = listens(messages)
    assert ends(messages) == [
        {
            "jsonrpc": "2.0",
            "id": key,
            "result": {
                "resultType": "complete",
                "_meta": {
                    "io.modelcontextprotocol/subscriptionId": key,
                    "io.modelcontextprotocol/serverInfo": {"name": name, "version": "1.0"},
                },
            },
        }
    ]


@each_client
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_their_client_hears_that_our_server_ends(
    number: signal.Signals, client: str, target: list[str], wire: Wire
) -> None:
    with started([*wire.command(client), "end", *target]) as process:
        said = first(process)
        os.kill(said["process"], number)
        assert rest(process) == {"changes": CHANGED, "ended": "gracefully"}
    assert said["honored"] == HONORED
    messages = wire.messages()
    # The result says it, and a notification as well (basic/patterns/cancellation).
    check_end(messages, "rounds", ["notifications/cancelled", None])


@each_client
def test_their_client_loses_our_server(client: str, target: list[str], wire: Wire) -> None:
    with started([*wire.command(client), "end", *target]) as process:
        said = first(process)
        assert wait_for(partial(has_told, wire.log))
        os.kill(said["process"], signal.SIGKILL)
        assert rest(process) == {"changes": CHANGED, "ended": "lost"}
    messages = read_log(wire.log)
    assert changes(messages) == CHANGES
    assert ends(messages) == []
    # Over HTTP the client closes its side, too, which the log takes for a cancellation.
    lost = [] if is_url(target) else [f"client: request {key} was not answered" for key in listens(messages)]
    assert wait_for(lambda: wire.schema.problems(read_log(wire.log)) == lost)


@each_client
async def test_their_client_hears_that_our_server_is_cancelled(client: str, wire: Wire, marks: Path) -> None:
    async with trio.open_nursery() as nursery:
        serving_scope = trio.CancelScope()

        async def serve(*, task_status: trio.TaskStatus[str]) -> None:
            async with trio.open_nursery() as inner:
                http = await inner.start(partial(serve_http, our_server, "127.0.0.1:0"))
                with serving_scope:
                    task_status.started(http.urls[0])
                    await trio.sleep_forever()
                inner.cancel_scope.cancel()

        url = await nursery.start(serve)
        with wire.tapped(url) as tapped_url, started([*wire.command(client), "end", tapped_url]) as process:
            said = await trio.to_thread.run_sync(first, process)
            serving_scope.cancel()
            assert await trio.to_thread.run_sync(rest, process) == {"changes": CHANGED, "ended": "gracefully"}
    assert said["process"] == os.getpid()
    messages = wire.messages()
    check_end(messages, "rounds", ["notifications/cancelled", None])


@pytest.mark.parametrize("over", ["stdio", "http"])
@each_server
async def test_our_client_hears_that_their_server_ends(over: str, server: str, wire: Wire, marks: Path) -> None:
    with wire.target(over, server) as target:
        async with open_client(opened(target), eras=["modern"]) as client:
            process = int((await client.call_tool("process_id", raise_on_error=True)).text)
            async with client.listen(tools=True, uris=["note://today"]) as listening:
                assert listening.agreed == HONORED
                await client.call_tool("touch", {"uri": "note://today"}, raise_on_error=True)
                os.kill(process, signal.SIGTERM)
                with trio.fail_after(20):
                    assert [change async for change in listening] == [Change("resource", "note://today")]
    messages = wire.messages()
    check_end(messages, "theirs")


@pytest.mark.parametrize("over", ["stdio", "http"])
@each_server
async def test_our_client_loses_their_server(over: str, server: str, wire: Wire, marks: Path) -> None:
    with wire.target(over, server) as target:
        async with open_client(opened(target), eras=["modern"]) as client:
            process = int((await client.call_tool("process_id", raise_on_error=True)).text)
            async with client.listen(tools=True, uris=["note://today"]) as listening:
                await client.call_tool("touch", {"uri": "note://today"}, raise_on_error=True)
                assert await trio.to_thread.run_sync(wait_for, partial(has_told, wire.log))
                os.kill(process, signal.SIGKILL)
                with trio.fail_after(20):
                    assert await anext(listening) == Change("resource", "note://today")
                    with pytest.raises(ConnectionClosed):
                        await anext(listening)
    messages = read_log(wire.log)
    assert changes(messages) == CHANGES
    assert ends(messages) == []
