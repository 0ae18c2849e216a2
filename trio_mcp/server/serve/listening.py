"""`subscriptions/listen` (basic/patterns/subscriptions)."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, Final

from ...errors import InvalidParams
from ...protocol.listening import ACKNOWLEDGED, SUBSCRIPTION_ID, agree
from ...protocol.tasks import TASK_CHANGED, TASKS
from ...scopes.call import Call, LastingCall
from ..declare.extensions import check_declared
from .serving import Serving

__all__ = ["listen"]

_NO_TASKS: Final = nullcontext()  # for the many streams that hear of none


async def listen(serving: Serving, call: Call) -> dict[str, Any]:
    """Acknowledge, then tell what changes, until the client cancels or the server ends.

    A filter of which nothing can be honoured is acknowledged as empty and ends at once: there is nothing to wait for. Of a
    task the state that it has now is told first, so that nobody waits for a change that has been.
    """
    assert isinstance(call, LastingCall)
    requested = call.params["notifications"]
    ids = await _known_tasks(serving, call, requested["taskIds"]) if requested.get("taskIds") else []
    wanted = agree(requested, serving.registry.capabilities, serving.limits, ids)
    # Nobody reads these any more, and the stream may stay open for hours.
    call.params, requested = {}, {}
    tag = {"_meta": {SUBSCRIPTION_ID: call.id}}
    with serving.server.notices.subscribe(wanted.wants) as subscription, serving.tasks.heard(ids) if ids else _NO_TASKS:
        call.on_end(subscription.end)
        if not wanted:
            subscription.end()
        for task_id in ids:
            subscription.offer((TASK_CHANGED, task_id))
        await call.notify(ACKNOWLEDGED, {**tag, "notifications": wanted.agreed})
        while (notices := await subscription.next()) is not None:
            for method, subject in notices:
                if method == TASK_CHANGED:
                    await _tell_task(serving, call, tag, subject or "")
                else:
                    await call.notify(method, tag if subject is None else {**tag, "uri": subject})
    return dict(tag)


async def _known_tasks(serving: Serving, call: Call, asked: list[str]) -> list[str]:
    """Those of the tasks that are there for the caller.

    Raises:
        MissingClientCapability: the client did not declare that it knows tasks.
        InvalidParams: there are too many.
    """
    check_declared("subscriptions/listen with taskIds", call.meta.client_capabilities, TASKS)
    ids = list(dict.fromkeys(asked))
    if len(ids) > serving.limits.listened_uris:
        raise InvalidParams(
            f"Invalid params for subscriptions/listen: {len(ids)} taskIds; the limit is {serving.limits.listened_uris}"
        )
    found: list[str] = []
    for task_id in ids:
        try:
            await serving.tasks.find(task_id, call.principal)
        except InvalidParams:
            continue
        found.append(task_id)
    return found


async def _tell_task(serving: Serving, call: Call, tag: dict[str, Any], task_id: str) -> None:
    try:
        row = await serving.tasks.find(task_id, call.principal)
    except InvalidParams:
        return  # it has expired in the meantime
    await call.notify(TASK_CHANGED, {**tag, **row.detailed(serving.tasks.clock())})
