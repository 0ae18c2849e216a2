"""Where servers meet transports: everything that opens or serves one."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from .limits import Limits
from .protocol.revisions import Era
from .running.process import OwnProcess, run_alone
from .scopes.groups import unwrapped
from .server.declare.server import Server
from .server.serve.engine import Engine, open_engine
from .transports.lines import serve_lines
from .transports.link import Link
from .transports.stdio import open_stdio

if TYPE_CHECKING:
    from .transports.http.asgi import HttpApp
    from .transports.http.edge import HttpServer
    from .transports.http.endpoint import HttpEndpoint

__all__ = [
    "OpenServer",
    "http_app",
    "open_server",
    "run_http",
    "run_stdio",
    "serve_http",
    "serve_stdio",
    "serve_stream",
]

OpenServer = Engine
"""A server that is open, as `open_server` gives it."""


@asynccontextmanager
async def open_server(server: Server[Any]) -> AsyncIterator[OpenServer]:
    """Open a server once, to serve it in several ways: its lifespan lasts as long as the block.

    Example:
        async with open_server(server) as running, trio.open_nursery() as nursery:
            nursery.start_soon(serve_stream, running, one_stream)
            nursery.start_soon(serve_stream, running, another_stream)

    Raises:
        MCPError: it is open already.
    """
    async with open_engine(server) as engine:
        yield engine


@asynccontextmanager
async def _opened(server: Server[Any] | OpenServer) -> AsyncIterator[OpenServer]:
    if isinstance(server, Engine):
        yield server
        return
    _limits(server)
    async with open_engine(server) as engine:
        yield engine


def _limits(server: Server[Any] | OpenServer) -> Limits:
    if not isinstance(server, Engine | Server):
        raise TypeError(f"expected a Server or what open_server gave, got {server!r}")
    return server.limits


async def serve_stdio(
    server: Server[Any] | OpenServer, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve on the standard input and output of this process, until the input ends or the caller cancels.

    While it runs, descriptor 1 leads to standard error and descriptor 0 to the null device, for this process and its
    children: nothing but messages can reach the real output. Both are put back at the end. No signal handler is
    installed.

    At the end of input, and when the scope around this is cancelled, running requests get `limits.drain_timeout`.

    Args:
        server: A server, which is opened for the time being, or one that is open.
        task_status: For `nursery.start`; started when requests are read.

    Raises:
        MCPError: the server is open already, or the standard streams cannot be used.
    """
    with unwrapped():
        # Outermost, so that the lifespan and what is drained at the end cannot write among the messages either.
        async with open_stdio(_limits(server)) as link, _opened(server) as engine:
            await serve_lines(engine, link, task_status=task_status)


async def serve_stream(
    server: Server[Any] | OpenServer,
    stream: trio.abc.Stream,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve one peer on a byte stream (a unix socket, TCP), framed as on stdio (basic/transports, Custom Transports).

    Closes the stream. Ends as `serve_stdio` does.

    Args:
        server: As for `serve_stdio`.
        stream: The stream. It must be trusted: there is no authentication.
        task_status: For `nursery.start`; started when requests are read.

    Raises:
        MCPError: the server is open already.
    """
    with unwrapped():
        async with _opened(server) as engine:
            await serve_lines(engine, Link(stream, stream, engine.limits), task_status=task_status)


async def serve_http(
    server: Server[Any] | OpenServer,
    bind: str = "127.0.0.1:8000",
    *,
    path: str = "/mcp",
    certfile: str | None = None,
    keyfile: str | None = None,
    allowed_hosts: list[str] | None = None,
    allowed_origins: list[str] | None = None,
    sse: bool = False,
    simple: bool = False,
    no_delete: bool = False,
    task_status: trio.TaskStatus[HttpServer] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve Streamable HTTP until cancelled: HTTP/1.1, and HTTP/2 (with TLS by ALPN, without by prior knowledge).

    The address is bound before the lifespan is entered, and clients wait until that is done. When the scope around this is
    cancelled, nothing more is accepted and running requests get `limits.drain_timeout`. No input of one client ends the server
    or another client's request.

    Example:
        http = await nursery.start(serve_http, server, "127.0.0.1:0")
        print(http.urls[0])

    Args:
        server: As for `serve_stdio`.
        bind: `HOST:PORT` (port 0 takes a free one), `unix:PATH`, or `fd:NUMBER` for a listening socket that was inherited.
        path: The path of the endpoint.
        certfile: A PEM file with the certificate chain; turns TLS on.
        keyfile: Its key, if that is another file.
        allowed_hosts: Names that a `Host` header may have. Without it: on loopback only `localhost`, `127.0.0.1` and
            `[::1]`, so that no web page can reach the server by rebinding a name; elsewhere any.
        allowed_origins: Origins of web pages that may call, besides those of the hosts.
        sse: Also serve HTTP+SSE, the transport of 2024-11-05: streams at `sse` beside `path`, messages at `messages`.
        simple: Answer each POST with one JSON document, in all revisions: no sessions, no streams, no other verbs.
        no_delete: Clients cannot end their sessions: DELETE is answered with 405.
        task_status: For `nursery.start`, which returns an `HttpServer` with the real URLs.

    Raises:
        MCPError: the address cannot be bound, the certificate cannot be used, or the server is open already.
        ValueError: `bind`, `path`, or one of the hosts or origins is malformed, or options contradict each other.
    """
    with unwrapped():
        edge = importlib.import_module(".transports.http.edge", __package__)
        edge.check_path(path)
        edge.check_allowed(allowed_hosts, allowed_origins)
        limits = _limits(server)
        legacy = server.legacy if isinstance(server, Engine) else Era.LEGACY in server.eras
        edge.check_ways(legacy, path, sse, simple, no_delete)
        context = edge.tls_context(certfile, keyfile) if certfile is not None else None
        # Bound first: the lifespan may do much, for nothing when the address is taken.
        async with (
            edge.open_listeners(bind, path, context is not None, limits) as bound,
            _opened(server) as engine,
        ):

            def endpoint(address: str) -> HttpEndpoint:
                made: HttpEndpoint = edge.HttpEndpoint(
                    engine,
                    path=path,
                    allowed_hosts=allowed_hosts,
                    allowed_origins=allowed_origins,
                    address=address,
                    sse=sse,
                    simple=simple,
                    no_delete=no_delete,
                )
                return made

            await edge.serve_listeners(bound, endpoint, context, task_status)


def http_app(
    server: Server[Any] | OpenServer,
    *,
    path: str = "/mcp",
    allowed_hosts: list[str] | None = None,
    allowed_origins: list[str] | None = None,
    sse: bool = False,
    simple: bool = False,
    no_delete: bool = False,
) -> HttpApp:
    """The endpoint as an ASGI application, to be mounted in a server of yours that runs on trio (Hypercorn).

    The server is opened by the ASGI lifespan, so a program that mounts this under another application forwards `lifespan` to
    it; or it passes a server that is open.

    Args:
        server: A server, or one that is open.
        path: The path of the endpoint, below the ASGI `root_path`.
        allowed_hosts: As for `serve_http`; on a loopback address of the host server the guard is on by itself.
        allowed_origins: As for `serve_http`.
        sse: As for `serve_http`. A host that speaks HTTP/2 cannot tell whether a client reads, so there a stream ends after
            `limits.write_buffer` bytes.
        simple: As for `serve_http`.
        no_delete: As for `serve_http`.

    Raises:
        ValueError: `path`, or one of the hosts or origins, is malformed, or options contradict each other.
    """
    app: HttpApp = importlib.import_module(".transports.http.asgi", __package__).HttpApp(
        server, path, allowed_hosts, allowed_origins, sse=sse, simple=simple, no_delete=no_delete
    )
    return app


def run_stdio(
    server: Server[Any], on_ready: Callable[[], object] = lambda: None, process: OwnProcess | None = None
) -> int:
    """Serve on stdio in a process that does nothing else, with SIGINT and SIGTERM as the end. Returns the exit status.

    Args:
        server: The server.
        on_ready: Called once the signals are heard, before the first message is read.
        process: This process, if it was taken over already; with `stdio`.
    """

    async def serve(own: OwnProcess, on_end: Callable[[], None]) -> None:
        on_ready()
        async with open_stdio(server.limits, own.streams) as link, open_engine(server) as engine:
            await serve_lines(engine, link, on_end=on_end)

    return run_alone(server, serve, lambda: process or OwnProcess(stdio=True))


def run_http(
    server: Server[Any],
    bind: str,
    on_ready: Callable[[HttpServer], object] = lambda bound: None,
    process: OwnProcess | None = None,
    app: Any = None,
    **options: Any,
) -> int:
    """Serve over HTTP in a process that does nothing else, with SIGINT and SIGTERM as the end. Returns the exit status.

    Args:
        server: The server.
        bind: As for `serve_http`.
        on_ready: Called with what is bound.
        process: This process, if it was taken over already.
        app: An ASGI application that is served at the same address, beside the endpoint.
        options: The other arguments of `serve_http`; all of them with `app`.
    """

    async def serve(own: OwnProcess, on_end: Callable[[], None]) -> None:
        async with trio.open_nursery() as nursery:
            start = partial(serve_http, server, bind, **options)
            if app is not None:
                mounted = importlib.import_module(".running.mounted", __package__)
                start = partial(mounted.serve_mounted, server, app, bind, **options)
            on_ready(await nursery.start(start))

    beside = 0.0 if app is None else server.limits.lifespan_timeout
    return run_alone(server, serve, lambda: process or OwnProcess(), beside)
