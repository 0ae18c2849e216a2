"""The running server, without a transport: from a request to the bytes of its answer."""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import trio

from ...convert.codec import Mismatch, render
from ...errors import (
    InternalError,
    InvalidRequest,
    MethodNotFound,
    ProtocolError,
    ServerBusy,
    TimedOut,
    ToolError,
    UnsupportedVersion,
    UrlElicitationRequired,
)
from ...limits import Limits
from ...protocol.envelope import Request, encode_error, encode_result
from ...protocol.jsontext import dumps, readable_text, shorten
from ...protocol.legacy import Dialect, Hello, legacy_meta, negotiate, read_hello
from ...protocol.meta import PROTOCOL_VERSION, RequestMeta
from ...protocol.methods import METHODS, SESSION_METHODS, Method
from ...protocol.revisions import ERAS, LEGACY, Era, check_version, era_of
from ...protocol.tasks import TASKS
from ...scopes.call import Call, LastingCall, Outlet, run_call
from ...scopes.collector import open_collector
from ...scopes.groups import only_exception, unwrapped
from ..ask.context import Context
from ..ask.rounds import AskAgain
from ..declare.extensions import check_declared
from ..declare.registry import Tool
from ..declare.server import Server
from ..failures import cut, make_sendable
from ..paths import UnsafePath
from ..peer.session import DEFAULT_LEVEL, Session
from ..tasks.task import Outcome
from .extensions import serve_method
from .handlers import HANDLERS, error_result, run_tool
from .legacy import SESSION_CHANGES, SESSION_HANDLERS
from .lifespan import open_lifespan
from .serving import Serving

__all__ = ["Engine", "open_engine"]

logger: logging.Logger = logging.getLogger("trio_mcp.server")


class Engine(Serving):
    """A server that is open: its lifespan is entered, its executor counts.

    Made by `open_engine`. Transports call `prepare`, then `run` in a task of theirs.

    Attributes:
        legacy: Whether revisions with sessions are spoken.
        legacy_only: Whether no others are.
    """

    def __init__(self, server: Server[Any], lifespan: Any) -> None:
        super().__init__(server, lifespan, self._run_tool, self.timed_out)
        self.legacy: bool = Era.LEGACY in server.eras
        self.legacy_only: bool = Era.MODERN not in server.eras

    # -- before the scope

    def prepare(self, request: Request, outlet: Outlet) -> Call:
        """Check everything about a request that needs no user code.

        Raises:
            ProtocolError: to be answered with the id of the request.
        """
        if self.legacy_only or era_of(request.method, request.params) is Era.LEGACY:
            raise self._no_legacy(request)
        meta = RequestMeta.from_params(request.params, self.limits)
        check_version(meta.protocol_version, self.server.revisions)
        row = METHODS.get(request.method)
        if row is None and (method := self.server.extensions.find(request.method)) is not None:
            row = method.row
        if row is None or ERAS[meta.protocol_version] not in row.eras:
            raise self._unknown(request.method)
        self._check_offered(row)
        if row.extension is not None:
            check_declared(request.method, meta.client_capabilities, row.extension)
        row.check(request.params)
        if row.lasting:
            return LastingCall(request.id, request.method, request.params, meta, outlet)
        return Call(request.id, request.method, request.params, meta, outlet, self.limits.request_timeout)

    def _unknown(self, method: str) -> MethodNotFound:
        if method == "initialize":
            # Of a client that mixes two revisions, and can choose one of them.
            versions = [*self.server.revisions, *(LEGACY if self.legacy else ())]
            return MethodNotFound(
                f"Method not found: initialize, in a request of a revision without it; this server speaks {', '.join(versions)}",
                {"supported": versions},
            )
        return MethodNotFound(f"Method not found: {shorten(method)}")

    def _check_offered(self, row: Method) -> None:
        """Check that this server has what a method is for."""
        if row.capability is not None and row.capability not in self.registry.capabilities:
            raise MethodNotFound(f"Method not found: {row.name}; this server has no {row.capability}")
        if row.extension is not None and row.extension not in self.registry.extensions:
            raise MethodNotFound(f"Method not found: {row.name}; this server has no extension {row.extension}")

    def _no_legacy(self, request: Request) -> ProtocolError:
        meta = request.params.get("_meta")
        named = meta.get(PROTOCOL_VERSION) if type(meta) is dict else None
        if self.legacy_only:
            # None of the modern codes: a client that meets one of them does not look for an older revision.
            text = f"this server speaks {', '.join(LEGACY)}; open a session with initialize first"
            if named is not None:
                return MethodNotFound(f"Method not found: {shorten(request.method)} of revision {named}; {text}")
            return InvalidRequest(f"Invalid request: {text}")
        wanted = named if named is not None else request.params.get("protocolVersion")
        versions = ", ".join(self.server.revisions)
        how = "in _meta of each request; older ones in a session" if self.legacy else "without an initialize handshake"
        return UnsupportedVersion(
            f"Unsupported protocol version: this server speaks {versions}, {how}",
            {
                "supported": list(self.server.revisions),
                "requested": wanted if isinstance(wanted, str) else "initialize",
            },
        )

    # -- sessions

    def welcome(self, request: Request, *, alone: bool = False) -> tuple[Dialect, Hello, bytes]:
        """What `initialize` comes to: the dialect of the session, what the client says of itself, and the response.

        Args:
            request: The request.
            alone: Whether no session follows: then nothing is promised that needs one.

        Raises:
            InvalidParams: the parameters are not those of `initialize`.
        """
        hello = read_hello(request.params)
        dialect = negotiate(hello.revision)
        capabilities = dialect.capabilities(
            self.registry.capabilities, TASKS in self.registry.extensions and not alone, alone=alone
        )
        result = dialect.welcome(self.server.info(), capabilities, self.server.instructions)
        return dialect, hello, encode_result(request.id, dumps(result))

    def prepare_in(self, session: Session, request: Request, outlet: Outlet) -> Call | bytes:
        """The same as `prepare` for a request in a session; what takes no time is answered at once.

        Raises:
            ProtocolError: to be answered with the id of the request.
        """
        row = SESSION_METHODS.get(request.method)
        if row is None or (row.extension is not None and not session.dialect.tasks):
            raise MethodNotFound(f"Method not found: {shorten(request.method)}")
        self._check_offered(row)
        params = request.params
        level = session.log_level or DEFAULT_LEVEL
        meta = legacy_meta(session.dialect, session.hello, level, params, self.limits)
        row.check(params)
        change = SESSION_CHANGES.get(request.method)
        if change is not None:
            change(session, params, self.limits)
            return encode_result(request.id, b"{}")
        # These are of rounds of input, which the revision does not have.
        for name in ("requestState", "inputResponses"):
            params.pop(name, None)
        call = Call(request.id, request.method, params, meta, outlet, self.limits.request_timeout)
        call.dialect, call.session, call.principal = session.dialect, session, session.principal
        return call

    def refusal(self, request: Request, session: Session, error: ProtocolError) -> bytes:
        """The response to a request of a session that is refused."""
        return encode_error(request.id, session.dialect.error(error))

    # -- inside the scope

    async def run(self, call: Call) -> None:
        """Run one call to its settlement. Only cancellation and KeyboardInterrupt come out."""
        await run_call(call, self._last if isinstance(call, LastingCall) else self._admit, self._timed_out)

    async def _admit(self, call: Call) -> None:
        """Wait for the place of a call, and hold it until its answer has room."""
        try:
            place = call.place or self.executor.ticket()
            waited = not place.ready
            if waited:
                await place.wait()
        except ServerBusy as exc:
            call.answer(self._answer(call, exc))
            return
        outlet = call.outlet
        call.place = place
        try:
            # A place that comes free while everything ends must not start user code.
            await trio.lowlevel.checkpoint_if_cancelled()
            if outlet.full:
                await outlet.wait_room()
            outlet.begin()
            if waited:
                call.limit(call.timeout)
            call.answer(await self._perform(call))
            if outlet.full:
                # A peer that does not read is not worked for, for as long as the call might have run.
                await outlet.wait_room()
        finally:
            # While it waits for its client it has none.
            if call.place is not None:
                call.place.release()

    async def _last(self, call: Call) -> None:
        """Run a call that takes no place, since it only waits."""
        await call.outlet.wait_room()
        call.answer(await self._perform(call))

    async def _perform(self, call: Call) -> bytes:
        handler = HANDLERS.get(call.method) if call.dialect is None else SESSION_HANDLERS[call.method]
        if handler is None:
            method = self.server.extensions.find(call.method)
            assert method is not None, call.method
            return self._answer(call, await self.outcome(call, serve_method(method, self, call)))
        return self._answer(call, await self.outcome(call, handler(self, call)))

    def _answer(self, call: Call, outcome: bytes | ProtocolError) -> bytes:
        if isinstance(outcome, bytes):
            return encode_result(call.id, outcome)
        call.status, call.retry_after = outcome.http_status, outcome.retry_after
        return encode_error(call.id, outcome if call.dialect is None else call.dialect.error(outcome))

    async def outcome(self, call: Call, work: Awaitable[dict[str, Any] | bytes]) -> bytes | ProtocolError:
        """What a request answers: its encoded result, or the error. Only cancellation and KeyboardInterrupt come out.

        Args:
            call: The request.
            work: What its handler does.
        """
        try:
            result = await work
            return result if isinstance(result, bytes) else self.encode_for(call, result)
        except (trio.Cancelled, KeyboardInterrupt):
            # The first is a scope's business, the second that of whoever runs this program.
            raise
        except BaseExceptionGroup as group:
            return self._group(call, group)
        except BaseException as exc:
            return self._told(call, exc)

    def _told(self, call: Call, exc: BaseException) -> bytes | ProtocolError:
        try:
            outcome = self._raised(call, exc)
            if not isinstance(outcome, bytes) and (lost := make_sendable(outcome, self.any, self.limits)):
                logger.error("%s raised an error that cannot be sent as it is: %s", self._what(call), "; ".join(lost))
            return outcome
        except Exception as failure:
            # To tell of it may fail as well, and must not take the connection along.
            return self._masked(call, failure)

    def _raised(self, call: Call, exc: BaseException) -> bytes | ProtocolError:
        """What a handler raised, as an outcome."""
        if isinstance(exc, UnsafePath) and call.method == "tools/call":
            return self._failed(call, exc.message)
        if isinstance(exc, UrlElicitationRequired) and (call.dialect is None or not call.dialect.modes):
            pages = "\n".join(f"{page['message']}: {page['url']}" for page in exc.pages)
            return self._failed(call, f"{exc.message}:\n{pages}")
        if isinstance(exc, ProtocolError):
            return exc
        if isinstance(exc, AskAgain):
            return self.encode(exc.rounds.required())
        if isinstance(exc, ToolError):
            return self._failed(call, str(exc))
        if isinstance(exc, Mismatch):
            return self._invalid(call, exc)
        return self._masked(call, exc)

    def _group(self, call: Call, group: BaseExceptionGroup[BaseException]) -> bytes | ProtocolError:
        """A handler's own nursery failed. A cancellation of ours may be in it, and it is not ours to swallow."""
        passing, rest = group.split((trio.Cancelled, KeyboardInterrupt))
        if passing is not None:
            if rest is not None:
                logger.error("%s failed while it was cancelled", self._what(call), exc_info=rest)
            raise passing
        asking, others = group.split(AskAgain)
        if asking is not None and others is None:
            # Questions that were asked at once go out in one round.
            return self._told(call, AskAgain(_first(asking).rounds))
        # One error in a nursery is that error: a ToolError raised in one is for the model as well.
        single = only_exception(group)
        return self._told(call, group if single is None else single)

    def _masked(self, call: Call, exc: BaseException) -> bytes | ProtocolError:
        """An error that is not for the model: the log gets it whole, the peer an id to find it by."""
        mark = secrets.token_hex(4)
        logger.error("%s failed (error id %s)", self._what(call), mark, exc_info=exc)
        text = f"Internal error in {self._what(call)} (error id {mark})"
        if self.server.expose_errors:
            text += f": {type(exc).__name__}: {_text_of(exc, self.limits)}"
        return self._failed(call, text)

    def _invalid(self, call: Call, exc: Mismatch) -> bytes | ProtocolError:
        """The handler returned something that cannot be sent, or is not what it promised."""
        lines = render(exc, self.limits)
        logger.error("%s returned a result that is not valid:\n%s", self._what(call), lines)
        text = f"{self._subject(call)} returned a result that is not valid"
        return self._failed(call, f"{text}:\n{lines}" if call.method == "tools/call" else text)

    def _failed(self, call: Call, text: str) -> bytes | ProtocolError:
        text = readable_text(text)
        return self.encode_for(call, error_result(text)) if call.method == "tools/call" else InternalError(text)

    def _timed_out(self, call: Call) -> bytes:
        return self._answer(call, self.timed_out(call))

    def timed_out(self, call: Call) -> bytes | ProtocolError:
        """The outcome of a call whose time is over."""
        text = f"{self._subject(call)} did not finish within {call.timeout:g} s"
        logger.warning("%s", text)
        return self.encode_for(call, error_result(text)) if call.method == "tools/call" else TimedOut(text)

    def _what(self, call: Call) -> str:
        if call.method == "tools/call":
            return f"tool {call.params['name']!r}"
        if call.method == "prompts/get":
            return f"prompt {call.params['name']!r}"
        if call.method == "resources/read":
            return f"resource {shorten(call.params['uri'])}"
        return call.method

    def _subject(self, call: Call) -> str:
        """The same at the beginning of a sentence; a method stays as it is written."""
        what = self._what(call)
        return what if what == call.method else f"{what[0].upper()}{what[1:]}"

    async def _run_tool(self, call: Call, tool: Tool, values: dict[str, Any], context: Context[Any]) -> Outcome:
        return await self.outcome(call, run_tool(self, call, tool, values, context, self.tasks.threads))


def _first(group: BaseExceptionGroup[AskAgain]) -> AskAgain:
    """One of the questions that were asked at once: they all know of each other."""
    one = group.exceptions[0]
    return _first(one) if isinstance(one, BaseExceptionGroup) else one


def _text_of(exc: BaseException, limits: Limits) -> str:
    try:
        return cut(str(exc), limits)
    except Exception:
        # A class of a user's may do anything here.
        return "<no text>"


@asynccontextmanager
async def open_engine(server: Server[Any]) -> AsyncIterator[Engine]:
    """Open a server: enter its lifespan; leave it at the end, after everything that used it.

    Raises:
        MCPError: the server is open already (a lifespan is entered once).
    """
    with unwrapped():
        async with trio.open_nursery() as nursery:
            with server.opening():
                async with open_lifespan(server) as value, _with_tasks(Engine(server, value)) as engine:
                    yield engine
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def _with_tasks(engine: Engine) -> AsyncIterator[Engine]:
    limits = engine.limits
    async with open_collector(engine.tasks.open(), limits.drain_timeout, limits.task_settle) as collector:
        await engine.tasks.begin(collector)
        if not engine.legacy:
            yield engine
            return
        server = engine.server
        with server.notices.attach(engine.sessions.hear):
            async with engine.sessions.open():
                server.list_sessions = engine.sessions.all
                try:
                    yield engine
                finally:
                    server.list_sessions = list
