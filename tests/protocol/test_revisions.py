"""Revisions: to which era a message belongs, and which versions a server takes."""

from __future__ import annotations

from typing import Any

import pytest

from trio_mcp.errors import UnsupportedVersion
from trio_mcp.protocol.meta import PROTOCOL_VERSION
from trio_mcp.protocol.revisions import ERAS, LATEST, LEGACY, MODERN, Era, check_version, era_of


def test_each_revision_has_its_era() -> None:
    assert MODERN == ("2026-07-28",)
    assert LEGACY == ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
    assert tuple(ERAS) == MODERN + LEGACY
    assert LATEST == max(ERAS) == "2026-07-28"


@pytest.mark.parametrize(
    ("method", "meta", "era"),
    [
        ("tools/call", LATEST, Era.MODERN),
        ("tools/call", "2025-11-25", Era.LEGACY),
        ("tools/call", "2024-11-05", Era.LEGACY),
        # The version decides, also for the method that opens the other era.
        ("initialize", LATEST, Era.MODERN),
        ("initialize", "2025-06-18", Era.LEGACY),
        # A version that nobody knows is refused in the modern way, which names the supported ones.
        ("tools/call", "2099-01-01", Era.MODERN),
        ("initialize", "2099-01-01", Era.MODERN),
        ("tools/call", 20251125, Era.MODERN),
        ("tools/call", ["2025-11-25"], Era.MODERN),
        ("tools/call", None, Era.MODERN),
    ],
)
def test_the_version_in_meta_decides(method: str, meta: Any, era: Era) -> None:
    assert era_of(method, {"_meta": {PROTOCOL_VERSION: meta}}) is era


@pytest.mark.parametrize("params", [{}, {"_meta": {}}, {"_meta": None}, {"_meta": [PROTOCOL_VERSION]}, {"_meta": "x"}])
def test_without_a_version_only_initialize_is_legacy(params: dict[str, Any]) -> None:
    assert era_of("initialize", params) is Era.LEGACY
    assert era_of("ping", params) is Era.MODERN
    assert era_of("notifications/initialized", params) is Era.MODERN


def test_a_served_version_passes() -> None:
    for version in ERAS:
        check_version(version, tuple(ERAS))


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-29", "", "2026-07-28 "])
def test_another_version_is_refused_with_what_is_served(version: str) -> None:
    with pytest.raises(UnsupportedVersion) as caught:
        check_version(version, ("2026-07-28", "2025-06-18"))
    assert caught.value.to_wire() == {
        "code": -32022,
        "message": f"Unsupported protocol version: {version!r}; this server speaks 2026-07-28, 2025-06-18",
        "data": {"supported": ["2026-07-28", "2025-06-18"], "requested": version},
    }
    assert caught.value.http_status == 400
