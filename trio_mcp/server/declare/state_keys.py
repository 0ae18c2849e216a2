"""The keys that seal what travels through a client."""

from __future__ import annotations

import base64
import binascii
import os
import secrets
from typing import Any, Final

from ...errors import RegistrationError

__all__ = ["state_keys"]

_ENVIRONMENT: Final = "TRIO_MCP_STATE_KEYS"


def state_keys(given: Any) -> list[bytes]:
    """The key ring: what was given, or what the environment holds, or one random key for this process.

    The first one seals; all of them open, so a new key can be put in front while old states are still on their way.

    Raises:
        RegistrationError: a key is not 32 bytes (in the environment: Base64, separated by commas).
    """
    keys = list(given) if given is not None else None
    if keys is None and os.environ.get(_ENVIRONMENT):
        try:
            keys = [base64.b64decode(text.strip(), validate=True) for text in os.environ[_ENVIRONMENT].split(",")]
        except (binascii.Error, ValueError):
            raise RegistrationError(f"{_ENVIRONMENT}: expected 32 bytes in Base64 each, separated by commas") from None
    if keys is None:
        return [secrets.token_bytes(32)]
    if not keys or any(not isinstance(key, bytes) or len(key) != 32 for key in keys):
        raise RegistrationError("state_keys: expected one or more keys of 32 bytes")
    return keys
