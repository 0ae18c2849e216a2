"""The HTTP+SSE transport of 2024-11-05: a stream that is opened with GET, and a path beside it to which messages are POSTed.

The session is the stream: it stands in the task of the GET, and ends with it, calls and all. Nothing has an id, and nothing is
sent again. It is a connection as one of lines is, with another framing; any revision may be negotiated on it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import trio

from ...errors import InvalidRequest, ProtocolError, ServerBusy
from ...protocol.envelope import BadMessage, encode_error, parse_value
from ...protocol.http import Accepts, HostPolicy, Refusal, check_head
from ...protocol.jsontext import loads
from ...protocol.sse import COMMENT, encode_endpoint, encode_event
from ...scopes.groups import unwrapped
from ...server.serve.engine import Engine
from ..lines import Connection
from .ending import Lasting, retry_after
from .exchange import EMPTY, HttpExchange

__all__ = ["SsePair", "pair_paths"]

logger: logging.Logger = logging.getLogger("trio_mcp.server.http")

_QUERY = "session="


def pair_paths(path: str) -> tuple[str, str]:
    """The paths beside that of an endpoint: where streams are opened, and where messages go."""
    beside = path.rstrip("/").rpartition("/")[0]
    return f"{beside}/sse", f"{beside}/messages"


class SsePair:
    """All such sessions of one endpoint.

    Args:
        engine: The server.
        lasting: Streams that only wait.
        path: The path of the endpoint.
    """

    def __init__(self, engine: Engine, lasting: Lasting, path: str) -> None:
        self._engine = engine
        self._lasting = lasting
        self._stream_path, self._message_path = pair_paths(path)
        # Those that take messages, by id; and all.
        self._open: dict[str, _Session] = {}
        self._live: dict[_Session, None] = {}

    def admit(
        self, method: str, path: str, headers: Mapping[bytes, bytes], query: str, policy: HostPolicy
    ) -> Refusal | Accepts | None:
        """Judge a head; None where its path is none of these."""
        if path == self._stream_path:
            verdict, session = check_head(method, headers, policy, ("GET",)), ""
        elif path == self._message_path:
            verdict, session = check_head(method, headers, policy, ("POST",)), query.removeprefix(_QUERY)
        else:
            return None
        return verdict._replace(pair=session) if isinstance(verdict, Accepts) else verdict

    async def serve(self, exchange: HttpExchange, id: str) -> None:
        """Serve a request that was accepted.

        Args:
            exchange: The request.
            id: The session that it names.
        """
        if exchange.method == "GET":
            await self._get(exchange)
        else:
            await self._post(exchange, id)

    # -- the stream

    async def _get(self, exchange: HttpExchange) -> None:
        sessions = self._engine.sessions
        try:
            id = sessions.take_place()
        except ServerBusy as exc:
            exchange.respond(503, encode_error(None, exc), extra=retry_after(exc.retry_after))
            return
        try:
            await self._stream(exchange, id)
        finally:
            sessions.give_place()

    async def _stream(self, exchange: HttpExchange, id: str) -> None:
        exchange.body, exchange.headers = b"", {}
        exchange.start_stream()
        # Relative, since a proxy may have its own idea of where this is.
        name = self._message_path.rpartition("/")[2]
        exchange.send_chunk(encode_endpoint(f"{name}?{_QUERY}{id}"))
        session: _Session | None = None
        try:
            with unwrapped():
                async with trio.open_nursery() as nursery:
                    session = _Session(self._engine, exchange, nursery)
                    self._open[id] = session
                    self._live[session] = None
                    exchange.on_gone, exchange.on_silence = session.gone, session.silent
                    self._lasting.add(session)
                    if exchange.gone:
                        session.gone()
                    await session.ending.wait()
                    # The server ends: nothing new is taken, and what runs may finish.
                    del self._open[id]
                    await session.connection.wait_idle()
                    nursery.cancel_scope.cancel()
        finally:
            self._open.pop(id, None)
            exchange.on_gone = exchange.on_silence = None
            if session is not None:
                del self._live[session]
                self._lasting.remove(session)
                session.connection.leave()
            exchange.end_stream()

    def give_up(self) -> None:
        """The server does not wait any longer: calls that still run are cancelled, and answered so."""
        for session in self._live:
            session.connection.give_up()

    # -- messages

    async def _post(self, exchange: HttpExchange, id: str) -> None:
        session = self._open.get(id)
        if session is None:
            self._refuse(
                exchange,
                404,
                "no stream has this session (any more): open one with GET, and use the endpoint that it names",
            )
            return
        limits = self._engine.limits
        connection, size = session.connection, len(exchange.body)
        try:
            value = loads(exchange.body, limits)
            message = None if type(value) is list and connection.batches else parse_value(value, limits)
        except BadMessage as exc:
            exchange.respond(400, encode_error(exc.reply_id, exc.error))
            return
        except ProtocolError as exc:
            exchange.respond(400, encode_error(None, exc))
            return
        exchange.body, exchange.headers = b"", {}
        if _asks(value):
            # Its answer goes on the stream: a client that does not read that is not answered for ever.
            await session.wait_room()
        if exchange.gone:
            return
        if self._open.get(id) is not session:
            self._refuse(exchange, 404, "the stream of this session has ended")
            return
        if message is None:
            connection.take_batch(value, size)
        else:
            connection.take(message, size)
        exchange.respond(202, EMPTY)

    def _refuse(self, exchange: HttpExchange, status: int, reason: str) -> None:
        exchange.respond(status, encode_error(None, InvalidRequest(f"Invalid request: {reason}")))


def _asks(value: Any) -> bool:
    """Whether something is answered."""
    return type(value) is list or ("id" in value and "method" in value)


class _Session:
    """One stream, as a sink of messages.

    A host of HTTP/2 behind ASGI cannot tell whether its peer reads: there a stream ends after `limits.write_buffer` bytes.

    Attributes:
        ending: Set when the server ends.
        connection: The calls.
    """

    __slots__ = ("_exchange", "_nursery", "connection", "ending")

    def __init__(self, engine: Engine, exchange: HttpExchange, nursery: trio.Nursery) -> None:
        self._exchange = exchange
        self._nursery = nursery
        self.ending: trio.Event = trio.Event()
        self.connection: Connection = Connection(engine, self, nursery)

    # -- what its connection needs

    @property
    def full(self) -> bool:
        return self._exchange.full

    @property
    def broken(self) -> bool:
        return self._exchange.gone or self._exchange.done

    async def wait_room(self) -> None:
        while self.full and not self.broken:
            await self._exchange.wait_room()

    def post(self, message: bytes, *, now: bool = False) -> None:
        if not self._exchange.send_chunk(encode_event(message)):
            # A message that is missing would be waited for.
            logger.warning("a stream of HTTP+SSE ends: its host cannot tell whether the client reads")
            self._nursery.cancel_scope.cancel()

    # -- what may happen to it

    def silent(self) -> None:
        """Nothing was sent for a while."""
        self._exchange.send_chunk(COMMENT)

    def gone(self) -> None:
        """The client is gone, and with it the session."""
        self._nursery.cancel_scope.cancel()

    def end(self) -> None:
        """The server ends: what runs may finish, and be answered."""
        self.connection.end()
        self.ending.set()
