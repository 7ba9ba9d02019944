"""The command ``farcall``, also as ``python -m farcall``. Without click, it says what to install."""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line."""
    try:
        from farcall.cli import main as run
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        sys.exit("error: the command farcall needs the package click; run: pip install click")
    run()


if __name__ == "__main__":
    main()
