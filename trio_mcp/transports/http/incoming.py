"""A request of HTTP/1.1 while it arrives."""

from __future__ import annotations

import httptools

from ...protocol.http import Accepts, Refusal

__all__ = ["Incoming"]


class Incoming:
    """A request while it arrives."""

    __slots__ = (
        "body",
        "body_size",
        "complete",
        "head_done",
        "headers",
        "keep_alive",
        "method",
        "old",
        "parts",
        "size",
        "url",
        "verdict",
        "waits",
    )

    def __init__(self) -> None:
        self.method: str = ""
        self.url: bytes = b""
        self.headers: dict[bytes, bytes] = {}
        self.body: bytes = b""
        self.parts: list[bytes] = []
        self.body_size: int = 0
        self.size: int = 0
        self.head_done: bool = False
        self.complete: bool = False
        self.keep_alive: bool = True
        self.old: bool = False  # HTTP/1.0: no chunks
        self.verdict: Refusal | Accepts | None = None
        self.waits: bool = False  # for "100 Continue"

    def head_without_upgrade(self) -> bytes:
        """The head again, without what offers another protocol."""
        lines = [f"{self.method} ".encode() + self.url + (b" HTTP/1.0" if self.old else b" HTTP/1.1")]
        lines += [
            name + b": " + value
            for name, value in self.headers.items()
            if name not in (b"upgrade", b"connection", b"http2-settings")
        ]
        lines.append(b"connection: keep-alive" if self.keep_alive else b"connection: close")
        return b"\r\n".join(lines) + b"\r\n\r\n"

    @property
    def path(self) -> str:
        """The path, without the query; of an absolute form, too."""
        url = self.url
        if not url.startswith(b"/"):
            try:
                url = httptools.parse_url(url).path or b"/"
            except httptools.HttpParserInvalidURLError:
                return ""
        return url.partition(b"?")[0].decode("latin-1")
