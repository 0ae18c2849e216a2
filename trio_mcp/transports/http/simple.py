"""The older revisions without sessions and streams: each POST stands alone, and is answered with one JSON document.

A client is not asked anything and hears no progress. Where it goes away its calls end, since nobody could fetch their answers.
"""

from __future__ import annotations

import logging
from typing import Any, Final

import trio

from ...errors import InvalidRequest, MethodNotFound, ProtocolError
from ...protocol.envelope import BadMessage, Message, Request, encode_error, parse_value
from ...protocol.http import Headers
from ...protocol.jsontext import shorten
from ...protocol.legacy import DIALECTS, NO_HEADER, Dialect
from ...protocol.methods import SESSION_METHODS
from ...protocol.revisions import LEGACY, MODERN, names_version
from ...scopes.call import Call, Outlet
from ...scopes.groups import unwrapped
from ...server.peer.session import Session
from ...server.serve.engine import Engine
from ..line_session import Batch, check_batch
from .ending import Running, retry_after
from .exchange import EMPTY, HttpExchange

__all__ = ["Simple"]

logger: logging.Logger = logging.getLogger("trio_mcp.server.http")

_VERSION: Final = b"mcp-protocol-version"
_NEEDS_SESSION: Final = frozenset({"logging/setLevel", "resources/subscribe", "resources/unsubscribe"})


class Simple:
    """Answers messages of older revisions.

    Args:
        engine: The server.
        running: Calls that are under way.
    """

    def __init__(self, engine: Engine, running: Running) -> None:
        self._engine = engine
        self._running = running

    def belongs(self, headers: Headers, message: Message) -> bool:
        """Whether a message is for here: the revision that a request names decides, then the header."""
        if not isinstance(message, Request) or names_version(message.params):
            return False
        return message.method == "initialize" or headers.get(_VERSION, b"").decode("latin-1") not in MODERN

    def batches(self, headers: Headers) -> bool:
        """Whether several messages may come at once."""
        dialect = self._dialect(headers)
        return dialect is not None and dialect.batches

    def _dialect(self, headers: Headers) -> Dialect | None:
        return DIALECTS.get(headers.get(_VERSION, NO_HEADER.encode()).decode("latin-1"))

    async def post(self, exchange: HttpExchange, request: Request) -> None:
        """Answer one request."""
        if request.method == "initialize":
            try:
                answer = self._engine.welcome(request, alone=True)[2]
            except ProtocolError as exc:
                answer = encode_error(request.id, exc)
            exchange.respond(200, answer)
            return
        dialect = self._dialect(exchange.headers)
        if dialect is None:
            got = shorten(exchange.headers[_VERSION].decode("latin-1"))
            error = InvalidRequest(
                f"Invalid request: MCP-Protocol-Version is {got}; this server speaks {', '.join(LEGACY)}"
                + (f", and {', '.join(MODERN)} in _meta of a request" if not self._engine.legacy_only else "")
            )
            exchange.respond(400, encode_error(request.id, error))
            return
        await self._answer(exchange, dialect, [request], _Outlet(exchange), None)

    async def post_batch(self, exchange: HttpExchange, values: list[Any]) -> None:
        """Answer several messages at once (2025-03-26 only)."""
        limits = self._engine.limits
        dialect = self._dialect(exchange.headers)
        assert dialect is not None
        try:
            check_batch(values, limits)
            messages = [parse_value(value, limits) for value in values]
            if any(isinstance(one, Request) and one.method == "initialize" for one in messages):
                raise InvalidRequest("Invalid request: initialize must not be part of a batch")
        except BadMessage as exc:
            exchange.respond(400, encode_error(exc.reply_id, exc.error))
            return
        except InvalidRequest as exc:
            exchange.respond(400, encode_error(None, exc))
            return
        requests = [one for one in messages if isinstance(one, Request)]
        if not requests:
            exchange.respond(202, EMPTY)
            return
        outlet = _Outlet(exchange)
        await self._answer(exchange, dialect, requests, outlet, Batch(outlet, outlet.answer))

    async def _answer(
        self, exchange: HttpExchange, dialect: Dialect, requests: list[Request], outlet: _Outlet, batch: Batch | None
    ) -> None:
        exchange.body, exchange.headers = b"", {}
        session = self._engine.sessions.alone(dialect)
        calls: list[Call] = []
        try:
            for request in requests:
                prepared = self._prepare(session, request, batch or outlet)
                if isinstance(prepared, Call):
                    calls.append(prepared)
                else:
                    (batch or outlet).answer(prepared)
            if calls and not exchange.gone:
                await self._run(exchange, calls, outlet)
            if batch is not None:
                batch.ended()
        finally:
            session.close("its request has ended")

    def _prepare(self, session: Session, request: Request, outlet: Outlet) -> Call | bytes:
        method = request.method
        try:
            row = SESSION_METHODS.get(method)
            if method in _NEEDS_SESSION or (row is not None and row.extension is not None):
                raise MethodNotFound(f"Method not found: {method} needs a session, and this server keeps none")
            # No such capability was declared, so it is to be ignored (2025-11-25, basic/utilities/tasks).
            request.params.pop("task", None)
            return self._engine.prepare_in(session, request, outlet)
        except ProtocolError as exc:
            return self._engine.refusal(request, session, exc)

    async def _run(self, exchange: HttpExchange, calls: list[Call], outlet: _Outlet) -> None:
        def gone() -> None:
            for call in calls:
                if call.cancel("the client went away"):
                    logger.info("%r cancelled: the client went away", call)

        exchange.on_gone = gone
        if len(calls) == 1:
            outlet.call = calls[0]
        for call in calls:
            self._running.add(call)
        try:
            with unwrapped():
                async with trio.open_nursery() as nursery:
                    for call in calls[1:]:
                        nursery.start_soon(self._engine.run, call)
                    await self._engine.run(calls[0])
        finally:
            for call in calls:
                self._running.remove(call)
            exchange.on_gone = outlet.call = None


class _Outlet:
    """Where the one answer goes. What belongs to a call besides is not sent."""

    __slots__ = ("_exchange", "call")

    def __init__(self, exchange: HttpExchange) -> None:
        self._exchange = exchange
        self.call: Call | None = None

    def begin(self) -> None:
        pass

    @property
    def full(self) -> bool:
        return self._exchange.full

    async def wait_room(self) -> None:
        await self._exchange.wait_room()

    def post(self, message: bytes) -> None:
        pass

    def answer(self, message: bytes) -> bool:
        seconds = None if self.call is None else self.call.retry_after
        # Some clients take any other status for the end of it all.
        self._exchange.respond(200, message, extra=retry_after(seconds))
        return not self._exchange.gone
