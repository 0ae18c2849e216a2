"""A proxy between an HTTP/1.1 client and its server that copies bytes unchanged and writes down each message.

    python http_tap.py LOG URL

Prints the URL to be used instead, and runs until it is killed. Whatever one side does to its connection, its end among
it, happens to the other side's. A message is written down before its last byte is passed on, so the log is in the order
of cause and effect. See `http_log.py` for what is in it.
"""

from __future__ import annotations

import socket
import sys
import threading
from typing import Any
from urllib.parse import urlsplit

import httptools
from http_log import Body, HttpLog


class Requests:
    """What the client sends."""

    def __init__(self, log: HttpLog, tap: int) -> None:
        self._log = log
        self._tap = tap
        self._body = b""
        self._parser = httptools.HttpRequestParser(self)

    def feed(self, data: bytes) -> None:
        """Take what was read; nothing is the end."""
        if data:
            self._parser.feed_data(data)
        else:
            self._log.close_tap(self._tap)

    def on_body(self, data: bytes) -> None:
        """Called by the parser."""
        self._body += data

    def on_message_complete(self) -> None:
        """Called by the parser."""
        body, self._body = self._body, b""
        if body:
            self._log.write(self._tap, "client", body)


class Responses:
    """What the server sends."""

    def __init__(self, log: HttpLog, tap: int) -> None:
        self._log = log
        self._tap = tap
        self._kind = ""
        self._body: Body | None = None
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Take what was read; nothing is the end."""
        if data:
            self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser."""
        if name.lower() == b"content-type":
            self._kind = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        self._body, self._kind = Body(self._kind), ""

    def on_body(self, data: bytes) -> None:
        """Called by the parser."""
        assert self._body is not None
        self._note(self._body.feed(data))

    def on_message_complete(self) -> None:
        """Called by the parser."""
        assert self._body is not None
        self._note(self._body.end())

    def _note(self, messages: list[bytes]) -> None:
        for message in messages:
            self._log.write(self._tap, "server", message)


def copy(source: socket.socket, target: socket.socket, parser: Any) -> None:
    """Copy until the source ends or the target is gone."""
    data = b"begin"
    while data:
        try:
            data = source.recv(65536)
        except ConnectionResetError:
            data = b""
        parser.feed(data)
        try:
            if data:
                target.sendall(data)
            else:
                target.shutdown(socket.SHUT_WR)
        except OSError:
            return


def main(log_path: str, url: str) -> None:
    """Accept for ever."""
    log = HttpLog(log_path)
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}{parts.path}", flush=True)
    while True:
        client, _ = listener.accept()
        server = socket.create_connection((parts.hostname, parts.port))
        for sock in (client, server):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        tap = log.new_tap()
        directions = ((client, server, Requests(log, tap)), (server, client, Responses(log, tap)))
        for direction in directions:
            threading.Thread(target=copy, args=direction, daemon=True).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
