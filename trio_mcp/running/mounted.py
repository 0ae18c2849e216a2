"""Somebody's ASGI application with the MCP endpoint in it, on Hypercorn: the only module that knows this host."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from hypercorn.utils import LifespanFailureError, LifespanTimeoutError

from ..errors import MCPError
from ..limits import Limits
from ..scopes.groups import unwrapped
from ..server.declare.server import Server
from ..server.serve.engine import open_engine
from ..transports.http.asgi import HttpApp, Message, Receive, Send
from ..transports.http.edge import HttpServer, tls_context

__all__ = ["Mounted", "serve_mounted"]

logger: logging.Logger = logging.getLogger("trio_mcp.server.http")

Application = Callable[[Message, Receive, Send], Awaitable[None]]


class Mounted:
    """An ASGI application that sends requests for the path of the endpoint there, and everything else to another one.

    The lifespan is the other one's alone: the server of the endpoint is open already.

    Attributes:
        failure: What the other one said when its lifespan failed.
    """

    def __init__(self, endpoint: HttpApp, app: Application) -> None:
        self._endpoint = endpoint
        self._app = app
        self.failure: str | None = None
        self._paths = endpoint.paths

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] in self._paths:
            await self._endpoint(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _lifespan(self, scope: Message, receive: Receive, send: Send) -> None:
        async def listen(message: Message) -> None:
            if message["type"].endswith(".failed"):
                stage = "start" if message["type"] == "lifespan.startup.failed" else "end"
                self.failure = f"the application did not {stage}: {message.get('message') or 'it gave no reason'}"
            await send(message)

        try:
            await self._app(scope, receive, listen)
        except SystemExit as exc:
            # The host takes it for its own end, and says something else.
            self.failure = f"the application ended the process in its lifespan (status {exc.code})"
            raise


def _config(bind: str, certfile: str | None, keyfile: str | None, limits: Limits) -> Config:
    config = Config()
    config.bind = [bind]
    config.certfile, config.keyfile = certfile, keyfile
    config.accesslog = None
    # Without a handler of its own, which would write around ours.
    config.errorlog = logging.getLogger("hypercorn.error")
    config.graceful_timeout = limits.drain_timeout
    config.shutdown_timeout = limits.lifespan_timeout
    return config


async def serve_mounted(
    server: Server[Any],
    app: Application,
    bind: str,
    *,
    path: str,
    certfile: str | None,
    keyfile: str | None,
    allowed_hosts: list[str] | None,
    allowed_origins: list[str] | None,
    sse: bool = False,
    simple: bool = False,
    no_delete: bool = False,
    task_status: trio.TaskStatus[HttpServer] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve an application with the endpoint in it until cancelled.

    Then listen streams end, requests of both get `limits.drain_timeout`, and after it the lifespan of the application
    `limits.lifespan_timeout`. The lifespan of the server stands around all that.

    Args:
        server: The server, which is opened.
        app: The application. It runs on trio.
        bind: `HOST:PORT`.
        path: As for `serve_http`; so are the other arguments.
        certfile: See there.
        keyfile: See there.
        allowed_hosts: See there.
        allowed_origins: See there.
        sse: See there.
        simple: See there.
        no_delete: See there.
        task_status: Started with the URLs of the endpoint.

    Raises:
        MCPError: the address cannot be bound, the certificate cannot be used, or the application does not start or end.
        ValueError: `path` is malformed, or options contradict each other.
    """
    limits = server.limits
    if certfile is not None:
        # In our words, and before anything runs.
        tls_context(certfile, keyfile)
    config = _config(bind, certfile, keyfile, limits)
    with unwrapped():
        async with open_engine(server) as engine, trio.open_nursery() as outer:
            endpoint = HttpApp(
                engine, path, allowed_hosts, allowed_origins, sse=sse, simple=simple, no_delete=no_delete
            )
            ending = trio.Event()
            with trio.CancelScope(shield=True) as life:

                async def await_cancel() -> None:
                    try:
                        await trio.sleep_forever()
                    finally:
                        # Sync, since this task is being cancelled.
                        endpoint.drain()
                        ending.set()
                        life.deadline = trio.current_time() + limits.drain_timeout + limits.lifespan_timeout

                outer.start_soon(await_cancel)
                async with trio.open_nursery() as hosting:
                    mounted = Mounted(endpoint, app)
                    urls = await hosting.start(partial(_host, mounted, config, ending))
                    if mounted.failure is not None:
                        # The host says that it serves, and fails only then.
                        await trio.sleep_forever()
                    task_status.started(HttpServer(tuple(f"{url}{path}" for url in urls)))
            outer.cancel_scope.cancel()


async def _host(app: Mounted, config: Config, ending: trio.Event, *, task_status: trio.TaskStatus[list[str]]) -> None:
    try:
        with unwrapped():
            trigger = ending.wait
            await serve(app, config, shutdown_trigger=trigger, task_status=task_status, mode="asgi")  # type: ignore[arg-type]
    except LifespanFailureError as exc:
        raise MCPError(app.failure or f"the application did not start or end: {exc}") from exc
    except LifespanTimeoutError as exc:
        raise MCPError("the application did not start or end in time") from exc
    except (OSError, OverflowError) as exc:
        # What happens to a connection later stays in the host.
        raise MCPError(f"cannot listen on {config.bind[0]}: {getattr(exc, 'strerror', None) or exc}") from exc
    except Exception as exc:
        logger.debug("Hypercorn failed", exc_info=exc)
        said = "".join(traceback.format_exception_only(exc)).strip()
        raise MCPError(app.failure or f"Hypercorn, which serves the application, failed: {said}") from None
