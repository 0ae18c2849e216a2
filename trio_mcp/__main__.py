"""`python -m trio_mcp`, and the start of the command `trio-mcp`.

Nothing is imported before an interrupt is taken care of: loading the rest takes a tenth of a second.
"""

import os
import sys


def main() -> None:
    """Run the command line; an interrupt while it is being loaded ends it quietly."""
    try:
        __import__("trio_mcp.cli")
        sys.modules["trio_mcp.cli"].main()
    except KeyboardInterrupt:
        os._exit(130)


if __name__ == "__main__":
    main()
