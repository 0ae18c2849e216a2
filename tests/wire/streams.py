"""Byte streams of requests: good ones, made by h11; good ones with mistakes; and anything."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import h11
from hypothesis import strategies as st

TOKEN = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~"


@dataclass
class Sent:
    """A request for the client of h11 to send."""

    method: str
    target: str
    fields: list[tuple[str, str]]
    body: bytes
    chunks: list[int] | None
    trailers: list[tuple[str, str]] = field(default_factory=list)

    def to_bytes(self) -> bytes:
        client = h11.Connection(h11.CLIENT)
        framing = (
            ("Transfer-Encoding", "chunked") if self.chunks is not None else ("Content-Length", str(len(self.body)))
        )
        fields = [(name, value.encode("latin-1")) for name, value in [("Host", "localhost"), *self.fields, framing]]
        out = client.send(h11.Request(method=self.method, target=self.target, headers=fields)) or b""
        rest = self.body
        for size in [*(self.chunks or ()), len(rest)]:
            piece, rest = rest[:size], rest[size:]
            if piece:
                out += client.send(h11.Data(data=piece)) or b""
        return out + (client.send(h11.EndOfMessage(headers=self.trailers)) or b"")


def _not_special(pair: tuple[str, str]) -> bool:
    special = {"host", "content-length", "transfer-encoding", "connection", "expect", "upgrade", "trailer", "te"}
    return pair[0].lower() not in special


values = st.text('abc XYZ\t,;="/()<>é', max_size=20).map(lambda text: text.strip(" \t"))
fields = st.lists(st.tuples(st.text(TOKEN, min_size=1, max_size=12), values).filter(_not_special), max_size=4)
bodies = st.binary(max_size=120)
requests: st.SearchStrategy[Sent] = st.builds(
    Sent,
    st.sampled_from(["POST", "POST", "POST", "GET", "HEAD", "DELETE"]),
    st.sampled_from(["/", "/mcp", "/mcp?a=b", "*", "/x" * 30]),
    fields,
    bodies,
    st.none() | st.lists(st.integers(1, 40), max_size=4),
).map(lambda sent: sent if sent.method == "POST" else Sent(sent.method, sent.target, sent.fields, b"", None))

PIECES = [
    *(b"\r\n", b"\n", b"\r", b"\r\n\r\n", b" ", b"\t", b":", b",", b";", b"\x00", b"\x0b", b"\x7f", b"\x80", b"\xff"),
    *(b"POST", b"GET", b"PRI * HTTP/2.0", b"CONNECT a:1", b"HTTP/1.0", b"HTTP/1.1", b"HTTP/3.0", b"http://u@h/p", b"*"),
    *(b"Host: a\r\n", b"Content-Length: 5\r\n", b"Content-Length: 0\r\n", b"Content-Length: 9999\r\n", b"X: y\r\n"),
    *(
        b"Transfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: gzip, chunked\r\n",
        b"Transfer-Encoding:\r\n",
        b" folded\r\n",
    ),
    *(b"Connection: close\r\n", b"Connection: upgrade\r\n", b"Upgrade: h2c\r\n", b"Expect: 100-continue\r\n"),
    *(
        b"0\r\n\r\n",
        b"5\r\nhello\r\n",
        b"5;a=b\r\nhello\r\n",
        b"0\r\nT: x\r\n\r\n",
        b"ffff\r\n",
        b"a:\r\n" * 40,
        b"x" * 420,
    ),
    b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
    b"POST /mcp HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
]


def mutate(data: bytes, random: random.Random) -> bytes:
    """A few mistakes in good bytes."""
    for _ in range(random.randint(1, 4)):
        place = random.randint(0, len(data))
        other = random.randint(0, len(data))
        kind = random.randrange(6)
        if kind == 0:
            data = data[:place] + random.choice(PIECES) + data[place:]
        elif kind == 1:
            data = data[:place] + data[place + random.randint(1, 5) :]
        elif kind == 2:
            data = data[:place] + bytes([random.randrange(256)]) + data[place + 1 :]
        elif kind == 3:
            data = data[: max(place, other)] + data[min(place, other) :]
        elif kind == 4:
            piece = random.choice(PIECES)
            data = data[:place] + piece + data[place + len(piece) :]
        else:
            data = data[:place]
    return data


def expected_by_h11(data: bytes) -> list[tuple[str, bytes, bytes]]:
    """The complete requests in some bytes, as another parser reads them: method, target, body."""
    out: list[tuple[str, bytes, bytes]] = []
    while data := data.lstrip(b"\r\n"):
        parser = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
        parser.receive_data(data)
        body = b""
        head: Any = None
        try:
            while not isinstance(event := parser.next_event(), h11.EndOfMessage):
                if isinstance(event, h11.Request):
                    head = event
                elif isinstance(event, h11.Data):
                    body += bytes(event.data)
                else:
                    return out
        except h11.ProtocolError:
            return out
        out.append((head.method.decode(), head.target, body))
        data, _ = parser.trailing_data
    return out
