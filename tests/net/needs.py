"""What tests need of the machine: where it is missing they fail with a sentence, and not with an error of something else."""

from __future__ import annotations

import functools
import os
import shutil
import socket
import subprocess
from collections.abc import Callable

import pytest


def _curl() -> str | None:
    if shutil.which("curl") is None:
        return "the program curl"
    said = subprocess.run(["curl", "--version"], capture_output=True, text=True, check=True).stdout
    return None if "HTTP2" in said.split() else "a curl that speaks HTTP/2 ('curl --version' does not name HTTP2)"


def _openssl() -> str | None:
    return None if shutil.which("openssl") else "the program openssl, which makes the certificates of the tests"


def _sh() -> str | None:
    return None if os.access("/bin/sh", os.X_OK) else "the shell /bin/sh"


def _proc() -> str | None:
    wanted = ("/proc/self/fd", "/proc/self/stat", "/proc/self/status", "/proc/net/tcp")
    missing = [path for path in wanted if not os.path.exists(path)]
    return f"Linux with a mounted /proc (there is no {missing[0]})" if missing else None


def _ipv6() -> str | None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError as exc:
        return f"IPv6 on loopback ([::1]: {exc.strerror})"
    return None


_KINDS: dict[str, Callable[[], str | None]] = {
    "curl": _curl,
    "openssl": _openssl,
    "/bin/sh": _sh,
    "/proc": _proc,
    "IPv6": _ipv6,
}


@functools.cache
def _missing(kind: str) -> str | None:
    return _KINDS[kind]()


def need(*kinds: str) -> None:
    """Fail the test when the machine has not what it needs: `curl` (with HTTP/2), `openssl`, `/bin/sh`, `/proc`, `IPv6`."""
    missing = [sentence for kind in kinds if (sentence := _missing(kind)) is not None]
    if missing:
        pytest.fail(f"This test needs {' and '.join(missing)}.", pytrace=False)
