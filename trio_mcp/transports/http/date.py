"""The `Date` header, made once a second."""

from __future__ import annotations

import time
from email.utils import formatdate

__all__ = ["http_date"]

_second = -1
_text = b""


def http_date() -> bytes:
    """Now, as RFC 9110 section 5.6.7 writes it."""
    global _second, _text
    now = int(time.time())
    if now != _second:
        _second, _text = now, formatdate(now, usegmt=True).encode()
    return _text
