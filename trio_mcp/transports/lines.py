"""Serving one connection of newline-delimited messages.

A request is a task from the moment it is read: it waits for its places in its own scope, with the ticket that it drew in the
order of arrival. So the reader never waits for a handler or for the writer, and hears a cancellation and the end of input at any
load. It is the watcher of every call on the connection; a call needs no nursery of its own.

The end. Running requests get `drain_timeout` after the end of input, and also after the scope around the whole is cancelled:
they stand in a scope that is shielded until then. Whoever still runs then is cancelled, and its client told.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import trio

from ..errors import InvalidRequest, ProtocolError, ServerBusy, TimedOut
from ..protocol.envelope import (
    BadMessage,
    Message,
    Notification,
    Request,
    RequestId,
    encode_error,
    encode_notification,
    encode_result,
    is_request_id,
    parse_value,
)
from ..protocol.framing import TOO_LONG
from ..protocol.jsontext import loads
from ..protocol.listening import CANCELLED
from ..protocol.revisions import names_version
from ..scopes.call import ENDING, Call, LastingCall, Settlement
from ..scopes.executor import Executor
from ..scopes.groups import unwrapped
from ..server.serve.engine import Engine
from .line_session import Batch, LineSession, Sink, check_batch
from .link import Link

__all__ = ["Connection", "serve_lines"]

logger: logging.Logger = logging.getLogger("trio_mcp.server")

# Lines that are taken in one turn of the scheduler: one read may have hundreds, and other connections wait meanwhile.
_TURN = 16


class Connection:
    """One connection that stays: the calls on it, and its session.

    Args:
        engine: The server.
        link: Where messages go.
        nursery: Holds the calls; cancelled when the client is left.
    """

    def __init__(self, engine: Engine, link: Sink, nursery: trio.Nursery) -> None:
        self._engine = engine
        self._link = link
        self._nursery = nursery
        self._executor = Executor.of_connection(engine.limits, engine.executor)
        self._sessions = LineSession(engine, link, nursery)
        # Those that are not settled, by id; and how many tasks there are, also of those that clean up.
        self._calls: dict[RequestId, Call] = {}
        self._under_way = 0
        self._idle = trio.Event()
        self._lasting = 0
        # Bytes of refusals since the buffer is full.
        self._refused = 0

    # -- what a call needs of its transport

    def begin(self) -> None:
        pass

    @property
    def full(self) -> bool:
        return self._link.full

    async def wait_room(self) -> None:
        await self._link.wait_room()

    def post(self, message: bytes) -> None:
        self._link.post(message, now=self._executor.idle)

    def answer(self, message: bytes) -> bool:
        self._link.post(message, now=self._executor.idle)
        return not self._link.broken

    # -- reading

    async def read(self, link: Link) -> None:
        """Read to the end of input."""
        while lines := await link.receive():
            for number, line in enumerate(lines, 1):
                self._take(line)
                if not number % _TURN:
                    # What was read is taken, also when the end comes: so this is no place to be cancelled.
                    await trio.lowlevel.cancel_shielded_checkpoint()

    def _take(self, line: Any) -> None:
        if line is TOO_LONG:
            limit = self._engine.limits.message_bytes
            self._refuse(None, InvalidRequest(f"Message too long: the limit is {limit} bytes a line"))
            return
        limits = self._engine.limits
        try:
            value = loads(line, limits)
        except ProtocolError as exc:
            self._refuse(None, exc)
            return
        if type(value) is list and self.batches:
            self.take_batch(value, len(line))
        else:
            self._take_one(value, len(line))

    def _take_one(self, value: Any, size: int, batch: Batch | None = None) -> None:
        try:
            message = parse_value(value, self._engine.limits)
        except BadMessage as exc:
            if batch is not None:
                batch.answer(encode_error(exc.reply_id, exc.error))
            else:
                self._refuse(exc.reply_id, exc.error)
            return
        self.take(message, size, batch)

    @property
    def batches(self) -> bool:
        """Whether several messages may come at once."""
        session = self._sessions.session
        return session is not None and session.dialect.batches

    def take(self, message: Message, size: int, batch: Batch | None = None) -> None:
        """Take one message. Does not wait.

        Args:
            message: The message.
            size: Its bytes.
            batch: What it came in.
        """
        if isinstance(message, Request):
            self._admit(message, size, batch)
        elif isinstance(message, Notification):
            self._notified(message)
        else:
            self._sessions.take(message)

    def take_batch(self, values: list[Any], size: int) -> None:
        """Take several messages, of `size` bytes together. Does not wait."""
        try:
            check_batch(values, self._engine.limits)
        except InvalidRequest as exc:
            self._refuse(None, exc)
            return
        batch = Batch(self, self.answer)
        for value in values:
            self._take_one(value, size // len(values), batch)
        batch.ended()

    def _admit(self, request: Request, size: int, batch: Batch | None) -> None:
        engine, session = self._engine, self._sessions.session
        try:
            if request.id in self._calls:
                raise InvalidRequest("Invalid request: a request with this id is still under way")
            if not engine.legacy or names_version(request.params):
                call = engine.prepare(request, self)
            elif request.method == "initialize":
                if batch is not None:
                    raise InvalidRequest("Invalid request: initialize must not be part of a batch")
                self._reply(self._sessions.begin(request))
                return
            elif session is None and request.method == "ping":
                # A client may ask whether anybody is there before all else (basic/lifecycle, section Initialization).
                self._reply(encode_result(request.id, b"{}"))
                return
            elif session is None:
                # Malformed in the modern revision, which says what is missing.
                call = engine.prepare(request, self)
            else:
                prepared = engine.prepare_in(session, request, self if batch is None else batch)
                if isinstance(prepared, bytes):
                    if batch is None:
                        self._reply(prepared)
                    else:
                        batch.answer(prepared)
                    return
                call = prepared
            if isinstance(call, LastingCall):
                self._check_listeners()
                self._lasting += 1
            else:
                call.place = self._executor.ticket(size)
        except ProtocolError as exc:
            if session is not None and not names_version(request.params):
                exc = session.dialect.error(exc)
            if batch is not None:
                batch.answer(encode_error(request.id, exc))
            else:
                self._refuse(request.id, exc)
            return
        if batch is not None and call.outlet is batch:
            batch.add()
        self._calls[call.id] = call
        self._under_way += 1
        # It starts from the context of the reader, so never from that of another call.
        self._nursery.start_soon(self._run, call)

    def _check_listeners(self) -> None:
        limits = self._engine.limits
        if self._lasting >= limits.connection_listeners:
            raise ServerBusy(
                f"Server busy: {self._lasting} streams of this connection are listening already; "
                f"try again in {limits.retry_after:g} s",
                {"retryAfter": limits.retry_after},
            )

    async def _run(self, call: Call) -> None:
        lasting = isinstance(call, LastingCall)
        try:
            await self._engine.run(call)
            if isinstance(call, LastingCall) and call.ended and call.settlement is Settlement.ANSWERED:
                # The result says it, and the notification too (basic/patterns/cancellation): clients look for either.
                ended = {"requestId": call.id, "reason": "the server ends"}
                self._link.post(encode_notification(CANCELLED, ended))
        finally:
            self._lasting -= lasting
            self._under_way -= 1
            self._forget(call)
            if type(call.outlet) is Batch:
                call.outlet.ended()
            if not self._under_way:
                self._idle.set()

    def _forget(self, call: Call) -> None:
        if self._calls.get(call.id) is call:
            del self._calls[call.id]

    def _notified(self, message: Notification) -> None:
        if message.method != CANCELLED:
            self._sessions.take(message)
            return
        target = message.params.get("requestId")
        # Anything that is not the id of a running call is ignored (basic/patterns/cancellation, section Error Handling).
        call = self._calls.get(target) if is_request_id(target) else None  # type: ignore[arg-type]
        if call is None:
            return
        reason = message.params.get("reason")
        self._cancel(call, reason if isinstance(reason, str) else "cancelled by the client")

    def _cancel(self, call: Call, reason: str) -> None:
        if call.cancel(reason):
            # Nothing will be said under its id any more, so that is free.
            self._forget(call)
            logger.info("%r cancelled: %s", call, reason)

    def _refuse(self, id: RequestId | None, error: ProtocolError) -> None:
        self._reply(encode_error(id, error))

    def _reply(self, message: bytes) -> None:
        """Answer what was just read. The reader does not wait, so a client that does not read is left."""
        # What waits besides are answers, of which one may be larger than the buffer: they do not count.
        self._refused = self._refused + len(message) if self._link.full else 0
        self._link.post(message, now=self._executor.idle)
        if self._refused > self._engine.limits.write_buffer:
            # Nothing that it sends is held beyond the bounds, and neither is what it is told of that.
            logger.warning("a client that sends and does not read is left")
            self._nursery.cancel_scope.cancel()

    # -- ending

    def end(self) -> None:
        """The end begins, again once nothing more is read: calls that only wait have nothing to wait for any more."""
        self._sessions.deafen()
        for call in self._calls.values():
            if isinstance(call, LastingCall):
                call.end()
            else:
                # Nobody is left who could ask for the task.
                call.stays = True

    def give_up(self) -> None:
        """The time is over: whatever still runs is answered so, and has nothing more to say."""
        for call in [*self._calls.values()]:
            call.give_up(encode_error(call.id, TimedOut(ENDING)))
            self._forget(call)

    def leave(self) -> None:
        """The connection has ended."""
        self._sessions.end()

    async def wait_idle(self) -> None:
        """Wait until no call is under way."""
        while self._under_way:
            self._idle = trio.Event()
            await self._idle.wait()


async def serve_lines(
    engine: Engine,
    link: Link,
    *,
    on_end: Callable[[], object] = lambda: None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve one connection until its input ends or the scope around this is cancelled. Closes the link.

    Args:
        engine: The server.
        link: The connection.
        on_end: Called when the end begins.
        task_status: For `nursery.start`; started when messages are read.

    Either way running requests get `limits.drain_timeout` to finish and their answers are written; then they are
    cancelled, and answered with an error that says so.
    """
    drain = engine.limits.drain_timeout
    with unwrapped():
        async with trio.open_nursery() as outer:
            with trio.CancelScope(shield=True):
                reader_scope = trio.CancelScope()
                patience = trio.CancelScope()
                connection: Connection | None = None

                def end() -> None:
                    # Sync, so it works in a task that is being cancelled: from here on the shield has a bound.
                    reader_scope.cancel()
                    patience.deadline = min(patience.deadline, trio.current_time() + drain)
                    if connection is not None:
                        connection.end()

                async def await_cancel() -> None:
                    try:
                        await trio.sleep_forever()
                    finally:
                        end()

                async def expire(connection: Connection, nursery: trio.Nursery) -> None:
                    with patience:
                        await trio.sleep_forever()
                    # In one step: a handler that cleans up finds its call settled.
                    connection.give_up()
                    with trio.move_on_after(drain):
                        await link.wait_flushed()
                    nursery.cancel_scope.cancel()

                outer.start_soon(await_cancel)
                try:
                    async with trio.open_nursery() as nursery:
                        connection = Connection(engine, link, nursery)
                        nursery.start_soon(_write, link, nursery.cancel_scope)
                        nursery.start_soon(expire, connection, nursery)
                        task_status.started()
                        with reader_scope:
                            await connection.read(link)
                        end()
                        on_end()
                        if link.hung_up:
                            # Nobody is left to read an answer, so there is nothing to wait for.
                            nursery.cancel_scope.cancel()
                        await connection.wait_idle()
                        await link.wait_flushed()
                        nursery.cancel_scope.cancel()
                finally:
                    if connection is not None:
                        connection.leave()
                    with trio.move_on_after(drain, shield=True):
                        await link.aclose()
            outer.cancel_scope.cancel()


async def _write(link: Link, scope: trio.CancelScope) -> None:
    await link.write_loop()
    # Nobody takes our answers any more: nothing that still runs can be delivered.
    scope.cancel()
