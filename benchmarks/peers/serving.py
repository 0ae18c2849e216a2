"""How the Python peers are served over HTTP: by uvicorn, plain (h11 on asyncio) or fast (httptools on uvloop)."""

from __future__ import annotations

from typing import Any

import uvicorn


def serve(app: Any, how: str, port: str) -> None:
    """Serve an ASGI application until a signal."""
    fast = how == "fast"
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(port),
        access_log=False,
        log_level="error",
        ws="none",
        http="httptools" if fast else "h11",
        loop="uvloop" if fast else "asyncio",
    )
