"""The command `trio-mcp`: one module a command, over public names only.

Exit status: 0 done; 1 the tool answered with an error; 2 the command line is wrong, or names what does not exist; 3 the
server cannot be started or reached, or answered with a protocol error; 130 interrupted.
"""

from __future__ import annotations

import importlib
import io
import sys
from typing import Any, Final

import click

from .. import MCPError
from .show import say

__all__ = ["main"]

EXIT_TOOL_ERROR: Final = 1
EXIT_USAGE: Final = 2
EXIT_SERVER: Final = 3
EXIT_INTERRUPTED: Final = 130

_COMMANDS: Final = {
    "serve": "Serve a server from a Python file.",
    "tools": "List the tools of a server.",
    "call": "Call a tool.",
    "tasks": "Look after calls that became tasks.",
    "read": "Read a resource, or list the resources.",
    "prompt": "Get a prompt, or list the prompts.",
}


class _Commands(click.Group):
    """Loads only the command that is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command = importlib.import_module(f".{cmd_name}", __name__).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(f"no command {args[0]!r}; there is: {', '.join(_COMMANDS)}", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="trio-mcp", prog_name="trio-mcp")
def _group() -> None:
    """The Model Context Protocol for trio: serve, and call, MCP servers.

    TARGET is a URL (http://HOST:PORT/mcp, or unix:PATH), or a Python file with a server in it (FILE.py or FILE.py:NAME).
    To run any other server, leave TARGET out and put its command behind `--`:

      trio-mcp call add a=1 b=2 -- node server.js

    Exit status: 0 done; 1 the tool answered with an error; 2 wrong usage or an unknown name; 3 the server cannot be
    started or reached, or answered with a protocol error; 130 interrupted.
    """


def main(argv: list[str] | None = None) -> None:
    """Run the command line; exits the process.

    Args:
        argv: The arguments; otherwise those of the process.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    command: list[str] | None = None
    if "--" in args:
        # Everything behind the first `--` is the command of a server, options of its own included.
        split = args.index("--")
        args, command = args[:split], args[split + 1 :]
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal does not have is no reason to end.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(_run(args, command))


def _run(args: list[str], command: list[str] | None) -> int:
    try:
        status: Any = _group.main(args, prog_name="trio-mcp", standalone_mode=False, obj=command)
    except click.ClickException as exc:
        # The names that a server has are in it.
        text = io.StringIO()
        exc.show(text)
        say(text.getvalue().removesuffix("\n"), err=True)
        return EXIT_USAGE
    except (click.Abort, KeyboardInterrupt):
        click.echo("trio-mcp: interrupted", err=True)
        return EXIT_INTERRUPTED
    except click.exceptions.Exit as exc:
        return exc.exit_code
    except MCPError as exc:
        say(f"trio-mcp: {exc}", err=True)
        return EXIT_SERVER
    except ValueError as exc:
        # Whoever typed a command has called no function.
        say(f"Error: {str(exc).removeprefix('open_client: ')}", err=True)
        return EXIT_USAGE
    except SystemExit:
        # Whoever read our output has enough (`trio-mcp tools … | head`): click ends the process then.
        return 0
    except OSError as exc:
        say(f"trio-mcp: {exc.strerror or exc}", err=True)
        return EXIT_SERVER
    return status if isinstance(status, int) else 0
