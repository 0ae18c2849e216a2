"""What an HTTP/2 connection has to tell."""

from __future__ import annotations

from typing import NamedTuple

from .http2_fields import RequestHead

__all__ = ["Body", "Ended", "Event", "Fatal", "GoneAway", "Head", "Reset"]


class Head(NamedTuple):
    """A request begins; `ended` when it has no body."""

    stream: int
    request: RequestHead
    ended: bool


class Body(NamedTuple):
    """A piece of a body. `size` is what it took of the windows, and what `open_window` gives back."""

    stream: int
    data: bytes
    size: int


class Ended(NamedTuple):
    """The body is complete."""

    stream: int


class Reset(NamedTuple):
    """A stream is over before its answer was complete, by the client or because it broke a rule."""

    stream: int
    code: int


class GoneAway(NamedTuple):
    """The client will open no more streams; those that are open go on when the code is 0."""

    code: int


class Fatal(NamedTuple):
    """The connection is over. What `take` still gives is the reason, for the client."""

    code: int
    reason: str


Event = Head | Body | Ended | Reset | GoneAway | Fatal
