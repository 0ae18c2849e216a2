"""Several connections of every kind on one server, with places few enough to be fought for.

A timetable of requests, cancels, hang-ups, stalls and drains is played over byte streams, HTTP/1.1 and HTTP/2 at once, in
memory and in virtual time, with a model beside it. Whatever happens: each request settles once, nothing is said after a
cancellation, no connection is hurt by another, and at the end nothing is held and no task is left.
"""

from __future__ import annotations

import json
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import h2.events
import h2.exceptions
import h11
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.net.servers.http_peers import H2Peer
from trio_mcp import Limits
from trio_mcp.server.serve.engine import Engine, open_engine
from trio_mcp.testing import RawPeer, request
from trio_mcp.transports.http.endpoint import HttpEndpoint
from trio_mcp.transports.http.h1 import H1Connection
from trio_mcp.transports.http.h2 import H2Connection
from trio_mcp.transports.lines import serve_lines
from trio_mcp.transports.link import Link
from trio_mcp.transports.memory import memory_pipe

from ..scaled import scaled
from .http.helpers import IDLE, Answer, Peer, Tap, http
from .model import Handlers, make_server

DRAIN = 2.0
DEADLINE = 20.0
STALL = 5.0
PIPE = 1_000
LIMITS = Limits(
    running=2,
    waiting=3,
    connection_running=2,
    connection_waiting=4,
    connection_listeners=2,
    request_timeout=DEADLINE,
    drain_timeout=DRAIN,
    write_stall=STALL,
    write_buffer=2_000,
    # Each HTTP/1.1 connection is read whatever waits on it, so that a hang-up is always noticed at once.
    pipelined=1_000,
    idle_timeout=100_000,
)
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
KINDS = ("lines", "http/1.1", "http/2")
SLOTS = len(KINDS)

# One connection has more to do than the others, so that requests wait behind each other.
slots = st.integers(0, SLOTS - 1)
requests = st.tuples(
    st.just("request"),
    slots,
    st.sampled_from(["work", "work", "work", "fail", "missing", "listen"]),
    st.sampled_from([0, 0, 0.5, 1, 3, 30]),
    st.sampled_from([1, 10, 5_000]),
)
bursts = st.tuples(st.just("burst"), slots, st.integers(2, 8), st.sampled_from([0, 0.5, 3]))
cancels = st.tuples(st.just("cancel"), slots, st.integers(0, 3))
leavings = st.tuples(st.just("leave"), slots, st.booleans(), st.booleans())
stalls = st.tuples(st.just("stall"), slots, st.sampled_from([1, 2, 8, math.inf]))
slowness = st.tuples(st.just("slow"), slots, st.booleans())
drains = st.tuples(st.just("drain"), slots)
checks = st.tuples(st.just("check"), slots)
changes = st.just(("change",))
pauses = st.tuples(st.just("pause"), st.sampled_from([0, 0.1, 0.5, 1, 5]))
ticks = st.tuples(st.just("ticks"), st.integers(1, 12))
the_end = st.just(("the end",))
timetables = st.lists(
    requests | requests | requests | bursts | cancels | leavings | stalls | slowness | drains | checks | changes
    # The end of the server comes in the midst of a few.
    | pauses | pauses | ticks | ticks | (changes | changes | the_end),
    max_size=30,
)  # fmt: skip
endings = st.sampled_from(["run out", "run out", "leave", "drain", "cancel"])


async def one_more() -> None:
    """A tool that is registered while the server runs."""


# -- what a client knows


@dataclass
class Sent:
    """A request, and what came for it."""

    tag: int
    tool: str
    seconds: float
    size: int
    when: float
    answers: list[dict[str, Any]] = field(default_factory=list)
    cancelled: bool = False
    refused: bool = False

    @property
    def message(self) -> dict[str, Any]:
        if self.tool == "listen":
            return request(self.tag, "subscriptions/listen", notifications={"toolsListChanged": True})
        arguments = {"tag": self.tag}
        if self.tool == "work":
            arguments |= {"seconds": self.seconds, "size": self.size}
        return request(self.tag, "tools/call", name=self.tool, arguments=arguments, meta={"progressToken": self.tag})

    @property
    def settled(self) -> bool:
        return bool(self.answers) or self.cancelled or self.refused

    def check(self, now: float, ended: float) -> None:
        """The one answer is one that this request may have, now that its connection is told to end at that time."""
        (answer,) = self.answers
        if "error" in answer:
            error = answer["error"]
            if error["code"] == 503:
                self._check_busy(error["message"])
            elif error["code"] == 504:
                assert self.tool == "work" and "shutting down" in error["message"], answer
                assert now >= ended + DRAIN - 0.01, "given up before its time"
            else:
                assert (self.tool, error["code"]) == ("missing", -32602), answer
            return
        result = answer["result"]
        if self.tool == "listen":
            assert ended < math.inf, "a listening call was answered, and nobody ended it"
            return
        text = result["content"][0]["text"]
        if text.endswith(f"did not finish within {DEADLINE:g} s"):
            assert now >= self.when + DEADLINE - 0.01, answer
        elif self.tool == "work":
            assert text == "x" * self.size
            assert now >= self.when + self.seconds - 0.01
        else:
            assert (self.tool, text, result["isError"]) == ("fail", str(self.tag), True)

    def _check_busy(self, message: str) -> None:
        full = (LIMITS.running, LIMITS.waiting), (LIMITS.connection_running, LIMITS.connection_waiting)
        said = [f"Server busy: {running} requests are running and {waiting} are waiting" for running, waiting in full]
        said.append(f"Server busy: {LIMITS.connection_listeners} streams of this connection are listening already")
        assert message.startswith(tuple(said)), message


class Paced(trio.abc.Stream):
    """The client's end: it reads as fast as it is told to, and what it sends goes out in order."""

    def __init__(self, receive: trio.abc.ReceiveStream, send: trio.abc.SendStream) -> None:
        self._receive = receive
        self._send = send
        self._order = trio.StrictFIFOLock()
        self._open = trio.Event()
        self._open.set()
        self.slow = False

    def stop(self) -> None:
        self._open = trio.Event()

    def go_on(self) -> None:
        self._open.set()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await self._open.wait()
        if not self.slow:
            return bytes(await self._receive.receive_some(max_bytes))
        await trio.sleep(0.05)
        await self._open.wait()
        return bytes(await self._receive.receive_some(500))

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        data = bytes(data)
        async with self._order:
            await self._send.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._send.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        await self._send.aclose()

    async def aclose(self) -> None:
        await self._send.aclose()
        await self._receive.aclose()


class Client(ABC):
    """One connection as the test knows it.

    Attributes:
        sent: Its requests.
        left: When it hung up.
        drained: When the server was told to end this connection.
        may_be_left: Whether it read so little that the server may have had enough of it.
        over: Set when the server has left the connection.
        errors: What must not have been.
    """

    def __init__(self) -> None:
        self.sent: dict[int, Sent] = {}
        self.left = self.drained = math.inf
        self.may_be_left = False
        self.over = trio.Event()
        self.over_at = math.inf
        self.errors: list[str] = []
        self._stalls_until = -math.inf
        ours, theirs = memory_pipe(PIPE), memory_pipe(1 << 24)
        self.paced = Paced(ours[1], theirs[0])
        self.server_stream = trio.StapledStream(ours[0], theirs[1])

    @property
    def stalled(self) -> bool:
        return trio.current_time() < self._stalls_until

    @property
    def usable(self) -> bool:
        """Whether requests may be sent on it that will be answered."""
        return self.left == self.drained == math.inf and not self.over.is_set()

    @property
    def served(self) -> bool:
        """Whether nothing has happened that could keep an answer from it."""
        return self.usable and not self.may_be_left

    async def run(self) -> None:
        """The server's side."""
        try:
            await self._serve()
        finally:
            self.over_at = trio.current_time()
            self.over.set()

    async def listen(self) -> None:
        """The client's side."""
        try:
            await self._listen()
        except (EOFError, trio.ClosedResourceError, trio.BrokenResourceError):
            pass

    async def send(self, sent: Sent) -> None:
        self.sent[sent.tag] = sent
        try:
            await self._send(sent)
        except trio.BrokenResourceError:
            assert self.over.is_set()

    def hear(self, message: dict[str, Any], of: int | None = None) -> None:
        """What the server says: as it posts it where that can be seen, else as it arrives.

        Args:
            message: The message.
            of: The request whose answer it is a part of, where the transport says that.
        """
        method, params = message.get("method"), message.get("params", {})
        if method is None:
            tag = message["id"]
        elif method == "notifications/progress":
            tag = params["progressToken"]
        elif method == "notifications/cancelled":
            tag = params["requestId"]
        else:
            tag = params["_meta"][SUBSCRIPTION]
        sent = self.sent.get(tag)
        if sent is None or of not in (None, tag):
            self.errors.append(f"nobody asked for this: {str(message)[:200]}")
        elif sent.cancelled:
            self.errors.append(f"said after the cancellation: {str(message)[:200]}")
        elif method == "notifications/cancelled":
            if not sent.answers or sent.tool != "listen":
                self.errors.append(f"a cancellation of the server: {message}")
        elif sent.answers:
            self.errors.append(f"said after the answer: {str(message)[:200]}")
        elif method is None:
            sent.answers.append(message)
            sent.check(trio.current_time(), min(self.left, self.drained))

    async def stall(self, seconds: float, nursery: trio.Nursery) -> None:
        """Read nothing for a while."""
        if self.stalled:
            return
        await wait_all_tasks_blocked()
        now = trio.current_time()
        # Between two stalls it must have had the time to take what was written.
        if seconds >= STALL or now < self._stalls_until + STALL:
            self.may_be_left = True
        self._stalls_until = now + seconds
        self.paced.stop()

        async def end() -> None:
            await trio.sleep(seconds)
            self.paced.go_on()

        if seconds < math.inf:
            nursery.start_soon(end)

    def open_calls(self) -> list[Sent]:
        return [sent for sent in self.sent.values() if not sent.settled]

    def lost(self) -> list[int]:
        """Requests that should have been answered by now."""
        return [sent.tag for sent in self.open_calls() if sent.tool != "listen"]

    @abstractmethod
    async def _serve(self) -> None: ...

    @abstractmethod
    async def _listen(self) -> None: ...

    @abstractmethod
    async def _send(self, sent: Sent) -> None: ...

    async def cancel(self, sent: Sent) -> None:
        """Give up one request, where the transport has a way to say that."""
        return

    async def leave(self, half: bool) -> None:
        """Hang up: both directions, or only the sending half where that means something else."""
        self.left = trio.current_time()
        await self.paced.aclose()

    @abstractmethod
    def drain(self) -> None:
        """Tell the server to end this connection."""

    async def wait_sent(self) -> None:
        """Wait until what it is answered is written."""
        await trio.lowlevel.checkpoint()

    @abstractmethod
    def abandon(self) -> None:
        """Its time is over."""

    def check_end(self) -> None:
        """What must hold once the connection is over."""
        return


class TappedLink(Link):
    """A link whose messages are seen as they are posted."""

    tap: Any = None

    def post(self, message: bytes, *, now: bool = False) -> None:
        if not self.broken:
            self.tap(message)
        super().post(message, now=now)


class Lines(Client):
    """A byte stream."""

    def __init__(self, engine: Engine, endpoint: HttpEndpoint) -> None:
        super().__init__()
        self._engine = engine
        self._serving = trio.CancelScope()
        self._peer = RawPeer(self.paced, self.paced)
        self.posted: list[bytes] = []
        self.arrived: list[bytes] = []

    async def _serve(self) -> None:
        link = TappedLink(self.server_stream, self.server_stream, LIMITS)
        link.tap = self._posted
        with self._serving:
            await serve_lines(self._engine, link)

    def _posted(self, message: bytes) -> None:
        self.posted.append(message)
        self.hear(json.loads(message))

    async def _listen(self) -> None:
        while (line := await self._peer.receive_line()) is not None:
            self.arrived.append(line)

    async def _send(self, sent: Sent) -> None:
        await self._peer.send(sent.message)

    async def cancel(self, sent: Sent) -> None:
        try:
            await self._peer.cancel(sent.tag)
        except trio.BrokenResourceError:
            return
        await wait_all_tasks_blocked()
        # What was under way when the server read the cancel is over without an answer. One that ends reads no more.
        if not sent.answers and self.drained == math.inf:
            sent.cancelled = True

    async def leave(self, half: bool) -> None:
        self.left = trio.current_time()
        await (self.paced.send_eof() if half else self.paced.aclose())

    def drain(self) -> None:
        self._serving.cancel()

    def abandon(self) -> None:
        pass  # it has its own patience

    def check_end(self) -> None:
        assert self.arrived == self.posted[: len(self.arrived)]
        since = min(self.left, self.drained)
        assert self.over_at <= since + 2 * DRAIN + 0.01 or self.may_be_left
        if self.served:
            assert self.arrived == self.posted


class Http1(Client):
    """HTTP/1.1: answers in the order of the requests."""

    def __init__(self, engine: Engine, endpoint: HttpEndpoint) -> None:
        super().__init__()
        self._tap = Tap(self.server_stream)
        self._connection = H1Connection(self._tap, endpoint)
        self._peer = Peer(self.paced, self._connection, self._tap)
        self._next = 0

    async def _serve(self) -> None:
        await self._connection.run()

    async def _listen(self) -> None:
        try:
            await self._read_answers()
        except h11.RemoteProtocolError:
            # An answer is cut off where the server has had enough, or its time is over.
            assert self.may_be_left

    async def _read_answers(self) -> None:
        while True:
            answer = await self._peer.head()
            sent = list(self.sent.values())[self._next]
            self._next += 1
            told = 0
            while await self._peer.more(answer) is not None:
                told = self._take(sent, answer, told)
            self._take(sent, answer, told)

    def _take(self, sent: Sent, answer: Answer, told: int) -> int:
        """Hear what is new of an answer."""
        kind = answer.fields.get("content-type")
        if kind == "text/event-stream":
            # An event is whole when its empty line is there.
            whole = answer.body.rpartition(b"\n\n")[0].split(b"\n\n") if b"\n\n" in answer.body else []
            events = [block.partition(b"data: ")[2] for block in whole if b"data: " in block]
            for data in events[told:]:
                self.hear(json.loads(data), sent.tag)
            return len(events)
        if answer.complete and kind == "application/json":
            self.hear(answer.json, sent.tag)
        elif answer.complete:
            assert answer.status == 503 and self.drained < math.inf, answer
            sent.refused = True
        return told

    def lost(self) -> list[int]:
        # What comes behind a call that listens waits as long as that.
        open = self.open_calls()
        return [] if open and open[0].tool == "listen" else super().lost()

    async def _send(self, sent: Sent) -> None:
        await self._peer.send(http(sent.message, chunks=[7] if sent.tag % 3 == 0 else None))

    def drain(self) -> None:
        self._connection.drain()

    async def wait_sent(self) -> None:
        await self._connection.wait_sent()

    def abandon(self) -> None:
        self._connection.abandon()


class TellingPeer(H2Peer):
    """An HTTP/2 client that tells what happens."""

    told: Any = None

    def _hear(self, event: h2.events.Event) -> None:
        super()._hear(event)
        self.told(event)


class Http2(Client):
    """HTTP/2: each request is a stream, and a reset of it the cancellation."""

    def __init__(self, engine: Engine, endpoint: HttpEndpoint) -> None:
        super().__init__()
        self._tap = Tap(self.server_stream)
        self._connection = H2Connection(self._tap, endpoint)
        self._peer = TellingPeer(self.paced)
        self._peer.told = self._told
        self._peer.h2.initiate_connection()
        self._streams: dict[int, Sent] = {}
        self._heard: dict[int, int] = {}
        self._silent_after: dict[int, int] = {}

    async def _serve(self) -> None:
        await self._connection.run()

    async def _listen(self) -> None:
        await self._peer.flush()
        try:
            while await self._peer.pump():
                pass
        except h2.exceptions.ProtocolError:
            # The h2 library takes nothing behind a GOAWAY, not even the acknowledgement of its own settings.
            assert self.drained < math.inf

    def _told(self, event: h2.events.Event) -> None:
        stream = getattr(event, "stream_id", None)
        sent = self._streams.get(stream or 0)
        if stream is None or sent is None or sent.cancelled:
            return
        body = self._peer.bodies.get(stream, b"")
        if isinstance(event, h2.events.StreamReset):
            sent.refused = True
            if not self.may_be_left and self.drained == math.inf:
                self.errors.append(f"the server has reset the stream of {sent.tag}: {event.error_code}")
        elif self._peer.headers.get(stream, {}).get("content-type") == "text/event-stream":
            whole = body.rpartition(b"\n\n")[0].split(b"\n\n") if b"\n\n" in body else []
            events = [block.partition(b"data: ")[2] for block in whole if b"data: " in block]
            for data in events[self._heard.get(stream, 0) :]:
                self.hear(json.loads(data), sent.tag)
            self._heard[stream] = len(events)
        elif isinstance(event, h2.events.StreamEnded):
            if self._peer.headers[stream].get("content-type") == "application/json":
                self.hear(json.loads(body), sent.tag)
            else:
                assert self._peer.statuses[stream] == 503 and self.drained < math.inf
                sent.refused = True

    async def _send(self, sent: Sent) -> None:
        half = self._peer.h2
        stream = half.get_next_available_stream_id()
        self._streams[stream] = sent
        half.send_headers(stream, self._peer.head(sent.message))
        half.send_data(stream, json.dumps(sent.message).encode(), end_stream=True)
        await self._peer.flush()

    async def cancel(self, sent: Sent) -> None:
        stream = next(number for number, one in self._streams.items() if one is sent)
        if stream in self._peer.ended:
            return
        self._peer.h2.reset_stream(stream, 8)
        sent.cancelled = True
        try:
            await self._peer.flush()
        except trio.BrokenResourceError:
            return
        await wait_all_tasks_blocked()
        if not self.stalled and not self.paced.slow:
            self._silent_after[stream] = sum(len(data) for _, data in self._tap.writes)

    def drain(self) -> None:
        self._connection.drain()

    async def wait_sent(self) -> None:
        await self._connection.wait_sent()

    def abandon(self) -> None:
        self._connection.abandon()

    def check_end(self) -> None:
        data, at = b"".join(data for _, data in self._tap.writes), 0
        while at + 9 <= len(data):
            size, kind = int.from_bytes(data[at : at + 3]), data[at + 3]
            stream = int.from_bytes(data[at + 5 : at + 9])
            assert kind > 1 or at < self._silent_after.get(stream, math.inf), f"a frame after the reset of {stream}"
            at += 9 + size


# -- the play


class World:
    """The server, and the connections, live and past."""

    def __init__(self, engine: Engine, seen: Handlers, nursery: trio.Nursery) -> None:
        self.engine = engine
        self.endpoint = HttpEndpoint(engine, address="127.0.0.1")
        self.seen = seen
        self.nursery = nursery
        self.ending = False
        self.last = 0
        self.clients: list[Client] = []
        self.live = [self.open(kind) for kind in KINDS]
        # One of each kind that never does anything wrong.
        self.healthy = [self.open(kind) for kind in KINDS]

    def open(self, kind: str) -> Client:
        made: dict[str, type[Client]] = {"lines": Lines, "http/1.1": Http1, "http/2": Http2}
        client = made[kind](self.engine, self.endpoint)
        self.clients.append(client)
        self.nursery.start_soon(client.run)
        self.nursery.start_soon(client.listen)
        return client

    def tag(self) -> int:
        self.last += 1
        return self.last

    def usable(self, slot: int) -> Client | None:
        """A connection on which something can be sent: the one that is there, or a new one."""
        client = self.live[slot]
        if client.usable:
            return client
        if self.ending:
            return None
        client = self.live[slot] = self.open(KINDS[slot])
        return client

    async def request(self, client: Client, tool: str, seconds: float, size: int) -> Sent:
        sent = Sent(self.tag(), tool, seconds, size, trio.current_time())
        await client.send(sent)
        return sent

    async def check(self, slot: int) -> None:
        """The quick call of a client that does nothing wrong is answered, or told busy, however the others behave."""
        client = self.healthy[slot]
        if not client.usable or client.open_calls():
            return
        sent = await self.request(client, "work", 0, 10)

        async def watch() -> None:
            await trio.sleep(DEADLINE + 0.01)
            assert sent.answers or not client.usable, "a healthy client was not answered"

        self.nursery.start_soon(watch)

    async def leave(self, client: Client, settled: bool, half: bool) -> None:
        """A client hangs up: what works for it ends at once, and nothing is sent to it any more.

        Args:
            client: Which.
            settled: Whether it waits until nothing moves; else what it sent last arrives together with its end.
            half: Whether it reads on.
        """
        if settled:
            await wait_all_tasks_blocked()
        now = trio.current_time()
        await client.leave(half)
        if isinstance(client, Lines):
            return  # its answers may be written for as long as a drain takes
        await wait_all_tasks_blocked()
        assert trio.current_time() == now
        assert client.over.is_set()
        self.check_ran_out(client)

    def check_ran_out(self, client: Client) -> None:
        """No handler of it is running."""
        started = sorted(tag for tag in self.seen.started if tag in client.sent)
        assert started == sorted(tag for tag in self.seen.finished if tag in client.sent)

    def drain(self, client: Client) -> None:
        listens = any(sent.tool == "listen" for sent in client.open_calls())
        # Over HTTP it is the endpoint that ends what only waits, so a connection is not drained alone while it listens.
        if client.usable and (self.ending or isinstance(client, Lines) or not listens):
            client.drained = trio.current_time()
            client.drain()

    async def end(self) -> None:
        """The end of the server, as at the edge: all drain, after a while what is left is answered, and then abandoned."""
        self.ending = True
        self.endpoint.drain()
        for client in self.clients:
            self.drain(client)
        await trio.sleep(DRAIN)
        self.endpoint.give_up()
        with trio.move_on_after(DRAIN):
            async with trio.open_nursery() as nursery:
                for client in self.clients:
                    nursery.start_soon(client.wait_sent)
        for client in self.clients:
            if not client.over.is_set():
                client.may_be_left = True
                client.abandon()

    def cut_off(self) -> None:
        """Everything is cancelled in the next step."""
        for client in self.clients:
            client.drained = min(client.drained, trio.current_time())
            client.may_be_left = True

    async def perform(self, action: Any) -> None:
        match action:
            case ("pause", seconds):
                await trio.sleep(seconds)
            case ("ticks", count):
                for _ in range(count):
                    await trio.lowlevel.checkpoint()
            case ("change",):
                name = f"more{self.tag()}"
                self.engine.server.tool(name=name)(one_more)
            case ("the end",):
                if not self.ending:
                    self.ending = True
                    self.nursery.start_soon(self.end)
            case ("check", slot):
                await self.check(slot)
            case (what, slot, *how):
                client = self.usable(slot)
                if client is not None:
                    await self.perform_on(client, what, how)

    async def perform_on(self, client: Client, what: str, how: list[Any]) -> None:
        match what, how:
            case "request", (tool, seconds, size):
                await self.request(client, tool, seconds, size)
            case "burst", (count, seconds):
                for _ in range(count):
                    if client.usable:
                        await self.request(client, "work", seconds, 1)
            case "cancel", (which,):
                open = client.open_calls()
                if open:
                    await client.cancel(open[which % len(open)])
            case "leave", (settled, half):
                await self.leave(client, settled, half)
            case "stall", (seconds,):
                await client.stall(seconds, self.nursery)
            case "slow", (slow,):
                client.paced.slow = slow
            case "drain", ():
                self.drain(client)

    async def finish(self, ending: str) -> None:
        """Let it end."""
        if ending == "drain" and not self.ending:
            await self.end()
        if ending == "leave":
            for client in self.clients:
                if client.usable:
                    await self.leave(client, self.last % 2 == 0, False)
        await trio.sleep(1_000)
        places = self.engine.executor.statistics()
        assert places == IDLE, places
        for client in self.clients:
            if client.served and ending == "run out":
                assert client.lost() == [], f"requests were lost on {client}"
        for client in self.clients:
            if not client.over.is_set():
                assert client.left == client.drained == math.inf, f"{client} does not end"
                await self.leave(client, True, False)
        await trio.sleep(DRAIN + 1)
        assert all(client.over.is_set() for client in self.clients)
        assert self.endpoint.bodies.taken == 0

    def check_all(self) -> None:
        seen = self.seen
        assert sorted(seen.started) == sorted(seen.finished), "a handler is still running"
        assert len(set(seen.started)) == len(seen.started), "a request ran twice"
        assert seen.most <= LIMITS.running, "more ran than there are places"
        for client in self.clients:
            assert client.errors == []
            assert client.over_at >= min(client.left, client.drained) or client.may_be_left, f"{client} was left"
            client.check_end()
            for sent in client.sent.values():
                assert len(sent.answers) + sent.cancelled + sent.refused <= 1
                assert not (sent.refused and sent.tag in seen.started) or client.may_be_left


@contextmanager
def nothing_logged() -> Iterator[None]:
    """Whatever is an error for the log is a fault of the server: no tool here has any."""
    records: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(self.format(record))

    handler, logger = Keep(logging.ERROR), logging.getLogger("trio_mcp")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
    assert records == []


async def play(timetable: list[Any], ending: str) -> None:
    seen = Handlers()
    with nothing_logged():
        async with open_engine(make_server(seen, LIMITS)) as engine:
            before = trio.lowlevel.current_statistics().tasks_living
            async with trio.open_nursery() as nursery:
                world = World(engine, seen, nursery)
                for action in timetable:
                    await world.perform(action)
                if ending != "cancel":
                    await world.finish(ending)
                else:
                    world.cut_off()
                nursery.cancel_scope.cancel()
            await wait_all_tasks_blocked()
            assert engine.executor.statistics() == IDLE
            assert trio.lowlevel.current_statistics().tasks_living == before, "a task is left"
    world.check_all()


@settings(max_examples=scaled(100))
@given(timetable=timetables, ending=endings)
def test_no_connection_hurts_another_and_everything_comes_back(timetable: list[Any], ending: str) -> None:
    async def run() -> None:
        with trio.fail_after(100_000):
            await play(timetable, ending)

    trio.run(run, clock=MockClock(autojump_threshold=0))
