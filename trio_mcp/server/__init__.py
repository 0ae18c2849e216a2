"""The server: registration, schemas, handlers. No transport."""

from .context import Context
from .engine import Engine, open_engine
from .paths import UnsafePath, safe_join
from .server import ServerBase

__all__ = ["Context", "Engine", "ServerBase", "UnsafePath", "open_engine", "safe_join"]
