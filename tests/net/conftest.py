"""What the tests over real sockets share."""

from __future__ import annotations

import gc

import pytest

from .servers.http_peers import make_certificate


def pytest_collection_finish() -> None:
    """They look for garbage often; what was imported until now is none, and need not be looked through each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The paths of a certificate and its key."""
    return make_certificate(tmp_path_factory.mktemp("tls"))
