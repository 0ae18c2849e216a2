"""Showing results to a person."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable

import click
import orjson

from .. import Audio, CallToolResult, ContentBlock, EmbeddedResource, Image, ResourceContents, ResourceLink, Text

__all__ = ["block_text", "printable", "show_blocks", "show_contents", "show_result"]

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]")


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


def printable(text: str, terminal: bool) -> str:
    """Text for a terminal: what a server sends must not move the cursor or clear the screen."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text) if terminal else text


def show_blocks(blocks: Iterable[ContentBlock], *, err: bool = False) -> None:
    """Print content blocks."""
    for block in blocks:
        click.echo(printable(block_text(block), (sys.stderr if err else sys.stdout).isatty()), err=err)


def show_result(result: CallToolResult) -> None:
    """Print the result of a tool; an error on standard error."""
    if result.content or result.is_error:
        show_blocks(result.content, err=result.is_error)
    elif result.data is not None:
        click.echo(orjson.dumps(result.data, option=orjson.OPT_INDENT_2).decode())


def show_contents(contents: Iterable[ResourceContents]) -> None:
    """Print what resources hold: text as text; bytes as they are, but not onto a terminal."""
    for item in contents:
        if isinstance(item.data, str):
            click.echo(printable(item.data, sys.stdout.isatty()))
        elif sys.stdout.isatty():
            click.echo(f"[{item.uri} {item.mime_type or ''}, {len(item.data)} bytes; redirect the output to keep them]")
        else:
            sys.stdout.flush()
            sys.stdout.buffer.write(item.data)
            sys.stdout.buffer.flush()
