"""The collector: a long-lived nursery for work that outlives its request.

It stands in a shield, so that the end of the server reaches it last: whatever is cancelled around it ends first, and then what
is left here gets a deadline. The shield stands from the beginning of the block of `open_collector`, and never without a deadline
once that has been left or a task has crashed.
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
        around: Entered before the block begins, which can be cancelled, and left after the last task of the nursery has ended.
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
        crash: BaseExceptionGroup[BaseException] | None = None
        with trio.CancelScope() as life:
            async with around:
                try:
                    async with trio.open_nursery() as nursery:
                        # Where this is being cancelled, `started` would do nothing, and nobody would be there to end the shield.
                        await trio.lowlevel.checkpoint_if_cancelled()
                        life.shield = True
                        task_status.started(nursery)
                        try:
                            await over.wait()
                        except trio.Cancelled:
                            # A task has crashed, and the others end now.
                            life.deadline = trio.current_time() + settle
                            raise
                        nursery.cancel_scope.deadline = ends[0] if ends else trio.current_time() + drain
                        life.deadline = max(trio.current_time(), nursery.cancel_scope.deadline) + settle
                except BaseExceptionGroup as group:
                    _, crash = group.split(trio.Cancelled)
                    raise
        if life.cancelled_caught and crash is not None:
            # Leaving `around` took too long, which is no reason to forget this.
            raise crash

    with unwrapped():
        async with trio.open_nursery() as outer:
            nursery = await outer.start(collect)
            outer.start_soon(await_end)
            try:
                yield nursery
            finally:
                over.set()
                outer.cancel_scope.cancel()
