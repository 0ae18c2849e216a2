"""A session with a server of a revision before 2026-07-28: the same calls, said in its way.

The transport sends and hears (`SessionWire`); what the messages mean is here. The tasks that answer the server's questions, and
the one that hears what belongs to no call, run in the nursery of the client.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import trio

from ..errors import (
    ConnectionClosed,
    InputNeeded,
    InvalidRequest,
    InvalidResponse,
    LegacyServer,
    MCPError,
    MethodNotFound,
    ProtocolError,
    RequestTimeout,
    UnsupportedVersion,
)
from ..limits import Limits
from ..protocol.content import optional
from ..protocol.envelope import Notification, Request, RequestId, encode_error, encode_result
from ..protocol.jsontext import dumps, shorten
from ..protocol.legacy import RELATED_TASK
from ..protocol.listening import ACKNOWLEDGED, CANCELLED, LIST_CHANGED, RESOURCE_UPDATED
from ..protocol.meta import CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, LOG_LEVELS, PROTOCOL_VERSION
from ..protocol.results import require
from ..protocol.revisions import LATEST, LEGACY
from ..protocol.tasks import TASK_CHANGED
from .answers import Answers
from .channel import Channel, Listener, SessionLost, SessionWire
from .session_tasks import SessionTasks

__all__ = ["ClientSession", "found_in", "open_session"]

logger: logging.Logger = logging.getLogger("trio_mcp.client")

_MODERN: Final = (PROTOCOL_VERSION, CLIENT_INFO, CLIENT_CAPABILITIES, LOG_LEVEL)
_TASKS: Final = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})
_TASK_STATUS: Final = "notifications/tasks/status"


class _Renewal:
    """A new session that is being opened, for all that wait for it."""

    def __init__(self) -> None:
        self.over = trio.Event()
        self.error: Exception | None = None


class ClientSession(Channel):
    """A channel to a server that has answered `initialize`.

    Args:
        wire: The transport.
        nursery: Where questions of the server are answered.
        info: The `clientInfo`.
        answers: What answers them.
        limits: Bounds.

    Attributes:
        result: The result of `initialize`.
        revision: The revision that was agreed on.
    """

    def __init__(
        self, wire: SessionWire, nursery: trio.Nursery, info: dict[str, Any], answers: Answers, limits: Limits
    ) -> None:
        self._wire = wire
        self._nursery = nursery
        self._info = info
        self._answers = answers
        self._limits = limits
        self._level: str | None = None
        self._pinned = False
        self._renewing: _Renewal | None = None
        self._begun = 0
        self._over: ConnectionClosed | None = None
        self._replies = 0
        # Questions of the server that are being answered, by their id.
        self._asked: dict[RequestId, trio.CancelScope] = {}
        # Those who listen for changes, with what they want.
        self._listening: dict[Listener, dict[str, Any]] = {}
        # How many want to hear of a resource; and the lock that keeps what the server is told about that in order.
        self._wanted: Counter[str] = Counter()
        self._subscribing = trio.Lock()
        self._logging: dict[Listener, None] = {}
        self._tasks = SessionTasks(self._call, nursery)
        self.result: dict[str, Any] = {}
        self.revision: str = LEGACY[0]

    @property
    def peer(self) -> str:
        return self._wire.peer

    @property
    def reconnects(self) -> bool:
        return self._wire.reconnects

    @property
    def note(self) -> str:
        return self._wire.note

    # -- the handshake

    async def initialize(self, revision: str = LEGACY[0], *, pinned: bool = False) -> None:
        """Open the session.

        Args:
            revision: The one to ask for.
            pinned: Whether no other one will do.

        Raises:
            LegacyServer: the server speaks none of our revisions, or not the one that was asked for.
            UnsupportedVersion: it speaks newer ones.
            InvalidResponse: its answer is no result of `initialize`.
            MCPError: as for any call.
        """
        params = {
            "protocolVersion": revision,
            "capabilities": self._capabilities(),
            "clientInfo": self._info,
        }
        result = await self._wire.call("initialize", params, Listener())
        agreed = require(result, "protocolVersion", str, "initialize")
        if agreed not in LEGACY:
            told = f"{self.peer} speaks revision {shorten(agreed)}; this client speaks {LATEST}, {', '.join(LEGACY)}"
            raise UnsupportedVersion(told) if agreed > LATEST else LegacyServer(told)
        if pinned and agreed != revision:
            raise LegacyServer(f"{self.peer} speaks revision {agreed}; it was opened for {revision} only")
        require(result, "capabilities", dict, "initialize")
        self.result, self.revision, self._pinned = result, agreed, pinned
        self._begun += 1
        self._wire.begin(self, agreed)
        await self._wire.notify("notifications/initialized", {})

    def _capabilities(self) -> dict[str, Any]:
        declared = dict(self._answers.capabilities)
        if "roots" in declared:
            declared["roots"] = {"listChanged": True}
        return declared

    async def _renew(self, begun: int) -> None:
        """Open a new session, once for all calls that have lost the same one.

        It is opened in a task of its own: a caller that leaves must not leave half a session to the others.
        """
        if self._over is not None:
            raise ConnectionClosed(str(self._over))
        if self._begun != begun:
            await trio.lowlevel.checkpoint()
            return
        renewal = self._renewing
        if renewal is None:
            renewal = self._renewing = _Renewal()
            self._nursery.start_soon(self._open_again, renewal)
        await renewal.over.wait()
        if renewal.error is not None:
            raise renewal.error

    async def _open_again(self, renewal: _Renewal) -> None:
        logger.info("%s does not know the session any more; a new one is opened", self.peer)
        try:
            with trio.move_on_after(self._limits.connect_timeout) as patience:
                await self.initialize(self.revision, pinned=self._pinned)
                await self._restore()
            if patience.cancelled_caught:
                renewal.error = RequestTimeout(
                    f"initialize: no new session from {self.peer} within {self._limits.connect_timeout:g} s"
                )
        except Exception as exc:
            renewal.error = exc
        finally:
            self._renewing = None
            renewal.over.set()

    async def _restore(self) -> None:
        """Tell a new session what the old one knew."""
        messages = [("resources/subscribe", {"uri": uri}) for uri in sorted(self._wanted)]
        if self._level is not None:
            messages.append(("logging/setLevel", {"level": self._level}))
        for method, params in messages:
            try:
                await self._wire.call(method, params, Listener())
            except MCPError as exc:
                # The session is there all the same.
                logger.warning("%s: %s of a new session: %s", self.peer, method, exc)

    # -- calling

    async def call(self, method: str, params: dict[str, Any], listener: Listener) -> dict[str, Any]:
        params = dict(params)
        told = params.pop("_meta", None) or {}
        meta = {name: value for name, value in told.items() if name not in _MODERN}
        if meta:
            params["_meta"] = meta
        if method == "server/discover" or (method in _TASKS and "tasks" not in self.result["capabilities"]):
            raise LegacyServer(f"{self.peer} speaks revision {self.revision}, and has no {method} there")
        if method == "subscriptions/listen":
            return await self._listen(params["notifications"], listener)
        if method in _TASKS:
            return await self._tasks.serve(method, params, listener)
        if self._tasks.asks(method, params, told):
            return await self._tasks.start(params, listener)
        try:
            return await self._logged(method, params, listener)
        except MethodNotFound:
            # So a tool is refused that runs as a task only, where nobody has asked for the list yet.
            if not ("tasks" in self.result["capabilities"] and self._tasks.accepts(method, told)):
                raise
        return await self._tasks.start(params, Listener(listener.progress, listener.log, listener.log_level))

    async def _logged(self, method: str, params: dict[str, Any], listener: Listener) -> dict[str, Any]:
        if listener.log is None:
            return await self._call(method, params, listener)
        await self._set_level(listener.log_level)
        self._logging[listener] = None
        try:
            return await self._call(method, params, listener)
        finally:
            del self._logging[listener]

    async def _call(self, method: str, params: dict[str, Any], listener: Listener) -> dict[str, Any]:
        begun = self._begun
        try:
            return await self._wire.call(method, params, listener)
        except SessionLost:
            # It was refused before anything ran, so this is no second run.
            await self._renew(begun)
        try:
            return await self._wire.call(method, params, listener)
        except SessionLost as exc:
            raise exc.error from None

    async def _set_level(self, level: str) -> None:
        """Have log lines sent from a level on: one level counts for the whole session, so it only ever goes down."""
        known = self._level
        if "logging" not in self.result["capabilities"]:
            return
        if known is not None and LOG_LEVELS[known] <= LOG_LEVELS[level]:
            return
        self._level = level
        try:
            await self._call("logging/setLevel", {"level": level}, Listener())
        except ProtocolError as exc:
            logger.info("%s does not set a level for its log: %s", self.peer, exc)
        except BaseException:
            self._level = known
            raise

    # -- what the server asks

    def asked(self, request: Request) -> None:
        """Take a question of the server; it is answered in a task of its own."""
        if request.method == "ping":
            self._reply(encode_result(request.id, b"{}"))
            return
        if request.id in self._asked:
            # A stream that is taken up again may tell it once more; an error would end the question that is under way.
            logger.info("%s asks again with the id %s, which is under way", self.peer, shorten(request.id))
            return
        if len(self._asked) >= self._limits.session_requests:
            busy = InvalidRequest(f"Invalid request: more than {self._limits.session_requests} questions at once")
            self._reply(encode_error(request.id, busy))
            return
        scope = self._asked[request.id] = trio.CancelScope()
        self._nursery.start_soon(self._answer, request, scope)

    def _reply(self, message: bytes) -> None:
        """Answer at once; a server that asks without end and does not read gets no answer."""
        if self._replies < self._limits.session_requests:
            self._replies += 1
            self._nursery.start_soon(self._send_reply, message)

    async def _send_reply(self, message: bytes) -> None:
        try:
            await self._respond(message)
        finally:
            self._replies -= 1

    async def _answer(self, request: Request, scope: trio.CancelScope) -> None:
        message: bytes | None = None
        try:
            with scope:
                message = await self._answered(request)
        finally:
            if self._asked.get(request.id) is scope:
                del self._asked[request.id]
        if message is not None:
            await self._respond(message)

    async def _answered(self, request: Request) -> bytes:
        params = {name: value for name, value in request.params.items() if name != "_meta"}
        try:
            answer = await self._answers.to(request.method, params)
            meta = request.params.get("_meta")
            if type(meta) is dict and RELATED_TASK in meta:
                answer = {**answer, "_meta": {RELATED_TASK: meta[RELATED_TASK]}}
            return encode_result(request.id, dumps(answer))
        except InputNeeded:
            return encode_error(
                request.id, MethodNotFound(f"Method not found: this client does not answer {request.method}")
            )
        except InvalidResponse as exc:
            return encode_error(request.id, MethodNotFound(f"Method not found: {exc}"))
        except ProtocolError as exc:
            return encode_error(request.id, exc)
        except Exception as exc:
            # Of a callback. The server hears that there is no answer, and the program finds the reason in its log.
            logger.exception("a callback failed that answers %s of %s", request.method, self.peer)
            return encode_error(request.id, ProtocolError(f"the client could not answer: {type(exc).__name__}"))

    async def _respond(self, message: bytes) -> None:
        try:
            await self._wire.respond(message)
        except Exception as exc:
            # Of a hook of the program's own HTTP client, too: what runs beside the calls does not end them.
            logger.warning("%s: an answer to its question could not be sent: %s", self.peer, exc)

    # -- what the server tells

    def told(self, message: Notification) -> None:
        """Take what belongs to no call."""
        method, params = message.method, message.params
        if method == CANCELLED:
            target: Any = params.get("requestId")
            scope = self._asked.get(target) if type(target) in (int, str) else None
            if scope is not None:
                scope.cancel()
        elif method == "notifications/message":
            for listener in [*self._logging]:
                listener.post(message)
        else:
            if method == _TASK_STATUS:
                message = Notification(TASK_CHANGED, params)
            for listener, wanted in [*self._listening.items()]:
                if _wants(wanted, message):
                    listener.post(message)

    def ended(self, error: ConnectionClosed) -> None:
        """Nothing more can come."""
        self._over = self._over or error
        for listener in self._listening:
            listener.settle(error=ConnectionClosed(str(error), exit_status=error.exit_status))

    def lost(self, error: ConnectionClosed) -> None:
        """The server cannot be reached: who listens has missed something, however soon it is there again."""
        for listener in self._listening:
            listener.settle(error=ConnectionClosed(str(error)))

    async def _listen(self, wanted: Mapping[str, Any], listener: Listener) -> dict[str, Any]:
        """Hear of changes: the lists tell by themselves, resources are subscribed to one by one."""
        if self._over is not None:
            raise ConnectionClosed(str(self._over))
        capabilities = self.result["capabilities"]
        agreed: dict[str, Any] = {
            name: True
            for kind in LIST_CHANGED
            if wanted.get(name := f"{kind}ListChanged") and (capabilities.get(kind) or {}).get("listChanged")
        }
        uris = list(wanted.get("resourceSubscriptions", ()))
        if wanted.get("taskIds"):
            if "tasks" not in capabilities:
                raise LegacyServer(f"{self.peer} speaks revision {self.revision}, and has no tasks there")
            agreed["taskIds"] = list(wanted["taskIds"])
        done: list[str] = []
        try:
            for uri in uris:
                done.append(uri)
                self._wanted[uri] += 1
                async with self._subscribing:
                    # Some servers take it without having said so.
                    await self._call("resources/subscribe", {"uri": uri}, Listener())
            if done:
                agreed["resourceSubscriptions"] = done
            # Some servers tell more than they say.
            self._listening[listener] = {**wanted, "resourceSubscriptions": done}
            listener.post(Notification(ACKNOWLEDGED, {"notifications": agreed}))
            return await listener.wait()
        finally:
            self._listening.pop(listener, None)
            self._wanted.subtract(done)
            self._wanted = +self._wanted
            with trio.move_on_after(self._limits.child_reap, shield=True):
                await self._unsubscribe(done)

    async def _unsubscribe(self, uris: list[str]) -> None:
        for uri in uris:
            async with self._subscribing:
                if self._wanted[uri]:
                    continue
                try:
                    await self._wire.call("resources/unsubscribe", {"uri": uri}, Listener())
                except MCPError as exc:
                    logger.info("%s: %s", self.peer, exc)

    async def notify_roots_changed(self) -> None:
        """Tell the server that the roots are others now."""
        await self._wire.notify("notifications/roots/list_changed", {})

    def learn_tools(self, tools: list[Any]) -> list[Any]:
        """Arguments do not go into headers in these revisions; but some tools run as a task only."""
        self._tasks.learn_tools(tools)
        return tools

    def start(self) -> None:
        """Hear what belongs to no call, from now on."""
        self._nursery.start_soon(self._hear)

    async def _hear(self) -> None:
        try:
            await self._wire.listen()
        except Exception:
            logger.exception("%s is not heard any more outside of calls", self.peer)


def _wants(wanted: Mapping[str, Any], message: Notification) -> bool:
    if message.method == RESOURCE_UPDATED:
        uri = message.params.get("uri")
        # Of a resource that is a part of one that was subscribed to, the part may be named.
        return type(uri) is str and any(uri.startswith(one) for one in wanted.get("resourceSubscriptions", ()))
    if message.method == TASK_CHANGED:
        return message.params.get("taskId") in wanted.get("taskIds", ())
    return any(wanted.get(f"{kind}ListChanged") for kind, method in LIST_CHANGED.items() if method == message.method)


@asynccontextmanager
async def open_session(
    wire: SessionWire, info: dict[str, Any], answers: Answers, limits: Limits
) -> AsyncIterator[ClientSession]:
    """A session that lasts as long as the block; whoever opens it calls `initialize`, and then `start`.

    Args:
        wire: The transport.
        info: The `clientInfo`.
        answers: Answers the server's questions.
        limits: Bounds.
    """
    async with trio.open_nursery() as nursery:
        session = ClientSession(wire, nursery, info, answers, limits)
        try:
            yield session
        finally:
            session.ended(ConnectionClosed("the client was closed"))
            with trio.move_on_after(limits.child_reap, shield=True):
                await wire.end()
            nursery.cancel_scope.cancel()


def found_in(result: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], str | None]:
    """What `initialize` tells of a server: its name, what it can do, how it wants to be used."""
    info = optional(dict(result), "serverInfo", dict) or {}
    return info, dict(result["capabilities"]), optional(dict(result), "instructions", str)
