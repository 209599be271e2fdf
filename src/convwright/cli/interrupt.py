"""Commands that Ctrl-C stops say in one line how far they came."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

_INTERRUPTED = 130  # what a shell reports of a program that Ctrl-C ended


def stopped(said: str) -> typer.Exit:
    """The end of a command that was stopped; to be raised."""
    print(f"convwright: stopped {said}", file=sys.stderr)
    return typer.Exit(_INTERRUPTED)


@contextmanager
def stoppable(said: str) -> Iterator[None]:
    """Around what Ctrl-C may end."""
    try:
        yield
    except KeyboardInterrupt:
        raise stopped(said) from None
