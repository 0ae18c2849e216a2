"""What a handler can ask and tell about the call that it serves."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import trio

from ...convert.scalars import plain_text
from ...errors import MCPError
from ...protocol.envelope import RequestId
from ...protocol.jsontext import dumps, find_unwritable
from ...protocol.meta import LOG_LEVELS, declared_settings
from ...protocol.results import PromptMessage
from ...scopes.call import Call
from ..declare.context_base import ContextBase, LifespanT
from ..declare.server import Server
from ..peer.questions import Elicited, Question, form_question, roots_question, sample_question, url_question
from ..peer.session import Session
from .rounds import Rounds
from .running_server import RunningServer

__all__ = ["Context"]


class Context(ContextBase[LifespanT]):
    """The call that a handler serves. A parameter of this type is filled in, whatever its name, and is not an argument.

    `Context[AppState]` tells the type checker what `lifespan` is.
    """

    __slots__ = ("_call", "_progress", "_rounds", "_running")

    def __init__(self, running: RunningServer, call: Call, recorded: dict[str, Any] | None = None) -> None:
        super().__init__()
        self._running = running
        self._call = call
        self._progress = -math.inf
        # A state that came with the request is opened, and so checked, before any user code runs.
        # What an earlier run of a task recorded is found again in the same way.
        self._rounds = Rounds(running, call, recorded) if recorded or "requestState" in call.params else None

    def __repr__(self) -> str:
        return f"<Context of {self._call!r}>"

    @property
    def lifespan(self) -> LifespanT:
        """The value of the server's lifespan; None without one."""
        value: LifespanT = self._running.lifespan
        return value

    @property
    def server(self) -> Server[LifespanT]:
        """The server."""
        return self._running.server

    @property
    def session(self) -> Session:
        """The client's session (2025-11-25 and older), to ask and tell it something outside of this call.

        Raises:
            MCPError: the request is made in a revision without sessions. What `ctx` itself can ask is the same in all of them.
        """
        session = self._call.session
        if not isinstance(session, Session):
            raise MCPError(
                f"ctx.session: the client speaks {self.protocol_version}, in which each request stands alone and there are no "
                "sessions; ctx.elicit, ctx.sample and the others ask it within the request"
            )
        return session

    @property
    def request_id(self) -> RequestId:
        """The id of the request, as the client chose it."""
        return self._call.id

    @property
    def protocol_version(self) -> str:
        """The revision that this request is made in."""
        return self._call.meta.protocol_version

    @property
    def client_info(self) -> dict[str, Any] | None:
        """The client's `name`, `version` and so on, as it says of itself; not verified."""
        return self._call.meta.client_info

    @property
    def client_capabilities(self) -> dict[str, Any]:
        """What the client declared on this request."""
        return self._call.meta.client_capabilities

    @property
    def meta(self) -> dict[str, Any]:
        """The whole `_meta` of the request."""
        return self._call.meta.raw

    @property
    def trace_context(self) -> dict[str, str]:
        """`traceparent`, `tracestate` and `baggage` of the request, as far as they were sent."""
        return self._call.meta.trace_context

    @property
    def task_id(self) -> str | None:
        """The id of the task that this call has become; None while it is answered in line."""
        task = self._call.task
        return None if task is None else task.id

    def extension(self, identifier: str) -> dict[str, Any] | None:
        """The settings with which the client declared an extension on this request; None if it did not.

        Args:
            identifier: As in `com.example/audit`.
        """
        return declared_settings(self._call.meta.client_capabilities, identifier)

    @property
    def wants_progress(self) -> bool:
        """Whether the client asked for progress, or looks at it as the status of a task."""
        return self._call.meta.progress_token is not None or self._call.task is not None

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the client how far the work is (basic/patterns/progress). Nothing is sent if it did not ask.

        When the call has become a task it is the task's status message.

        Waits while the client is slow to read. From a plain `def` handler: `trio.from_thread.run(ctx.report_progress, 1)`.

        Args:
            progress: Must grow from call to call; a value that does not is not sent.
            total: What `progress` will be at the end, if that is known.
            message: For a person.

        Raises:
            ValueError: a number is not finite.
        """
        for name, number in (("progress", progress), ("total", total)):
            if number is not None and not math.isfinite(number):
                raise ValueError(f"report_progress: {name} must be a finite number, not {number!r}")
        token = self._call.meta.progress_token
        task = self._call.task
        if (token is None and task is None) or progress <= self._progress:
            await trio.lowlevel.checkpoint()
            return
        self._progress = progress
        if task is not None:
            await trio.lowlevel.checkpoint()
            task.note(_progress_text(progress, total, message))
            return
        params: dict[str, Any] = {"progressToken": token, "progress": progress}
        if total is not None:
            params["total"] = total
        dialect = self._call.dialect
        if message is not None and (dialect is None or dialect.progress_text):
            params["message"] = message
        await self._call.notify("notifications/progress", params)

    async def log(self, level: str, data: Any, *, logger: str | None = None) -> None:
        """Send a log line to the client (server/utilities/logging). Nothing is sent unless it asked for this level.

        When the call has become a task it is the task's status message, from the level that the client asked for or "info".

        Args:
            level: debug, info, notice, warning, error, critical, alert or emergency.
            data: Any JSON value, often a text.
            logger: The name of the logger.

        Raises:
            ValueError: no such level, or `data` is not JSON.
        """
        rank = LOG_LEVELS.get(level)
        if rank is None:
            raise ValueError(f"log: no level {level!r}; the levels are {', '.join(LOG_LEVELS)}")
        wanted = self._call.meta.log_level
        task = self._call.task
        if task is not None and wanted is None:
            wanted = "info"
        if wanted is None or rank < LOG_LEVELS[wanted]:
            await trio.lowlevel.checkpoint()
            return
        bad = find_unwritable(data)
        if bad:
            raise ValueError(f"log: {bad}")
        if task is not None:
            await trio.lowlevel.checkpoint()
            task.note(plain_text(data) if isinstance(data, str) else dumps(data).decode())
            return
        params: dict[str, Any] = {"level": level, "data": data}
        if logger is not None:
            params["logger"] = logger
        await self._call.notify("notifications/message", params)

    async def close_stream(self) -> None:
        """Close the stream of this call's answer, so that its client polls (2025-11-25, basic/transports).

        The client is told after how many seconds to come back, and what is said meanwhile waits for it. The call goes on. For
        work that lasts, over connections that do not. In every other revision, and on other transports, this does nothing.
        """
        await trio.lowlevel.checkpoint()
        if self._call.close_stream is not None and self._call.open:
            self._call.close_stream()

    # -- asking

    @property
    def _goes_on(self) -> bool:
        """Whether this is a task begun again that waits for the answers of a low-level round; asked by the server."""
        return self._rounds is not None and self._rounds.journal.open_round is not None

    @property
    def rounds(self) -> Rounds:
        """What was asked and answered so far."""
        if self._rounds is None:
            self._rounds = Rounds(self._running, self._call)
        return self._rounds

    @property
    def input_responses(self) -> dict[str, Any]:
        """The answers that came with this request, by key, as the client sent them; for handlers that return `InputRequired`."""
        return self.rounds.journal.responses

    @property
    def request_state(self) -> Any:
        """The `state` of the `InputRequired` that this request is the retry of; None on the first round."""
        return self.rounds.journal.state

    async def elicit(self, message: str, form: Any, *, key: str | None = None) -> Elicited[Any]:
        """Ask the user to fill in a form (client/elicitation).

        The request ends here with the question, and the handler is run again when the answer is there: then this call
        returns it. So what stands before it should be quick or harmless to do twice; for the rest there is `once`. Answers
        are checked against the form, and asked for again when they do not fit.

        Args:
            message: What to ask for.
            form: The fields: a dict of types (`{"name": str}`), a dataclass, TypedDict, Struct or pydantic model, or a JSON
                Schema. Text, numbers, booleans and choices, nothing nested.
            key: Names the question. Without it the question is found again by what it asks: an answer counts for the same text
                and form, and for no other.

        Raises:
            MissingClientCapability: the client cannot show forms.
            ValueError: the form has a field that forms cannot have.
        """
        question = form_question(message, form)
        found: Elicited[Any] = await self._ask(key, "elicit", question)
        return found

    async def elicit_url(
        self, message: str, url: str, *, key: str | None = None, elicitation_id: str | None = None
    ) -> Elicited[Any]:
        """Ask the user to visit a URL: for what must not pass through the client (client/elicitation).

        Args:
            message: Why.
            url: Where.
            key: As for `elicit`.
            elicitation_id: Names the visit, for `session.complete_elicitation` (2025-11-25).

        Raises:
            MissingClientCapability: the client cannot open URLs.
        """
        question = url_question(message, url, elicitation_id)
        found: Elicited[Any] = await self._ask(key, "elicit-url", question)
        return found

    async def sample(
        self,
        messages: str | Sequence[PromptMessage | dict[str, Any]],
        *,
        max_tokens: int = 1_000,
        key: str | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Ask the client's model (client/sampling). It is called as `elicit` is.

        Args:
            messages: A text of the user's, or messages.
            max_tokens: Most tokens of the answer.
            key: As for `elicit`.
            options: More parameters as the protocol has them: systemPrompt, temperature, stopSequences, modelPreferences,
                tools, toolChoice, includeContext, metadata.

        Returns:
            The result as the client sent it: role, content, model, stopReason.

        Raises:
            MissingClientCapability: the client cannot sample, or not with tools.
        """
        question = sample_question(messages, max_tokens=max_tokens, **options)
        found: dict[str, Any] = await self._ask(key, "sample", question)
        return found

    async def list_roots(self, *, key: str | None = None) -> list[dict[str, Any]]:
        """Ask the client for its roots (client/roots): objects with `uri` and perhaps `name`.

        Raises:
            MissingClientCapability: the client has none.
        """
        found: list[dict[str, Any]] = await self._ask(key, "roots", roots_question())
        return found

    async def ask(self, questions: Mapping[str, Question]) -> dict[str, Any]:
        """Ask several questions in one round; the answers come by key.

        Args:
            questions: By key: what `form_question`, `url_question`, `sample_question` and `roots_question` make.

        Raises:
            MissingClientCapability: the client did not declare what one of them needs; nothing is asked then.
        """
        await trio.lowlevel.checkpoint()
        answers = await self.rounds.ask([(key, key, question) for key, question in questions.items()])
        return dict(zip(questions, answers, strict=True))

    async def _ask(self, key: str | None, kind: str, question: Question) -> Any:
        await trio.lowlevel.checkpoint()
        return (await self.rounds.ask([(key, kind, question)]))[0]

    async def once(self, key: str, fn: Callable[[], Awaitable[Any]]) -> Any:
        """Run `fn` once over all rounds of this request, and return its value, also after a retry.

        Args:
            key: Names the value.
            fn: An async function without arguments; its value must be JSON. It travels sealed with the request.

        Raises:
            ValueError: the value is not JSON.
        """
        known, value = self.rounds.journal.once(key)
        if known:
            await trio.lowlevel.checkpoint()
            return value
        value = await fn()
        await self.rounds.keep(key, value)
        return value

    def check_cancelled(self) -> None:
        """In a plain `def` handler: raise `trio.Cancelled` if the call was cancelled, else do nothing.

        Call it in long loops: a thread cannot be stopped from outside, so a cancelled call leaves it running until its
        function returns or asks.

        Raises:
            trio.Cancelled: the call is over.
            RuntimeError: not called from a thread of a handler. An `async def` handler needs no such question, every
                `await` of it is one.
        """
        try:
            trio.from_thread.check_cancelled()
        except RuntimeError:
            raise RuntimeError(
                "ctx.check_cancelled() is for plain 'def' handlers; in an 'async def' await trio.lowlevel.checkpoint()"
            ) from None


def _progress_text(progress: float, total: float | None, message: str | None) -> str:
    """Progress for a person: `3 of 10: reading`."""
    far = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
    return far if message is None else f"{far}: {message}"
