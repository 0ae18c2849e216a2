"""Frames that are read a few at a time."""

from __future__ import annotations

from tests.wire.http2_frames import CANCEL, PING, frame, head, rst, server, update
from trio_mcp.wire.http2_events import Event, Fatal

DATA = b"".join(
    head(stream, end=True) + frame(PING, 0, 0, bytes(8)) + update(stream, 5) + rst(stream, CANCEL)
    for stream in range(1, 41, 2)
)


def test_what_waits_means_the_same_later() -> None:
    whole, parts = server(), server()
    wanted = whole.receive(DATA, 0.0)
    got: list[Event] = []
    data, turns = DATA, 0
    while True:
        got += parts.receive(data, 0.0, 7)
        data, turns = b"", turns + 1
        if not parts.behind:
            break
    assert [type(event) for event in got] == [type(event) for event in wanted]
    assert parts.take(0.0) == whole.take(0.0)
    assert turns == len(range(0, 80, 7))
    assert not whole.behind


def test_nothing_waits_behind_an_error() -> None:
    one = server()
    assert one.receive(head(1, end=True) + rst(99) + head(3, end=True), 0.0, 1)
    assert one.behind
    *_, last = one.receive(b"", 0.0, 1)
    assert isinstance(last, Fatal)
    assert not one.behind
    assert one.receive(b"", 0.0) == []
