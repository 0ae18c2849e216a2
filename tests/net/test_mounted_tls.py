"""`trio-mcp serve … --app` over TLS: the application and the endpoint share the certificate and the port."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx2
import pytest

from trio_mcp import open_client

from .servers.http_peers import make_certificate
from .test_mounted import serving


@pytest.mark.parametrize("http2", [False, True], ids=["HTTP/1.1", "HTTP/2"])
async def test_an_application_and_the_endpoint_over_tls(http2: bool, tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)
    verify = ssl.create_default_context(cafile=cert)
    with serving(tmp_path, "--certfile", cert, "--keyfile", key) as web:
        assert web.url.startswith("https://")
        async with httpx2.AsyncClient(verify=verify, http2=http2) as http:
            answer = await http.get(web.page)
            assert (answer.text, answer.http_version) == ("hello", "HTTP/2" if http2 else "HTTP/1.1")
            async with open_client(web.url, http=http) as client:
                assert (await client.call_tool("visits")).data == 1
        assert web.end() < 10


def test_a_certificate_that_cannot_be_used_is_said_before_anything_runs(tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)
    Path(key).write_text("no key")
    refused = pytest.raises(AssertionError, match=r"the certificate .*cert\.pem cannot be used")
    with refused, serving(tmp_path, "--certfile", cert, "--keyfile", key):
        pass
    assert not (tmp_path / "log").exists()
