"""A number of connections that are kept busy, on raw sockets in one thread; and HTTP/1.1, with one call under way on each."""

from __future__ import annotations

import select
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Container
from typing import Any, Final, Generic, TypeVar

from .load import Figures, Meter
from .processes import Cores
from .wire import PostTemplate, hello, initialized, post

__all__ = ["Http1Load", "HttpSocket", "Load", "SessionLoad", "SessionSocket", "Socket", "answer_end", "keep_busy"]

STALL: Final = 10.0
"""Seconds without any answer after which a load gives up."""


def answer_end(data: bytes) -> tuple[int, int, bytes]:
    """Where the first whole response ends (0 while it is not whole), its status, and its head in lower case."""
    split = data.find(b"\r\n\r\n")
    if split < 0:
        return 0, 0, b""
    head = data[:split].lower()
    status = int(head[9:12])
    start = split + 4
    found = head.find(b"\r\ncontent-length:")
    if found >= 0:
        stop = head.find(b"\r\n", found + 2)
        end = start + int(head[found + 17 : stop if stop >= 0 else len(head)])
        return (end if len(data) >= end else 0), status, head
    if b"transfer-encoding: chunked" in head:
        if data.startswith(b"0\r\n\r\n", start):
            return start + 5, status, head
        last = data.find(b"\r\n0\r\n\r\n", start)
        return (last + 7 if last >= 0 else 0), status, head
    return (start if status in (202, 204) else 0), status, head


class Socket:
    """One connection.

    Args:
        port: Where the server listens.
        timeout: Seconds that one read may take.

    Attributes:
        sock: The socket.
    """

    def __init__(self, port: int, timeout: float | None = None) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        """Hang up."""
        self.sock.close()


class HttpSocket(Socket):
    """One connection of HTTP/1.1."""

    def __init__(self, port: int, timeout: float | None = None) -> None:
        super().__init__(port, timeout)
        self.held = b""
        self.begun = 0

    def ask(self, request: bytes, expected: Container[int] = (200,)) -> bytes:
        """Send one request and wait for its whole response.

        Args:
            request: Its bytes.
            expected: The statuses that are right.

        Raises:
            EOFError: the server ended the connection instead.
            RuntimeError: the status is another one.
        """
        self.sock.sendall(request)
        while True:
            end, status, _ = answer_end(self.held)
            if end:
                answer, self.held = self.held[:end], self.held[end:]
                if status not in expected:
                    raise RuntimeError(f"refused: {answer[:300].decode(errors='replace')}")
                return answer
            data = self.sock.recv(1 << 16)
            if not data:
                raise EOFError(f"the server ended the connection: {self.held[:300].decode(errors='replace')}")
            self.held += data

    def wait_for(self, text: bytes) -> None:
        """Read until this text has come in; it may be in the middle of a response.

        Raises:
            EOFError: the server ended the connection before.
        """
        while text not in self.held:
            data = self.sock.recv(1 << 16)
            if not data:
                raise EOFError(f"the server ended the connection: {self.held[:300].decode(errors='replace')}")
            self.held += data


S = TypeVar("S", bound=Socket)


class Load(ABC, Generic[S]):
    """Connections with calls on them.

    Args:
        port: Where the server listens.
        expected: What must be in a right answer.
        calls: Calls under way on each connection.

    Attributes:
        took: Nanoseconds of every call that was answered.
        errors: How many of them had a wrong answer.
        sample: The beginning of a wrong answer.
    """

    def __init__(self, port: int, expected: bytes, calls: int = 1) -> None:
        self._port = port
        self._expected = expected
        self._calls = calls
        self._epoll = select.epoll()
        self._open: dict[int, S] = {}
        self._last = 0
        self.took: list[int] = []
        self.errors: int = 0
        self.sample: bytes = b""

    @abstractmethod
    def _dial(self) -> S:
        """A new connection."""

    @abstractmethod
    def _fire(self, connection: S) -> None:
        """Begin a call."""

    @abstractmethod
    def _take(self, number: int, connection: S, again: bool) -> None:
        """Read once from the connection of this descriptor; call again for each answer that is whole, or hang up."""

    def connect(self) -> None:
        """One more connection, with its calls on it."""
        connection = self._dial()
        self._open[connection.sock.fileno()] = connection
        self._epoll.register(connection.sock.fileno(), select.EPOLLIN)
        for _ in range(self._calls):
            self._fire(connection)

    def turn(self, again: bool) -> None:
        """Take what has come in; with `again`, a new call follows each that is answered."""
        ready = self._epoll.poll(STALL)
        if not ready:
            raise RuntimeError(f"no answer within {STALL:g} s")
        for number, _ in ready:
            self._take(number, self._open[number], again)

    def _answered(self, begun: int, right: bool, data: bytes) -> None:
        self.took.append(time.perf_counter_ns() - begun)
        if not right:
            self.errors += 1
            self.sample = self.sample or data[:300]

    def _drop(self, number: int) -> None:
        self._epoll.unregister(number)
        self._open.pop(number).close()

    def finish(self) -> None:
        """Wait for what is under way, and hang up."""
        try:
            while self._open:
                self.turn(False)
        finally:
            for number in list(self._open):
                self._drop(number)
            self._epoll.close()


class Http1Load(Load[HttpSocket]):
    """HTTP/1.1: one call at a time on each connection.

    Args:
        port: Where the server listens.
        template: The request.
        expected: What must be in a right answer.
    """

    def __init__(self, port: int, template: PostTemplate, expected: bytes) -> None:
        super().__init__(port, expected)
        self._request = template.to(port)

    def _dial(self) -> HttpSocket:
        return HttpSocket(self._port)

    def _fire(self, connection: HttpSocket) -> None:
        self._last += 1
        connection.begun = time.perf_counter_ns()
        connection.sock.send(self._request(self._last))

    def _take(self, number: int, connection: HttpSocket, again: bool) -> None:
        data = connection.sock.recv(1 << 18)
        if not data:
            raise EOFError("the server ended a connection in the middle of a call")
        if connection.held:
            data = connection.held + data
        end, status, head = answer_end(data)
        if not end:
            connection.held = data
            return
        connection.held = b""
        self._answered(connection.begun, status == 200 and self._expected in data, data)
        if not again:
            self._drop(number)
        elif b"connection: close" in head:
            self._drop(number)
            self.connect()
        else:
            self._fire(connection)


class SessionSocket(HttpSocket):
    """One connection, with a session of its own."""

    def __init__(self, port: int, timeout: float | None = None) -> None:
        super().__init__(port, timeout)
        head = self.ask(post(port, hello(1))).partition(b"\r\n\r\n")[0]
        found = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"mcp-session-id:"))
        self.session = found.partition(b":")[2].strip().decode()
        self.ask(post(port, initialized(), self.session), (202,))
        self.request: Callable[[int], bytes] = bytes


class SessionLoad(Http1Load):
    """The same in sessions (2025-11-25), of which each connection has one.

    Args:
        port: Where the server listens.
        template: The request, for the id of a session.
        expected: What must be in a right answer.
    """

    def __init__(self, port: int, template: Callable[[str], PostTemplate], expected: bytes) -> None:
        super().__init__(port, template(""), expected)
        self._template = template

    def _dial(self) -> SessionSocket:
        connection = SessionSocket(self._port)
        connection.request = self._template(connection.session).to(self._port)
        return connection

    def _fire(self, connection: HttpSocket) -> None:
        assert isinstance(connection, SessionSocket)
        self._last += 1
        connection.begun = time.perf_counter_ns()
        connection.sock.send(connection.request(self._last))


def keep_busy(
    load: Load[Any],
    pid: int,
    cores: Cores,
    connections: int,
    duration: float,
    *,
    warmup: float = 0.5,
    counting: Callable[[bool], None] = lambda begins: None,
) -> Figures:
    """Send one request after the other for `duration` seconds, on all connections at once.

    Args:
        load: The kind of connection and of request.
        pid: The server's process.
        cores: Which core is whose.
        connections: How many.
        duration: Seconds that are counted.
        warmup: Seconds before.
        counting: Called when counting begins (True) and when it ends (False).

    Raises:
        RuntimeError: an answer was wrong, or none came.
    """
    meter = Meter(pid, cores)
    now = time.perf_counter
    try:
        for _ in range(connections):
            load.connect()
        begin = now() + warmup
        while now() < begin:
            load.turn(True)
        load.took.clear()
        counting(True)
        meter.start()
        end = now() + duration
        while now() < end:
            load.turn(True)
        figures = meter.figures(load.took, load.errors)
        counting(False)
    finally:
        load.finish()
    if load.errors:
        raise RuntimeError(f"{load.errors} answers were wrong: {load.sample.decode(errors='replace')}")
    return figures
