"""Peers that speak HTTP byte by byte: an HTTP/1.1 and an HTTP/2 client, and a fake server; and what they have in common."""

import gc
import json
import os
import socket
import struct
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.settings
import trio

from trio_mcp import Server, serve_http
from trio_mcp.serve import OpenServer
from trio_mcp.testing import request

from ..needs import need

Headers = list[tuple[bytes, bytes]]


# -- messages


def call(id: Any, tool: str, *, progress: bool = False, **arguments: Any) -> dict[str, Any]:
    """A `tools/call`."""
    return request(id, "tools/call", meta={"progressToken": id} if progress else None, name=tool, arguments=arguments)


def fields(message: dict[str, Any], accept: str = "application/json, text/event-stream") -> dict[str, str]:
    """The header fields that a modern client sends with a message."""
    out = {
        "content-type": "application/json",
        "accept": accept,
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": message["method"],
    }
    if "name" in message.get("params", {}):
        out["mcp-name"] = message["params"]["name"]
    return out


def post(message: dict[str, Any], *, accept: str = "application/json, text/event-stream", path: str = "/mcp") -> bytes:
    """A whole HTTP/1.1 request with a message in it."""
    body = json.dumps(message).encode()
    lines = [f"POST {path} HTTP/1.1", "host: 127.0.0.1", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in fields(message, accept).items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def text_of(answer: dict[str, Any]) -> str:
    """The text in the result of a tool."""
    text: str = answer["result"]["content"][0]["text"]
    return text


def events_of(body: bytes) -> list[dict[str, Any]]:
    """The messages in an event stream."""
    return [json.loads(line[6:]) for line in body.split(b"\n") if line.startswith(b"data: ")]


async def all_places_free(engine: Any) -> None:
    """Wait until no call has a place: it comes back a few steps after its handler has ended."""
    with trio.fail_after(20):
        while engine.executor.statistics().running:
            await trio.sleep(0.001)


# -- serving in the test's own run


class Site:
    """What is served.

    Args:
        url: Where.
        end: Asks for the end; otherwise that is the cancellation of `serving`.

    Attributes:
        url: Where.
        serving: The cancel scope around `serve_http`.
        ended: Set when it has ended.
    """

    def __init__(self, url: str, end: Callable[[], None] | None = None) -> None:
        self.url = url
        self.serving = trio.CancelScope()
        self.end = end or self.serving.cancel
        self.ended = trio.Event()
        self._sockets: list[trio.socket.SocketType] = []

    def close(self) -> None:
        """Close what clients have left open."""
        for sock in self._sockets:
            sock.close()

    @property
    def port(self) -> int:
        return int(self.url.split("://")[1].rpartition(":")[2].split("/")[0])

    async def connect(self) -> trio.SocketStream:
        """A new connection."""
        if self.url.startswith("unix:"):
            sock = trio.socket.socket(socket.AF_UNIX)
            self._sockets.append(sock)
            await sock.connect(self.url.removeprefix("unix:"))
            return trio.SocketStream(sock)
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        self._sockets.append(stream.socket)
        return stream

    async def h1(self) -> "H1Peer":
        """A new HTTP/1.1 client."""
        return H1Peer(await self.connect())

    async def h2(self) -> "H2Peer":
        """A new HTTP/2 client."""
        peer = H2Peer(await self.connect())
        await peer.begin()
        return peer


@asynccontextmanager
async def serving(server: Server[Any] | OpenServer, bind: str = "127.0.0.1:0", **options: Any) -> AsyncIterator[Site]:
    """Serve a server on real sockets while the block lasts."""
    site = Site("")

    async def serve(*, task_status: trio.TaskStatus[Any]) -> None:
        try:
            with site.serving:
                await serve_http(server, bind, task_status=task_status, **options)
        finally:
            site.ended.set()

    async with trio.open_nursery() as nursery:
        http = await nursery.start(serve)
        site.url = http.urls[0]
        try:
            yield site
        finally:
            site.close()
            nursery.cancel_scope.cancel()


# -- clients


class H1Peer:
    """An HTTP/1.1 client on one connection."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.data = b""

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def more(self) -> None:
        """Read once.

        Raises:
            EOFError: the connection ended.
        """
        data = await self.stream.receive_some(65_536)
        if not data:
            raise EOFError(f"the connection ended after {self.data[-200:]!r}")
        self.data += data

    async def until(self, mark: bytes) -> bytes:
        """Read to a mark; what was before it."""
        while mark not in self.data:
            await self.more()
        before, _, self.data = self.data.partition(mark)
        return before

    async def head(self) -> tuple[int, dict[str, str]]:
        """The next status, and the fields."""
        first, *lines = (await self.until(b"\r\n\r\n")).decode().split("\r\n")
        assert first.startswith("HTTP/1.1 "), first
        return int(first.split()[1]), {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}

    async def body(self, headers: dict[str, str]) -> bytes:
        """The body that belongs to these fields."""
        if headers.get("transfer-encoding") == "chunked":
            out = b""
            while size := int(await self.until(b"\r\n"), 16):
                while len(self.data) < size + 2:
                    await self.more()
                out, self.data = out + self.data[:size], self.data[size + 2 :]
            await self.until(b"\r\n")
            return out
        size = int(headers["content-length"])
        while len(self.data) < size:
            await self.more()
        out, self.data = self.data[:size], self.data[size:]
        return out

    async def response(self) -> tuple[int, dict[str, str], bytes]:
        """The next answer, whole."""
        status, headers = await self.head()
        return status, headers, await self.body(headers)

    async def echo(self, text: str, timeout: float = 30) -> str:
        """Call the tool `echo`, which must work."""
        with trio.fail_after(timeout):
            await self.send(post(call(1, "echo", text=text)))
            status, _, body = await self.response()
        assert status == 200, (status, body)
        return text_of(json.loads(body))

    async def ended(self, timeout: float = 30) -> bytes:
        """Read to the end of the connection; what came."""
        with trio.fail_after(timeout):
            try:
                while True:
                    await self.more()
            except (EOFError, trio.BrokenResourceError):
                return self.data

    async def aclose(self) -> None:
        await self.stream.aclose()


class H2Peer:
    """An HTTP/2 client on one connection, which does not check what it sends.

    Args:
        stream: The bytes.
        window: Whether to give the server room as its data arrive.
        initial: The window of each stream at its beginning.
    """

    def __init__(self, stream: Any, *, window: bool = True, initial: int = 65_535) -> None:
        self.stream = stream
        self.window = window
        self.h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(
                client_side=True,
                header_encoding=None,
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        # Before they are sent, or they count only when the server has acknowledged them.
        self.h2.local_settings = h2.settings.Settings(
            client=True, initial_values={h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: initial}
        )
        self.statuses: dict[int, int] = {}
        self.headers: dict[int, dict[str, str]] = {}
        self.bodies: dict[int, bytes] = {}
        self.ended: set[int] = set()
        self.resets: dict[int, int] = {}
        self.goaway: int | None = None
        self.eof = False

    async def begin(self) -> None:
        """Send the preface."""
        self.h2.initiate_connection()
        await self.flush()

    async def flush(self) -> None:
        await self.stream.send_all(self.h2.data_to_send())

    def head(self, message: dict[str, Any], path: bytes = b"/mcp") -> Headers:
        """The fields of a request."""
        plain = [(name.encode(), value.encode()) for name, value in fields(message).items()]
        return [(b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"127.0.0.1"), (b":path", path), *plain]

    async def post(self, message: dict[str, Any]) -> int:
        """Send a request; its stream."""
        stream = await self.request(self.head(message))
        self.h2.send_data(stream, json.dumps(message).encode(), end_stream=True)
        await self.flush()
        return stream

    async def request(self, headers: Headers, *, end: bool = False) -> int:
        """Send a head alone; its stream."""
        stream: int = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream, headers, end_stream=end)
        await self.flush()
        return stream

    async def pump(self) -> bool:
        """Read once; False at the end of the connection."""
        try:
            data = await self.stream.receive_some(65_536)
        except trio.BrokenResourceError:
            data = b""
        if not data:
            self.eof = True
            return False
        for event in self.h2.receive_data(data):
            self._hear(event)
        answer = self.h2.data_to_send()
        if answer:
            try:
                await self.stream.send_all(answer)
            except trio.BrokenResourceError:
                pass
        return True

    async def pump_for(self, seconds: float) -> None:
        """Read what comes in so long."""
        with trio.move_on_after(seconds):
            while await self.pump():
                pass

    def _hear(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.ResponseReceived):
            assert event.headers is not None and event.stream_id is not None
            self.statuses[event.stream_id] = int(dict(event.headers)[b":status"])
            plain = {name.decode(): value.decode() for name, value in event.headers if not name.startswith(b":")}
            self.headers[event.stream_id] = plain
        elif isinstance(event, h2.events.DataReceived):
            assert event.stream_id is not None and event.data is not None
            self.bodies[event.stream_id] = self.bodies.get(event.stream_id, b"") + event.data
            if self.window and event.flow_controlled_length:
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            assert event.stream_id is not None
            self.ended.add(event.stream_id)
        elif isinstance(event, h2.events.StreamReset):
            assert event.stream_id is not None
            self.resets[event.stream_id] = int(event.error_code or 0)
            self.ended.add(event.stream_id)
        elif isinstance(event, h2.events.ConnectionTerminated):
            self.goaway = int(event.error_code or 0)

    async def response(self, stream: int, timeout: float = 30) -> tuple[int | None, bytes]:
        """The answer on a stream, whole: its status and body.

        Raises:
            EOFError: the connection ended before it.
        """
        with trio.fail_after(timeout):
            while stream not in self.ended:
                if not await self.pump():
                    raise EOFError(f"the connection ended before stream {stream} did (GOAWAY {self.goaway})")
        return self.statuses.get(stream), self.bodies.get(stream, b"")

    async def echo(self, text: str, timeout: float = 30) -> str:
        """Call the tool `echo`, which must work."""
        status, body = await self.response(await self.post(call(1, "echo", text=text)), timeout)
        assert status == 200, (status, body)
        return text_of(json.loads(body))

    async def closed(self, timeout: float = 30) -> None:
        """Read to the end of the connection."""
        with trio.fail_after(timeout):
            while await self.pump():
                pass

    async def aclose(self) -> None:
        await self.stream.aclose()


async def reset(stream: trio.SocketStream) -> None:
    """Close a connection with a TCP reset."""
    stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    await stream.aclose()


# -- a fake server

Answer = Callable[[H1Peer, str, dict[str, Any]], Awaitable[None]]


@asynccontextmanager
async def faked(answer: Answer) -> AsyncIterator[str]:
    """A server that answers `server/discover` well, and everything else as it is told.

    Args:
        answer: Gets the connection, the path and the message; the connection is closed behind it.
    """

    async def serve(stream: trio.SocketStream) -> None:
        peer = H1Peer(stream)
        try:
            async with stream:
                while True:
                    first, *lines = (await peer.until(b"\r\n\r\n")).decode().split("\r\n")
                    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
                    message = json.loads(await peer.body(headers))
                    if message["method"] != "server/discover":
                        await answer(peer, first.split()[1], message)
                        return
                    await peer.send(ok(discovery(message["id"])))
        except (EOFError, trio.BrokenResourceError):
            pass

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        yield f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/mcp"
        nursery.cancel_scope.cancel()


def discovery(id: Any) -> dict[str, Any]:
    """The answer to `server/discover`."""
    result = {
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {}},
        "resultType": "complete",
        "_meta": {},
    }
    return {"jsonrpc": "2.0", "id": id, "result": result}


def ok(message: dict[str, Any]) -> bytes:
    """A whole answer with a message in it."""
    body = json.dumps(message).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body


# -- what must not be left over


def _tasks() -> int:
    root = trio.lowlevel.current_root_task()
    assert root is not None
    count, todo = 0, [root]
    while todo:
        task = todo.pop()
        count += 1
        todo += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return count


def held() -> tuple[int, list[str]]:
    """How many tasks there are, and which descriptors are open."""
    need("/proc")
    gc.collect()
    return _tasks(), sorted(os.listdir("/proc/self/fd"))


async def settled() -> tuple[int, list[str]]:
    """What is held once that does not change any more."""
    before = held()
    with trio.move_on_after(20):
        while True:
            await trio.sleep(0.02)
            now = held()
            if now == before:
                break
            before = now
    return before


async def holds(before: tuple[int, list[str]], timeout: float = 30) -> tuple[int, list[str]]:
    """What is held once it is what was held before, or after a while."""
    with trio.move_on_after(timeout):
        while True:
            # Where that is so already, nothing needs to be collected.
            for _ in range(10):
                if (_tasks(), sorted(os.listdir("/proc/self/fd"))) == before:
                    return before
                await trio.sleep(0.01)
            gc.collect()
    return held()


# -- certificates


def make_certificate(folder: Path) -> tuple[str, str]:
    """A certificate for the loopback addresses, signed by itself, and its key."""
    need("openssl")
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1"
    subprocess.run(
        [*command.split(), "-addext", names, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True
    )
    return str(cert), str(key)
