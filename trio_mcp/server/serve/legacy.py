"""The methods that only revisions with sessions have."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from ...errors import InvalidParams
from ...limits import Limits
from ...protocol.jsontext import shorten
from ...protocol.meta import LOG_LEVELS
from ...scopes.call import Call
from ..peer.session import Session
from .handlers import HANDLERS
from .serving import Serving
from .session_tasks import SESSION_TASKS

__all__ = ["SESSION_CHANGES", "SESSION_HANDLERS"]


def _ping(session: Session, params: dict[str, Any], limits: Limits) -> None:
    """`ping`: the client is there."""


def _set_level(session: Session, params: dict[str, Any], limits: Limits) -> None:
    """`logging/setLevel`."""
    level = params["level"]
    if level not in LOG_LEVELS:
        raise InvalidParams(
            f"Invalid params for logging/setLevel: level must be one of {', '.join(LOG_LEVELS)}, got {shorten(level)}"
        )
    session.log_level = level


def _subscribe(session: Session, params: dict[str, Any], limits: Limits) -> None:
    """`resources/subscribe`. What is not there yet may come."""
    if len(session.subscriptions) >= limits.listened_uris and params["uri"] not in session.subscriptions:
        raise InvalidParams(
            f"Invalid params for resources/subscribe: this session has {limits.listened_uris} subscriptions already"
        )
    session.subscriptions[params["uri"]] = None


def _unsubscribe(session: Session, params: dict[str, Any], limits: Limits) -> None:
    """`resources/unsubscribe`."""
    session.subscriptions.pop(params["uri"], None)


SESSION_CHANGES: Final[dict[str, Callable[[Session, dict[str, Any], Limits], None]]] = {
    "ping": _ping,
    "logging/setLevel": _set_level,
    "resources/subscribe": _subscribe,
    "resources/unsubscribe": _unsubscribe,
}
"""Methods that are answered at once, with an empty result: they wait for nothing, and take no place."""

_SHARED: Final = (
    "completion/complete",
    "tools/list",
    "tools/call",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "prompts/list",
    "prompts/get",
)

SESSION_HANDLERS: Final[dict[str, Callable[[Serving, Call], Awaitable[dict[str, Any] | bytes]]]] = {
    **{name: HANDLERS[name] for name in _SHARED},
    **SESSION_TASKS,
}
"""The other methods of a session."""
