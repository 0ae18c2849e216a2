"""`trio-mcp tools`."""

from __future__ import annotations

import click

from .. import Client
from .session import run_client, signature_of, split_target, type_name
from .show import say, say_json

__all__ = ["command"]


@click.command("tools")
@click.argument("words", metavar="[TARGET]", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print the definitions as JSON.")
@click.pass_obj
def command(behind: list[str] | None, words: tuple[str, ...], as_json: bool) -> int:
    """List the tools of a server, with their arguments; optional ones stand in brackets."""
    target, rest = split_target(behind, words)
    if rest:
        raise click.UsageError(f"unexpected {' '.join(rest)!r}; tools takes one TARGET")

    async def work(client: Client) -> int:
        tools = await client.list_tools()
        if as_json:
            say_json([tool.raw for tool in tools])
            return 0
        if not tools:
            say(f"{client.server_info.get('name', 'the server')} has no tools", err=True)
        for tool in tools:
            result = f" -> {type_name(tool.output_schema)}" if tool.output_schema else ""
            say(f"{tool.name}({signature_of(tool.input_schema)}){result}")
            for line in (tool.description or "").splitlines():
                say(f"    {line}".rstrip())
        return 0

    return run_client(target, "listing", work)
