"""The collector: a long-lived nursery for work that outlives its request.

It stands in a shield, so that the end of the server reaches it last: whatever is cancelled around it ends first, and then what
is left here gets a deadline. The shield never stands without one once the block of `open_collector` has been left.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import trio

from .groups import unwrapped

__all__ = ["open_collector"]


@asynccontextmanager
async def open_collector(
    around: AbstractAsyncContextManager[object], drain: float, settle: float
) -> AsyncIterator[trio.Nursery]:
    """Open a nursery that is drained after everything inside the block has ended.

    Args:
        around: Entered before the block begins, and left after the last task of the nursery has ended.
        drain: Seconds that tasks may go on, from the end of the block, or from the cancellation of the scope around the
            block if that was earlier. Then they are cancelled.
        settle: Seconds for what they do after that, and for leaving `around`.
    """
    over = trio.Event()
    ends: list[float] = []

    async def await_end() -> None:
        try:
            await trio.sleep_forever()
        finally:
            # Sync, so it works in a task that is being cancelled.
            ends.append(trio.current_time() + drain)

    async def collect(*, task_status: trio.TaskStatus[trio.Nursery]) -> None:
        with trio.CancelScope(shield=True) as life:
            async with around, trio.open_nursery() as nursery:
                task_status.started(nursery)
                await over.wait()
                nursery.cancel_scope.deadline = ends[0] if ends else trio.current_time() + drain
                life.deadline = max(trio.current_time(), nursery.cancel_scope.deadline) + settle

    with unwrapped():
        async with trio.open_nursery() as outer:
            nursery = await outer.start(collect)
            outer.start_soon(await_end)
            try:
                yield nursery
            finally:
                over.set()
                outer.cancel_scope.cancel()
