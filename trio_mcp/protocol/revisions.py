"""The revisions of the protocol and the era each belongs to (basic/versioning).

*Modern* revisions carry version, identity and capabilities in every request; *legacy* ones open a session with
`initialize`. A server lists the revisions that it serves; a method row lists the eras that it belongs to.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

from ..errors import UnsupportedVersion

__all__ = ["ERAS", "LATEST", "LEGACY", "MODERN", "Era", "check_version", "era_of", "names_version"]


class Era(StrEnum):
    """How a revision carries its metadata."""

    MODERN = "modern"
    LEGACY = "legacy"


# Plain names: the look-up on the class costs more than the comparison.
_MODERN, _LEGACY = Era.MODERN, Era.LEGACY

LATEST: Final = "2026-07-28"

ERAS: Final[dict[str, Era]] = {
    "2026-07-28": Era.MODERN,
    "2025-11-25": Era.LEGACY,
    "2025-06-18": Era.LEGACY,
    "2025-03-26": Era.LEGACY,
    "2024-11-05": Era.LEGACY,
}
MODERN: Final = tuple(name for name, era in ERAS.items() if era is Era.MODERN)
LEGACY: Final = tuple(name for name, era in ERAS.items() if era is Era.LEGACY)

_VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"


def era_of(method: str, params: dict[str, Any]) -> Era:
    """The era of one message: the version it names in `_meta` decides, and `initialize` opens the legacy one.

    A request that names no version is modern and malformed: nothing may be inferred from what came before it
    (basic/index, section Statelessness). A legacy session, once there is one, decides for its own messages before this.
    """
    meta = params.get("_meta")
    if type(meta) is dict and _VERSION_KEY in meta:
        version = meta[_VERSION_KEY]
        return ERAS.get(version, _MODERN) if type(version) is str else _MODERN
    return _LEGACY if method == "initialize" else _MODERN


def names_version(params: dict[str, Any]) -> bool:
    """Whether a request says in which revision it is made: then it stands alone, and belongs to no session."""
    meta = params.get("_meta")
    return type(meta) is dict and _VERSION_KEY in meta


def check_version(requested: str, supported: tuple[str, ...]) -> None:
    """Raise `UnsupportedVersion` with `data.supported` and `data.requested` unless the version is served."""
    if requested not in supported:
        raise UnsupportedVersion(
            f"Unsupported protocol version: {requested!r}; this server speaks {', '.join(supported)}",
            {"supported": list(supported), "requested": requested},
        )
