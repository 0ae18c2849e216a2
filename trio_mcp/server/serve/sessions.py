"""The sessions of an open server (2025-11-25 and older): who is there, and when each ends.

A session over HTTP is a nursery below the server's. It ends by `DELETE`, when nobody has used it for a while, when it has to make
room for another one, and with the server; that is always the cancellation of its one scope. A session of a byte stream is a part
of its connection, and only listed here.
"""

from __future__ import annotations

import logging
import math
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Final

import trio

from ...errors import ServerBusy
from ...limits import Limits
from ...protocol.envelope import encode_notification
from ...protocol.legacy import Dialect, Hello
from ...protocol.listening import LIST_CHANGED, RESOURCE_UPDATED
from ...protocol.tasks import TASK_CHANGED, Task
from ...scopes.collector import open_collector
from ...scopes.notices import Notice
from ..peer.events import EventStore
from ..peer.session import Session
from ..tasks.session_rows import TASK_STATUS, session_row

__all__ = ["Sessions", "SessionsStatistics"]

logger: logging.Logger = logging.getLogger("trio_mcp.server")

_TOLD: Final = frozenset({*LIST_CHANGED.values(), RESOURCE_UPDATED})


@dataclass(frozen=True, slots=True)
class SessionsStatistics:
    """What the sessions of a server hold right now.

    Attributes:
        open: Sessions.
        idle: Those over HTTP that have neither a call nor a stream.
        event_bytes: Bytes of events that are kept for clients that come back.
    """

    open: int
    idle: int
    event_bytes: int


class Sessions:
    """All sessions of one open server.

    Args:
        limits: Bounds.
        peek: How a task stands that runs in this process.
        owner: Begins each id: room for the process that has the session.
    """

    def __init__(self, limits: Limits, peek: Callable[[str], Task | None], owner: str = "0") -> None:
        self._peek = peek
        self._limits = limits
        self._owner = owner
        self._open: dict[str, Session] = {}
        # Over HTTP, without a call or a stream: the one that has been so for the longest time first.
        self._idle: dict[str, Session] = {}
        self._shared: dict[str, Session] = {}
        self._store = EventStore(limits.sessions_bytes)
        self._nursery: trio.Nursery | None = None
        self._sweep: trio.CancelScope = trio.CancelScope()
        self._news: trio.lowlevel.ParkingLot = trio.lowlevel.ParkingLot()
        # Of sessions that are streams.
        self._places = 0
        self._ended = False

    def statistics(self) -> SessionsStatistics:
        """What is held."""
        return SessionsStatistics(len(self._open), len(self._idle), self._store.bytes)

    def all(self) -> list[Session]:
        """Those that are open."""
        return [session for session in self._open.values() if not session.closed]

    # -- life

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Held while the server is open. Sessions with calls get `limits.drain_timeout` at the end."""
        limits = self._limits
        async with open_collector(nullcontext(), limits.drain_timeout, limits.task_settle) as nursery:
            self._nursery = nursery
            nursery.start_soon(self._expire)
            try:
                yield
            finally:
                self._ended = True
                self._sweep.cancel()
                for session in self.all():
                    if session.idle:
                        session.close("the server ends")

    async def _expire(self) -> None:
        with self._sweep:
            while True:
                if not self._idle:
                    await self._news.park()
                    continue
                oldest = next(iter(self._idle.values()))
                await trio.sleep_until(oldest.last_used + self._limits.session_idle)
                now = trio.current_time()
                for session in [*self._idle.values()]:
                    if session.last_used + self._limits.session_idle > now:
                        break
                    session.close("nobody has used it for a while")

    async def start(self, dialect: Dialect, hello: Hello, principal: str) -> Session:
        """Open a session over HTTP.

        Raises:
            ServerBusy: there are as many as there may be, and each of them is in use; or the server ends.
        """
        nursery = self._make_room()
        session = self._make(dialect, hello, principal)
        session.on_use = self._used
        self._shared[session.id] = session
        self._used(session)
        await nursery.start(self._live, session)
        return session

    def take_place(self) -> str:
        """A place for a session that is a stream, which ends with it: it counts as the others do, and is always in use.

        Returns:
            An id. Whoever has it calls `give_place` at the end.

        Raises:
            ServerBusy: as for `start`.
        """
        self._make_room()
        self._places += 1
        return self._new_id()

    def give_place(self) -> None:
        """Such a stream has ended."""
        self._places -= 1

    def _make_room(self) -> trio.Nursery:
        if self._ended or self._nursery is None:
            raise ServerBusy("Server busy: the server is shutting down", {"retryAfter": self._limits.retry_after})
        if len(self._shared) + self._places >= self._limits.sessions:
            oldest = next(iter(self._idle.values()), None)
            if oldest is None:
                raise ServerBusy(
                    f"Server busy: {self._limits.sessions} sessions are open, and each is in use; "
                    f"try again in {self._limits.retry_after:g} s",
                    {"retryAfter": self._limits.retry_after},
                )
            logger.warning("%r ends, since %d sessions are open and another one begins", oldest, len(self._shared))
            oldest.close("another one has taken its place")
            self._forget(oldest)
        return self._nursery

    async def _live(self, session: Session, *, task_status: trio.TaskStatus[None]) -> None:
        try:
            async with trio.open_nursery() as session.nursery:
                task_status.started()
                if not session.closed:
                    # Another one may have taken its place before it began.
                    if self._limits.session_ping == math.inf:
                        await trio.sleep_forever()
                    await session.keep_alive(self._limits.session_ping)
                    session.close("the client does not answer pings")
        finally:
            session.close("the server ends")
            self._forget(session)

    def join(self, dialect: Dialect, hello: Hello, principal: str = "") -> Session:
        """A session that is a connection. Whoever has that calls `leave` at its end."""
        return self._make(dialect, hello, principal)

    def leave(self, session: Session) -> None:
        """The connection of a session has ended."""
        session.close("the connection has ended")
        self._forget(session)

    def alone(self, dialect: Dialect) -> Session:
        """What stands for a session around one request that has none: it knows nothing of its client, and nobody finds it.
        Whoever asks for it closes it."""
        store = EventStore(self._limits.session_bytes)
        return Session(self._new_id(), dialect, Hello(dialect.revision, {}, None), self._limits, store)

    def _new_id(self) -> str:
        return f"{self._owner}-{secrets.token_hex(16)}"

    def _make(self, dialect: Dialect, hello: Hello, principal: str) -> Session:
        session = Session(self._new_id(), dialect, hello, self._limits, self._store, principal)
        self._open[session.id] = session
        return session

    def _forget(self, session: Session) -> None:
        for table in (self._open, self._idle, self._shared):
            table.pop(session.id, None)

    def _used(self, session: Session) -> None:
        self._idle.pop(session.id, None)
        if session.idle and not session.closed:
            if self._ended:
                session.close("the server ends")
                return
            self._idle[session.id] = session
            if self._news:
                self._news.unpark_all()

    # -- use

    def find(self, id: str, principal: str) -> Session | None:
        """A session over HTTP; None where there is none, where it is over, and where it is somebody else's."""
        session = self._shared.get(id)
        return None if session is None or session.closed or session.principal != principal else session

    def _hear_task(self, task_id: str) -> None:
        row = None
        for session in self._open.values():
            if task_id in session.tasks:
                row = row or self._peek(task_id)
                if row is None:
                    return
                session.task_changed(task_id, encode_notification(TASK_STATUS, session_row(row)))

    def hear(self, notice: Notice) -> None:
        """Tell those who want to know of a change."""
        method, subject = notice
        if not self._open:
            return
        if method == TASK_CHANGED:
            self._hear_task(subject or "")
        if method not in _TOLD:
            return
        message = encode_notification(method, {} if subject is None else {"uri": subject})
        for session in self._open.values():
            session.offer(method, subject, message)
