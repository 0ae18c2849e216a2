"""Where a request of the client goes: a URL in its parts, and where a redirect points."""

from __future__ import annotations

import base64
from typing import NamedTuple

import httpx2

__all__ = ["Place", "location_of"]


def location_of(url: str, response: httpx2.Response) -> httpx2.URL | None:
    """Where a redirect points, or None."""
    try:
        location = response.headers["location"]
        return httpx2.URL(url).join(location) if location else None
    except (KeyError, httpx2.InvalidURL, ValueError):
        return None


class Place(NamedTuple):
    """A URL in its parts.

    Attributes:
        url: What may be in a log.
        target: What the request asks for: the path and the query.
        login: The user and the password in it, for a header, or None.
    """

    url: str
    target: bytes
    login: str | None

    @classmethod
    def of(cls, url: str) -> Place:
        """The parts of a URL.

        Raises:
            httpx2.InvalidURL, ValueError: it is none.
        """
        parsed = httpx2.URL(url)
        login = None
        if parsed.userinfo:
            login = "Basic " + base64.b64encode(f"{parsed.username}:{parsed.password}".encode()).decode()
        plain = parsed.copy_with(userinfo=b"", query=None, fragment="")
        return cls(str(plain), parsed.raw_path, login)
