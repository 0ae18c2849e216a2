"""`subscriptions/listen` (basic/patterns/subscriptions)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..protocol.listening import ACKNOWLEDGED, SUBSCRIPTION_ID, agree
from ..scopes.call import Call, LastingCall

if TYPE_CHECKING:
    from .engine import Engine

__all__ = ["listen"]


async def listen(engine: Engine, call: Call) -> dict[str, Any]:
    """Acknowledge, then tell what changes, until the client cancels or the server ends.

    A filter of which nothing can be honoured is acknowledged as empty and ends at once: there is nothing to wait for.
    """
    assert isinstance(call, LastingCall)
    wanted = agree(call.params["notifications"], engine.registry.capabilities, engine.limits)
    tag = {"_meta": {SUBSCRIPTION_ID: call.id}}
    with engine.server.notices.subscribe(wanted.wants) as subscription:
        call.on_end(subscription.end)
        if not wanted:
            subscription.end()
        await call.notify(ACKNOWLEDGED, {**tag, "notifications": wanted.agreed})
        while (notices := await subscription.next()) is not None:
            for method, uri in notices:
                await call.notify(method, tag if uri is None else {**tag, "uri": uri})
    return dict(tag)
