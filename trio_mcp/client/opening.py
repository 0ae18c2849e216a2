"""Which era a server is of, and a client that speaks it (basic/versioning, section Backward Compatibility).

`server/discover` first. What no modern server answers leads to `initialize`: an error that is none of the modern codes, an answer
that is no message, an exit, silence. A process that has ended is started anew for that; one that is silent is asked in both ways,
since what starts it may still be installing it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Final, TypeVar

import trio

from ..errors import (
    ConnectionClosed,
    HttpError,
    InvalidResponse,
    LegacyServer,
    MCPError,
    ProtocolError,
    RequestTimeout,
    UnsupportedVersion,
)
from ..limits import Limits
from ..protocol.revisions import LATEST, LEGACY
from .answers import Answers
from .channel import Channel, SessionWire
from .client import Client
from .session import ClientSession, found_in, open_session

__all__ = ["ERAS_BOTH", "Opening", "check_eras", "open_by_era"]

logger: logging.Logger = logging.getLogger("trio_mcp.client")

ClientT = TypeVar("ClientT", bound=Client)

ERAS_BOTH: Final = ("modern", "legacy")

_NEVER_LEGACY: Final = frozenset({401, 403, 407, 429, 503})
"""Statuses that say nothing of the era: who calls, from where, how often."""


class Opening:
    """How a server is to be opened.

    Args:
        open_channel: Opens a channel: starts the process, for instance. Called again where that has ended.
        to_wire: What a session needs of such a channel.
        to_pair: Opens the transport of 2024-11-05 at the same place; gives None where there is none. None for other transports.
        restarts: Whether a channel that is opened again is a new process.
        info: The `clientInfo`.
        answers: Answers the server's questions.
        limits: Bounds.
        timeout: Seconds for the first answer.
        eras: The eras that may be spoken.
        revision: The only revision that may be spoken, or None.
    """

    def __init__(
        self,
        open_channel: Callable[[], AbstractAsyncContextManager[Channel]],
        to_wire: Callable[[Channel], SessionWire],
        to_pair: Callable[[Channel], AbstractAsyncContextManager[SessionWire | None]] | None,
        restarts: bool,
        info: dict[str, Any],
        answers: Answers,
        limits: Limits,
        timeout: float,
        eras: Collection[str],
        revision: str | None,
    ) -> None:
        self.open_channel = open_channel
        self.to_wire = to_wire
        self.to_pair = to_pair
        self.restarts: bool = restarts
        self.info: dict[str, Any] = info
        self.answers: Answers = answers
        self.limits: Limits = limits
        self.timeout: float = timeout
        self.modern: bool = "modern" in eras and revision in (None, LATEST)
        self.legacy: bool = "legacy" in eras and revision != LATEST
        self.asked: str = LEGACY[0] if revision is None or revision == LATEST else revision

    def session(self, wire: SessionWire) -> AbstractAsyncContextManager[ClientSession]:
        """A session, before its `initialize`."""
        return open_session(wire, self.info, self.answers, self.limits)


def check_eras(eras: Any, revision: Any) -> None:
    """Check what a caller has pinned.

    Raises:
        ValueError: there is no such era or revision, or none is left.
    """
    known = {"modern", "legacy"}
    if isinstance(eras, str) or not {*eras} <= known or not {*eras}:
        raise ValueError(f"open_client: eras: expected one or both of 'modern' and 'legacy', got {eras!r}")
    if revision is not None and revision not in (LATEST, *LEGACY):
        raise ValueError(f"open_client: revision: expected one of {', '.join((LATEST, *LEGACY))}, got {revision!r}")
    if revision is not None and ("modern" if revision == LATEST else "legacy") not in eras:
        raise ValueError(f"open_client: revision {revision} is not of the eras {', '.join(sorted(eras))}")


class _Race:
    """What came of asking a server in both ways."""

    def __init__(self) -> None:
        self.over = trio.Event()
        self.modern = False
        self.legacy = False
        self.probe_error: MCPError | None = None
        self.hello_error: MCPError | None = None

    @property
    def error(self) -> MCPError | None:
        """What to tell where nothing came of it."""
        return self.probe_error or self.hello_error

    async def probe(self, client: Client, timeout: float) -> None:
        """Ask in the modern way."""
        try:
            await client.discover(timeout=timeout)
        except MCPError as exc:
            self.probe_error = exc
        else:
            self.modern = True
        self.over.set()

    async def hello(self, session: ClientSession, revision: str) -> None:
        """Ask in the old way."""
        try:
            await session.initialize(revision)
        except MCPError as exc:
            self.hello_error = exc
        else:
            self.legacy = True
        self.over.set()


@asynccontextmanager
async def open_by_era(opening: Opening, make: Callable[[Channel], ClientT]) -> AsyncIterator[ClientT]:
    """A client of a server, in the era that it speaks.

    Args:
        opening: How.
        make: Makes the client of a channel.

    Raises:
        MCPError: the server cannot be reached, or speaks no revision of ours.
    """
    ends = trio.current_time() + opening.timeout
    async with AsyncExitStack() as stack:
        client = await _open(opening, make, ends, stack)
        if client is None:
            # A new process, which is asked in the old way only.
            await stack.aclose()
            client = await _open_again(opening, make, ends, stack)
        yield client


async def _open(
    opening: Opening, make: Callable[[Channel], ClientT], ends: float, stack: AsyncExitStack
) -> ClientT | None:
    """The client; None where the process has to be started anew."""
    channel = await stack.enter_async_context(opening.open_channel())
    client = make(channel)
    if not opening.legacy:
        await client.discover(timeout=_left(ends))
        return client
    session = await stack.enter_async_context(opening.session(opening.to_wire(channel)))
    race = _Race()
    half = trio.current_time() + _left(ends) / 2
    async with trio.open_nursery() as nursery:
        if opening.modern:
            nursery.start_soon(race.probe, client, _left(ends))
            with trio.move_on_after(opening.limits.probe_patience):
                await race.over.wait()
        if not race.over.is_set():
            nursery.start_soon(race.hello, session, opening.asked)
            with trio.move_on_at(half if opening.restarts else ends):
                await race.over.wait()
        nursery.cancel_scope.cancel()
    if race.modern:
        return client
    if race.legacy:
        return _speak(client, session)
    if opening.restarts and (race.error is None or isinstance(race.error, ConnectionClosed)):
        return None
    if race.error is None:
        note = f"; {channel.note}" if channel.note else ""
        raise RequestTimeout(f"no answer from {channel.peer} within {opening.timeout:g} s{note}")
    return await _fall_back(opening, channel, client, session, race, ends, stack)


async def _fall_back(
    opening: Opening,
    channel: Channel,
    client: ClientT,
    session: ClientSession,
    race: _Race,
    ends: float,
    stack: AsyncExitStack,
) -> ClientT:
    """Ask a server in the old way that has refused the modern one; then, over HTTP, in the oldest."""
    first = race.probe_error
    if first is not None:
        if not _may_be_legacy(first):
            raise first
        logger.info("%s: %s; an older revision is tried", client.peer, first)
        race = _Race()
        with trio.move_on_at(ends):
            await race.hello(session, opening.asked)
        if race.legacy:
            return _speak(client, session)
    second = race.hello_error
    if isinstance(second, HttpError | InvalidResponse | ConnectionClosed) and opening.to_pair is not None:
        pair = await stack.enter_async_context(opening.to_pair(channel))
        if pair is not None:
            session = await stack.enter_async_context(opening.session(pair))
            race = _Race()
            with trio.move_on_at(ends):
                await race.hello(session, opening.asked)
            if race.legacy:
                return _speak(client, session)
            second = race.hello_error or second
    if isinstance(second, ProtocolError | LegacyServer) or first is None:
        raise second or RequestTimeout(f"initialize: no answer from {client.peer} within {opening.timeout:g} s")
    raise first


async def _open_again(
    opening: Opening, make: Callable[[Channel], ClientT], ends: float, stack: AsyncExitStack
) -> ClientT:
    channel = await stack.enter_async_context(opening.open_channel())
    client = make(channel)
    session = await stack.enter_async_context(opening.session(opening.to_wire(channel)))
    with trio.move_on_at(ends):
        await session.initialize(opening.asked)
        return _speak(client, session)
    note = f"; {channel.note}" if channel.note else ""
    raise RequestTimeout(f"no answer from {channel.peer} within {opening.timeout:g} s{note}")


def _speak(client: ClientT, session: ClientSession) -> ClientT:
    info, capabilities, instructions = found_in(session.result)
    client.speak(session, session.revision, info, capabilities, instructions)
    session.start()
    return client


def _left(ends: float) -> float:
    return max(ends - trio.current_time(), 0.0)


def _may_be_legacy(exc: MCPError) -> bool:
    """Whether an answer to `server/discover` may be that of an older server."""
    if isinstance(exc, UnsupportedVersion):
        supported = exc.data.get("supported") if isinstance(exc.data, dict) else None
        return isinstance(supported, list) and any(revision in LEGACY for revision in supported)
    if isinstance(exc, HttpError):
        return exc.status not in _NEVER_LEGACY
    return isinstance(exc, LegacyServer | InvalidResponse | ConnectionClosed | RequestTimeout)
