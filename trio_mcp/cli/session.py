"""What the client commands share: the target, the run, the interrupt, the names that a server has."""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import click
import orjson
import trio

from .. import DEFAULT_LIMITS, Client, StdioCommand, Target, open_client
from ..running.signals import EndSignals
from ..transports.http_url import shown_url
from .show import say

__all__ = ["listed", "no_such", "properties_of", "run_client", "signature_of", "split_target", "type_name"]


def split_target(behind: list[str] | None, words: tuple[str, ...]) -> tuple[Target, list[str]]:
    """The server, and the words that remain: its command stands behind `--`, or the first word is a URL or a file.

    Raises:
        click.UsageError: there is neither.
    """
    rest = list(words)
    if behind is not None:
        if not behind:
            raise click.UsageError("nothing behind --; expected the command of a server")
        return StdioCommand(behind, on_stderr=_relay), rest
    if not rest:
        raise click.UsageError("missing TARGET: a URL, a Python file with a server in it, or a command behind --")
    target = rest.pop(0)
    if "://" in target or target.startswith("unix:"):
        if not target.startswith(("http://", "https://", "unix:")):
            raise click.UsageError(
                f"TARGET {shown_url(target)!r} is no URL of a server: expected http://, https:// or unix:PATH"
            )
        return target, rest
    path = target.partition(".py:")[0] + ".py" if ".py:" in target else target
    if not os.path.isfile(path):
        hint = f"; did you mean http://{target}?" if re.match(r"[A-Za-z0-9.-]+:[0-9]+(/|$)", target) else ""
        raise click.UsageError(
            f"there is no file {path!r}{hint}; TARGET is a URL, a Python file, or a command behind --"
        )
    return StdioCommand([sys.executable, "-m", "trio_mcp", "serve", target], on_stderr=_relay), rest


def _relay(line: str) -> None:
    say(line, err=True)


def run_client(
    target: Target,
    what: str,
    work: Callable[[Client], Awaitable[int]],
    interrupted: str | Callable[[], str] | None = None,
) -> int:
    """Open a client and do the work. An interrupt cancels it, and that reaches the server.

    Args:
        target: The server.
        what: What an interrupt stops, for the message.
        work: Returns the exit status.
        interrupted: What to say then, where the server goes on.
    """
    words = interrupted or f"interrupted; the server was told to stop {what}"
    return trio.run(_run, EndSignals(), target, words, work)


async def _run(
    signals: EndSignals,
    target: Target,
    interrupted: str | Callable[[], str],
    work: Callable[[Client], Awaitable[int]],
) -> int:
    outcome: list[int | Exception] = []
    token = trio.lowlevel.current_trio_token()
    with trio.CancelScope() as scope:

        def end() -> None:
            token.run_sync_soon(scope.cancel, idempotent=True)

        with signals.heard(end, once=False):
            # Carried out by hand, so that what came first counts.
            try:
                async with open_client(target, name="trio-mcp-cli") as client:
                    outcome.append(await work(client))
            except Exception as exc:
                outcome.append(exc)
    if not outcome:
        say(f"trio-mcp: {interrupted() if callable(interrupted) else interrupted}", err=True)
        return 130
    if isinstance(outcome[-1], Exception):
        raise outcome[-1]
    return outcome[-1]


class NoSuch(click.ClickException):
    """A name that the server does not have; the exit status is that of wrong usage."""

    exit_code = 2


def no_such(what: str, name: str, known: Iterable[str]) -> click.ClickException:
    """The error for a name that the server does not have: it says what there is."""
    names = list(known)
    if not names:
        return NoSuch(f"no {what} named {name!r}: the server has none")
    close = difflib.get_close_matches(name, names, 1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    return NoSuch(f"no {what} named {name!r}{hint} There is: {listed(names)}")


def listed(names: list[str]) -> str:
    """Names on one line; of very many the first."""
    most = DEFAULT_LIMITS.shown_names
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def type_name(schema: Any) -> str:
    """A short name for what a JSON Schema accepts: `integer`, `string or null`, `"a" or "b"`."""
    if not isinstance(schema, dict):
        return "any"
    kind = schema.get("type")
    if isinstance(kind, list):
        return " or ".join(map(str, kind))
    if "enum" in schema and isinstance(schema["enum"], list):
        return " or ".join(orjson.dumps(value).decode() for value in schema["enum"])
    if isinstance(kind, str):
        items = schema.get("items")
        inside = type_name(items)
        inside = f"({inside})" if " or " in inside else inside
        return f"array of {inside}" if kind == "array" and items else kind
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            return " or ".join(dict.fromkeys(type_name(arm) for arm in schema[key]))
    reference = schema.get("$ref")
    return reference.rpartition("/")[2] if isinstance(reference, str) else "any"


def properties_of(schema: dict[str, Any]) -> dict[str, Any]:
    """The properties of an object schema, as a server sends it."""
    properties = schema.get("properties")
    return properties if isinstance(properties, dict) else {}


def signature_of(schema: dict[str, Any]) -> str:
    """The arguments of an input schema on one line; optional ones in brackets."""
    required = schema.get("required")
    required = required if isinstance(required, list) else []
    parts = []
    for name, item in properties_of(schema).items():
        text = f"{name}: {type_name(item)}"
        parts.append(text if name in required else f"[{text}]")
    return ", ".join(parts)
