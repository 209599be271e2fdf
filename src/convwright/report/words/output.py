"""Where commands print."""

from __future__ import annotations

import sys

from rich.console import Console

_NO_LIMIT = 10_000


def output() -> Console:
    """Standard output: as wide as the terminal, and as wide as need be where it is a pipe or a file."""
    return console() if sys.stdout.isatty() else console(width=_NO_LIMIT)


def console(*, stderr: bool = False, width: int | None = None, soft_wrap: bool = False) -> Console:
    """A console that prints what it is given: in names of users' functions and files neither ``:a:`` is an emoji nor
    ``[b]`` a style, and no number or word of a sentence has a colour of its own."""
    return Console(stderr=stderr, width=width, soft_wrap=soft_wrap, markup=False, emoji=False, highlight=False)
