"""A site in memory, and clients that speak bytes of HTTP/1.1 and read answers with h11."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import h11
import trio
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

from trio_mcp import Context, Limits, Server, ToolError
from trio_mcp.scopes.executor import ExecutorStatistics
from trio_mcp.server.serve.engine import Engine, open_engine
from trio_mcp.testing import request
from trio_mcp.transports.http.endpoint import HttpEndpoint
from trio_mcp.transports.http.h1 import H1Connection
from trio_mcp.transports.memory import memory_streams

BOTH = "application/json, text/event-stream"
IDLE = ExecutorStatistics(running=0, waiting=0)


class Log:
    """What the handlers of a test server went through."""

    def __init__(self) -> None:
        self.events: list[Any] = []


def make(**limits: Any) -> tuple[Server[Any], Log]:
    """A server with a few tools, and the log of them."""
    server = Server("test", version="1", limits=Limits(**limits))
    log = Log()

    @server.tool
    async def echo(text: str) -> str:
        log.events.append(("echo", text))
        return text

    @server.tool
    async def slow(seconds: float, ctx: Context) -> str:
        log.events.append(("start", ctx.request_id))
        try:
            await trio.sleep(seconds)
        finally:
            log.events.append(("end", ctx.request_id, trio.current_time()))
        return "slept"

    @server.tool
    async def steps(count: int, pause: float, ctx: Context) -> str:
        for step in range(count):
            await trio.sleep(pause)
            await ctx.report_progress(step, total=count)
        return "done"

    @server.tool
    async def fails() -> str:
        raise ToolError("for the model")

    return server, log


def call(id: Any, tool: str, meta: dict[str, Any] | None = None, **arguments: Any) -> dict[str, Any]:
    """A `tools/call` as a dict."""
    return request(id, "tools/call", name=tool, arguments=arguments, meta=meta)


def fields_of(message: Any, accept: str | None = BOTH) -> dict[str, str]:
    """The header fields that a client sends with a message."""
    fields = {"Host": "localhost:8000", "Content-Type": "application/json", "MCP-Protocol-Version": "2026-07-28"}
    if accept is not None:
        fields["Accept"] = accept
    if isinstance(message, dict):
        if "method" in message:
            fields["Mcp-Method"] = str(message["method"])
        params = message.get("params")
        if isinstance(params, dict) and isinstance(params.get("name", params.get("uri")), str):
            fields["Mcp-Name"] = params.get("name", params.get("uri"))
    return fields


def http(
    message: Any = None,
    *,
    body: bytes | None = None,
    target: str = "/mcp",
    verb: str = "POST",
    version: str = "1.1",
    accept: str | None = BOTH,
    chunks: list[int] | None = None,
    **extra: str | None,
) -> bytes:
    """One HTTP request.

    Args:
        message: The JSON value to send.
        body: Its bytes instead.
        target: The request target.
        verb: The method.
        version: Of HTTP.
        accept: The `Accept` field, if any.
        chunks: Send the body in chunks of these sizes, the rest in a last one.
        extra: More fields, or others; None leaves one out. `_` in a name stands for `-`.
    """
    data = json.dumps(message).encode() if body is None and message is not None else body or b""
    fields: dict[str, str | None] = {**fields_of(message, accept)}
    if chunks is not None:
        fields["Transfer-Encoding"] = "chunked"
    elif data:
        fields["Content-Length"] = str(len(data))
    known = {name.lower(): name for name in fields}
    for name, value in extra.items():
        name = name.replace("_", "-")
        fields[known.get(name.lower(), name)] = value
    lines = [f"{verb} {target} HTTP/{version}", *(f"{k}: {v}" for k, v in fields.items() if v is not None)]
    head = "\r\n".join(lines).encode() + b"\r\n\r\n"
    return head + (data if chunks is None else in_chunks(data, chunks))


def in_chunks(data: bytes, sizes: list[int]) -> bytes:
    """A body in the chunked coding."""
    out = b""
    for size in [*sizes, len(data) or 1]:
        piece, data = data[:size], data[size:]
        if piece:
            out += b"%x\r\n%b\r\n" % (len(piece), piece)
    return out + b"0\r\n\r\n"


class Answer:
    """A response, as far as it was read.

    Attributes:
        status: Its status.
        fields: Its header fields, by lower-case name.
        informed: The informational statuses before it.
        pieces: When what came.
        complete: Whether its end was read.
    """

    def __init__(self, status: int, fields: dict[str, str], informed: list[int]) -> None:
        self.status = status
        self.fields = fields
        self.informed = informed
        self.pieces: list[tuple[float, bytes]] = []
        self.complete = False

    @property
    def body(self) -> bytes:
        return b"".join(data for _, data in self.pieces)

    @property
    def json(self) -> Any:
        assert self.fields.get("content-type") == "application/json"
        return json.loads(self.body)

    @property
    def code(self) -> Any:
        """The JSON-RPC code of the error, if it is one."""
        return self.json.get("error", {}).get("code")

    @property
    def text(self) -> Any:
        """The text of a tool's result, whichever form it came in."""
        message = self.events[-1] if self.fields.get("content-type") == "text/event-stream" else self.json
        return message["result"]["content"][0]["text"]

    @property
    def events(self) -> list[Any]:
        """The messages of an event stream."""
        assert self.fields.get("content-type") == "text/event-stream"
        out = []
        for block in self.body.decode().split("\n\n"):
            data = [line.removeprefix("data: ") for line in block.split("\n") if line.startswith("data: ")]
            if data:
                out.append(json.loads("\n".join(data)))
        return out

    @property
    def comments(self) -> list[float]:
        """When comments came."""
        return [when for when, data in self.pieces if data.startswith(b":")]

    def __repr__(self) -> str:
        return f"<Answer {self.status} {self.fields} {self.body[:200]!r}>"


class Tap(trio.abc.Stream):
    """A stream that remembers each write of its side, and when."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self.writes: list[tuple[float, bytes]] = []

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append((trio.current_time(), bytes(data)))
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self._stream.receive_some(max_bytes)

    async def aclose(self) -> None:
        await self._stream.aclose()


class UnreadIsLost(trio.socket.SocketType):
    """A socket of TCP as the other end sees it: closed before everything was read, it resets the connection, and what was
    sent is lost (RFC 1122, section 4.2.2.13).

    Attributes:
        heard: What the other end could read.
    """

    type = trio.socket.SOCK_STREAM

    def __init__(self, *arrived: bytes | None) -> None:
        super().__init__()
        self._arrived: list[bytes | None] = list(arrived)
        self._more = trio.lowlevel.ParkingLot()
        self._half_closed = self._closed = False
        self.heard = b""

    @property
    def did_shutdown_SHUT_WR(self) -> bool:
        return self._half_closed

    def arrive(self, data: bytes | None) -> None:
        """Bytes come in; None for the end."""
        if self._closed and data:
            self.heard = b""
        self._arrived.append(data)
        self._more.unpark_all()

    async def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        await trio.lowlevel.checkpoint()
        while not self._arrived:
            await self._more.park()
        data = self._arrived.pop(0) or b""
        if len(data) > bufsize:
            self._arrived.insert(0, data[bufsize:])
        return data[:bufsize]

    async def send(self, data: Any, flags: int = 0, /) -> int:
        await trio.lowlevel.checkpoint()
        self.heard += bytes(data)
        return len(data)

    def shutdown(self, how: int) -> None:
        self._half_closed = True

    def setsockopt(self, *args: Any) -> None:
        pass

    def close(self) -> None:
        self._closed = True
        if any(self._arrived):
            self.heard = b""


class Peer:
    """The client's end of a connection.

    Attributes:
        connection: The other end.
        tap: What the server wrote.
        ended: Set when the server has left the connection.
        ended_at: When that was.
    """

    def __init__(self, stream: trio.abc.Stream, connection: H1Connection, tap: Tap) -> None:
        self._stream = stream
        self._buffer = b""
        self._eof = False
        self._parser: h11.Connection | None = None
        self.connection = connection
        self.tap = tap
        self.ended = trio.Event()
        self.ended_at: float | None = None

    @property
    def sent(self) -> bytes:
        """All that the server wrote."""
        return b"".join(data for _, data in self.tap.writes)

    async def send(self, *data: bytes) -> None:
        """Send bytes, in one piece."""
        await self._stream.send_all(b"".join(data))

    async def send_cut(self, data: bytes, size: int) -> None:
        """Send bytes in pieces of a size, each read on its own, as far as the server takes them."""
        for start in range(0, len(data), size):
            try:
                await self._stream.send_all(data[start : start + size])
            except trio.BrokenResourceError:
                return
            await wait_all_tasks_blocked()

    async def ask(self, message: Any = None, **options: Any) -> Answer:
        """Send one request and read its answer."""
        await self.send(http(message, **options))
        return await self.answer(options.get("verb", "POST"))

    async def _event(self, parser: h11.Connection) -> Any:
        while True:
            event = parser.next_event()
            if event is not h11.NEED_DATA:
                return event
            data = bytes(await self._stream.receive_some())
            parser.receive_data(data)
            if not data:
                self._eof = True

    async def head(self, verb: str = "POST") -> Answer:
        """Read a response as far as its head.

        Raises:
            EOFError: the server closed the connection instead.
        """
        if not self._buffer and not self._eof:
            self._buffer = bytes(await self._stream.receive_some())
            self._eof = not self._buffer
        if not self._buffer:
            raise EOFError("the server closed the connection")
        parser = self._parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 24)
        parser.send(h11.Request(method=verb, target="/", headers=[("Host", "x"), ("Connection", "keep-alive")]))
        parser.send(h11.EndOfMessage())
        parser.receive_data(self._buffer)
        self._buffer = b""
        if self._eof:
            parser.receive_data(b"")
        informed = []
        while isinstance(event := await self._event(parser), h11.InformationalResponse):
            informed.append(event.status_code)
        assert isinstance(event, h11.Response)
        fields: dict[str, str] = {}
        for name, value in event.headers:
            assert name.decode() not in fields, f"{name!r} came twice"
            fields[name.decode()] = value.decode()
        return Answer(event.status_code, fields, informed)

    async def more(self, answer: Answer) -> bytes | None:
        """Read the next piece of the body; None at its end."""
        parser = self._parser
        assert parser is not None
        event = await self._event(parser)
        if isinstance(event, h11.Data):
            answer.pieces.append((trio.current_time(), bytes(event.data)))
            return bytes(event.data)
        assert isinstance(event, h11.EndOfMessage)
        answer.complete = True
        self._buffer, _ = parser.trailing_data
        self._parser = None
        return None

    async def answer(self, verb: str = "POST") -> Answer:
        """Read a whole response."""
        answer = await self.head(verb)
        await self.rest(answer)
        return answer

    async def rest(self, answer: Answer) -> None:
        """Read a body to its end."""
        while await self.more(answer) is not None:
            pass

    async def answers(self) -> list[Answer]:
        """Read responses until the server closes the connection."""
        out: list[Answer] = []
        while True:
            try:
                out.append(await self.answer())
            except EOFError:
                return out

    async def closed(self) -> bool:
        """Whether the server closes the connection, and sends nothing before."""
        rest = self._buffer
        while not self._eof and (data := bytes(await self._stream.receive_some())):
            rest += data
        return rest == b""

    async def silent(self, seconds: float) -> bool:
        """Whether nothing comes for so long, not even the end."""
        with trio.move_on_after(seconds):
            self._buffer += bytes(await self._stream.receive_some())
            return False
        return self._buffer == b""

    async def leave(self) -> None:
        """Close the connection."""
        await self._stream.aclose()


class Site:
    """An endpoint, and connections to it.

    Attributes:
        log: What its handlers went through, if somebody keeps it.
    """

    log: Log

    def __init__(self, engine: Engine, endpoint: HttpEndpoint, nursery: trio.Nursery) -> None:
        self.engine = engine
        self.endpoint = endpoint
        self._nursery = nursery

    @property
    def statistics(self) -> ExecutorStatistics:
        return self.engine.executor.statistics()

    def connect(self, *, pipe: int | None = None, first: bytes = b"", wrap: Callable[[Any], Any] | None = None) -> Peer:
        """A new connection.

        Args:
            pipe: Bytes that each direction holds; without it any number.
            first: What was read of it already.
            wrap: Put something around the stream of the server.
        """
        ours: trio.abc.Stream
        theirs: trio.abc.Stream
        if pipe is None:
            ours, theirs = memory_stream_pair()
        else:
            (receive, send), (their_receive, their_send) = memory_streams(pipe)
            ours, theirs = trio.StapledStream(send, receive), trio.StapledStream(their_send, their_receive)
        tap = Tap(theirs if wrap is None else wrap(theirs))
        peer = Peer(ours, H1Connection(tap, self.endpoint), tap)

        async def run() -> None:
            try:
                await peer.connection.run(first)
            finally:
                peer.ended_at = trio.current_time()
                peer.ended.set()

        self._nursery.start_soon(run)
        return peer

    async def serve(self, stream: trio.abc.Stream) -> None:
        """Serve a connection to its end."""
        await H1Connection(stream, self.endpoint).run()


@asynccontextmanager
async def open_site(server: Server[Any], *, address: str = "127.0.0.1", path: str = "/mcp") -> AsyncIterator[Site]:
    """Serve a server over HTTP/1.1 in memory; an exception out of a connection fails the test."""
    async with open_engine(server) as engine, trio.open_nursery() as nursery:
        endpoint = HttpEndpoint(engine, path=path, address=address)
        try:
            yield Site(engine, endpoint, nursery)
        finally:
            nursery.cancel_scope.cancel()
