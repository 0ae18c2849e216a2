"""The server: registration, schemas, handlers. No transport."""

from .context import Context
from .engine import Engine, open_engine
from .paths import safe_join
from .server import ServerBase

__all__ = ["Context", "Engine", "ServerBase", "open_engine", "safe_join"]
