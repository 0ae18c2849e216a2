"""Filters of `subscriptions/listen` (basic/patterns/subscriptions, section Notification Filter)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ..errors import InvalidParams
from ..limits import Limits
from .tasks import TASK_CHANGED

__all__ = ["ACKNOWLEDGED", "CANCELLED", "LIST_CHANGED", "RESOURCE_UPDATED", "SUBSCRIPTION_ID", "ListenFilter", "agree"]

SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
CANCELLED: Final = "notifications/cancelled"
RESOURCE_UPDATED: Final = "notifications/resources/updated"
LIST_CHANGED: Final = {
    "tools": "notifications/tools/list_changed",
    "prompts": "notifications/prompts/list_changed",
    "resources": "notifications/resources/list_changed",
}
"""The notification that a list has changed, by server capability; the filter says `toolsListChanged` and so on."""


# Each empty set takes as much as one with a few members, and most filters have two.
_NONE: Final[frozenset[str]] = frozenset()


class ListenFilter:
    """What one stream is to hear.

    Attributes:
        agreed: The filter as it is acknowledged.
        methods: List changes by notification.
        uris: Resources whose updates are wanted.
        tasks: Ids of tasks whose changes are wanted.
    """

    __slots__ = ("agreed", "methods", "tasks", "uris")

    def __init__(self, agreed: dict[str, Any]) -> None:
        self.agreed: dict[str, Any] = agreed
        self.methods: frozenset[str] = (
            frozenset(method for kind, method in LIST_CHANGED.items() if agreed.get(f"{kind}ListChanged")) or _NONE
        )
        self.uris: frozenset[str] = frozenset(agreed.get("resourceSubscriptions", ())) or _NONE
        self.tasks: frozenset[str] = frozenset(agreed.get("taskIds", ())) or _NONE

    def __bool__(self) -> bool:
        return bool(self.methods or self.uris or self.tasks)

    def wants(self, method: str, uri: str | None) -> bool:
        """Whether a notification is for this stream."""
        if method == RESOURCE_UPDATED:
            return uri in self.uris
        return uri in self.tasks if method == TASK_CHANGED else method in self.methods


def agree(
    requested: dict[str, Any], capabilities: dict[str, Any], limits: Limits, tasks: Sequence[str] = ()
) -> ListenFilter:
    """The part of a requested filter that a server with these capabilities can honour.

    Args:
        requested: The filter.
        capabilities: What the server can do.
        limits: Bounds.
        tasks: Those of the requested tasks that are there for the caller.

    Raises:
        InvalidParams: too many URIs, or one that is too long.
    """
    uris = list(dict.fromkeys(requested.get("resourceSubscriptions") or ()))
    if len(uris) > limits.listened_uris:
        raise InvalidParams(
            f"Invalid params for subscriptions/listen: {len(uris)} resourceSubscriptions; the limit is {limits.listened_uris}"
        )
    if any(len(uri) > limits.uri_bytes for uri in uris):
        raise InvalidParams(
            f"Invalid params for subscriptions/listen: a resourceSubscription is over {limits.uri_bytes} characters"
        )
    agreed: dict[str, Any] = {}
    for kind in LIST_CHANGED:
        if requested.get(f"{kind}ListChanged") and capabilities.get(kind, {}).get("listChanged"):
            agreed[f"{kind}ListChanged"] = True
    if uris and capabilities.get("resources", {}).get("subscribe"):
        agreed["resourceSubscriptions"] = uris
    if tasks:
        agreed["taskIds"] = list(tasks)
    return ListenFilter(agreed)
