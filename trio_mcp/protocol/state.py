"""Sealed request state (basic/patterns/mrtr, section Server Requirements).

What a server wants to find again on the retry of a request travels through the client. It is encrypted and authenticated
(AES-256-GCM) and bound to the request, the caller and the server that made it, and it expires. Time, nonce and keys are
arguments.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from collections.abc import Sequence
from typing import Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ..errors import InvalidParams
from .jsontext import dumps, dumps_sorted, loads_own

__all__ = ["binding", "open_state", "seal_state"]

_VERSION: Final = b"\x01"
_KEY_ID: Final = 4
_NONCE: Final = 12


def binding(audience: str, principal: str, method: str, params: dict[str, Any], mirror: str) -> bytes:
    """What a state is bound to: the server, the caller, the method and the parameters that make the request what it is."""
    salient = [audience, principal, method, params.get(mirror), params.get("arguments") or {}]
    return hashlib.sha256(dumps_sorted(salient)).digest()


def _key_id(key: bytes) -> bytes:
    return hashlib.sha256(b"trio_mcp state key" + key).digest()[:_KEY_ID]


def seal_state(payload: dict[str, Any], key: bytes, nonce: bytes, expires: float, bound: bytes) -> str:
    """Seal a JSON object.

    Args:
        payload: What to find again.
        key: 32 bytes.
        nonce: 12 bytes, never used before with this key.
        expires: Seconds since the epoch.
        bound: From `binding`.
    """
    text = struct.pack(">Q", int(expires * 1000)) + dumps(payload)
    head = _VERSION + _key_id(key)
    sealed = AESGCM(key).encrypt(nonce, text, head + bound)
    return base64.urlsafe_b64encode(head + nonce + sealed).decode().rstrip("=")


def open_state(state: str, keys: Sequence[bytes], now: float, bound: bytes) -> dict[str, Any]:
    """Open what `seal_state` made.

    Args:
        state: As the client sent it back.
        keys: Those that may have sealed it.
        now: Seconds since the epoch.
        bound: From `binding`, of the request that it came with.

    Raises:
        InvalidParams: it was changed, is not of this request or caller, was made with another key, or expired.
    """
    try:
        raw = base64.b64decode(state + "=" * (-len(state) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidParams("Invalid params: requestState is not one of this server") from None
    if base64.urlsafe_b64encode(raw).decode().rstrip("=") != state:
        # The same bytes in other letters: nobody but this function writes states, and it writes them in one way.
        raise InvalidParams("Invalid params: requestState is not one of this server")
    head, nonce, sealed = raw[: 1 + _KEY_ID], raw[1 + _KEY_ID : 1 + _KEY_ID + _NONCE], raw[1 + _KEY_ID + _NONCE :]
    for key in keys:
        if head == _VERSION + _key_id(key) and len(sealed) >= 16:
            try:
                text = AESGCM(key).decrypt(nonce, sealed, head + bound)
            except InvalidTag:
                break
            (expires,) = struct.unpack(">Q", text[:8])
            if expires <= now * 1000:
                raise InvalidParams("Invalid params: requestState has expired; start the request again without it")
            payload: dict[str, Any] = loads_own(text[8:])
            return payload
    raise InvalidParams("Invalid params: requestState was changed, or is not of this request, caller and server")
