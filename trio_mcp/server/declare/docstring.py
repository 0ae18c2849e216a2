"""Docstrings: the summary for the model, and the descriptions of the parameters.

Three styles are read: Google (`Args:`), NumPy (`Parameters` over a rule) and reST (`:param name:`).
"""

from __future__ import annotations

import inspect
import re
from typing import Final

__all__ = ["Docstring", "parse_docstring"]

_GOOGLE_ARGS: Final = re.compile(r"^(Args|Arguments|Parameters|Params):\s*$")
_GOOGLE_OTHER: Final = re.compile(
    r"^(Returns?|Raises?|Yields?|Examples?|Notes?|Attributes|Warnings?|See Also|Todo|References):\s*$"
)
_GOOGLE_ITEM: Final = re.compile(r"^\*{0,2}(?P<name>\w+)\s*(\([^)]*\))?\s*:\s*(?P<text>.*)$")
_NUMPY_ITEM: Final = re.compile(r"^(?P<name>\w+)\s*(:.*)?$")
_REST_ITEM: Final = re.compile(r"^:(param|parameter|arg|argument)\s+([^:]*\s)?(?P<name>\w+)\s*:\s*(?P<text>.*)$")
_REST_OTHER: Final = re.compile(r"^:(returns?|rtype|raises?|type)\b.*:")


class Docstring:
    """What a docstring says.

    Attributes:
        text: Everything that is not about single parameters, results or errors of Python.
        parameters: Description by name.
    """

    __slots__ = ("parameters", "text")

    def __init__(self, text: str, parameters: dict[str, str]) -> None:
        self.text: str = text
        self.parameters: dict[str, str] = parameters


def parse_docstring(doc: str | None) -> Docstring:
    """Read a docstring; None and an empty one say nothing."""
    if not doc:
        return Docstring("", {})
    lines = inspect.cleandoc(doc).splitlines()
    parameters: dict[str, str] = {}
    kept: list[str] = []
    index = 0
    while index < len(lines):
        line = lines[index]
        if _GOOGLE_ARGS.match(line):
            block, index = _block(lines, index + 1)
            parameters.update(_google(block))
        elif _GOOGLE_OTHER.match(line):
            block, after = _block(lines, index + 1)
            # "Returns:" and "Raises:" are about Python; examples and notes are worth reading.
            if not line.startswith(("Return", "Raise", "Yield")):
                kept += lines[index:after]
            index = after
        elif index + 1 < len(lines) and re.fullmatch(r"-{3,}", lines[index + 1].strip()):
            title = line.strip()
            end = _numpy_end(lines, index + 2)
            if title in ("Parameters", "Other Parameters"):
                parameters.update(_numpy(lines[index + 2 : end]))
            elif title not in ("Returns", "Raises", "Yields"):
                kept += lines[index:end]
            index = end
        elif found := _REST_ITEM.match(line):
            block, index = _block(lines, index + 1)
            parameters[found["name"]] = _join([found["text"], *block])
        elif _REST_OTHER.match(line):
            _, index = _block(lines, index + 1)
        else:
            kept.append(line)
            index += 1
    return Docstring(re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip(), parameters)


def _block(lines: list[str], start: int) -> tuple[list[str], int]:
    """The indented lines from `start`, and where they end (blank lines at the end belong to what follows)."""
    end = start
    while end < len(lines) and (not lines[end].strip() or lines[end][0].isspace()):
        end += 1
    return inspect.cleandoc("\n".join(["", *lines[start:end]])).splitlines(), end


def _google(block: list[str]) -> dict[str, str]:
    out: dict[str, list[str]] = {}
    name = None
    for line in block:
        found = None if line[:1].isspace() else _GOOGLE_ITEM.match(line)
        if found:
            name = found["name"]
            out[name] = [found["text"]]
        elif name is not None:
            out[name].append(line)
    return {name: _join(texts) for name, texts in out.items()}


def _numpy_end(lines: list[str], start: int) -> int:
    for index in range(start, len(lines)):
        if index + 1 < len(lines) and lines[index].strip() and re.fullmatch(r"-{3,}", lines[index + 1].strip()):
            return index
    return len(lines)


def _numpy(block: list[str]) -> dict[str, str]:
    out: dict[str, list[str]] = {}
    name = None
    for line in block:
        found = None if line[:1].isspace() else _NUMPY_ITEM.match(line)
        if found:
            name = found["name"]
            out[name] = []
        elif name is not None:
            out[name].append(line)
    return {name: _join(texts) for name, texts in out.items()}


def _join(texts: list[str]) -> str:
    return " ".join(text.strip() for text in texts if text.strip())
