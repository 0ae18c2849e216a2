"""Answering a server's questions on the way through a request (basic/patterns/mrtr).

The capabilities that a client declares follow from what it can answer.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ..errors import InputNeeded, InvalidResponse
from ..protocol.jsontext import shorten

__all__ = ["Answers", "ElicitCallback", "SampleCallback"]

ElicitCallback = Callable[[dict[str, Any]], Awaitable[Any] | Any]
"""Called with the parameters of `elicitation/create`: `mode` ("form" or "url"), `message`, and `requestedSchema` or `url`.
Returns a dict (what was filled in), True (accepted, for a URL), False (declined), or None (closed without an answer)."""

SampleCallback = Callable[[dict[str, Any]], Awaitable[Any] | Any]
"""Called with the parameters of `sampling/createMessage`. Returns the text, or a whole result."""


class Answers:
    """What a client answers with.

    Args:
        elicit: Answers forms and URLs.
        sample: Answers for a model.
        roots: URIs, or objects with `uri` and `name`; or a function that gives them.
    """

    def __init__(
        self,
        elicit: ElicitCallback | None = None,
        sample: SampleCallback | None = None,
        roots: Sequence[Any] | Callable[[], Any] | None = None,
    ) -> None:
        self._elicit = elicit
        self._sample = sample
        self._roots = roots
        self.capabilities: dict[str, Any] = {}
        if elicit is not None:
            self.capabilities["elicitation"] = {"form": {}, "url": {}}
        if sample is not None:
            self.capabilities["sampling"] = {"tools": {}}
        if roots is not None:
            self.capabilities["roots"] = {}

    async def answer(self, result: dict[str, Any], method: str) -> dict[str, Any]:
        """The members to add to the retry of a request that needs input. The callbacks run in the caller's task, one by one.

        Raises:
            InputNeeded: this client has no callback for one of the questions.
            InvalidResponse: the result asks for nothing, or for what no server may ask.
        """
        requests, state = result.get("inputRequests", {}), result.get("requestState")
        if type(requests) is not dict or not (state is None or type(state) is str) or (not requests and state is None):
            raise InvalidResponse(f"{method}: input_required with neither inputRequests nor requestState")
        responses = {key: await self._one(key, request, result, method) for key, request in requests.items()}
        out: dict[str, Any] = {}
        if requests:
            out["inputResponses"] = responses
        if state is not None:
            out["requestState"] = state
        return out

    async def to(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The answer to one question, as a server of a session asks it.

        Raises:
            InputNeeded: this client has no callback for it.
            InvalidResponse: no server may ask it.
        """
        return await self._one(method, {"method": method, "params": params}, {}, method)

    async def _one(self, key: str, request: Any, result: dict[str, Any], method: str) -> dict[str, Any]:
        kind = request.get("method") if type(request) is dict else None
        params = request.get("params", {}) if type(request) is dict else {}
        if type(params) is not dict:
            raise InvalidResponse(f"{method}: the server asks with params that are no object: {shorten(params)}")
        if kind == "elicitation/create" and self._elicit is not None:
            # Without a mode it is a form (client/elicitation, section Elicitation Requests).
            return _elicited(await _called(self._elicit, {"mode": "form", **params}))
        if kind == "sampling/createMessage" and self._sample is not None:
            return _sampled(await _called(self._sample, params))
        if kind == "roots/list" and self._roots is not None:
            roots = await _called(self._roots) if callable(self._roots) else self._roots
            return {"roots": [{"uri": root} if isinstance(root, str) else root for root in roots]}
        if kind in ("elicitation/create", "sampling/createMessage", "roots/list"):
            raise InputNeeded(
                f"{method}: the server asks for input ({key}: {kind}) and this client has no callback for it",
                requests=result.get("inputRequests", {}),
                state=result.get("requestState"),
            )
        raise InvalidResponse(f"{method}: the server asks with {shorten(kind)}, which it may not")


async def _called(callback: Callable[..., Any], *args: Any) -> Any:
    outcome = callback(*args)
    return await outcome if inspect.isawaitable(outcome) else outcome


def _elicited(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return {"action": "accept", "content": value}
    return {"action": "accept" if value is True else "decline" if value is False else "cancel"}


def _sampled(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        return {"role": "assistant", "content": {"type": "text", "text": value}, "model": "unknown"}
    out: dict[str, Any] = value
    return out
