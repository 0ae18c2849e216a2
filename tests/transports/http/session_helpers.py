"""Clients of sessions without a wire: requests go straight to the endpoint, and what comes back can be cut anywhere."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
from trio.testing import wait_all_tasks_blocked

from trio_mcp import Server
from trio_mcp.server.peer.session import Session
from trio_mcp.server.serve.engine import Engine, open_engine
from trio_mcp.transports.http.endpoint import HttpEndpoint, HttpRefusal
from trio_mcp.transports.http.exchange import HttpExchange, HttpFields

REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
BOTH = "application/json, text/event-stream"
ALL = {"sampling": {"tools": {}}, "elicitation": {"form": {}, "url": {}}, "roots": {"listChanged": True}}


def ask(id: Any, method: str, **params: Any) -> dict[str, Any]:
    """A request as clients of sessions send it."""
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def use(id: Any, tool: str, token: Any = None, **arguments: Any) -> dict[str, Any]:
    """A `tools/call`, with a progress token if there is one."""
    meta = {} if token is None else {"_meta": {"progressToken": token}}
    return ask(id, "tools/call", name=tool, arguments=arguments, **meta)


def tell(method: str, **params: Any) -> dict[str, Any]:
    """A notification."""
    return {"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params}


def hello(id: Any = 0, revision: str = "2025-11-25", capabilities: dict[str, Any] | None = None) -> dict[str, Any]:
    """An `initialize`."""
    return ask(
        id,
        "initialize",
        protocolVersion=revision,
        capabilities=ALL if capabilities is None else capabilities,
        clientInfo={"name": "test", "version": "1"},
    )


class Exchange(HttpExchange):
    """One request, and its answer as far as it has come.

    Attributes:
        status: Of the answer; 0 while there is none.
        fields_sent: Its header fields.
        data: Its body.
        over: Set when it is complete.
        returned: Set when the endpoint has nothing more to do with it.
        slow: Whether the client takes nothing for now.
    """

    def __init__(self, method: str, headers: dict[bytes, bytes], body: bytes) -> None:
        super().__init__(method, headers, body)
        self.status = 0
        self.fields_sent: dict[str, str] = {}
        self.data = bytearray()
        self.over = trio.Event()
        self.returned = trio.Event()
        self.slow = False
        self._room = trio.lowlevel.ParkingLot()

    def send_answer(self, status: int, content_type: bytes, fields: HttpFields, body: bytes) -> None:
        self._head(status, fields if not content_type else ((b"content-type", content_type), *fields))
        self.data += body
        self.over.set()

    def send_head(self, fields: HttpFields) -> None:
        self._head(200, fields)

    def _head(self, status: int, fields: HttpFields) -> None:
        assert not self.status, "an answer began twice"
        self.status = status
        self.fields_sent = {name.decode(): value.decode() for name, value in fields}

    def send_piece(self, data: bytes, last: bool) -> bool:
        assert self.streaming and not self.over.is_set()
        self.data += data
        return True

    def send_end(self) -> None:
        self.over.set()

    @property
    def full(self) -> bool:
        return self.slow and not self.gone

    async def wait_room(self) -> None:
        while self.full:
            await self._room.park()

    def go_on(self) -> None:
        """The client reads again."""
        self.slow = False
        self._room.unpark_all()

    def vanish(self) -> None:
        """The connection breaks."""
        self.peer_gone()
        self._room.unpark_all()

    # -- what came

    @property
    def sse(self) -> bool:
        """Whether it is an event stream."""
        return self.fields_sent.get("content-type") == "text/event-stream"

    @property
    def json(self) -> Any:
        """Its one JSON value."""
        assert self.fields_sent.get("content-type") == "application/json", self
        return json.loads(self.data)

    @property
    def events(self) -> list[tuple[str | None, Any]]:
        """Its events: ids and messages; None is an event without data."""
        assert self.sse, self
        return events_in(bytes(self.data))

    @property
    def messages(self) -> list[Any]:
        """All messages that came."""
        return [message for _, message in self.events if message is not None] if self.sse else [self.json]

    @property
    def last_id(self) -> str:
        """The id of the last event that had one."""
        return [id for id, _ in self.events if id is not None][-1]

    @property
    def code(self) -> Any:
        """The JSON-RPC code of its error."""
        return self.messages[-1].get("error", {}).get("code")

    @property
    def text(self) -> Any:
        """The text of the result of a tool."""
        return self.messages[-1]["result"]["content"][0]["text"]

    def __repr__(self) -> str:
        return f"<Exchange {self.status} {self.fields_sent} {bytes(self.data[:300])!r}>"


def events_in(data: bytes) -> list[tuple[str | None, Any]]:
    """The events that are whole in the bytes of a stream."""
    out: list[tuple[str | None, Any]] = []
    *blocks, _ = data.decode().split("\n\n")
    for block in blocks:
        fields = dict(line.partition(":")[::2] for line in block.split("\n") if not line.startswith(":"))
        if "data" in fields:
            text = fields["data"].strip()
            out.append((fields["id"].strip() if "id" in fields else None, json.loads(text) if text else None))
    return out


class Client:
    """A client of one session, or of none.

    Args:
        site: The server.
        id: Of the session.
        revision: As it was negotiated.

    Attributes:
        id: Of the session.
        revision: As it was negotiated.
    """

    def __init__(self, site: SessionSite, id: str | None = None, revision: str = "2025-11-25") -> None:
        self._site = site
        self.id = id
        self.revision = revision

    @property
    def session(self) -> Session:
        """What the server knows of it."""
        return next(one for one in self._site.engine.sessions.all() if one.id == self.id)

    def send(
        self,
        message: Any = None,
        *,
        verb: str = "POST",
        accept: str | None = BOTH,
        last: str | None = None,
        body: bytes | None = None,
        **extra: str | None,
    ) -> Exchange:
        """Send one request.

        Args:
            message: The JSON value.
            verb: The method.
            accept: The `Accept` field.
            last: The `Last-Event-ID` field.
            body: The bytes of the body instead of a message.
            extra: More fields, or others; None leaves one out. `_` in a name stands for `-`.
        """
        fields: dict[str, str | None] = {"host": "localhost:8000", "content-type": "application/json", "accept": accept}
        if self.id is not None:
            fields["mcp-session-id"] = self.id
            fields["mcp-protocol-version"] = self.revision if self.revision >= "2025-06-18" else None
        fields["last-event-id"] = last
        fields |= {name.replace("_", "-"): value for name, value in extra.items()}
        headers = {name.encode(): value.encode() for name, value in fields.items() if value is not None}
        data = body if body is not None else json.dumps(message).encode() if message is not None else b""
        exchange = Exchange(verb, headers, data)
        self._site.nursery.start_soon(self._site.serve, exchange)
        return exchange

    async def ask(self, message: Any = None, **options: Any) -> Exchange:
        """Send one request and wait for the whole answer."""
        exchange = self.send(message, **options)
        await exchange.over.wait()
        return exchange

    async def get(self, **options: Any) -> Exchange:
        """Open a stream; it has begun, or was refused."""
        exchange = self.send(verb="GET", accept="text/event-stream", **options)
        await wait_all_tasks_blocked()
        return exchange

    async def delete(self) -> Exchange:
        return await self.ask(verb="DELETE", accept="*/*")


class SessionSite:
    """An endpoint.

    Attributes:
        engine: The server.
        endpoint: Its endpoint.
        nursery: Of the requests.
    """

    def __init__(self, engine: Engine, nursery: trio.Nursery) -> None:
        self.engine = engine
        self.endpoint = HttpEndpoint(engine, address="127.0.0.1")
        self.nursery = nursery

    async def serve(self, exchange: Exchange) -> None:
        accepted = self.endpoint.admit(exchange.method, "/mcp", exchange.headers)
        if isinstance(accepted, HttpRefusal):
            self.endpoint.refuse(exchange, accepted)
        else:
            await self.endpoint.serve(exchange, accepted)
        assert exchange.done or exchange.gone, "a request without an answer"
        exchange.returned.set()

    def stranger(self) -> Client:
        """A client without a session."""
        return Client(self)

    async def open(
        self, revision: str = "2025-11-25", capabilities: dict[str, Any] | None = None, *, ready: bool = True
    ) -> Client:
        """A client with a new session."""
        answer = await self.stranger().ask(hello(0, revision, capabilities))
        assert answer.status == 200, answer
        client = Client(self, answer.fields_sent["mcp-session-id"], answer.json["result"]["protocolVersion"])
        if ready:
            assert (await client.ask(tell("initialized"))).status == 202
        return client


@asynccontextmanager
async def open_sessions(server: Server[Any]) -> AsyncIterator[SessionSite]:
    """Serve a server without a wire. At the end nothing is left of its sessions."""
    async with open_engine(server) as engine, trio.open_nursery() as nursery:
        site = SessionSite(engine, nursery)
        try:
            yield site
        finally:
            nursery.cancel_scope.cancel()
    held = engine.sessions.statistics()
    assert (held.open, held.idle, held.event_bytes) == (0, 0, 0)
