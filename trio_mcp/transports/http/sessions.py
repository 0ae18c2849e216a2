"""Revisions with sessions over HTTP (2025-11-25 and older, basic/transports): POST, GET and DELETE of one endpoint."""

from __future__ import annotations

import logging
from typing import Any, Final

from ...errors import InvalidRequest, ProtocolError, ServerBusy
from ...limits import Limits
from ...protocol.envelope import (
    BadMessage,
    ErrorResponse,
    Message,
    Notification,
    Request,
    Response,
    encode_error,
    parse_value,
)
from ...protocol.http import Accepts
from ...protocol.jsontext import shorten
from ...protocol.revisions import LEGACY, names_version
from ...protocol.sse import encode_event, encode_prime
from ...scopes.call import Call, Outlet
from ...server.peer.session import Session
from ...server.serve.engine import Engine
from ..line_session import Batch, check_batch
from .ending import Lasting, Running, retry_after
from .exchange import EMPTY, HttpExchange
from .session_outlet import SessionOutlet, SseTaker

__all__ = ["SESSION_ID", "HttpSessions"]

logger: logging.Logger = logging.getLogger("trio_mcp.server.http")

SESSION_ID = b"mcp-session-id"
_VERSIONS: Final = frozenset(version.encode() for version in LEGACY)


class HttpSessions:
    """The sessions of one endpoint.

    Args:
        engine: The server.
        lasting: Streams that only wait.
        running: Calls that are under way.
    """

    def __init__(self, engine: Engine, lasting: Lasting, running: Running) -> None:
        self._engine = engine
        self._lasting = lasting
        self._running = running

    # -- which session

    def _find(self, exchange: HttpExchange) -> Session | None:
        """The session of a request; None where the request was answered, since it has none."""
        headers = exchange.headers
        id = headers.get(SESSION_ID)
        if id is None:
            self._refuse(
                exchange, 400, "no Mcp-Session-Id: open a session with initialize, and send its id with each request"
            )
            return None
        session = self._engine.sessions.find(id.decode("latin-1"), "")
        if session is None:
            self._refuse(exchange, 404, "no session has this Mcp-Session-Id (any more): open a new one with initialize")
            return None
        version = headers.get(b"mcp-protocol-version")
        if version is not None and version not in _VERSIONS:
            known = ", ".join(LEGACY)
            self._refuse(
                exchange,
                400,
                f"MCP-Protocol-Version {shorten(version.decode('latin-1'))} is none that has sessions: {known}",
            )
            return None
        return session

    def _refuse(self, exchange: HttpExchange, status: int, reason: str, **fields: Any) -> None:
        exchange.respond(status, encode_error(None, InvalidRequest(f"Invalid request: {reason}")), **fields)

    # -- POST

    async def post(self, exchange: HttpExchange, accepts: Accepts, message: Message) -> None:
        """Serve one message of a session, or `initialize`."""
        if isinstance(message, Request) and message.method == "initialize":
            await self._initialize(exchange, accepts, message)
            return
        session = self._find(exchange)
        if session is None:
            return
        if isinstance(message, Request):
            outlet = SessionOutlet(session, exchange, accepts.sse, not accepts.json)
            prepared = self._prepare(session, message, outlet)
            if isinstance(prepared, bytes):
                session.touch()
                answer_at_once(exchange, accepts, prepared)
                return
            self._start(session, prepared, outlet)
            await self._wait(exchange, outlet)
            return
        self._take(session, message)
        exchange.respond(202, EMPTY)

    async def _initialize(self, exchange: HttpExchange, accepts: Accepts, request: Request) -> None:
        engine = self._engine
        try:
            dialect, hello, answer = engine.welcome(request)
            session = await engine.sessions.start(dialect, hello, "")
        except ServerBusy as exc:
            exchange.respond(503, encode_error(request.id, exc), extra=retry_after(exc.retry_after))
            return
        except ProtocolError as exc:
            exchange.respond(exc.http_status, encode_error(request.id, exc))
            return
        if exchange.gone:
            # Nobody will ever know its id.
            session.close("the client went away")
            return
        exchange.fields = (*exchange.fields, (SESSION_ID, session.id.encode()))
        answer_at_once(exchange, accepts, answer)

    def _take(self, session: Session, message: Notification | Response | ErrorResponse) -> None:
        if isinstance(message, Notification):
            session.notified(message)
        elif not session.answered(message):
            logger.warning("%r: ignored a response that nobody waits for", session)

    def _prepare(self, session: Session, request: Request, outlet: Outlet) -> Call | bytes:
        """A call to be run, or the answer."""
        try:
            if request.id in session.calls:
                raise InvalidRequest("Invalid request: a request with this id is still under way")
            return self._engine.prepare_in(session, request, outlet)
        except ProtocolError as exc:
            # Some clients take any other status than 200 for the end of the session.
            return self._engine.refusal(request, session, exc)

    def _start(self, session: Session, call: Call, outlet: SessionOutlet, batch: Batch | None = None) -> None:
        outlet.subject = call.id if batch is None else None
        call.close_stream = outlet.close_stream
        session.calls[call.id] = call
        self._running.add(call)
        assert session.nursery is not None
        session.nursery.start_soon(self._run, session, call, outlet, batch)
        session.enter()

    async def _run(self, session: Session, call: Call, outlet: SessionOutlet, batch: Batch | None) -> None:
        try:
            await self._engine.run(call)
        finally:
            session.leave()
            self._running.remove(call)
            if session.calls.get(call.id) is call:
                del session.calls[call.id]
            call.close_stream = None
            if batch is None:
                outlet.finish()
            else:
                batch.ended()

    async def _wait(self, exchange: HttpExchange, outlet: SessionOutlet) -> None:
        """Until the answer is complete, or its connection is gone."""
        exchange.body, exchange.headers = b"", {}
        if exchange.gone:
            outlet.detach()
        exchange.on_gone, exchange.on_silence = outlet.detach, outlet.silent
        try:
            await outlet.over.wait()
        finally:
            exchange.on_gone = exchange.on_silence = None
            outlet.detach()

    async def post_batch(self, exchange: HttpExchange, accepts: Accepts, values: list[Any]) -> None:
        """Serve several messages at once (2025-03-26 only)."""
        session = self._find(exchange)
        if session is None:
            return
        session.touch()
        try:
            if not session.dialect.batches:
                raise InvalidRequest(f"revision {session.protocol_version} has no batches: send one message")
            check_batch(values, self._engine.limits)
            messages = [_parsed(value, self._engine.limits) for value in values]
            if any(isinstance(one, Request) and one.method == "initialize" for one in messages):
                raise InvalidRequest("initialize must not be part of a batch")
        except InvalidRequest as exc:
            self._refuse(exchange, 400, exc.message.removeprefix("Invalid request: "))
            return
        outlet = SessionOutlet(session, exchange, accepts.sse, not accepts.json)
        batch = Batch(outlet, outlet.answer)
        requests = 0
        for message in messages:
            if isinstance(message, BadMessage):
                # Each member is answered for itself (JSON-RPC 2.0, section 6).
                requests += 1
                batch.answer(encode_error(message.reply_id, message.error))
                continue
            if not isinstance(message, Request):
                self._take(session, message)
                continue
            requests += 1
            prepared = self._prepare(session, message, batch)
            if isinstance(prepared, bytes):
                batch.answer(prepared)
            else:
                batch.add()
                self._start(session, prepared, outlet, batch)
        batch.on_end = outlet.finish
        if not requests:
            exchange.respond(202, EMPTY)
            return
        batch.ended()
        await self._wait(exchange, outlet)

    # -- GET and DELETE

    async def get(self, exchange: HttpExchange) -> None:
        """A stream for what belongs to no call, or for the rest of one that broke off."""
        session = self._find(exchange)
        if session is None:
            return
        session.touch()
        stream = session.events.standalone
        last = exchange.headers.get(b"last-event-id", b"").decode("latin-1")
        if last:
            found = session.events.find(last)
            if found is None:
                self._refuse(exchange, 400, f"Last-Event-ID {shorten(last)}: nothing is known of this event any more")
                return
            stream, number = found
            if stream.finished and number >= stream.last:
                # Nothing will ever come. Anything else leads some clients to ask again and again.
                exchange.respond(204, EMPTY)
                return
            stream.rewind(number)
        exchange.body, exchange.headers = b"", {}
        taker = SseTaker(exchange, stream)
        exchange.start_stream()
        if session.dialect.primed and not last:
            exchange.send_chunk(encode_prime(stream.place))
        exchange.on_gone, exchange.on_silence = taker.gone, taker.silent
        self._lasting.add(taker)
        session.hold(taker)
        session.enter()
        try:
            # It may be gone already, or the end may have begun.
            while not exchange.gone and not taker.over.is_set():
                await stream.pump(taker)
                # Another one may have taken the stream over; when that ends, this one goes on.
                while stream.taker is not None and not exchange.gone and not taker.over.is_set():
                    await stream.wait_change()
        finally:
            session.leave()
            session.release(taker)
            self._lasting.remove(taker)
            exchange.on_gone = exchange.on_silence = None
            taker.end()

    def delete(self, exchange: HttpExchange) -> None:
        """End a session."""
        session = self._find(exchange)
        if session is not None:
            session.close("the client has ended the session")
            exchange.respond(204, EMPTY)

    def belongs(self, exchange: HttpExchange, message: Message) -> bool:
        """Whether a message is for here: which era it is of is decided by its body, and by nothing else where that says it."""
        if isinstance(message, Request):
            if names_version(message.params):
                return False
            return message.method == "initialize" or SESSION_ID in exchange.headers
        return SESSION_ID in exchange.headers


def _parsed(value: Any, limits: Limits) -> Message | BadMessage:
    try:
        return parse_value(value, limits)
    except BadMessage as exc:
        return exc


def answer_at_once(exchange: HttpExchange, accepts: Accepts, message: bytes) -> None:
    """Answer in the form that the client takes: one document, or a stream of one event."""
    if accepts.json:
        exchange.respond(200, message)
        return
    exchange.start_stream()
    exchange.send_chunk(encode_event(message), last=True)
    exchange.end_stream()
