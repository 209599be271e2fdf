"""Where commands print."""

from __future__ import annotations

import sys

from rich.console import Console

_NO_LIMIT = 10_000


def output() -> Console:
    """Standard output: as wide as the terminal, and as wide as need be where it is a pipe or a file."""
    return Console() if sys.stdout.isatty() else Console(width=_NO_LIMIT)
