"""Where commands print."""

from __future__ import annotations

import sys
from typing import TextIO

from rich.console import Console

_NO_LIMIT = 10_000


def output() -> Console:
    """Standard output, as wide as the terminal. A pipe or a file has no limit."""
    return console() if sys.stdout.isatty() else console(width=_NO_LIMIT)


def plain_console(file: TextIO) -> Console:
    """A console that writes to ``file`` without colours, as wide as standard output."""
    width = output().width
    return Console(file=file, width=width, color_system=None, markup=False, emoji=False, highlight=False)


def console(*, stderr: bool = False, width: int | None = None, soft_wrap: bool = False) -> Console:
    """A console that prints text unchanged. In names of users' functions and files, ``:a:`` is not an emoji and ``[b]``
    is not a style. Numbers are not coloured."""
    return Console(stderr=stderr, width=width, soft_wrap=soft_wrap, markup=False, emoji=False, highlight=False)
