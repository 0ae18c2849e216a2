"""MCP over HTTP: from a request with its body to an answer, on any exchange.

A plain answer is one write. The response becomes an event stream at the first progress or log line, or when the transport
says that it has been silent for too long; and only if the client takes one.
"""

from __future__ import annotations

import copy
import logging
import math
from typing import Final

from ...errors import InvalidRequest, ProtocolError
from ...limits import Limits
from ...protocol.envelope import BadMessage, Notification, Request, encode_error, encode_notification, parse_message
from ...protocol.http import Accepts, HostPolicy, Refusal, check_head, check_mirror, preflight, shared_with
from ...protocol.listening import CANCELLED
from ...protocol.param_headers import check_params
from ...protocol.revisions import Era, era_of
from ...protocol.sse import COMMENT, encode_event
from ...scopes.call import Call, LastingCall
from ...server.engine import Engine
from ...wire.budget import BodyBudget
from .exchange import EMPTY, Exchange

__all__ = ["Endpoint"]

logger: logging.Logger = logging.getLogger("trio_mcp.server.http")

_TEXT: Final = b"text/plain; charset=utf-8"


class Endpoint:
    """The MCP endpoint of one open server.

    Args:
        engine: The server.
        policy: Who may call.
        path: Where it is; the same with a slash at the end is answered too.

    Attributes:
        bodies: What the bodies of all its requests may hold together.
    """

    def __init__(self, engine: Engine, policy: HostPolicy, path: str) -> None:
        self.engine: Engine = engine
        self.limits: Limits = engine.limits
        self.policy: HostPolicy = policy
        self.path: str = path
        base = path.rstrip("/")
        self._paths = frozenset({base or "/", f"{base}/"})
        self.bodies: BodyBudget = BodyBudget(engine.limits.bodies_bytes)
        self._lasting = _Lasting()

    def guarded_by(self, policy: HostPolicy) -> Endpoint:
        """The same endpoint, for connections that another policy holds for."""
        other = copy.copy(self)
        other.policy = policy
        return other

    def drain(self) -> None:
        """The end begins: calls that only wait finish now."""
        self._lasting.end()

    def refuse(self, method: str, path: str, headers: dict[bytes, bytes]) -> Refusal | Accepts:
        """Judge a head before its body is read."""
        if path not in self._paths:
            return Refusal(404, f"Not found: the MCP endpoint is {min(self._paths, key=len)}")
        return check_head(method, headers, self.policy)

    def answer_refusal(self, exchange: Exchange, refusal: Refusal) -> None:
        """Send a refusal. Those of a client that speaks MCP hold a JSON-RPC error without an id."""
        self._share(exchange)
        if exchange.fields and exchange.method == "OPTIONS" and b"access-control-request-method" in exchange.headers:
            # A page asks whether it may.
            exchange.respond(200, EMPTY, extra=preflight(exchange.headers.get(b"access-control-request-headers", b"")))
            return
        extra = _retry_after(refusal.retry_after)
        if refusal.allow:
            extra += ((b"allow", refusal.allow.encode()),)
        if refusal.status in (403, 406, 413, 415):
            exchange.respond(refusal.status, encode_error(None, InvalidRequest(refusal.reason)), extra=extra)
        else:
            exchange.respond(refusal.status, refusal.reason.encode() + b"\n", _TEXT, extra)

    def _share(self, exchange: Exchange) -> None:
        """Let the script of a web page that was allowed read the answer."""
        origins = self.policy.origins
        if origins:
            origin = exchange.headers.get(b"origin")
            if origin is not None and origin.decode("latin-1").strip().lower() in origins:
                exchange.fields = shared_with(origin)

    async def handle(self, exchange: Exchange, accepts: Accepts) -> None:
        """Serve one request whose head was accepted. Comes back when the answer is complete or nobody waits for it."""
        self._share(exchange)
        try:
            message = parse_message(exchange.body, self.limits)
        except BadMessage as exc:
            exchange.respond(exc.error.http_status, encode_error(exc.id, exc.error))
            return
        if isinstance(message, Notification):
            # This revision has none for HTTP (a cancellation is the end of the response stream); others may come.
            exchange.respond(202, EMPTY)
            return
        if not isinstance(message, Request):
            error = InvalidRequest("Invalid request: a client sends requests and notifications, not responses")
            exchange.respond(400, encode_error(None, error))
            return
        outlet = _HttpOutlet(exchange, accepts)
        try:
            if era_of(message.method, message.params) is Era.MODERN:
                check_mirror(exchange.headers, message)
            call = self.engine.prepare(message, outlet)
            if call.method == "tools/call":
                tool = self.engine.registry.tools.get(call.params["name"])
                if tool is not None and tool.headers:
                    check_params(tool.headers, exchange.headers, call.params.get("arguments"))
        except ProtocolError as exc:
            exchange.respond(exc.http_status, encode_error(message.id, exc))
            return
        # Nobody reads these any more, and a stream may stay open for hours.
        exchange.body, exchange.headers = b"", {}
        try:
            await self._run(exchange, call, outlet)
        finally:
            # Cycles would leave the request to the garbage collector.
            exchange.on_gone = exchange.on_silence = None
            outlet.call = None

    async def _run(self, exchange: Exchange, call: Call, outlet: _HttpOutlet) -> None:
        if exchange.left():
            return
        lasting = call if isinstance(call, LastingCall) else None
        if lasting is not None:
            if not outlet.may_stream:
                error = InvalidRequest(
                    f"{call.method} answers with a stream: the request must accept text/event-stream"
                )
                exchange.respond(406, encode_error(call.id, error))
                return
            self._lasting.add(lasting)
        exchange.on_silence = outlet.silent
        exchange.on_gone = outlet.cancel
        outlet.call = call
        try:
            await self.engine.run(call)
        finally:
            if lasting is not None:
                self._lasting.remove(lasting)
        if not exchange.done and not exchange.gone:
            # Cancelled by something else than its peer: the response must not stay open.
            outlet.abandon()


class _Lasting:
    """Calls that only wait, over all connections."""

    def __init__(self) -> None:
        self._calls: dict[LastingCall, None] = {}
        self._ended = False

    def add(self, call: LastingCall) -> None:
        self._calls[call] = None
        if self._ended:
            call.end()

    def remove(self, call: LastingCall) -> None:
        del self._calls[call]

    def end(self) -> None:
        self._ended = True
        for call in self._calls:
            call.end()


def _retry_after(seconds: float | None) -> tuple[tuple[bytes, bytes], ...]:
    """The field that says when to try again: whole seconds, and not at once."""
    return () if seconds is None or not math.isfinite(seconds) else ((b"retry-after", b"%d" % max(1, round(seconds))),)


class _HttpOutlet:
    """Where the messages of one call go: a plain answer, or an event stream once there is more to say."""

    __slots__ = ("_exchange", "call", "may_stream", "stream_only")

    def __init__(self, exchange: Exchange, accepts: Accepts) -> None:
        self._exchange = exchange
        self.may_stream = accepts.sse
        self.stream_only = not accepts.json
        self.call: Call | None = None

    def cancel(self) -> None:
        """The peer is gone."""
        if self.call is not None and self.call.cancel("the client went away"):
            logger.info("%r cancelled: the client went away", self.call)

    def stream(self) -> bool:
        """Make the response an event stream, if the client takes one."""
        exchange = self._exchange
        if not exchange.streaming and self.may_stream and not exchange.done:
            exchange.start_stream()
        return exchange.streaming

    def begin(self) -> None:
        if self.stream_only:
            self.stream()

    @property
    def full(self) -> bool:
        return self._exchange.full

    async def wait_room(self) -> None:
        await self._exchange.wait_room()

    def post(self, message: bytes) -> None:
        # A client that takes no stream is told the result alone.
        if (
            self.stream()
            and not self._exchange.send_chunk(encode_event(message))
            and isinstance(self.call, LastingCall)
        ):
            # Its result tells the client to listen anew; a notice that is missing would tell it nothing.
            self.call.end()

    def answer(self, message: bytes) -> bool:
        exchange, call = self._exchange, self.call
        if exchange.streaming:
            exchange.send_chunk(encode_event(message), last=True)
            if isinstance(call, LastingCall) and call.ended:
                # The result says it, and the notification too (basic/patterns/cancellation): clients look for either.
                ended = {"requestId": call.id, "reason": "the server ends"}
                exchange.send_chunk(encode_event(encode_notification(CANCELLED, ended)), last=True)
            exchange.end_stream()
        else:
            status, seconds = (200, None) if call is None else (call.status, call.retry_after)
            exchange.respond(status, message, extra=_retry_after(seconds))
        return not exchange.gone

    def silent(self) -> None:
        """Nothing was sent for a while."""
        if self.stream() and not self._exchange.done:
            self._exchange.send_chunk(COMMENT)

    def abandon(self) -> None:
        """End the response of a call that ends without an answer."""
        if self._exchange.streaming:
            self._exchange.end_stream()
        else:
            self._exchange.respond(503, b"The server is shutting down\n", _TEXT)
