"""For tests: of this project, and of servers built on it."""

from .wire import RawPeer, modern_meta, open_raw, request

__all__ = ["RawPeer", "modern_meta", "open_raw", "request"]
