"""The lifespan of a server: entered first, left last, in order."""

from __future__ import annotations

import contextvars
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from ...scopes.groups import unwrapped
from ..declare.server import Server

__all__ = ["open_lifespan"]

logger: logging.Logger = logging.getLogger("trio_mcp.server")


class _Held:
    """A lifespan that a task of its own has entered."""

    def __init__(self) -> None:
        self.over = trio.Event()
        self.error: Exception | None = None
        self.value: Any = None
        self.context: contextvars.Context | None = None


@asynccontextmanager
async def open_lifespan(server: Server[Any]) -> AsyncIterator[Any]:
    """Enter the lifespan of a server; leave it at the end of the block, however that ends.

    It stands in a task of its own, in a shield, so that a cancellation reaches the block first and the lifespan, with all that
    it has started, last. It is left as a block that ended well, so what stands behind its `yield` runs, and in a shield, with
    `limits.lifespan_timeout` as the deadline. An error of the block is raised at the `yield`.
    """
    server.stage = ("entering", time.monotonic())
    try:
        if server.lifespan is None:
            server.stage = ("open", time.monotonic())
            yield None
            return
        held = _Held()
        with unwrapped():
            async with trio.open_nursery() as nursery:
                await nursery.start(_hold, server, held)
                _adopt(held.context)
                server.stage = ("open", time.monotonic())
                try:
                    yield held.value
                except Exception as exc:
                    held.error = exc
                finally:
                    server.stage = ("leaving", time.monotonic())
                    held.over.set()
    finally:
        server.stage = ("closed", time.monotonic())


async def _hold(server: Server[Any], held: _Held, *, task_status: trio.TaskStatus[None]) -> None:
    limits = server.limits
    assert server.lifespan is not None
    with trio.CancelScope() as life:
        async with server.lifespan(server) as value:
            try:
                # Where this is being cancelled, `started` would do nothing, and nobody would be there to end the shield.
                await trio.lowlevel.checkpoint_if_cancelled()
            except trio.Cancelled:
                life.shield = True
            else:
                life.shield = True
                held.value, held.context = value, contextvars.copy_context()
                task_status.started()
                try:
                    await held.over.wait()
                finally:
                    # Also when a task of the lifespan has crashed.
                    life.deadline = trio.current_time() + limits.lifespan_timeout
                if held.error is not None:
                    raise held.error
            server.stage = ("leaving", time.monotonic())
            life.deadline = trio.current_time() + limits.lifespan_timeout
    if life.cancelled_caught:
        logger.error(
            "the lifespan of %r did not end within %g s, and was cancelled", server.name, limits.lifespan_timeout
        )
        if held.error is not None:
            raise held.error
    await trio.lowlevel.checkpoint_if_cancelled()


def _adopt(context: contextvars.Context | None) -> None:
    """Set the context variables that the lifespan has set, as if it had run in this task: handlers see them."""
    assert context is not None
    here = contextvars.copy_context()
    for variable, value in context.items():
        if variable not in here or here[variable] is not value:
            variable.set(value)
