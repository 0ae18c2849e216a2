"""Multi round-trip requests: a handler asks, the request ends with `input_required`, the client answers on a retry
(basic/patterns/mrtr).

The handler is run again on the retry, and each question finds its recorded answer. Answers so far, and the values of `once`,
travel in the sealed `requestState`; nothing is kept here, so any replica with the same keys can serve the retry.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar

import trio

from ..errors import MissingClientCapability, RegistrationError
from ..protocol.content import Text
from ..protocol.jsontext import find_unwritable, shorten
from ..protocol.methods import METHODS
from ..protocol.results import PromptMessage
from ..scopes.call import Call
from .forms import Form

if TYPE_CHECKING:
    from .engine import Engine

__all__ = [
    "AskAgain",
    "Elicited",
    "InputRequired",
    "Question",
    "Rounds",
    "form_question",
    "roots_question",
    "sample_question",
    "state_keys",
    "url_question",
]

ValueT = TypeVar("ValueT")

_LIFETIME: Final = 600.0
"""Seconds that a state may be used: a person answers a form in minutes, a thief has no longer."""

_ENVIRONMENT: Final = "TRIO_MCP_STATE_KEYS"


@dataclass(frozen=True, slots=True)
class Elicited(Generic[ValueT]):
    """What a user did with a form or a URL.

    Attributes:
        action: "accept", "decline" or "cancel".
        value: What was filled in, as the form's type; None unless it was accepted (and for URLs).
    """

    action: Literal["accept", "decline", "cancel"]
    value: ValueT | None = None

    @property
    def accepted(self) -> bool:
        """Whether the user said yes."""
        return self.action == "accept"


class Question:
    """One request to the client, and how its answer is checked.

    Args:
        method: elicitation/create, sampling/createMessage or roots/list.
        params: Its parameters.
        needs: The capability that the client must have declared, as an object.
        form: The form, if it is one.

    Raises:
        ValueError: the parameters are not JSON.
    """

    __slots__ = ("form", "method", "needs", "params")

    def __init__(self, method: str, params: dict[str, Any], needs: dict[str, Any], form: Form | None = None) -> None:
        bad = find_unwritable(params)
        if bad:
            raise ValueError(f"{method}: {bad}")
        self.method: str = method
        self.params: dict[str, Any] = params
        self.needs: dict[str, Any] = needs
        self.form: Form | None = form

    def to_wire(self) -> dict[str, Any]:
        """The request, as an entry of `inputRequests`."""
        return {"method": self.method, "params": self.params}

    def accepts(self, answer: Any) -> bool:
        """Whether an answer is one that the handler can use; otherwise it is asked again."""
        if type(answer) is not dict:
            return False
        if self.method == "elicitation/create":
            action = answer.get("action")
            if action == "accept" and self.form is not None:
                return self.form.fits(answer.get("content"))
            return action in ("accept", "decline", "cancel")
        if self.method == "roots/list":
            roots = answer.get("roots")
            return type(roots) is list and all(type(item) is dict and type(item.get("uri")) is str for item in roots)
        return "content" in answer and type(answer.get("role")) is str and type(answer.get("model")) is str

    def result(self, answer: dict[str, Any]) -> Any:
        """The answer, as the handler gets it."""
        if self.method == "elicitation/create":
            value = self.form.load(answer["content"]) if answer["action"] == "accept" and self.form else None
            return Elicited(answer["action"], value)
        return answer["roots"] if self.method == "roots/list" else answer


@dataclass(frozen=True, slots=True)
class InputRequired:
    """A handler's result that asks for input, in the low-level way.

    The handler is called again with the answers in `ctx.input_responses` and `state` in `ctx.request_state`.

    Args:
        requests: Requests for the client by key, as the protocol has them (`{"method": …, "params": …}`).
        state: Any JSON value to find again; sealed on the way.

    Raises:
        ValueError: neither requests nor state.
    """

    requests: Mapping[str, dict[str, Any]]
    state: Any = None

    def __post_init__(self) -> None:
        if not self.requests and self.state is None:
            raise ValueError("InputRequired needs requests or a state")


class AskAgain(BaseException):
    """Ends a handler whose question has no answer yet. Not an Exception: a handler's own `except` is not meant to see it."""

    def __init__(self, rounds: Rounds) -> None:
        super().__init__("input required")
        self.rounds: Rounds = rounds


class Rounds:
    """The rounds of one request. Made when a handler first asks."""

    def __init__(self, engine: Engine, call: Call, recorded: dict[str, Any] | None = None) -> None:
        self._engine = engine
        self._call = call
        row = METHODS.get(call.method)
        if row is None or row.mirror is None or "requestState" not in row.schema["properties"]:
            raise RuntimeError(f"{call.method} cannot ask for input")
        self._mirror = row.mirror
        self._counts: dict[str, int] = {}
        self._pending: dict[str, Question] = {}
        state = call.params.get("requestState")
        payload = recorded or (self._open(state) if state is not None else {})
        self.user_state: Any = payload.get("user")
        self.responses: dict[str, Any] = dict(call.params.get("inputResponses") or {})
        # What the client answers now, over what it answered before.
        self._answers: dict[str, Any] = {**payload.get("answers", {}), **self.responses}
        self._asked: set[str] = set(payload.get("answers", {}))
        self._once: dict[str, Any] = payload.get("once", {})

    def _module(self) -> Any:
        # The cipher takes a while to load, and most servers ask nothing.
        return importlib.import_module("..protocol.state", __package__)

    def _bound(self) -> bytes:
        call = self._call
        bound: bytes = self._module().binding(
            self._engine.server.name, call.principal, call.method, call.params, self._mirror
        )
        return bound

    def _open(self, state: str) -> dict[str, Any]:
        payload: dict[str, Any] = self._module().open_state(
            state, self._engine.server.state_keys, time.time(), self._bound()
        )
        return payload

    # -- what handlers do

    async def ask(self, questions: Mapping[str, Question]) -> dict[str, Any]:
        """The answers to all of these; ends the handler when one is missing or does not fit.

        Raises:
            MissingClientCapability: the client did not declare what a question needs; before anything is asked.
        """
        for question in questions.values():
            self._check_capability(question)
        missing = {key: question for key, question in questions.items() if not question.accepts(self._answers.get(key))}
        # What is answered already goes into the state, also when the rest is asked for again.
        self._asked.update(key for key in questions if key not in missing)
        if missing and self._call.task is not None:
            # The request is over, and a task can wait.
            self._answers.update(await self._call.task.ask(missing))
            self._asked.update(missing)
            self._call.task.record()
        elif missing:
            self._pending = missing
            # The request ends with the question, however long the handler takes to unwind.
            self._call.stays = True
            raise AskAgain(self)
        return {key: question.result(self._answers[key]) for key, question in questions.items()}

    def next_key(self, kind: str) -> str:
        """A key for a question that has no name: the same in each round, since a handler asks in the same order."""
        count = self._counts[kind] = self._counts.get(kind, 0) + 1
        return f"{kind}-{count}"

    def _check_capability(self, question: Question) -> None:
        declared: Any = self._call.meta.client_capabilities
        for name, inner in question.needs.items():
            have = declared.get(name)
            # An empty `elicitation` means forms (client/elicitation, section Capabilities).
            missing = [key for key in inner if key not in (have or {})]
            if type(have) is dict and (not missing or (not have and missing == ["form"])):
                continue
            raise MissingClientCapability(
                f"The client did not declare the capability {name}{f'.{missing[0]}' if missing else ''}, which "
                f"{self._call.method} needs",
                {"requiredCapabilities": question.needs},
            )

    def once(self, key: str) -> tuple[bool, Any]:
        """Whether a value is kept under this key, and the value."""
        return key in self._once, self._once.get(key)

    def keep(self, key: str, value: Any) -> None:
        """Keep a value for the rounds to come.

        Raises:
            ValueError: it is not JSON.
        """
        bad = find_unwritable(value)
        if bad:
            raise ValueError(f"ctx.once({key!r}): the value is kept as JSON: {bad}")
        self._once[key] = value
        if self._call.task is not None:
            self._call.task.record()

    def answered(self, key: str, answer: dict[str, Any]) -> None:
        """Take the answer to a question that may come."""
        self._answers[key] = answer

    def payload(self) -> dict[str, Any]:
        """What another run finds again: answers, and values of `once`."""
        answers = {key: self._answers[key] for key in self._asked if key in self._answers}
        parts = {"answers": answers or None, "once": self._once or None}
        return {key: value for key, value in parts.items() if value is not None}

    # -- what is sent

    def required(self) -> dict[str, Any]:
        """The result for a handler that ended with `AskAgain`."""
        return self._result({key: question.to_wire() for key, question in self._pending.items()}, self.user_state)

    def low_level(self, result: InputRequired) -> dict[str, Any]:
        """The result for a handler that returned `InputRequired`.

        Raises:
            MissingClientCapability: the client did not declare what a request needs.
            ValueError: a request is none that a server may make.
        """
        for question in _questions(result).values():
            self._check_capability(question)
        return self._result({key: dict(request) for key, request in result.requests.items()}, result.state)

    async def low_level_wait(self, result: InputRequired) -> None:
        """The same in a task: wait for the answers, which the handler finds when it is called again."""
        questions = _questions(result)
        for question in questions.values():
            self._check_capability(question)
        await trio.lowlevel.checkpoint()
        assert self._call.task is not None
        self.responses = await self._call.task.ask(questions) if questions else {}
        self.user_state = result.state

    def _result(self, requests: dict[str, Any], state: Any) -> dict[str, Any]:
        payload = self.payload()
        if state is not None:
            payload["user"] = state
        sealed = self._module().seal_state(
            payload, self._engine.server.state_keys[0], secrets.token_bytes(12), time.time() + _LIFETIME, self._bound()
        )
        out: dict[str, Any] = {"resultType": "input_required", "requestState": sealed}
        if requests:
            out["inputRequests"] = requests
        return out


def form_question(message: str, form: Any) -> Question:
    """A question for `ctx.ask`: a form, as for `ctx.elicit`.

    Raises:
        ValueError: the form has a field that forms cannot have.
    """
    fields = Form(form)
    params = {"mode": "form", "message": message, "requestedSchema": fields.schema}
    return Question("elicitation/create", params, {"elicitation": {"form": {}}}, fields)


def url_question(message: str, url: str) -> Question:
    """A question for `ctx.ask`: a page to visit, as for `ctx.elicit_url`."""
    params = {"mode": "url", "message": message, "url": url}
    return Question("elicitation/create", params, {"elicitation": {"url": {}}})


def sample_question(
    messages: str | Sequence[PromptMessage | dict[str, Any]], *, max_tokens: int = 1_000, **options: Any
) -> Question:
    """A question for `ctx.ask`: for the client's model, as for `ctx.sample`.

    Raises:
        ValueError: an option is not JSON.
    """
    items = [PromptMessage(Text(messages))] if isinstance(messages, str) else messages
    params: dict[str, Any] = {
        "messages": [item.to_wire() if isinstance(item, PromptMessage) else item for item in items],
        "maxTokens": max_tokens,
        **options,
    }
    return Question("sampling/createMessage", params, {"sampling": {"tools": {}} if "tools" in options else {}})


def roots_question() -> Question:
    """A question for `ctx.ask`: the client's roots, as for `ctx.list_roots`."""
    return Question("roots/list", {}, {"roots": {}})


def _questions(result: InputRequired) -> dict[str, Question]:
    """The requests of a handler that returned `InputRequired`.

    Raises:
        ValueError: one is none that a server may make.
    """
    out: dict[str, Question] = {}
    for key, request in result.requests.items():
        needs = _needs(key, request)
        out[key] = Question(request["method"], dict(request.get("params") or {}), needs)
    return out


def _needs(key: str, request: Mapping[str, Any]) -> dict[str, Any]:
    method = request.get("method")
    if method == "elicitation/create":
        mode = (request.get("params") or {}).get("mode", "form")
        return {"elicitation": {mode: {}}}
    if method == "sampling/createMessage":
        return {"sampling": {}}
    if method == "roots/list":
        return {"roots": {}}
    raise ValueError(f"InputRequired: request {key!r}: method {shorten(method)} is none that a server may ask with")


def state_keys(given: Any) -> list[bytes]:
    """The key ring: what was given, or what the environment holds, or one random key for this process.

    The first one seals; all of them open, so a new key can be put in front while old states are still on their way.

    Raises:
        RegistrationError: a key is not 32 bytes (in the environment: Base64, separated by commas).
    """
    keys = list(given) if given is not None else None
    if keys is None and os.environ.get(_ENVIRONMENT):
        try:
            keys = [base64.b64decode(text.strip(), validate=True) for text in os.environ[_ENVIRONMENT].split(",")]
        except (binascii.Error, ValueError):
            raise RegistrationError(f"{_ENVIRONMENT}: expected 32 bytes in Base64 each, separated by commas") from None
    if keys is None:
        return [secrets.token_bytes(32)]
    if not keys or any(not isinstance(key, bytes) or len(key) != 32 for key in keys):
        raise RegistrationError("state_keys: expected one or more keys of 32 bytes")
    return keys
