"""A session with one client, in the revisions before 2026-07-28: who it is, what it is asked, and what it is told.

Everything that works for the session stands below one cancel scope. Over HTTP that is a nursery of the server's, since a call
outlives the connection that brought it (2025-11-25, basic/transports); on a byte stream it is that of the connection.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import trio

from ...errors import ClientRefused, ConnectionClosed, InternalError, MCPError, RequestTimeout, ServerBusy
from ...limits import Limits
from ...protocol.envelope import (
    ErrorResponse,
    Notification,
    RequestId,
    Response,
    encode_notification,
    encode_request,
    is_request_id,
)
from ...protocol.jsontext import find_unwritable, shorten
from ...protocol.legacy import Dialect, Hello
from ...protocol.listening import CANCELLED, RESOURCE_UPDATED
from ...protocol.meta import LOG_LEVELS
from ...protocol.results import PromptMessage
from ...scopes.call import Call
from .events import EventLog, EventStore, Taker
from .questions import (
    Elicited,
    Question,
    check_capability,
    form_question,
    roots_question,
    sample_question,
    url_question,
)

__all__ = ["DEFAULT_LEVEL", "Answerable", "Session"]

DEFAULT_LEVEL = "info"
"""What is logged to a client that has not said from which level on."""


class Answerable(Protocol):
    """A question of a handler, and where its answer goes. An entry of the journal is one."""

    question: Question | None
    answer: Any


class _Waiter:
    """One request of ours that waits for its answer."""

    __slots__ = ("answer", "error", "over")

    def __init__(self) -> None:
        self.over = trio.Event()
        self.answer: dict[str, Any] | None = None
        self.error: Exception | None = None


class Session:
    """One client. Made by the server when a client opens it; `server.sessions` has all of them.

    Attributes:
        id: Its id; on a byte stream it has none that a client knows.
        principal: Who has opened it, as an authenticated name; empty where nobody is.
        initialized: Whether the client has said that it is ready.
        log_level: From which level on it wants to hear log lines.
        tasks: The tasks that it has begun, by id.
        asking: The questions of tasks, by id and key, that it is being asked.
        subscriptions: The resources whose updates it wants to hear of.
        calls: Its requests that are not settled, by id.
        events: What it is told.
        closed: Whether it is over.
        last_used: When it last had a call, a message or a stream, on the clock of trio.
    """

    __slots__ = (
        "_deaf",
        "_held",
        "_limits",
        "_next",
        "_users",
        "_waiters",
        "asking",
        "calls",
        "closed",
        "dialect",
        "events",
        "hello",
        "id",
        "initialized",
        "last_used",
        "log_level",
        "nursery",
        "on_use",
        "principal",
        "subscriptions",
        "tasks",
    )

    def __init__(
        self, id: str, dialect: Dialect, hello: Hello, limits: Limits, store: EventStore, principal: str = ""
    ) -> None:
        self._deaf: str | None = None
        self._limits = limits
        self._next = 0
        self._users = 0
        self._waiters: dict[RequestId, _Waiter] = {}
        self.id: str = id
        self.dialect: Dialect = dialect
        self.hello: Hello = hello
        self.principal: str = principal
        self.events: EventLog = EventLog(store, limits)
        self.calls: dict[RequestId, Call] = {}
        self._held: dict[Taker, None] = {}
        self.closed: bool = False
        self.initialized: bool = False
        self.log_level: str | None = None
        self.tasks: dict[str, None] = {}
        self.asking: dict[tuple[str, str], trio.CancelScope] = {}
        # An empty set is three times as large.
        self.subscriptions: dict[str, None] = {}
        self.last_used: float = trio.current_time()
        self.on_use: Callable[[Session], None] | None = None
        self.nursery: trio.Nursery | None = None

    def __repr__(self) -> str:
        name = (self.hello.client_info or {}).get("name")
        return f"<Session {self.id[:8]} of {shorten(name) if name else 'a client'}, {self.protocol_version}>"

    @property
    def protocol_version(self) -> str:
        """The revision that was negotiated."""
        return self.dialect.revision

    @property
    def client_info(self) -> dict[str, Any] | None:
        """The client's `name`, `version` and so on, as it says of itself; not verified."""
        return self.hello.client_info

    @property
    def client_capabilities(self) -> dict[str, Any]:
        """What the client has declared."""
        return self.hello.capabilities

    # -- use

    @property
    def idle(self) -> bool:
        """Whether it has neither a call nor a stream."""
        return self._users == 0

    def enter(self) -> None:
        """A call or a stream of it begins; `leave` is called at its end."""
        self._users += 1
        self.touch()

    def leave(self) -> None:
        """It has ended."""
        self._users -= 1
        self.touch()

    def touch(self) -> None:
        """The client is there."""
        self.last_used = trio.current_time()
        if self.on_use is not None:
            self.on_use(self)

    @property
    def resume_after(self) -> float:
        """After how many seconds the client is told to come back to a stream that was closed."""
        return self._limits.resume_after

    def hold(self, taker: Taker) -> None:
        """The client has opened one more stream: there is a bound, and the oldest one ends."""
        self._held[taker] = None
        if len(self._held) > self._limits.session_streams:
            oldest = next(iter(self._held))
            del self._held[oldest]
            oldest.end()

    def release(self, taker: Taker) -> None:
        """It has ended."""
        self._held.pop(taker, None)

    def close(self, reason: str) -> None:
        """End it: its calls are cancelled, its questions fail, its streams end. Harmless when repeated.

        Args:
            reason: Why, for the log and for whoever waits for an answer.
        """
        if self.closed:
            return
        self.closed = True
        for call in [*self.calls.values()]:
            call.cancel(reason)
        self.deafen(reason)
        self.events.clear()
        for taker in [*self._held]:
            taker.end()
        if self.nursery is not None:
            self.nursery.cancel_scope.cancel()

    def deafen(self, reason: str) -> None:
        """The client can answer no more: whoever waits for it fails, now and later."""
        self._deaf = reason
        for waiter in self._waiters.values():
            waiter.error = ConnectionClosed(f"the client can answer no more: {reason}")
            waiter.over.set()

    # -- what the client says

    def notified(self, message: Notification) -> None:
        """Take a notification of the client; one that means nothing here is ignored."""
        self.touch()
        if message.method == "notifications/initialized":
            self.initialized = True
        elif message.method == CANCELLED:
            target = message.params.get("requestId")
            call = self.calls.get(target) if is_request_id(target) else None  # type: ignore[arg-type]
            if call is not None:
                reason = message.params.get("reason")
                call.cancel(reason if isinstance(reason, str) else "cancelled by the client")

    def answered(self, message: Response | ErrorResponse) -> bool:
        """Take an answer of the client.

        Returns:
            Whether somebody waited for it.
        """
        self.touch()
        waiter = self._waiters.pop(message.id, None) if message.id is not None else None
        if waiter is None:
            return False
        if isinstance(message, Response):
            waiter.answer = message.result
        else:
            text = shorten(message.error["message"])
            waiter.error = ClientRefused(f"the client answered with an error: {text}", message.error["code"])
        waiter.over.set()
        return True

    def begun(self, task_id: str) -> None:
        """A call of it has become a task."""
        self.tasks[task_id] = None
        if len(self.tasks) > self._limits.tasks_stored:
            del self.tasks[next(iter(self.tasks))]

    def task_changed(self, task_id: str, message: bytes) -> None:
        """A task that it may know of has changed. What waits to be told of it is replaced."""
        self.events.standalone.post(message, f"task {task_id}", at_once=False)

    def offer(self, method: str, subject: str | None, message: bytes) -> None:
        """Something has changed that the client may want to hear of."""
        if method == RESOURCE_UPDATED:
            if subject not in self.subscriptions:
                return
            self.events.standalone.post(message, f"{method} {subject}", at_once=False)
        else:
            self.events.standalone.post(message, method, at_once=False)

    # -- what the client is asked

    async def request(
        self, method: str, params: dict[str, Any] | None, timeout: float, post: Callable[[bytes], None] | None = None
    ) -> dict[str, Any]:
        """Send a request to the client and wait for its answer.

        Args:
            method: What is asked.
            params: Its parameters.
            timeout: Seconds.
            post: Sends it on the stream of a call; without it where what belongs to no call goes.

        Raises:
            ClientRefused: the client answered with an error.
            ConnectionClosed: the session is over.
            RequestTimeout: there was no answer in time; the client is told that none is waited for.
            ServerBusy: too many wait already.
            ValueError: it is too large.
        """
        if self._deaf is not None:
            raise ConnectionClosed(f"the client can answer no more: {self._deaf}")
        if len(self._waiters) >= self._limits.session_requests:
            raise ServerBusy(f"{len(self._waiters)} questions to this client wait for an answer already")
        say = self._say if post is None else post
        self._next += 1
        number = self._next
        message = encode_request(number, method, params or {}, self._limits)
        waiter = self._waiters[number] = _Waiter()
        say(message)
        try:
            with trio.move_on_after(timeout) as patience:
                await waiter.over.wait()
        finally:
            if self._waiters.pop(number, None) is not None and self._deaf is None:
                say(encode_notification(CANCELLED, {"requestId": number, "reason": "no longer waited for"}))
        if patience.cancelled_caught:
            raise RequestTimeout(f"the client did not answer {method} within {timeout:g} s")
        if waiter.error is not None:
            raise waiter.error
        assert waiter.answer is not None
        return waiter.answer

    def _say(self, message: bytes) -> None:
        self.events.standalone.post(message, at_once=False)

    async def put(
        self, question: Question, post: Callable[[bytes], None] | None = None, meta: dict[str, Any] | None = None
    ) -> Any:
        """Ask, until there is an answer that fits.

        Args:
            question: What is asked.
            post: As for `request`.
            meta: The `_meta` of the question.

        Raises:
            ClientRefused: the client answered with an error, or with what does not fit too often.
            MissingClientCapability: the revision has no such question.
        """
        # The id of a page is shown to others than this client, and must not tell the session.
        params = self.dialect.question(question.method, question.params, secrets.token_hex(8))
        if meta:
            params = {**params, "_meta": {**params.get("_meta", {}), **meta}}
        for _ in range(self._limits.question_tries):
            answer = await self.request(question.method, params, self._limits.question_timeout, post)
            answer.pop("_meta", None)
            if question.accepts(answer):
                return answer
        raise ClientRefused(f"the client's answers to {question.method} do not fit what was asked", -32602)

    async def ask(self, call: Call, entries: Sequence[Answerable]) -> None:
        """Ask the questions of a call, all at once, on its stream; each entry has its answer then.

        While the client thinks, the call holds no place, and its own time does not run.

        Raises:
            ToolError: there was no answer, or none that fits.
        """
        outlet = call.outlet
        await outlet.wait_room()
        failures: list[MCPError] = []
        async with call.away():
            if len(entries) == 1:
                await self._ask(call, entries[0], failures)
            else:
                async with trio.open_nursery() as nursery:
                    for entry in entries:
                        nursery.start_soon(self._ask, call, entry, failures)
        if failures:
            raise failures[0]

    async def _ask(self, call: Call, entry: Answerable, failures: list[MCPError]) -> None:
        assert entry.question is not None
        try:
            entry.answer = await self.put(entry.question, call.outlet.post)
        except (ConnectionClosed, RequestTimeout) as exc:
            # In a call that is no fault of the server.
            failures.append(ClientRefused(str(exc), InternalError.code))
        except MCPError as exc:
            failures.append(exc)

    # -- outside of a call

    async def elicit(self, message: str, form: Any) -> Elicited[Any]:
        """Ask the user to fill in a form, as `ctx.elicit` does, outside of a call.

        Raises:
            MissingClientCapability: the client cannot show forms.
            ClientRefused: it answered with an error.
            ConnectionClosed: the session is over.
            MCPError: it is not ready yet: `initialized` tells.
            RequestTimeout: it did not answer within `limits.question_timeout`.
        """
        found: Elicited[Any] = await self._outside(form_question(message, form))
        return found

    async def elicit_url(self, message: str, url: str) -> Elicited[Any]:
        """Ask the user to visit a URL, as `ctx.elicit_url` does, outside of a call. Raises as `elicit`."""
        found: Elicited[Any] = await self._outside(url_question(message, url))
        return found

    async def sample(
        self, messages: str | Sequence[PromptMessage | dict[str, Any]], *, max_tokens: int = 1_000, **options: Any
    ) -> dict[str, Any]:
        """Ask the client's model, as `ctx.sample` does, outside of a call. Raises as `elicit`."""
        found: dict[str, Any] = await self._outside(sample_question(messages, max_tokens=max_tokens, **options))
        return found

    async def list_roots(self) -> list[dict[str, Any]]:
        """Ask the client for its roots, as `ctx.list_roots` does, outside of a call. Raises as `elicit`."""
        found: list[dict[str, Any]] = await self._outside(roots_question())
        return found

    async def _outside(self, question: Question) -> Any:
        await trio.lowlevel.checkpoint()
        if not self.initialized:
            # Until then only pings and log lines may be sent (basic/lifecycle, section Initialization).
            raise MCPError(
                "the client has not said yet that it is ready (notifications/initialized): session.initialized"
            )
        check_capability(question, self.client_capabilities, "this question")
        return question.result(await self.put(question))

    def complete_elicitation(self, elicitation_id: str) -> None:
        """Tell the client that a page which it was asked to visit is done (2025-11-25, client/elicitation). Never waits.

        Args:
            elicitation_id: As in `UrlElicitationRequired`, or in `ctx.elicit_url(…, elicitation_id=…)`.
        """
        if self.dialect.modes:
            self._say(encode_notification("notifications/elicitation/complete", {"elicitationId": elicitation_id}))

    async def keep_alive(self, interval: float) -> None:
        """Ask the client again and again whether it is there, while somebody takes what it is told; come back when it is not.

        Args:
            interval: Seconds between two pings, and for which an answer is waited for.
        """
        while not self.closed:
            await trio.sleep(interval)
            if not self.closed and self.events.standalone.taker is not None:
                try:
                    await self.ping(timeout=interval)
                except (RequestTimeout, ConnectionClosed):
                    return
                except MCPError:
                    # It has said something, so it is there.
                    continue

    async def ping(self, *, timeout: float = 10.0) -> None:
        """Ask the client whether it is there.

        Raises:
            RequestTimeout: it did not answer in time.
            ConnectionClosed: the session is over.
        """
        await trio.lowlevel.checkpoint()
        await self.request("ping", None, timeout)

    def log(self, level: str, data: Any, *, logger: str | None = None) -> None:
        """Send a log line that belongs to no call. Nothing is sent below the level that the client wants. Never waits.

        Raises:
            ValueError: no such level, or `data` is not JSON.
        """
        rank = LOG_LEVELS.get(level)
        if rank is None:
            raise ValueError(f"log: no level {level!r}; the levels are {', '.join(LOG_LEVELS)}")
        bad = find_unwritable(data)
        if bad:
            raise ValueError(f"log: {bad}")
        if rank < LOG_LEVELS[self.log_level or DEFAULT_LEVEL]:
            return
        params: dict[str, Any] = {"level": level, "data": data}
        if logger is not None:
            params["logger"] = logger
        self._say(encode_notification("notifications/message", params))
