"""One request of a caller, over all the rounds of questions that it takes (basic/patterns/mrtr)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import trio

from ..errors import InvalidResponse, RequestTimeout
from ..limits import Limits
from ..protocol.results import complete
from .answers import Answers
from .channel import Channel, Listener

__all__ = ["Patience", "ask"]


class Patience:
    """The time for an answer, over all the requests that it takes. It stands while somebody answers a question.

    Args:
        seconds: How long.

    Attributes:
        seconds: How long.
        left: What of it is left.
    """

    __slots__ = ("left", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds: float = seconds
        self.left: float = seconds

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Take the time of a block from what is left."""
        began = trio.current_time()
        try:
            yield
        finally:
            self.left = max(0.0, self.left - (trio.current_time() - began))


async def ask(
    channel: Channel,
    method: str,
    message: dict[str, Any],
    listen: Callable[[], Listener],
    patience: Patience,
    answers: Answers,
    limits: Limits,
    result_types: Collection[str],
) -> dict[str, Any]:
    """Send a request, answer what the server asks, and return the result.

    Args:
        channel: To the server.
        method: The method.
        message: Its parameters, with their `_meta`.
        listen: Makes what hears of one round.
        patience: The time for all rounds.
        answers: Answers questions.
        limits: Bounds.
        result_types: Types of results, besides "complete", that the caller knows.

    Raises:
        MCPError: as for `Client.request`.
    """
    for _ in range(limits.client_rounds + 1):
        listener = listen()
        result: dict[str, Any] | None = None
        # The clock stands while the user answers: a form has no haste.
        with patience.counted(), trio.move_on_after(patience.left):
            # Each round is a request of its own, with its own `_meta` for the channel to complete.
            result = await channel.call(method, {**message, "_meta": dict(message["_meta"])}, listener)
        if result is None:
            # An answer that is here counts, also when a callback still had to be told of what came before it.
            result = listener.answer()
        if result is None:
            note = f"; {channel.note}" if channel.note else ""
            raise RequestTimeout(f"{method}: no answer from {channel.peer} within {patience.seconds:g} s{note}")
        if result.get("resultType") != "input_required":
            return result if result.get("resultType") in result_types else complete(result, method)
        message.pop("requestState", None)
        message.pop("inputResponses", None)
        message.update(await answers.answer(result, method))
    raise InvalidResponse(f"{method}: {channel.peer} asked for input more than {limits.client_rounds} times")
