"""What a handler can ask and tell about the call that it serves."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Generic

import trio

from ..errors import RegistrationError
from ..protocol.envelope import RequestId
from ..protocol.jsontext import find_unwritable
from ..protocol.meta import LOG_LEVELS
from ..scopes.call import Call
from .lifespan import LifespanT

if TYPE_CHECKING:
    from .engine import Engine
    from .server import ServerBase

__all__ = ["Context"]


class Context(Generic[LifespanT]):
    """The call that a handler serves. A parameter of this type is filled in, whatever its name, and is not an argument.

    `Context[AppState]` tells the type checker what `lifespan` is.
    """

    __slots__ = ("_call", "_engine", "_progress")

    def __init__(self, engine: Engine, call: Call) -> None:
        self._engine = engine
        self._call = call
        self._progress = -math.inf

    def __repr__(self) -> str:
        return f"<Context of {self._call!r}>"

    @property
    def lifespan(self) -> LifespanT:
        """The value of the server's lifespan; None without one."""
        value: LifespanT = self._engine.lifespan
        return value

    @property
    def server(self) -> ServerBase[LifespanT]:
        """The server."""
        return self._engine.server

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
    def wants_progress(self) -> bool:
        """Whether the client asked for progress."""
        return self._call.meta.progress_token is not None

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the client how far the work is (basic/patterns/progress). Nothing is sent if it did not ask.

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
        if token is None or progress <= self._progress:
            await trio.lowlevel.checkpoint()
            return
        self._progress = progress
        params: dict[str, Any] = {"progressToken": token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        await self._call.notify("notifications/progress", params)

    async def log(self, level: str, data: Any, *, logger: str | None = None) -> None:
        """Send a log line to the client (server/utilities/logging). Nothing is sent unless it asked for this level.

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
        if wanted is None or rank < LOG_LEVELS[wanted]:
            await trio.lowlevel.checkpoint()
            return
        bad = find_unwritable(data)
        if bad:
            raise ValueError(f"log: {bad}")
        params: dict[str, Any] = {"level": level, "data": data}
        if logger is not None:
            params["logger"] = logger
        await self._call.notify("notifications/message", params)

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


def is_context(annotation: Any) -> bool:
    """Whether an annotation is `Context`, `Context[...]` or either of them or None."""
    if annotation is Context or getattr(annotation, "__origin__", None) is Context:
        return True
    args = getattr(annotation, "__args__", ())
    if type(None) in args and any(is_context(arg) for arg in args):
        if len(args) == 2:
            return True
        raise RegistrationError(f"{annotation}: a Context can only be combined with None")
    return False
