"""Multi round-trip requests: a handler asks, the request ends with `input_required`, the client answers on a retry
(basic/patterns/mrtr).

The handler is run again on the retry, and each question finds its recorded answer. The journal travels in the sealed
`requestState`; nothing is kept here, so any replica with the same keys can serve the retry.
"""

from __future__ import annotations

import importlib
import secrets
import time
from collections.abc import Sequence
from typing import Any

import trio

from ...protocol.jsontext import find_unwritable
from ...protocol.methods import METHODS
from ...scopes.call import Call
from ..peer.questions import InputRequired, Question, check_capability, questions_of
from .journal import MISSING, Journal
from .running_server import RunningServer

__all__ = ["Ask", "AskAgain", "Rounds"]

Ask = tuple[str | None, str, Question]
"""A question with the name that the handler gives it, or None, and its kind."""


class AskAgain(BaseException):
    """Ends a handler whose question has no answer yet. Not an Exception: a handler's own `except` is not meant to see it."""

    def __init__(self, rounds: Rounds) -> None:
        super().__init__("input required")
        self.rounds: Rounds = rounds


class Rounds:
    """The rounds of one request. Made when a handler first asks.

    Attributes:
        journal: What was asked, answered and kept.
    """

    __slots__ = ("_call", "_ending", "_mirror", "_running", "journal")

    def __init__(self, running: RunningServer, call: Call, recorded: dict[str, Any] | None = None) -> None:
        self._running = running
        self._call = call
        row = METHODS.get(call.method)
        if row is None or row.mirror is None or "requestState" not in row.schema["properties"]:
            raise RuntimeError(f"{call.method} cannot ask for input")
        self._mirror = row.mirror
        self._ending = False
        state = call.params.get("requestState")
        payload = recorded or (self._open(state) if state is not None else {})
        self.journal: Journal = Journal(payload, call.params.get("inputResponses") or {})

    def _module(self) -> Any:
        # The cipher takes a while to load, and most servers ask nothing.
        return importlib.import_module("...protocol.state", __package__)

    def _bound(self) -> bytes:
        call = self._call
        bound: bytes = self._module().binding(
            self._running.server.name, call.principal, call.method, call.params, self._mirror
        )
        return bound

    def _open(self, state: str) -> dict[str, Any]:
        payload: dict[str, Any] = self._module().open_state(
            state, self._running.server.state_keys, time.time(), self._bound()
        )
        return payload

    # -- what handlers do

    async def ask(self, questions: Sequence[Ask]) -> list[Any]:
        """The answers to all of these; ends the handler when one is missing or does not fit.

        Raises:
            MissingClientCapability: the client did not declare what a question needs; before anything is asked.
        """
        for _, _, question in questions:
            self._check_capability(question)
        entries = [(self.journal.ask(*question), question[2]) for question in questions]
        missing = [entry for entry, _ in entries if entry.answer is MISSING]
        if missing and self._call.task is not None:
            # The request is over, and a task can wait.
            await self._call.task.ask(missing)
        elif missing and self._call.session is not None:
            # The client is asked while the request waits.
            await self._call.session.ask(self._call, missing)
        elif missing:
            for entry in missing:
                entry.waiting = True
            # The request ends with the question, however long the handler takes to unwind: it becomes no task any more.
            self._call.stays = True
            try:
                # What is asked beside it in one nursery goes out in the same round.
                await trio.lowlevel.checkpoint()
            except trio.Cancelled:
                if not self._ending:
                    for entry in missing:
                        entry.waiting = False
                    self._call.stays = bool(self.journal.waiting())
                raise
            self._ending = True
            raise AskAgain(self)
        return [question.result(entry.answer) for entry, question in entries]

    def _check_capability(self, question: Question) -> None:
        check_capability(question, self._call.meta.client_capabilities, self._call.method)

    async def keep(self, key: str, value: Any) -> None:
        """Keep a value for the rounds to come; in a task it is stored before this returns.

        Raises:
            ValueError: it is not JSON.
        """
        bad = find_unwritable(value)
        if bad:
            raise ValueError(f"ctx.once({key!r}): the value is kept as JSON: {bad}")
        self.journal.keep(key, value)
        if self._call.task is not None:
            await self._call.task.record()

    # -- what is sent

    def required(self) -> dict[str, Any]:
        """The result for a handler that ended with `AskAgain`.

        Raises:
            ValueError: what must be found again is too large.
        """
        return self._result(self.journal.waiting())

    def low_level(self, result: InputRequired) -> dict[str, Any]:
        """The result for a handler that returned `InputRequired`.

        Raises:
            MissingClientCapability: the client did not declare what a request needs.
            ValueError: a request is none that a server may make, or what must be found again is too large.
        """
        for question in questions_of(result).values():
            self._check_capability(question)
        self.journal.state = result.state
        self.journal.responses = {}
        return self._result({key: dict(request) for key, request in result.requests.items()})

    @property
    def waits(self) -> bool:
        """Whether a question can be waited for, so that the handler is not run again from the top."""
        return self._call.task is not None or self._call.session is not None

    async def low_level_wait(self, result: InputRequired) -> None:
        """The same in a task, or in a session: wait for the answers, which the handler finds when it is called again."""
        questions = questions_of(result)
        for question in questions.values():
            self._check_capability(question)
        await trio.lowlevel.checkpoint()
        self.journal.state = result.state
        self.journal.responses = {}
        self.journal.open_round = {key: dict(request) for key, request in result.requests.items()}
        await self.go_on()

    async def go_on(self) -> None:
        """Where it can wait: for the answers of the low-level round that is open, if one is."""
        task, journal = self._call.task, self.journal
        assert self.waits
        if journal.open_round is None:
            return
        questions = questions_of(InputRequired(journal.open_round, state=journal.state or 0))
        entries = {name: journal.ask(name, name, question) for name, question in questions.items()}
        missing = [entry for entry in entries.values() if entry.answer is MISSING]
        if task is not None and missing:
            await task.ask(missing)
        elif self._call.session is not None and missing:
            await self._call.session.ask(self._call, missing)
        journal.responses = {name: entry.answer for name, entry in entries.items()}
        journal.open_round = None
        # The next round may ask the same again, and means it.
        for entry in entries.values():
            journal.forget(entry)
        if task is not None:
            await task.record()

    def _result(self, requests: dict[str, Any]) -> dict[str, Any]:
        limits = self._running.limits
        sealed = self._module().seal_state(
            self.journal.to_json(stored=False),
            self._running.server.state_keys[0],
            secrets.token_bytes(12),
            time.time() + limits.state_lifetime,
            self._bound(),
        )
        if len(sealed) > limits.state_bytes:
            raise ValueError(
                f"what {self._call.method} must find again has {len(sealed):,} bytes when it is sealed; "
                f"limits.state_bytes is {limits.state_bytes:,}. Keep less in ctx.once, or a key to it"
            )
        out: dict[str, Any] = {"resultType": "input_required", "requestState": sealed}
        if requests:
            out["inputRequests"] = requests
        return out
