"""A server that is open, as everything that serves its calls reads it. Nothing here drives anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import trio

from ...convert.anything import AnyCodec
from ...convert.codec import Mismatch, Problem
from ...convert.compiler import Compiler
from ...limits import Limits
from ...protocol.jsontext import check_written, dumps
from ...protocol.meta import SERVER_INFO
from ...scopes.call import Call
from ..declare.registry import Registry
from ..declare.server import Server

__all__ = ["RunningServer"]


class RunningServer:
    """What was registered, the value of the lifespan, and how a result is written.

    Attributes:
        server: What was registered.
        limits: Its bounds.
        lifespan: The value of the lifespan.
        threads: The threads for plain functions.
        any: Writes values that have no declared type.
    """

    def __init__(self, server: Server[Any], lifespan: Any) -> None:
        self.server: Server[Any] = server
        self.limits: Limits = server.limits
        self.lifespan: Any = lifespan
        self.threads: trio.CapacityLimiter = trio.CapacityLimiter(server.limits.worker_threads)
        self.any: Final[AnyCodec] = AnyCodec(Compiler(output=True).for_instance)
        self._server_meta = {SERVER_INFO: server.info()}
        # The end of nearly every result, written once.
        self._tail = b',"resultType":"complete","_meta":' + dumps(self._server_meta) + b"}"

    @property
    def registry(self) -> Registry:
        """What is offered right now."""
        return self.server.registry

    def encode(self, result: dict[str, Any]) -> bytes:
        """A result with `resultType` and `serverInfo` (basic/index), within what a client can be expected to read.

        Raises:
            Mismatch: it is larger than `limits.answer_bytes`, nested deeper than `limits.json_depth`, or not JSON.
        """
        plain = bool(result) and "_meta" not in result and "resultType" not in result
        if not plain:
            result = {"resultType": "complete", **result, "_meta": {**self._server_meta, **result.get("_meta", {})}}
        raw = self.encode_bare(result)
        return raw[:-1] + self._tail if plain else raw

    def encode_bare(self, result: dict[str, Any]) -> bytes:
        """A result as it is, within the same bounds. Raises as `encode`."""
        try:
            raw = dumps(result)
        except ValueError as exc:
            raise Mismatch(Problem(f"cannot be sent as JSON: {str(exc).removeprefix('$.')}")) from None
        # One level is left for the envelope.
        bad = check_written(raw, result, self.limits.json_depth - 1, self.limits.answer_bytes)
        if bad is not None:
            raise Mismatch(Problem(f"too large to send: {bad}"))
        return raw

    def encode_for(self, call: Call, result: dict[str, Any]) -> bytes:
        """A result as the revision of a call has it. Raises as `encode`."""
        dialect = call.dialect
        if dialect is None or call.task is not None:
            # A task is kept in the modern form, and told in that of whoever asks.
            return self.encode(result)
        tool = self.registry.tools.get(call.params["name"]) if call.method == "tools/call" else None
        return self.encode_bare(dialect.result(call.method, result, wrapped=tool is not None and tool.wraps))

    def page(self, key: str, make: Callable[[], dict[str, Any]], call: Call, *, keep: bool = True) -> bytes:
        """A result that depends on the registry alone: encoded once for each state of it, and for each revision.

        Args:
            key: What it is kept by.
            make: Makes it.
            call: The request.
            keep: Whether it may be asked for again.
        """
        pages = self.registry.pages
        if call.dialect is not None:
            key = f"{key} {call.dialect.revision}"
        page = pages.get(key)
        if page is None:
            page = self.encode_for(call, {**make(), **self.server.hints})
            if keep:
                pages[key] = page
        return page

    def discovery(self) -> dict[str, Any]:
        """What `server/discover` tells."""
        out: dict[str, Any] = {
            "supportedVersions": list(self.server.revisions),
            "capabilities": self.registry.capabilities,
        }
        if self.server.instructions is not None:
            out["instructions"] = self.server.instructions
        return out
