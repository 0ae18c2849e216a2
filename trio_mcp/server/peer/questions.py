"""What a handler can ask a client, and how an answer is checked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from ...errors import MissingClientCapability
from ...protocol.content import Text
from ...protocol.jsontext import find_unwritable, shorten
from ...protocol.results import PromptMessage
from .forms import Form

__all__ = [
    "Elicited",
    "InputRequired",
    "Question",
    "check_capability",
    "form_question",
    "questions_of",
    "roots_question",
    "sample_question",
    "url_question",
]

ValueT = TypeVar("ValueT")


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

    __slots__ = ("_digest", "form", "method", "needs", "params")

    def __init__(self, method: str, params: dict[str, Any], needs: dict[str, Any], form: Form | None = None) -> None:
        bad = find_unwritable(params)
        if bad:
            raise ValueError(f"{method}: {bad}")
        self.method: str = method
        self.params: dict[str, Any] = params
        self.needs: dict[str, Any] = needs
        self.form: Form | None = form
        self._digest: str | None = None

    @property
    def digest(self) -> str:
        """What tells it from other questions: an answer counts for the question that was asked, and for no other."""
        if self._digest is None:
            text = json.dumps(self.to_wire(), sort_keys=True)
            self._digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        return self._digest

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
                # A form in which nothing is required may be accepted without a word (client/elicitation).
                return self.form.fits(answer.get("content", {}))
            return action in ("accept", "decline", "cancel")
        if self.method == "roots/list":
            roots = answer.get("roots")
            return type(roots) is list and all(type(item) is dict and type(item.get("uri")) is str for item in roots)
        return "content" in answer and type(answer.get("role")) is str and type(answer.get("model")) is str

    def result(self, answer: dict[str, Any]) -> Any:
        """The answer, as the handler gets it."""
        if self.method == "elicitation/create":
            value = self.form.load(answer.get("content", {})) if answer["action"] == "accept" and self.form else None
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


def check_capability(question: Question, declared: Mapping[str, Any], what: str) -> None:
    """Check that a client can be asked.

    Args:
        question: What is to be asked.
        declared: The capabilities of the client.
        what: Who asks, for the message.

    Raises:
        MissingClientCapability: it did not declare what the question needs.
    """
    for name, inner in question.needs.items():
        have = declared.get(name)
        # An empty `elicitation` means forms (client/elicitation, section Capabilities).
        missing = [key for key in inner if key not in (have or {})]
        if type(have) is dict and (not missing or (not have and missing == ["form"])):
            continue
        raise MissingClientCapability(
            f"The client did not declare the capability {name}{f'.{missing[0]}' if missing else ''}, which {what} needs",
            {"requiredCapabilities": question.needs},
        )


def form_question(message: str, form: Any) -> Question:
    """A question for `ctx.ask`: a form, as for `ctx.elicit`.

    Raises:
        ValueError: the form has a field that forms cannot have.
    """
    fields = Form(form)
    params = {"mode": "form", "message": message, "requestedSchema": fields.schema}
    return Question("elicitation/create", params, {"elicitation": {"form": {}}}, fields)


def url_question(message: str, url: str, elicitation_id: str | None = None) -> Question:
    """A question for `ctx.ask`: a page to visit, as for `ctx.elicit_url`.

    Raises:
        ValueError: the URL is none of the web.
    """
    scheme, colon, rest = url.partition("://")
    if not colon or scheme.lower() not in ("http", "https") or not rest or any(ord(char) <= 32 for char in url):
        raise ValueError(f"a page to visit has a URL that begins with https:// or http://, not {shorten(url)}")
    params = {"mode": "url", "message": message, "url": url}
    if elicitation_id is not None:
        params["elicitationId"] = elicitation_id
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
    return Question("sampling/createMessage", params, _sampling_needs(params))


def roots_question() -> Question:
    """A question for `ctx.ask`: the client's roots, as for `ctx.list_roots`."""
    return Question("roots/list", {}, {"roots": {}})


def questions_of(result: InputRequired) -> dict[str, Question]:
    """The requests of a handler that returned `InputRequired`.

    Raises:
        ValueError: one is none that a server may make.
    """
    out: dict[str, Question] = {}
    for key, request in result.requests.items():
        needs = _needs(key, request)
        out[key] = Question(request["method"], dict(request.get("params") or {}), needs)
    return out


def _sampling_needs(params: Mapping[str, Any]) -> dict[str, Any]:
    """What a client must have declared for a question to its model (client/sampling, Capabilities)."""
    needs: dict[str, Any] = {}
    if "tools" in params:
        needs["tools"] = {}
    if params.get("includeContext", "none") != "none":
        needs["context"] = {}
    return {"sampling": needs}


def _needs(key: str, request: Mapping[str, Any]) -> dict[str, Any]:
    method = request.get("method")
    if method == "elicitation/create":
        mode = (request.get("params") or {}).get("mode", "form")
        return {"elicitation": {mode: {}}}
    if method == "sampling/createMessage":
        return _sampling_needs(request.get("params") or {})
    if method == "roots/list":
        return {"roots": {}}
    raise ValueError(f"InputRequired: request {key!r}: method {shorten(method)} is none that a server may ask with")
