"""Where clients meet transports: `open_client` and `connect_client`."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypedDict
from weakref import WeakKeyDictionary

import trio

from .client.answers import Answers, ElicitCallback, SampleCallback
from .client.channel import Channel, SessionWire
from .client.client import Client
from .client.opening import ERAS_BOTH, Opening, check_eras, open_by_era
from .errors import ConnectionClosed
from .limits import DEFAULT, Limits
from .scopes.groups import unwrapped
from .server.declare.server import Server
from .server.serve.engine import Engine, open_engine
from .transports.http_url import shown_url
from .transports.line_channel import LineChannel, writing
from .transports.lines import serve_lines
from .transports.link import Link
from .transports.memory import memory_streams
from .transports.process import StdioCommand, open_process_channel

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["ClientOptions", "ConnectedClient", "Target", "connect_client", "open_client"]

Target = Server[Any] | Engine | StdioCommand | trio.abc.Stream | str | os.PathLike[str]
"""What a client can be opened on: a URL (`https://host/mcp`, or `unix:/path` for a socket file), a `Server` (in memory), a
server that is open, a `StdioCommand`, the path of a Python file with a server in it, or a byte stream with a server at its
other end."""


class ClientOptions(TypedDict, total=False):
    """What a client answers when the server asks, and how to speak HTTP when the target is a URL.

    Attributes:
        on_elicit: Answers forms and URLs: called with the parameters of the question, plain or async; returns a dict (what was
            filled in), True (accepted, for a URL), False (declined) or None (no answer).
        on_sample: Answers for a model: called with the parameters; returns the text, or a whole result.
        roots: URIs, or objects with `uri` and `name`; or a function that gives them.
        extensions: Extensions that this program speaks: their settings, by identifier.
        headers: Sent with every request.
        http2: Whether HTTP/2 may be spoken (over TLS). Default False.
        uds: A unix socket to connect to, instead of the host in the URL.
        verify: Whether and how to check the server's certificate, as for httpx2: a bool or an `ssl.SSLContext`.
        http: An `httpx2.AsyncClient` of your own; the others do not count then, and it stays open.
        eras: Which revisions may be spoken: "modern" (2026-07-28), "legacy" (2025-11-25 and older, in a session), or both, the
            default: then the server is asked.
        revision: The only revision that may be spoken: the server is not asked then.
    """

    on_elicit: ElicitCallback
    on_sample: SampleCallback
    roots: Sequence[Any] | Callable[[], Any]
    extensions: Mapping[str, dict[str, Any]]
    headers: Mapping[str, str]
    http2: bool
    uds: str
    verify: Any
    http: Any
    eras: Collection[str]
    revision: str


_NOT_HTTP = frozenset({"on_elicit", "on_sample", "roots", "extensions", "eras", "revision"})

# The blocks that are open in each task, outermost first: to close them in order when they are left out of order.
_OPEN: WeakKeyDictionary[trio.lowlevel.Task, list[open_client]] = WeakKeyDictionary()


class open_client(AbstractAsyncContextManager[Client]):
    """Open a client: `async with open_client(target) as client:`.

    The block is the lifetime of the connection. It owns a nursery, so blocks must nest: leave them in the reverse order,
    in the task that entered them. Where that does not fit, use `connect_client` with a nursery of your own.

    Args:
        target: See `Target`.
        name: What to call this client, in the `clientInfo` of each request.
        client_version: Its version; otherwise that of `trio_mcp`.
        limits: Bounds.
        connect_timeout: Seconds to wait for the first answer; otherwise `limits.connect_timeout`.
        options: What to answer (`on_elicit`, `on_sample`, `roots`), `extensions`, and for URLs `headers`, `http2`, `uds`,
            `verify`, `http`; see
            `ClientOptions`.

    Raises:
        ConnectionClosed: the server cannot be started, or ended.
        LegacyServer: it speaks only older revisions.
        RequestTimeout: it says nothing.
        RuntimeError: the block is left out of order or in another task.
        TypeError, ValueError: the target is none, or a header cannot be sent.
    """

    def __init__(
        self,
        target: Target,
        *,
        name: str = "trio-mcp",
        client_version: str | None = None,
        limits: Limits = DEFAULT,
        connect_timeout: float | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        self._target = target
        self._answers, self._http = _split_options(options)
        self._extensions = options.get("extensions")
        self._eras = (options.get("eras", ERAS_BOTH), options.get("revision"))
        check_eras(*self._eras)
        self._info = {"name": name, "version": client_version or _own_version()}
        self._limits = limits
        self._timeout = limits.connect_timeout if connect_timeout is None else connect_timeout
        self._task: trio.lowlevel.Task | None = None
        self._nursery: trio.Nursery | None = None
        self._manager: AbstractAsyncContextManager[Client] | None = None
        self._stack: list[open_client] = []
        self._left = False

    async def __aenter__(self) -> Client:
        if self._manager is not None:
            raise RuntimeError("this open_client(...) was entered already; make another one")
        self._manager = self._open()
        self._task = trio.lowlevel.current_task()
        client = await self._manager.__aenter__()
        self._nursery = self._task.child_nurseries[-1]
        self._stack = _OPEN.setdefault(self._task, [])
        self._stack.append(self)
        return client

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        assert self._manager is not None
        if self._left:
            return None  # closed already, by the client that it was left after
        task = trio.lowlevel.current_task()
        if task is self._task and task.child_nurseries[-1:] == [self._nursery]:
            self._stack.remove(self)
            self._left = True
            return await self._manager.__aexit__(exc_type, exc, traceback)
        where = "in another task than it was entered in" if task is not self._task else "before a block inside it"
        advice = RuntimeError(
            f"open_client({_shown(self._target)}) was left {where}. Blocks that own tasks must nest; to open and close "
            "clients in any order, use 'client = await connect_client(nursery, target)' and 'await client.aclose()'"
        )
        if task is self._task:
            await self._close_those_inside(task)
        raise advice

    async def _close_those_inside(self, task: trio.lowlevel.Task) -> None:
        """Close the clients that were opened inside this one, innermost first, and this one.

        Otherwise their nurseries would be left open and trio itself would end. Nothing is touched when some other block is
        open in between: then leaving in the right order still works.
        """
        for inner in list(reversed(self._stack)):
            if inner._task is not task or task.child_nurseries[-1:] != [inner._nursery]:
                return
            assert inner._manager is not None
            self._stack.remove(inner)
            inner._left = True
            await inner._manager.__aexit__(None, None, None)
            if inner is self:
                return

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Client]:
        with unwrapped():
            # Even where the channel has no tasks: the blocks of all targets nest, and the innermost nursery tells.
            def make(channel: Channel) -> Client:
                return Client(
                    channel,
                    info=self._info,
                    limits=self._limits,
                    answers=self._answers,
                    extensions=self._extensions,
                )

            opening = _opening(
                self._target, self._http, self._info, self._answers, self._limits, self._timeout, self._eras
            )
            async with open_by_era(opening, make) as client, trio.open_nursery():
                yield client


class ConnectedClient(Client):
    """A client whose tasks run in somebody else's nursery. Made by `connect_client`."""

    def __init__(
        self,
        channel: Channel,
        *,
        info: dict[str, Any],
        limits: Limits,
        answers: Answers,
        extensions: Mapping[str, dict[str, Any]] | None = None,
    ) -> None:
        super().__init__(channel, info=info, limits=limits, answers=answers, extensions=extensions)
        self._leave = trio.Event()
        self._left = trio.Event()

    async def aclose(self) -> None:
        """End the connection and wait until it has ended. May be called from any task, in any order, repeatedly."""
        self._leave.set()
        await self._left.wait()


async def connect_client(
    nursery: trio.Nursery,
    target: Target,
    *,
    name: str = "trio-mcp",
    client_version: str | None = None,
    limits: Limits = DEFAULT,
    connect_timeout: float | None = None,
    **options: Unpack[ClientOptions],
) -> ConnectedClient:
    """Open a client whose tasks run in a nursery of yours: opening and closing are plain calls.

    It lives until `aclose`, or until the nursery is cancelled.

    Args:
        nursery: Where its tasks run.
        target: As for `open_client`, and so are the other arguments.
        name: What to call this client.
        client_version: Its version.
        limits: Bounds.
        connect_timeout: Seconds to wait for the first answer.
        options: As for `open_client`.

    Raises:
        MCPError: as for `open_client`; the nursery is not touched by it.
    """
    info = {"name": name, "version": client_version or _own_version()}
    seconds = limits.connect_timeout if connect_timeout is None else connect_timeout
    answers, http = _split_options(options)
    eras = (options.get("eras", ERAS_BOTH), options.get("revision"))
    check_eras(*eras)
    opening = _opening(target, http, info, answers, limits, seconds, eras)
    failed: list[Exception] = []

    def make(channel: Channel) -> ConnectedClient:
        return ConnectedClient(channel, info=info, limits=limits, answers=answers, extensions=options.get("extensions"))

    async def own(*, task_status: trio.TaskStatus[ConnectedClient | None]) -> None:
        client: ConnectedClient | None = None
        try:
            async with open_by_era(opening, make) as opened:
                client = opened
                task_status.started(client)
                await client._leave.wait()
        except Exception as exc:
            # The caller of connect_client gets it, not the nursery that the client lives in.
            if client is not None and client._leave.is_set():
                return
            failed.append(exc)
            task_status.started(None)
        finally:
            if client is not None:
                client._left.set()

    client = await nursery.start(own)
    if client is None:
        with unwrapped():
            raise failed[0]
    assert isinstance(client, ConnectedClient)
    return client


def _split_options(options: ClientOptions) -> tuple[Answers, dict[str, Any]]:
    """The answers, and what is left for HTTP.

    Raises:
        TypeError: an option that there is not.
    """
    unknown = set(options) - set(ClientOptions.__annotations__)
    if unknown:
        there = ", ".join(ClientOptions.__annotations__)
        raise TypeError(f"open_client: no option {', '.join(sorted(unknown))}; there is: {there}")
    http = {key: value for key, value in options.items() if key not in _NOT_HTTP}
    return Answers(options.get("on_elicit"), options.get("on_sample"), options.get("roots")), http


def _opening(
    target: Target,
    http: dict[str, Any],
    info: dict[str, Any],
    answers: Answers,
    limits: Limits,
    timeout: float,
    eras: tuple[Collection[str], str | None],
) -> Opening:
    is_url = isinstance(target, str) and (target.startswith("unix:") or "://" in target)

    def to_wire(channel: Channel) -> SessionWire:
        if isinstance(channel, LineChannel):
            return channel
        wire: SessionWire = importlib.import_module(".transports.http_session", __package__).session_of(channel)
        return wire

    def to_pair(channel: Channel) -> AbstractAsyncContextManager[SessionWire | None]:
        pair: AbstractAsyncContextManager[SessionWire | None] = importlib.import_module(
            ".transports.http_pair", __package__
        ).open_pair(channel, limits, timeout)
        return pair

    return Opening(
        lambda: _open_channel(target, limits, http),
        to_wire,
        to_pair if is_url else None,
        not is_url and not isinstance(target, Server | Engine | trio.abc.Stream),
        info,
        answers,
        limits,
        timeout,
        *eras,
    )


@asynccontextmanager
async def _open_channel(target: Target, limits: Limits, http: dict[str, Any]) -> AsyncIterator[Channel]:
    if isinstance(target, str) and (target.startswith("unix:") or "://" in target):
        url, options = _url(target, http)
        # httpx2 takes a while to load; a client of processes does not need it.
        module = importlib.import_module(".transports.http_channel", __package__)
        async with module.open_http_channel(url, limits, **options) as channel:
            yield channel
        return
    if http:
        raise TypeError(f"open_client: {', '.join(http)} are for URLs, the target is {target!r}")
    if isinstance(target, Server):
        async with open_engine(target) as engine, _memory_channel(engine, limits) as channel:
            yield channel
    elif isinstance(target, Engine):
        async with _memory_channel(target, limits) as channel:
            yield channel
    elif isinstance(target, trio.abc.Stream):
        async with _stream_channel(target, target, "the stream", limits) as channel:
            yield channel
    else:
        async with open_process_channel(_command(target), limits) as channel:
            yield channel


def _url(target: str, http: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    if target.startswith("unix:"):
        return "http://localhost/mcp", {**http, "uds": target.removeprefix("unix:")}
    scheme, _, rest = target.partition("://")
    if scheme not in ("http", "https") or not rest.partition("/")[0]:
        raise ValueError(
            f"open_client: {shown_url(target)!r} is no URL of a server; expected http://HOST:PORT/mcp or https://…"
        )
    return target, http


def _shown(target: object) -> str:
    # A URL may hold a password or a key.
    return repr(shown_url(target) if isinstance(target, str) and "://" in target else target)


def _command(target: object) -> StdioCommand:
    if isinstance(target, StdioCommand):
        return target
    if not isinstance(target, str | os.PathLike):
        raise TypeError(
            f"open_client: expected a URL, a Server, a StdioCommand, the path of a Python file or a stream, got {target!r}"
        )
    path = os.fspath(target)
    file = str(path).rpartition(":")[0] if ".py:" in str(path) else str(path)
    if not os.path.isfile(file):
        raise ConnectionClosed(f"cannot start the server: there is no file {file!r}")
    return StdioCommand([sys.executable, "-m", "trio_mcp", "serve", str(path)])


@asynccontextmanager
async def _memory_channel(engine: Engine, limits: Limits) -> AsyncIterator[LineChannel]:
    ours, theirs = memory_streams(limits.read_chunk)
    async with trio.open_nursery() as nursery:
        await nursery.start(serve_lines, engine, Link(*theirs, engine.limits))
        async with _stream_channel(*ours, engine.server.name, limits) as channel:
            yield channel


@asynccontextmanager
async def _stream_channel(
    receive: trio.abc.ReceiveStream, send: trio.abc.SendStream, peer: str, limits: Limits
) -> AsyncIterator[LineChannel]:
    link = Link(receive, send, limits, longest=limits.answer_bytes)
    channel = LineChannel(link, peer, limits)

    async def read() -> None:
        await channel.read()
        channel.close(f"{peer} closed the connection")

    try:
        async with trio.open_nursery() as nursery, writing(link, nursery, limits):
            nursery.start_soon(read)
            try:
                yield channel
            finally:
                channel.close("the client was closed")
                nursery.cancel_scope.cancel()
    finally:
        with trio.move_on_after(limits.child_reap, shield=True):
            await link.aclose()


def _own_version() -> str:
    try:
        return version("trio-mcp")
    except PackageNotFoundError:
        return "0"
