"""A server that is open, as the handlers of methods need it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from ...scopes.call import Call
from ...scopes.executor import Executor
from ..ask.context import Context
from ..ask.running_server import RunningServer
from ..declare.registry import Tool
from ..declare.server import Server
from ..tasks.task import Outcome
from ..tasks.tasks import Tasks
from .sessions import Sessions

__all__ = ["Serving"]


class Serving(RunningServer):
    """A running server with what it does for its callers.

    Args:
        server: What was registered.
        lifespan: The value of the lifespan.
        run_tool: Runs a tool; raises nothing but cancellation.
        time_out: Makes the outcome of a call whose time is over.

    Attributes:
        executor: Admission, over all connections.
        tasks: Calls that have become tasks.
        sessions: Clients of the revisions that have sessions.
    """

    def __init__(
        self,
        server: Server[Any],
        lifespan: Any,
        run_tool: Callable[[Call, Tool, dict[str, Any], Context[Any]], Awaitable[Outcome]],
        time_out: Callable[[Call], Outcome],
    ) -> None:
        super().__init__(server, lifespan)
        self.executor: Executor = Executor.of_server(server.limits)
        self.tasks: Tasks = Tasks(self, server.task_store, run_tool, time_out)
        self.sessions: Sessions = Sessions(server.limits, self.tasks.peek)
