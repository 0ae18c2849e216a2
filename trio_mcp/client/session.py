"""A session with a server of a revision before 2026-07-28: the same calls, said in its way.

The transport sends and hears (`SessionWire`); what the messages mean is here. The tasks that answer the server's questions, and
the one that hears what belongs to no call, run in the nursery of the client.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import trio

from ..errors import (
    InputNeeded,
    InvalidRequest,
    InvalidResponse,
    LegacyServer,
    MCPError,
    MethodNotFound,
    ProtocolError,
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
        self._renewing = trio.Lock()
        self._begun = 0
        # Questions of the server that are being answered, by their id.
        self._asked: dict[RequestId, trio.CancelScope] = {}
        # Those who listen for changes, with what they want.
        self._listening: dict[Listener, dict[str, Any]] = {}
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

    async def initialize(self, revision: str = LEGACY[0]) -> None:
        """Open the session.

        Raises:
            LegacyServer: the server speaks none of our revisions.
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
            raise LegacyServer(
                f"{self.peer} speaks revision {shorten(agreed)}; this client speaks {LATEST}, {', '.join(LEGACY)}"
            )
        require(result, "capabilities", dict, "initialize")
        self.result, self.revision = result, agreed
        self._begun += 1
        self._wire.begin(self, agreed)
        await self._wire.notify("notifications/initialized", {})

    def _capabilities(self) -> dict[str, Any]:
        declared = dict(self._answers.capabilities)
        if "roots" in declared:
            declared["roots"] = {"listChanged": True}
        return declared

    async def _renew(self, begun: int) -> None:
        """Open a new session, once for all calls that have lost the same one."""
        async with self._renewing:
            if self._begun != begun:
                return
            logger.info("%s does not know the session any more; a new one is opened", self.peer)
            await self.initialize(self.revision)
            self._level = None
            uris = {uri for wanted in self._listening.values() for uri in wanted.get("resourceSubscriptions", ())}
            for uri in sorted(uris):
                await self._wire.call("resources/subscribe", {"uri": uri}, Listener())

    # -- calling

    async def call(self, method: str, params: dict[str, Any], listener: Listener) -> dict[str, Any]:
        params = dict(params)
        told = params.pop("_meta", None) or {}
        meta = {name: value for name, value in told.items() if name not in _MODERN}
        if meta:
            params["_meta"] = meta
        if method == "subscriptions/listen":
            return await self._listen(params["notifications"], listener)
        if method in _TASKS:
            return await self._tasks.serve(method, params, listener)
        if self._tasks.asks(method, params, told):
            return await self._tasks.start(params, listener)
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
        return await self._wire.call(method, params, listener)

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
        if request.id in self._asked or len(self._asked) >= self._limits.session_requests:
            busy = InvalidRequest("Invalid request: this id is still under way, or too many questions are")
            self._nursery.start_soon(self._respond, encode_error(request.id, busy))
            return
        scope = self._asked[request.id] = trio.CancelScope()
        self._nursery.start_soon(self._answer, request, scope)

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
        if request.method == "ping":
            return encode_result(request.id, b"{}")
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
        except MCPError as exc:
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

    async def _listen(self, wanted: Mapping[str, Any], listener: Listener) -> dict[str, Any]:
        """Hear of changes: the lists tell by themselves, resources are subscribed to one by one."""
        capabilities = self.result["capabilities"]
        agreed: dict[str, Any] = {
            name: True
            for kind in LIST_CHANGED
            if wanted.get(name := f"{kind}ListChanged") and (capabilities.get(kind) or {}).get("listChanged")
        }
        uris = list(wanted.get("resourceSubscriptions", ()))
        if wanted.get("taskIds"):
            agreed["taskIds"] = list(wanted["taskIds"])
        done: list[str] = []
        try:
            for uri in uris:
                # Some servers take it without having said so.
                await self._call("resources/subscribe", {"uri": uri}, Listener())
                done.append(uri)
            if done:
                agreed["resourceSubscriptions"] = done
            # Some servers tell more than they say.
            self._listening[listener] = {**wanted, "resourceSubscriptions": done}
            listener.post(Notification(ACKNOWLEDGED, {"notifications": agreed}))
            return await listener.wait()
        finally:
            self._listening.pop(listener, None)
            with trio.move_on_after(self._limits.child_reap, shield=True):
                await self._unsubscribe(done)

    async def _unsubscribe(self, uris: list[str]) -> None:
        for uri in uris:
            if not any(uri in wanted.get("resourceSubscriptions", ()) for wanted in self._listening.values()):
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
        self._nursery.start_soon(self._wire.listen)


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
        try:
            yield ClientSession(wire, nursery, info, answers, limits)
        finally:
            with trio.move_on_after(limits.child_reap, shield=True):
                await wire.end()
            nursery.cancel_scope.cancel()


def found_in(result: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], str | None]:
    """What `initialize` tells of a server: its name, what it can do, how it wants to be used."""
    info = optional(dict(result), "serverInfo", dict) or {}
    return info, dict(result["capabilities"]), optional(dict(result), "instructions", str)
