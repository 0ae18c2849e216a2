"""`python -m trio_mcp`: the same as `trio-mcp`."""

from .cli import main

main()
