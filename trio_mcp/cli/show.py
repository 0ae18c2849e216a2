"""Showing results to a person.

All that a server says goes through `say` or `safe`: on a terminal a control character in it would move the cursor, clear the
screen or name the window, and a bidirectional override shows another text than the one that is there. In a pipe or a file
it goes out as it is, since there it is data.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Any, Final

import click

from .. import Audio, CallToolResult, ContentBlock, EmbeddedResource, Image, ResourceContents, ResourceLink, Text
from ..protocol.jsontext import dumps_pretty

__all__ = ["block_text", "is_terminal", "safe", "say", "say_json", "show_blocks", "show_contents", "show_result"]

_UNSAFE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def block_text(block: ContentBlock) -> str:
    """One content block on a terminal."""
    if isinstance(block, Text):
        return block.text
    if isinstance(block, Image | Audio):
        kind = "image" if isinstance(block, Image) else "audio"
        return f"[{kind} {block.mime_type}, {len(block.data)} bytes]"
    if isinstance(block, ResourceLink):
        return f"[link {block.uri}: {block.description or block.title or block.name}]"
    assert isinstance(block, EmbeddedResource)
    contents = block.resource
    if isinstance(contents.data, str):
        return contents.data
    return f"[resource {contents.uri} {contents.mime_type or ''}, {len(contents.data)} bytes]"


def is_terminal(*, err: bool = False) -> bool:
    """Whether standard output, or standard error, is a terminal."""
    stream: Any = sys.stderr if err else sys.stdout
    return stream is not None and stream.isatty()


def safe(text: str) -> str:
    """A text as a terminal may get it: what would do something there is shown escaped. JSON stays the same JSON."""
    return _UNSAFE.sub(_escaped, text.replace("\r\n", "\n"))


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x20 else f"\\u{code:04x}"


def say(text: str, *, err: bool = False) -> None:
    """Print a text that may hold what a server has said."""
    # Otherwise click takes colours out of what goes into a pipe.
    click.echo(safe(text) if is_terminal(err=err) else text, err=err, color=True)


def say_json(value: Any) -> None:
    """Print a JSON value, indented."""
    say(dumps_pretty(value))


def show_blocks(blocks: Iterable[ContentBlock], *, err: bool = False) -> None:
    """Print content blocks."""
    for block in blocks:
        say(block_text(block), err=err)


def show_result(result: CallToolResult) -> None:
    """Print the result of a tool; an error on standard error."""
    if result.content or result.is_error:
        show_blocks(result.content, err=result.is_error)
        if not result.content:
            say("the tool failed, and does not say why", err=True)
    elif result.data is not None:
        say_json(result.data)


def show_contents(contents: Iterable[ResourceContents]) -> None:
    """Print what resources hold: text as text; bytes as they are, but not onto a terminal."""
    for item in contents:
        if isinstance(item.data, str):
            say(item.data)
        elif is_terminal():
            say(f"[{item.uri} {item.mime_type or ''}, {len(item.data)} bytes; redirect the output to keep them]")
        elif sys.stdout is not None:
            sys.stdout.flush()
            sys.stdout.buffer.write(item.data)
            sys.stdout.buffer.flush()
