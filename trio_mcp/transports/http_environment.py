"""What the environment says about HTTP: proxies, and the certificates that are trusted.

`HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY` (each in lower case, too, which counts first), `SSL_CERT_FILE` and
`SSL_CERT_DIR`. What is wrong with one of them is an error that names it; the value of a proxy may hold a password, so it is
never repeated.
"""

from __future__ import annotations

import base64
import ipaddress
import os
import re
import ssl
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import httpx2

from ..errors import ConnectionClosed

__all__ = ["Proxy", "find_proxy", "tls_context"]

_HOST: Final = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")
_ADVICE: Final = "NO_PROXY exempts hosts, and a client of your own (http=) may have any proxy"


class Proxy(NamedTuple):
    """A proxy of the environment.

    Attributes:
        variable: Which variable names it.
        tls: Whether it is spoken to over TLS.
        host: Its host.
        port: Its port.
        authorization: The value of `Proxy-Authorization`, or None.
    """

    variable: str
    tls: bool
    host: str
    port: int
    authorization: bytes | None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"the proxy {host}:{self.port} of {self.variable}"


def find_proxy(scheme: str, host: str, port: int, environ: Mapping[str, str]) -> Proxy | None:
    """The proxy for an origin.

    Raises:
        ConnectionClosed: the variable names no proxy that can be used.
    """
    names = [f"{scheme}_proxy", "all_proxy"]
    if "REQUEST_METHOD" in environ and scheme == "http":
        # A CGI script: HTTP_PROXY is a header of whoever called it.
        environ = {key: value for key, value in environ.items() if key != "HTTP_PROXY"}
    variable, value = next((found for name in names if (found := _get(environ, name))[1]), ("", ""))
    if not value or _exempt(host.lower(), port, _get(environ, "no_proxy")[1]):
        return None
    found_scheme = value.partition("://")[0].lower() if "://" in value else "http"
    if found_scheme not in ("http", "https"):
        known = found_scheme.startswith("socks")
        what = f"a {found_scheme} proxy" if known else "a proxy of a kind that is not known"
        raise ConnectionClosed(f"{variable} names {what}; http:// and https:// can be used. {_ADVICE}")
    try:
        url = httpx2.URL(value if "://" in value else f"http://{value}")
        port = (443 if found_scheme == "https" else 80) if url.port is None else url.port
        parts = (url.host, port, url.username, url.password)
    except (httpx2.InvalidURL, ValueError):
        parts = ("", 0, "", "")
    if not _HOST.fullmatch(parts[0]) or not 0 < parts[1] < 65_536:
        raise ConnectionClosed(f"{variable} is no URL of a proxy; expected http://HOST:PORT. {_ADVICE}") from None
    login = base64.b64encode(f"{parts[2]}:{parts[3]}".encode()) if parts[2] or parts[3] else None
    return Proxy(variable, found_scheme == "https", parts[0], parts[1], None if login is None else b"Basic " + login)


def _get(environ: Mapping[str, str], name: str) -> tuple[str, str]:
    """The variable that counts, and what it says. In lower case it counts even if it is empty, as for other programs."""
    if name in environ:
        return name, environ[name].strip()
    return name.upper(), environ.get(name.upper(), "").strip()


def _exempt(host: str, port: int, listed: str) -> bool:
    """Whether NO_PROXY lists a host: by name (with all below it), by address or network, with or without a port."""
    address = _address(host)
    for entry in listed.lower().replace(",", " ").split():
        if entry == "*":
            return True
        name, _, number = entry.rpartition(":")
        if number.isdigit() and (name.endswith("]") or ":" not in name):
            if int(number) != port:
                continue
            entry = name
        entry = entry.partition("://")[2] or entry
        entry = entry.strip("[]")
        if address is not None:
            try:
                if address in ipaddress.ip_network(entry, strict=False):
                    return True
            except ValueError:
                pass
            continue
        bare = entry.removeprefix("*").removeprefix(".")
        if bare and (host.endswith(f".{bare}") or (host == bare and not entry.startswith((".", "*")))):
            return True
    return False


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def tls_context(verify: Any) -> ssl.SSLContext:
    """How certificates are checked.

    Args:
        verify: As for httpx2.

    Raises:
        ConnectionClosed: what the environment says cannot be used.
    """
    try:
        return httpx2.create_ssl_context(verify=verify)
    except OSError as exc:
        named = next((name for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if os.environ.get(name)), None)
        if verify is not True or named is None:
            raise ConnectionClosed(f"the certificates that are trusted cannot be loaded: {exc}") from exc
        raise ConnectionClosed(f"{named}={os.environ[named]!r} cannot be used: {exc.strerror or exc}") from exc
