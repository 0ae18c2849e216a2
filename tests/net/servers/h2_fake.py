"""An HTTP/2 server on the library `h2` that answers as a test says, frame by frame."""

import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.settings
import trio
from hyperframe.frame import GoAwayFrame

from .http_peers import discovery

Settings = dict[h2.settings.SettingCodes, int]


def answer_of(id: Any, text: str) -> dict[str, Any]:
    """The answer to a call."""
    result = {"content": [{"type": "text", "text": text}], "resultType": "complete"}
    return {"jsonrpc": "2.0", "id": id, "result": result}


class H2Call:
    """A request that has come whole.

    Attributes:
        on: Its connection.
        stream: Its stream.
        message: What is in it.
    """

    def __init__(self, on: "H2Server", stream: int, message: dict[str, Any]) -> None:
        self.on = on
        self.stream = stream
        self.message = message

    @property
    def method(self) -> str:
        method: str = self.message["method"]
        return method

    def body(self, text: str | None = None) -> bytes:
        """The answer to it; the text says which connection and stream it came on."""
        if self.method == "server/discover":
            return json.dumps(discovery(self.message["id"])).encode()
        return json.dumps(answer_of(self.message["id"], text or f"{self.on.number}/{self.stream}")).encode()

    async def head(self, *fields: tuple[str, str], kind: str = "application/json", status: int = 200) -> None:
        self.on.h2.send_headers(self.stream, [(":status", str(status)), ("content-type", kind), *fields])
        await self.on.flush()

    async def data(self, data: bytes, *, end: bool = False) -> None:
        self.on.h2.send_data(self.stream, data, end_stream=end)
        await self.on.flush()

    async def answer(self, text: str | None = None) -> None:
        await self.head()
        await self.data(self.body(text), end=True)

    async def reset(self, code: h2.errors.ErrorCodes) -> None:
        self.on.h2.reset_stream(self.stream, code)
        await self.on.flush()


class H2Server:
    """One connection of the server.

    Attributes:
        number: Which, from 1.
        resets: The codes of the streams that the client has reset.
        bodies: What has come of the bodies of requests.
        held: Streams that get no more room; the connection does.
    """

    def __init__(self, number: int, stream: trio.abc.Stream, settings: Settings) -> None:
        self.number = number
        self.stream = stream
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        self.h2.local_settings = h2.settings.Settings(client=False, initial_values=settings)
        self.resets: dict[int, int] = {}
        self.bodies: dict[int, bytes] = {}
        self.held: set[int] = set()
        self.changed = trio.Event()
        self._sending = trio.Lock()

    async def flush(self) -> None:
        async with self._sending:
            await self.stream.send_all(self.h2.data_to_send())

    async def raw(self, data: bytes) -> None:
        """Send bytes of which h2 is not told."""
        async with self._sending:
            await self.stream.send_all(data)

    async def go_away(self, last: int, code: int = 0) -> None:
        """GOAWAY, of which h2 is not told: it would end the connection."""
        frame = GoAwayFrame(0)
        frame.last_stream_id, frame.error_code = last, code
        await self.raw(frame.serialize())

    async def close(self) -> None:
        await self.stream.aclose()

    async def wait_reset(self, stream: int) -> int:
        with trio.fail_after(30):
            while stream not in self.resets:
                await self.changed.wait()
        return self.resets[stream]

    async def requests(self) -> AsyncIterator[H2Call | h2.events.Event]:
        """Whole requests, and the heads of those that are not whole yet."""
        self.h2.initiate_connection()
        await self.flush()
        while data := await self.stream.receive_some(65_536):
            for event in self.h2.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    assert event.stream_id is not None
                    self.bodies[event.stream_id] = b""
                    yield event
                elif isinstance(event, h2.events.DataReceived):
                    assert event.stream_id is not None
                    self.bodies[event.stream_id] += event.data or b""
                    if event.flow_controlled_length and event.stream_id in self.held:
                        self.h2.increment_flow_control_window(event.flow_controlled_length)
                    elif event.flow_controlled_length:
                        self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                elif isinstance(event, h2.events.StreamEnded):
                    assert event.stream_id is not None
                    yield H2Call(self, event.stream_id, json.loads(self.bodies[event.stream_id]))
                elif isinstance(event, h2.events.StreamReset):
                    assert event.stream_id is not None
                    self.resets[event.stream_id] = int(event.error_code or 0)
                    self.changed.set()
                    self.changed = trio.Event()
            await self.flush()


class H2Site:
    """Where it is served.

    Attributes:
        url: The endpoint.
        calls: Each request that came whole: the connection, the stream, the method.
        connections: All that there were.
    """

    def __init__(self) -> None:
        self.url = ""
        self.calls: list[tuple[int, int, str]] = []
        self.connections: list[H2Server] = []

    def count(self, method: str) -> int:
        return sum(called == method for _, _, called in self.calls)


Script = Callable[[H2Call], Awaitable[None]]


@asynccontextmanager
async def served_over_h2(
    script: Script,
    certificate: tuple[str, str],
    *,
    settings: Settings | None = None,
    begin: Callable[[H2Server], Awaitable[None]] | None = None,
    head: Callable[[H2Server, h2.events.RequestReceived], Awaitable[None]] | None = None,
) -> AsyncIterator[H2Site]:
    """A server that answers `server/discover` well, and everything else as it is told.

    Args:
        script: Answers a request; runs in a task of its own.
        certificate: Its certificate and the key.
        settings: What it says about itself.
        begin: Runs when a connection has been made, in place of everything else if it returns only at its end.
        head: Hears of a request when its head has come.
    """
    site = H2Site()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    context.set_alpn_protocols(["h2"])

    async def serve(raw: trio.SocketStream) -> None:
        stream = trio.SSLStream(raw, context, server_side=True, https_compatible=True)
        connection = H2Server(len(site.connections) + 1, stream, settings or {})
        site.connections.append(connection)
        try:
            async with trio.open_nursery() as nursery:
                if begin is not None:
                    await begin(connection)
                async for event in connection.requests():
                    if isinstance(event, H2Call):
                        site.calls.append((connection.number, event.stream, event.method))
                        nursery.start_soon(_told, event, script)
                    elif head is not None and isinstance(event, h2.events.RequestReceived):
                        await head(connection, event)
                nursery.cancel_scope.cancel()
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            await trio.aclose_forcefully(stream)

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        site.url = f"https://127.0.0.1:{listeners[0].socket.getsockname()[1]}/mcp"
        yield site
        nursery.cancel_scope.cancel()


async def _told(call: H2Call, script: Script) -> None:
    if call.method == "server/discover":
        await call.answer()
    else:
        await script(call)
