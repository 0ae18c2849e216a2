"""The server: registration, schemas, handlers. No transport."""

from .ask.context import Context
from .declare.server import Server
from .paths import UnsafePath, safe_join
from .serve.engine import Engine, open_engine

__all__ = ["Context", "Engine", "Server", "UnsafePath", "open_engine", "safe_join"]
