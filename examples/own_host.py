"""MCP in an HTTP server of your own: here HTTP/1.1 on trio with h11, and nothing else at its address.

python examples/own_host.py [HOST:PORT]       prints the URL of the endpoint, which the commands below take
trio-mcp call URL add a=1 b=2
trio-mcp call URL wait seconds=0.1

Four things make a host: a buffer for the answer (`Exchange`), a task that sends it (`send_all`), one that hears the peer go
away (`hear`), and what happens with a request (`answer`).
"""

import logging
import signal
import sys
from collections.abc import Awaitable, Callable
from functools import partial

import h11
import trio

from trio_mcp import HttpEndpoint, HttpExchange, HttpFields, HttpRefusal, Limits, Server, open_server


class Exchange(HttpExchange):
    """One request. h11 writes the answer into a buffer, and `send_all` empties that."""

    def __init__(self, method: str, headers: dict[bytes, bytes], http: h11.Connection, limits: Limits) -> None:
        super().__init__(method, headers, b"")
        self.http, self.limits = http, limits
        self.data = bytearray()
        self.changed = trio.lowlevel.ParkingLot()

    def post(self, *events: h11.Event) -> None:
        for event in events:
            self.data += self.http.send(event) or b""
        self.changed.unpark_all()

    def send_answer(self, status: int, content_type: bytes, fields: HttpFields, body: bytes) -> None:
        kind = [(b"content-type", content_type)] if content_type else []
        headers = [*fields, *kind, (b"content-length", b"%d" % len(body))]
        data = [] if self.method == "HEAD" else [h11.Data(data=body)]
        self.post(h11.Response(status_code=status, headers=headers), *data, h11.EndOfMessage())

    def send_head(self, fields: HttpFields) -> None:
        self.post(h11.Response(status_code=200, headers=[*fields]))

    def send_piece(self, data: bytes, last: bool) -> bool:
        self.post(h11.Data(data=data))
        return True

    def send_end(self) -> None:
        self.post(h11.EndOfMessage())

    def peer_gone(self) -> None:
        super().peer_gone()
        self.changed.unpark_all()

    @property
    def full(self) -> bool:
        return len(self.data) > self.limits.write_buffer and not self.gone

    async def wait_room(self) -> None:
        while self.full:
            await self.changed.park()

    async def send_all(self, stream: trio.SocketStream) -> None:
        """Send the answer to its end, or until the peer takes nothing more."""
        while not self.gone and (self.data or not self.done):
            if not self.data:
                await self.changed.park()
                continue
            piece = bytes(self.data[:16_384])
            del self.data[:16_384]
            try:
                with trio.fail_after(self.limits.write_stall):
                    await stream.send_all(piece)
            except (trio.BrokenResourceError, trio.TooSlowError):
                self.peer_gone()
                # Also when all was posted, and only this is not sent.
                self.gone = True
            self.changed.unpark_all()

    async def hear(self, stream: trio.SocketStream) -> None:
        """Read on while the answer is made. A peer that hangs up, or has too much to say meanwhile, is gone."""
        while len(self.http.trailing_data[0]) < self.limits.read_ahead and (data := await receive(stream)):
            self.http.receive_data(data)
        self.peer_gone()

    async def tick(self) -> None:
        await trio.sleep(self.limits.silence)
        while True:
            self.silent()
            await trio.sleep(self.limits.keep_alive)


async def receive(stream: trio.SocketStream) -> bytes:
    try:
        return bytes(await stream.receive_some())
    except trio.BrokenResourceError:
        return b""


async def answer(endpoint: HttpEndpoint, stream: trio.SocketStream, http: h11.Connection) -> bool:
    """Read a request and answer it. False when that was the last one of the connection."""

    async def next_event() -> object:
        while (event := http.next_event()) is h11.NEED_DATA:
            http.receive_data(await receive(stream))
        return event

    async def piece() -> bytes:
        if http.they_are_waiting_for_100_continue:
            await stream.send_all(http.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
        event = await next_event()
        return bytes(event.data) if isinstance(event, h11.Data) else b""

    request = None
    with trio.move_on_after(endpoint.limits.idle_timeout):
        request = await next_event()
    if not isinstance(request, h11.Request):
        return False
    headers: dict[bytes, bytes] = {}
    for name, value in request.headers:
        headers[name] = headers[name] + b", " + value if name in headers else value
    exchange = Exchange(request.method.decode(), headers, http, endpoint.limits)
    verdict = endpoint.admit(exchange.method, request.target.partition(b"?")[0].decode("latin-1"), headers)
    body = verdict if isinstance(verdict, HttpRefusal) else await endpoint.take_body(piece)
    async with trio.open_nursery() as nursery:
        if isinstance(body, HttpRefusal):
            with trio.move_on_after(0.5):  # the rest of the body is dropped; many clients read only when all was sent
                while http.their_state is h11.SEND_BODY:
                    await next_event()
            endpoint.refuse(exchange, body)
        elif not isinstance(verdict, HttpRefusal):
            exchange.body = body
            nursery.start_soon(exchange.hear, stream)
            nursery.start_soon(exchange.tick)
            nursery.start_soon(endpoint.serve, exchange, verdict)
        await exchange.send_all(stream)
        nursery.cancel_scope.cancel()
    return not exchange.gone and http.our_state is http.their_state is h11.DONE


async def connection(endpoint: HttpEndpoint, stream: trio.SocketStream) -> None:
    http = h11.Connection(h11.SERVER, max_incomplete_event_size=endpoint.limits.head_bytes)
    try:
        async with stream:
            while await answer(endpoint, stream, http):
                http.start_next_cycle()
    except h11.RemoteProtocolError:
        pass  # what is no HTTP, or breaks off, gets no answer
    except Exception:
        logging.exception("a connection failed")  # and the others go on


async def serve(
    endpoint: HttpEndpoint, listeners: list[trio.SocketListener], until: Callable[[], Awaitable[object]]
) -> None:
    """Serve until that returns, and then what is under way for `limits.drain_timeout`."""
    async with trio.open_nursery() as connections:
        async with trio.open_nursery() as accepting:
            handler = partial(connection, endpoint)
            accepting.start_soon(partial(trio.serve_listeners, handler, listeners, handler_nursery=connections))
            await until()
            accepting.cancel_scope.cancel()
        endpoint.drain()
        connections.cancel_scope.deadline = trio.current_time() + endpoint.limits.drain_timeout


server = Server("own-host", version="1.0")


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
async def wait(seconds: float) -> str:
    """Wait."""
    await trio.sleep(seconds)
    return f"That was {seconds:g} s."


async def main(bind: str) -> None:
    host, _, port = bind.rpartition(":")
    listeners = await trio.open_tcp_listeners(int(port), host=host)
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with open_server(server) as running:
            endpoint = HttpEndpoint(running, address=listeners[0].socket.getsockname()[0])
            print(f"http://{host}:{listeners[0].socket.getsockname()[1]}/mcp", flush=True)
            await serve(endpoint, listeners, signals.__anext__)


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8000")
