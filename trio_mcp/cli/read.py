"""`trio-mcp read`."""

from __future__ import annotations

import click

from .. import Client, ResourceNotFound
from .session import NoSuch, listed, run_client, split_target
from .show import say, say_json, show_contents

__all__ = ["command"]


@click.command("read")
@click.argument("words", metavar="[TARGET] [URI]", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_obj
def command(behind: list[str] | None, words: tuple[str, ...], as_json: bool) -> int:
    """Read a resource and print it; without a URI, list the resources and templates."""
    target, rest = split_target(behind, words)
    if len(rest) > 1:
        raise click.UsageError(f"unexpected {' '.join(rest[1:])!r}; read takes one URI")
    uri = rest[0] if rest else None

    async def work(client: Client) -> int:
        if uri is None:
            return await _list(client, as_json)
        try:
            result = await client.read_resource(uri)
        except ResourceNotFound as exc:
            there = [item.uri for item in await client.list_resources()]
            there += [item.uri_template for item in await client.list_resource_templates()]
            known = f". There is: {listed(there)}" if there else ": the server has no resources"
            raise NoSuch(f"{exc.message}{known}") from None
        if as_json:
            say_json(result.to_wire())
        else:
            show_contents(result.contents)
        return 0

    return run_client(target, f"reading {uri}" if uri else "listing", work)


async def _list(client: Client, as_json: bool) -> int:
    resources, templates = await client.list_resources(), await client.list_resource_templates()
    if as_json:
        say_json({"resources": [item.raw for item in resources], "resourceTemplates": [item.raw for item in templates]})
        return 0
    if not resources and not templates:
        say(f"{client.server_info.get('name', 'the server')} has no resources", err=True)
    for uri, description in [
        *((item.uri, item.description) for item in resources),
        *((item.uri_template, item.description) for item in templates),
    ]:
        say(uri)
        for line in (description or "").splitlines():
            say(f"    {line}".rstrip())
    return 0
