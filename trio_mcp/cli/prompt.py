"""`trio-mcp prompt`."""

from __future__ import annotations

import click

from .. import Client
from .session import no_such, run_client, split_target
from .show import block_text, say, say_json
from .values import parse_pairs

__all__ = ["command"]


@click.command("prompt")
@click.argument("words", metavar="[TARGET] [NAME] [NAME=VALUE]...", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_obj
def command(behind: list[str] | None, words: tuple[str, ...], as_json: bool) -> int:
    """Get a prompt and print its messages; without a NAME, list the prompts."""
    target, rest = split_target(behind, words)
    name = rest[0] if rest else None
    values = parse_pairs(rest[1:])

    async def work(client: Client) -> int:
        prompts = {item.name: item for item in await client.list_prompts()}
        if name is None:
            if as_json:
                say_json([item.raw for item in prompts.values()])
                return 0
            if not prompts:
                say(f"{client.server_info.get('name', 'the server')} has no prompts", err=True)
            for item in prompts.values():
                arguments = ", ".join(arg.name if arg.required else f"[{arg.name}]" for arg in item.arguments)
                say(f"{item.name}({arguments})")
                for line in (item.description or "").splitlines():
                    say(f"    {line}".rstrip())
            return 0
        prompt = prompts.get(name)
        if prompt is None:
            raise no_such("prompt", name, prompts)
        known = [arg.name for arg in prompt.arguments]
        for key in values:
            if not known:
                raise click.UsageError(f"prompt {name!r} takes no arguments, got {key!r}")
            if key not in known:
                raise no_such(f"argument of prompt {name!r}", key, known)
        missing = [arg.name for arg in prompt.arguments if arg.required and arg.name not in values]
        if missing:
            raise click.UsageError(f"prompt {name!r} needs {', '.join(missing)}")
        result = await client.get_prompt(name, values)
        if as_json:
            say_json(result.to_wire())
        else:
            for message in result.messages:
                say(f"{message.role}: {block_text(message.content)}")
        return 0

    return run_client(target, f"prompt {name!r}" if name else "listing", work)
