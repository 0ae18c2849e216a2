"""Errors on their way out: what a handler raised becomes something that can be written, whatever it holds.

A `ProtocolError` carries what user code has put into it. One that cannot be written would fail where nobody is left to answer,
and take the connection along; so each is made writable in the one place where it becomes the outcome of a request.
"""

from __future__ import annotations

from typing import Any, Final

from ..convert.anything import AnyCodec
from ..convert.codec import Mismatch, render
from ..errors import (
    HeaderMismatch,
    InternalError,
    MissingClientCapability,
    ParseError,
    ProtocolError,
    UnsupportedVersion,
    UrlElicitationRequired,
)
from ..limits import Limits
from ..protocol.jsontext import check_written, dumps, loads_own, readable, readable_text

__all__ = ["cut", "ended", "make_sendable"]

_CODE_MOST: Final = 2**53
_RESERVED: Final = range(-32099, -32019)
"""Codes that the specification keeps for itself (basic/index, section Error Codes)."""
_DEFINED: Final = frozenset({HeaderMismatch.code, MissingClientCapability.code, UnsupportedVersion.code})


def make_sendable(error: ProtocolError, codec: AnyCodec, limits: Limits) -> list[str]:
    """Change an error so that it can be written and read: its text, its data, its code.

    Args:
        error: What was raised.
        codec: Writes data that has no declared type, as it does for results.
        limits: How large and how deep an answer may be.

    Returns:
        What had to be changed in a way that loses something, for the log.
    """
    lost: list[str] = []
    text = error.message if type(error.message) is str else str(error.message)
    plain = readable_text("".join(text) if type(text) is not str else text)
    if plain != error.message:
        lost.append("its message is no text that can be sent as UTF-8")
    error.message = plain
    if type(error.code) is not int or abs(error.code) > _CODE_MOST:
        lost.append(f"its code is no integer: {error.code!r}")
        error.code = InternalError.code
    elif error.code in _RESERVED and error.code not in _DEFINED and not isinstance(error, UrlElicitationRequired):
        # That one comes here only where the revision has it.
        lost.append(f"its code {error.code} is one that the specification reserves")
        error.code = InternalError.code
    if error.data is not None:
        error.data = _data(error.data, codec, lost)
    bad = _too_large(error, limits.json_depth - 1, limits.answer_bytes)
    if bad is not None and error.data is not None:
        lost.append(f"its data is left out: {bad}")
        error.data = None
        bad = _too_large(error, limits.json_depth - 1, limits.answer_bytes)
    if bad is not None:
        lost.append(f"its message is cut: {bad}")
        error.message = cut(error.message, limits)
    return lost


def _data(data: Any, codec: AnyCodec, lost: list[str]) -> Any:
    try:
        dumps(data)
    except ValueError:
        pass
    else:
        return data
    try:
        # A set, a date, a dataclass: as in a result.
        data = readable(codec.dump(readable(data)))
        dumps(data)
    except Mismatch as exc:
        lost.append(f"its data is left out: {render(exc)}")
    except Exception as exc:
        # Made by code of a user's, which may do anything.
        lost.append(f"its data is left out: {type(exc).__name__}")
    else:
        return data
    return None


def _too_large(error: ProtocolError, depth: int, most: int) -> str | None:
    wire = error.to_wire()
    return check_written(dumps(wire), wire, depth, most)


def cut(text: str, limits: Limits) -> str:
    """A text that is told in one line: of a length that has a bound, and one that can be written."""
    most = limits.status_chars
    return readable_text(text if len(text) <= most else text[: most - 1] + "…")


def ended(outcome: bytes | ProtocolError, limits: Limits) -> dict[str, Any]:
    """How the row of a task looks whose call had this outcome: it is kept, and told inside of another answer.

    Args:
        outcome: The encoded result, or an error that can be sent.
        limits: What is kept.
    """
    # One level for the envelope, one for the answer around it.
    depth, most = limits.json_depth - 2, limits.task_result_bytes
    if isinstance(outcome, bytes):
        if len(outcome) > most:
            return _failed(
                InternalError(
                    f"The result of the task has {len(outcome)} bytes; this server keeps {most} (limits.task_result_bytes)"
                ),
                limits,
            )
        try:
            result = loads_own(outcome)
            bad = check_written(outcome, result, depth, most)
        except ParseError as exc:
            result, bad = None, exc.message.removeprefix("Parse error: ")
        if bad is not None:
            return _failed(InternalError(f"The result of the task cannot be kept: {bad}"), limits)
        return {"status": "completed", "message": None, "result": result}
    if _too_large(outcome, depth, most) is not None:
        outcome = ProtocolError(outcome.message, code=outcome.code)
        if _too_large(outcome, depth, most) is not None:
            outcome = ProtocolError(cut(outcome.message, limits), code=outcome.code)
    return _failed(outcome, limits)


def _failed(error: ProtocolError, limits: Limits) -> dict[str, Any]:
    return {"status": "failed", "message": cut(error.message, limits), "error": error.to_wire()}
