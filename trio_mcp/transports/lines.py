"""Serving one connection of newline-delimited messages.

The reader is the watcher of every call on the connection: it alone hears `notifications/cancelled` and the end of input.
So a call here needs one task and no nursery of its own. Answers are posted to the link, which writes many at once.

The end. Running requests get `drain_timeout` after the end of input, and also after the scope around the whole is
cancelled: they stand in a scope that is shielded until then, and whose deadline is set when the end comes.
"""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Callable

import trio

from ..errors import InvalidRequest, ProtocolError, ServerBusy
from ..protocol.envelope import (
    BadMessage,
    Notification,
    Request,
    RequestId,
    encode_error,
    encode_notification,
    is_request_id,
    parse_message,
)
from ..protocol.framing import TOO_LONG
from ..scopes.call import Call, LastingCall, Settlement
from ..scopes.executor import Executor
from ..scopes.groups import unwrapped
from ..server.engine import Engine
from .link import Link

__all__ = ["serve_lines"]

logger: logging.Logger = logging.getLogger("trio_mcp.server")


class _Connection:
    def __init__(self, engine: Engine, link: Link, nursery: trio.Nursery) -> None:
        self._engine = engine
        self._link = link
        self._nursery = nursery
        self._executor = Executor.of_connection(engine.limits)
        self._calls: dict[RequestId, Call] = {}
        # Every call starts from the context that the connection was opened in, never from that of another call.
        self._context = contextvars.copy_context()
        self._idle = trio.Event()
        self._ending = False
        self._lasting = 0

    # -- what a call needs of its transport

    async def send(self, message: bytes) -> None:
        self._link.post(message, now=self._executor.idle)
        if self._link.full:
            await self._link.wait_room()
        else:
            await trio.lowlevel.checkpoint()

    def answer(self, message: bytes) -> None:
        self._link.post(message, now=self._executor.idle)

    # -- reading

    async def read(self) -> None:
        """Read to the end of input."""
        while lines := await self._link.receive():
            for line in lines:
                if line is TOO_LONG:
                    limit = self._engine.limits.message_bytes
                    await self._refuse(None, InvalidRequest(f"Message too long: the limit is {limit} bytes a line"))
                    continue
                try:
                    message = parse_message(line, self._engine.limits)
                except BadMessage as exc:
                    await self._refuse(exc.id, exc.error)
                    continue
                if isinstance(message, Request):
                    await self._admit(message)
                elif isinstance(message, Notification):
                    self._notified(message)
                else:
                    logger.warning("ignored a response from the client: this server asks nothing")

    async def _admit(self, request: Request) -> None:
        try:
            if request.id in self._calls:
                raise InvalidRequest("Invalid request: a request with this id is still under way")
            call = self._engine.prepare(request, self)
            if isinstance(call, LastingCall):
                self._check_listeners()
                # It takes no place, so room for what it will say is what holds back a peer that asks and does not read.
                await self._link.wait_room()
                self._calls[call.id] = call
                self._lasting += 1
                self._context.run(self._nursery.start_soon, self._last, call)
                return
            await self._executor.wait_room()
            self._calls[call.id] = call
            try:
                self._executor.submit(call, lambda: self._start(call))
            except BaseException:
                del self._calls[call.id]
                raise
        except ProtocolError as exc:
            await self._refuse(request.id, exc)

    def _check_listeners(self) -> None:
        limits = self._engine.limits
        if self._lasting >= limits.connection_listeners:
            raise ServerBusy(
                f"Server busy: {self._lasting} streams of this connection are listening already; "
                f"try again in {limits.retry_after:g} s",
                {"retryAfter": limits.retry_after},
            )

    def _start(self, call: Call) -> None:
        """The connection gave the call its place; now the server has to."""
        try:
            self._engine.executor.submit(call, lambda: self._spawn(call))
        except ProtocolError as exc:
            del self._calls[call.id]
            self._link.post(encode_error(call.id, exc))
            self._nursery.start_soon(self._give_back)

    async def _give_back(self) -> None:
        # In a task of its own: a release starts the next call, which may be refused as well, and so on down the queue.
        self._executor.release()
        self._check_idle()

    def _spawn(self, call: Call) -> None:
        self._context.run(self._nursery.start_soon, self._run, call)

    async def _run(self, call: Call) -> None:
        try:
            # A place that came free while everything ends must not start user code.
            await trio.lowlevel.checkpoint_if_cancelled()
            await self._engine.run(call)
            if self._link.full:
                # The place stays taken until the answer has room: a peer that does not read is not read from for ever.
                await self._link.wait_room()
        finally:
            self._calls.pop(call.id, None)
            self._engine.executor.release()
            self._executor.release()
            self._check_idle()

    async def _last(self, call: LastingCall) -> None:
        """Run a call that takes no place."""
        if self._ending:
            call.end()
        try:
            await self._engine.run(call)
            if call.ended and call.settlement is Settlement.ANSWERED:
                # The result says it, and the notification too (basic/patterns/cancellation): clients look for either.
                ended = {"requestId": call.id, "reason": "the server ends"}
                self._link.post(encode_notification("notifications/cancelled", ended))
        finally:
            self._lasting -= 1
            self._calls.pop(call.id, None)
            self._check_idle()

    def _notified(self, message: Notification) -> None:
        if message.method != "notifications/cancelled":
            return
        target = message.params.get("requestId")
        # Anything that is not the id of a running call is ignored (basic/patterns/cancellation, section Error Handling).
        call = self._calls.get(target) if is_request_id(target) else None  # type: ignore[arg-type]
        if call is None:
            return
        reason = message.params.get("reason")
        self._cancel(call, reason if isinstance(reason, str) else "cancelled by the client")

    def _cancel(self, call: Call, reason: str) -> None:
        if not call.cancel(reason):
            return
        logger.info("%r cancelled: %s", call, reason)
        if self._executor.withdraw(call):
            del self._calls[call.id]
        elif self._engine.executor.withdraw(call):
            del self._calls[call.id]
            self._executor.release()
        self._check_idle()

    async def _refuse(self, id: RequestId | None, error: ProtocolError) -> None:
        self._link.post(encode_error(id, error), now=self._executor.idle)
        await self._link.wait_room()

    # -- ending

    def end(self) -> None:
        """The end begins: calls that only wait have nothing to wait for any more."""
        self._ending = True
        for call in self._calls.values():
            if isinstance(call, LastingCall):
                call.end()

    def _check_idle(self) -> None:
        if not self._calls:
            self._idle.set()

    def forget(self) -> None:
        """Nothing runs any more: leave the queue of the server."""
        for call in self._calls.values():
            self._engine.executor.withdraw(call)
        self._calls.clear()

    async def wait_idle(self) -> None:
        """Wait until no call is under way and every answer is written."""
        while self._calls:
            self._idle = trio.Event()
            await self._idle.wait()
        await self._link.wait_flushed()


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
    cancelled.
    """
    drain = engine.limits.drain_timeout
    with unwrapped():
        async with trio.open_nursery() as outer:
            with trio.CancelScope(shield=True) as life:
                reader_scope = trio.CancelScope()
                connection: _Connection | None = None

                def end() -> None:
                    # Sync, so it works in a task that is being cancelled: from here on the shield has a deadline.
                    reader_scope.cancel()
                    life.deadline = min(life.deadline, trio.current_time() + drain)
                    if connection is not None:
                        connection.end()

                async def await_cancel() -> None:
                    try:
                        await trio.sleep_forever()
                    finally:
                        end()

                outer.start_soon(await_cancel)
                try:
                    async with trio.open_nursery() as nursery:
                        connection = _Connection(engine, link, nursery)
                        nursery.start_soon(_write, link, nursery.cancel_scope)
                        task_status.started()
                        with reader_scope:
                            await connection.read()
                        end()
                        on_end()
                        if link.hung_up:
                            # Nobody is left to read an answer, so there is nothing to wait for.
                            nursery.cancel_scope.cancel()
                        await connection.wait_idle()
                        nursery.cancel_scope.cancel()
                finally:
                    if connection is not None:
                        connection.forget()
                    with trio.move_on_after(drain, shield=True):
                        await link.aclose()
            outer.cancel_scope.cancel()


async def _write(link: Link, scope: trio.CancelScope) -> None:
    await link.write_loop()
    # Nobody takes our answers any more: nothing that still runs can be delivered.
    scope.cancel()
