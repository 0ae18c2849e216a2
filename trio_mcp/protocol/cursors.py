"""Cursors of paginated lists (server/utilities/pagination).

A cursor names the list and the last item of the page before, so it survives a change of the list unless that very item is gone.
To a client it is opaque; the empty string is a cursor like any other, and none of ours.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence

import orjson

from ..errors import InvalidParams
from .jsontext import shorten

__all__ = ["page_after"]


def page_after(method: str, cursor: str | None, keys: Sequence[str], size: int) -> tuple[int, int, str | None]:
    """Which items are on a page.

    Args:
        method: The list.
        cursor: As the client sent it; None for the first page.
        keys: What identifies each item, in order.
        size: Most items on a page.

    Returns:
        The first index, the index behind the last, and the cursor of the next page or None.

    Raises:
        InvalidParams: the cursor was not given out for this list, or what it stands for is gone.
    """
    start = 0
    if cursor is not None:
        last = _decode(method, cursor)
        if last not in keys:
            raise InvalidParams(
                f"Invalid params for {method}: cursor {shorten(cursor)} is no longer valid; start again"
            )
        start = keys.index(last) + 1
    end = min(start + size, len(keys))
    return start, end, _encode(method, keys[end - 1]) if end < len(keys) else None


def _encode(method: str, key: str) -> str:
    return base64.urlsafe_b64encode(orjson.dumps([method, key])).decode().rstrip("=")


def _decode(method: str, cursor: str) -> str:
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        value = orjson.loads(raw)
    except (binascii.Error, ValueError):
        value = None
    if not (isinstance(value, list) and len(value) == 2 and value[0] == method and isinstance(value[1], str)):
        raise InvalidParams(f"Invalid params for {method}: cursor {shorten(cursor)} was not given out for this list")
    return value[1]
