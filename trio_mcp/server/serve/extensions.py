"""Methods of extensions."""

from __future__ import annotations

from typing import Any

from ...convert.codec import Mismatch, render
from ...errors import InvalidParams
from ...scopes.call import Call
from ..ask.context import Context
from ..ask.running_server import RunningServer
from ..declare.extensions import ExtensionMethod, ExtensionResult
from .results import extension_result

__all__ = ["serve_method"]


async def serve_method(method: ExtensionMethod, running: RunningServer, call: Call) -> dict[str, Any]:
    """From the parameters of a request to its result.

    Raises:
        InvalidParams: with one line for each thing that is wrong.
        Mismatch: the function returned what is no result.
    """
    raw = {key: value for key, value in call.params.items() if key != "_meta"}
    try:
        values = method.handler.load(raw)
    except Mismatch as exc:
        raise InvalidParams(f"Invalid params for {call.method}:\n{render(exc, running.limits)}") from None
    value = await method.handler.call(values, Context(running, call), running.threads)
    if isinstance(value, ExtensionResult):
        return extension_result(call, value)
    result = {} if value is None else (method.output or running.any).dump(value)
    if type(result) is not dict:
        raise Mismatch.of(value, "an object, None, or what extension.result(…) makes")
    return result
