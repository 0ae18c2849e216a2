"""MCP over HTTP: from a request with its body to an answer, on any exchange.

A plain answer is one write. The response becomes an event stream at the first progress or log line, or when the transport
says that it has been silent for too long; and only if the client takes one.
"""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import trio

from ...errors import InvalidRequest, ProtocolError
from ...limits import Limits
from ...protocol.envelope import BadMessage, Notification, Request, encode_error, encode_notification, parse_value
from ...protocol.http import (
    NO_DELETE,
    POST_ONLY,
    WITH_SESSIONS,
    HostPolicy,
    check_head,
    check_mirror,
    host_policy,
    preflight,
    shared_with,
)
from ...protocol.http import Accepts as HttpAccepted
from ...protocol.http import Refusal as HttpRefusal
from ...protocol.jsontext import loads
from ...protocol.listening import CANCELLED
from ...protocol.param_headers import check_params
from ...protocol.revisions import Era, era_of
from ...protocol.sse import COMMENT, encode_event
from ...scopes.call import Call, LastingCall
from ...server.serve.engine import Engine
from ...wire.budget import BodyBudget
from .ending import Lasting, Running, retry_after
from .exchange import EMPTY, HttpExchange
from .sessions import SESSION_ID, HttpSessions
from .simple import Simple
from .sse_pair import SsePair, pair_paths

__all__ = ["HttpAccepted", "HttpEndpoint", "HttpRefusal", "check_allowed", "check_path", "check_ways"]

logger: logging.Logger = logging.getLogger("trio_mcp.server.http")

_TEXT: Final = b"text/plain; charset=utf-8"
_ORIGIN: Final = re.compile(r"null|[A-Za-z][A-Za-z0-9+.-]*://[^/\s?#@]+/?")


def check_path(path: str) -> None:
    """Check the path of an endpoint.

    Raises:
        ValueError: it is malformed.
    """
    if not path.startswith("/") or "?" in path or "#" in path:
        raise ValueError(f"path must start with a slash and have no query, got {path!r}")


def check_allowed(hosts: list[str] | None, origins: list[str] | None) -> None:
    """Check `allowed_hosts` and `allowed_origins`: one that nobody could send would only be noticed by its 403.

    Raises:
        ValueError: one of them is malformed; it names that.
    """
    for host in hosts or ():
        if "" in (host_policy([], [host]).hosts or ()):
            raise ValueError(
                f"allowed_hosts: {host!r} is no name of a host; expected one without a scheme or a path, as in shop.example"
            )
    for origin in origins or ():
        if _ORIGIN.fullmatch(origin) is None:
            raise ValueError(
                f"allowed_origins: {origin!r} is no origin; expected SCHEME://HOST or SCHEME://HOST:PORT, "
                "as in https://app.example"
            )


def check_ways(legacy: bool, path: str, sse: bool, simple: bool, no_delete: bool) -> None:
    """Check which ways to reach a server may stand together.

    Args:
        legacy: Whether it speaks the revisions with sessions.
        path: As for `HttpEndpoint`, and so are the others.
        sse: See there.
        simple: See there.
        no_delete: See there.

    Raises:
        ValueError: they contradict each other; it says what was expected.
    """
    for name, wanted in (("sse", sse), ("no_delete", no_delete)):
        if wanted and simple:
            raise ValueError(f"{name} and simple exclude each other: with simple there are no sessions")
        if wanted and not legacy:
            raise ValueError(
                f"{name} is for revisions with sessions, and this server speaks none: expected eras with 'legacy'"
            )
    if sse and f"{path.rstrip('/') or '/'}" in pair_paths(path):
        raise ValueError(f"path: with sse, {path} belongs to HTTP+SSE; expected another one, as in /mcp")


class HttpEndpoint:
    """The MCP endpoint of one open server, for an HTTP server that runs on trio. It has no connections, tasks or files.

    For each request a host calls `admit` with the head, `take_body`, then `serve` with an `HttpExchange` of its own;
    `refuse` instead, as soon as one of the first two has refused. `docs/how-to/host-http-yourself.md` has an example.

    Args:
        running: The server, as `open_server` gives it. Whoever opened it closes it, after the last `serve` came back.
        path: The path of the endpoint; the same with a slash at the end is answered too.
        allowed_hosts: Names that a `Host` header may have. Without it the address decides.
        allowed_origins: Origins of web pages that may call, besides those of the hosts.
        address: The address on this machine at which connections arrive (`127.0.0.1`), empty for a unix socket. On a loopback
            address only `localhost`, `127.0.0.1` and `[::1]` are hosts, so that no web page can reach the server by rebinding a
            name; elsewhere any host is. None where it is not known: only `allowed_hosts` are.
        sse: Also serve HTTP+SSE (2024-11-05), at the paths `sse` and `messages` beside `path`.
        simple: Answer each POST with one JSON document: no sessions, no streams, no other verbs.
        no_delete: Clients cannot end their sessions.

    Attributes:
        limits: The bounds of the server. Those of connections, heads and writes are for the host to keep.
        bodies: What the bodies of all requests may hold together; `take_body` counts there.

    Raises:
        ValueError: `path`, or one of the hosts or origins, is malformed, or options contradict each other.
    """

    def __init__(
        self,
        running: Engine,
        *,
        path: str = "/mcp",
        allowed_hosts: list[str] | None = None,
        allowed_origins: list[str] | None = None,
        address: str | None = None,
        sse: bool = False,
        simple: bool = False,
        no_delete: bool = False,
    ) -> None:
        check_path(path)
        check_allowed(allowed_hosts, allowed_origins)
        check_ways(running.legacy, path, sse, simple, no_delete)
        self._engine = running
        self.limits: Limits = running.limits
        self._hosts = allowed_hosts
        self._origins = allowed_origins
        self._policy = self._policy_at(address)
        base = path.rstrip("/")
        self._paths = frozenset({base or "/", f"{base}/"})
        self.bodies: BodyBudget = BodyBudget(running.limits.bodies_bytes)
        self._lasting = Lasting()
        self._running = Running()
        self._sessions: HttpSessions | None = None
        self._verbs: tuple[str, ...] = POST_ONLY
        self._json_only = simple
        self._simple: Simple | None = None
        self._pair: SsePair | None = SsePair(running, self._lasting, path) if sse else None
        if running.legacy and simple:
            self._simple = Simple(running, self._running)
        elif running.legacy:
            self._sessions = HttpSessions(running, self._lasting, self._running)
            self._verbs = NO_DELETE if no_delete else WITH_SESSIONS

    def _policy_at(self, address: str | None) -> HostPolicy:
        # A unix socket has no address.
        addresses = None if address is None else [address] if address else []
        return host_policy(addresses, self._hosts, self._origins)

    def at(self, address: str | None) -> HttpEndpoint:
        """The same endpoint for connections that arrive at another address: a host that listens at several has one each.

        Args:
            address: As for the class.
        """
        other = copy.copy(self)
        other._policy = self._policy_at(address)
        return other

    def drain(self) -> None:
        """The host is about to end: calls that only wait (`subscriptions/listen`) are answered now, and those that come later.

        Other calls go on. Sync, so that it can be called in a task that is being cancelled. Harmless when repeated.
        """
        self._lasting.end()

    def give_up(self) -> None:
        """The host does not wait any longer: calls that still run are cancelled, and answered so, as are those that come later.

        Sync. The answers are posted, and still to be sent. Harmless when repeated.
        """
        self._running.give_up()
        if self._pair is not None:
            self._pair.give_up()

    def admit(
        self, method: str, path: str, headers: Mapping[bytes, bytes], query: str = ""
    ) -> HttpRefusal | HttpAccepted:
        """Judge a head, before the body is read. Does not block.

        Args:
            method: The verb.
            path: The path of the target, without the query.
            headers: Fields by lower-case name, without blanks around the value; those that came several times are joined by
                `, `.
            query: What follows the path in the target, without the question mark. Only `sse` needs it.

        Returns:
            What `refuse` takes, or what `serve` takes.
        """
        if path not in self._paths:
            pair = self._pair
            verdict = None if pair is None else pair.admit(method, path, headers, query, self._policy)
            return verdict or HttpRefusal(404, f"Not found: the MCP endpoint is {min(self._paths, key=len)}")
        verdict = check_head(method, headers, self._policy, self._verbs)
        if self._json_only and isinstance(verdict, HttpAccepted) and not verdict.json:
            return HttpRefusal(
                406, "Not acceptable: Accept must list application/json; this server answers without streams"
            )
        return verdict

    async def take_body(self, receive: Callable[[], Awaitable[bytes]]) -> bytes | HttpRefusal:
        """Read a body, within `limits.message_bytes`, `limits.body_timeout` and what all bodies may hold together.

        Args:
            receive: Gives the next piece, and an empty one at the end. What it raises passes through: that is how a host leaves
                when the peer goes away in the middle.

        Returns:
            The body, or what `refuse` takes. The rest of a refused body was not read: a host that closes the connection does so
            only when it has read on for a moment, since closing on unread bytes would lose the answer.
        """
        limits, body, taken = self.limits, bytearray(), 0
        try:
            with trio.move_on_after(limits.body_timeout):
                while piece := await receive():
                    if len(body) + len(piece) > limits.message_bytes:
                        return HttpRefusal(413, f"Message too long: the limit is {limits.message_bytes} bytes")
                    if not self.bodies.take(len(piece)):
                        return HttpRefusal(503, "Too much arrives at once: try again", retry_after=limits.retry_after)
                    taken += len(piece)
                    body += piece
                return bytes(body)
        finally:
            self.bodies.give_back(taken)
        return HttpRefusal(408, "Request timeout: the body of the request did not arrive in time")

    def refuse(self, exchange: HttpExchange, refusal: HttpRefusal) -> None:
        """Answer with a refusal: one `respond`. Does not block.

        Those of a client that speaks MCP hold a JSON-RPC error without an id.

        Args:
            exchange: The request; its body does not count.
            refusal: What `admit` or `take_body` gave, or one of the host's own.
        """
        self._share(exchange)
        if exchange.fields and exchange.method == "OPTIONS" and b"access-control-request-method" in exchange.headers:
            # A page asks whether it may.
            exchange.respond(
                200, EMPTY, extra=preflight(exchange.headers.get(b"access-control-request-headers", b""), self._verbs)
            )
            return
        extra = retry_after(refusal.retry_after)
        if refusal.allow:
            extra += ((b"allow", refusal.allow.encode()),)
        if refusal.status in (403, 406, 413, 415):
            exchange.respond(refusal.status, encode_error(None, InvalidRequest(refusal.reason)), extra=extra)
        else:
            exchange.respond(refusal.status, refusal.reason.encode() + b"\n", _TEXT, extra)

    def _share(self, exchange: HttpExchange) -> None:
        """Let the script of a web page that was allowed read the answer."""
        origins = self._policy.origins
        if origins:
            origin = exchange.headers.get(b"origin")
            if origin is not None and origin.decode("latin-1").strip().lower() in origins:
                exchange.fields = shared_with(origin)

    async def serve(self, exchange: HttpExchange, accepted: HttpAccepted) -> None:
        """Serve one request: run it, and answer on the exchange.

        Blocks while the call runs, in this task, so a host runs it in a task of its own for each request, beside one that hears
        the peer go away (`exchange.peer_gone`). Comes back when the answer is complete or nobody waits for it; what was posted
        may still have to be sent, and that, and the connection, are the host's. When it is cancelled the call is, and an answer
        that was begun is ended. It raises nothing else, unless the exchange does; after that the connection cannot be used.

        Args:
            exchange: The request, with its whole body.
            accepted: What `admit` said to its head.
        """
        self._share(exchange)
        if accepted.pair is not None and self._pair is not None:
            await self._pair.serve(exchange, accepted.pair)
            return
        sessions, simple = self._sessions, self._simple
        if sessions is not None and exchange.method != "POST":
            if exchange.method == "GET":
                await sessions.get(exchange)
            else:
                sessions.delete(exchange)
            return
        try:
            value = loads(exchange.body, self.limits)
            if type(value) is list and sessions is not None and SESSION_ID in exchange.headers:
                await sessions.post_batch(exchange, accepted, value)
                return
            if type(value) is list and simple is not None and simple.batches(exchange.headers):
                await simple.post_batch(exchange, value)
                return
            message = parse_value(value, self.limits)
        except BadMessage as exc:
            exchange.respond(exc.error.http_status, encode_error(exc.reply_id, exc.error))
            return
        except ProtocolError as exc:
            exchange.respond(exc.http_status, encode_error(None, exc))
            return
        if sessions is not None and sessions.belongs(exchange, message):
            await sessions.post(exchange, accepted, message)
            return
        if simple is not None and simple.belongs(exchange.headers, message):
            assert isinstance(message, Request)
            await simple.post(exchange, message)
            return
        if isinstance(message, Notification):
            # This revision has none for HTTP (a cancellation is the end of the response stream); others may come.
            exchange.respond(202, EMPTY)
            return
        if not isinstance(message, Request):
            error = InvalidRequest("Invalid request: a client sends requests and notifications, not responses")
            exchange.respond(400, encode_error(None, error))
            return
        outlet = _HttpOutlet(exchange, HttpAccepted(True, False) if self._json_only else accepted)
        try:
            if era_of(message.method, message.params) is Era.MODERN and not self._engine.legacy_only:
                check_mirror(exchange.headers, message)
            call = self._engine.prepare(message, outlet)
            if call.method == "tools/call":
                tool = self._engine.registry.tools.get(call.params["name"])
                if tool is not None and tool.headers:
                    check_params(tool.headers, exchange.headers, call.params.get("arguments"))
        except ProtocolError as exc:
            exchange.respond(exc.http_status, encode_error(message.id, exc))
            return
        # Nobody reads these any more, and a stream may stay open for hours.
        exchange.body, exchange.headers = b"", {}
        del value, message
        try:
            await self._run(exchange, call, outlet)
        finally:
            # Cycles would leave the request to the garbage collector.
            exchange.on_gone = exchange.on_silence = None
            outlet.call = None

    async def _run(self, exchange: HttpExchange, call: Call, outlet: _HttpOutlet) -> None:
        if exchange.gone:
            return
        lasting = call if isinstance(call, LastingCall) else None
        if lasting is not None:
            if not outlet.may_stream:
                why = "this server has none" if self._json_only else "the request must accept text/event-stream"
                error = InvalidRequest(f"{call.method} answers with a stream: {why}")
                exchange.respond(406, encode_error(call.id, error))
                return
            self._lasting.add(lasting)
        exchange.on_silence = outlet.silent
        exchange.on_gone = outlet.cancel
        outlet.call = call
        self._running.add(call)
        try:
            await self._engine.run(call)
        finally:
            self._running.remove(call)
            if lasting is not None:
                self._lasting.remove(lasting)


class _HttpOutlet:
    """Where the messages of one call go: a plain answer, or an event stream once there is more to say."""

    __slots__ = ("_exchange", "call", "may_stream", "stream_only")

    def __init__(self, exchange: HttpExchange, accepts: HttpAccepted) -> None:
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
            exchange.respond(status, message, extra=retry_after(seconds))
        return not exchange.gone

    def silent(self) -> None:
        """Nothing was sent for a while."""
        if self.stream() and not self._exchange.done:
            self._exchange.send_chunk(COMMENT)
