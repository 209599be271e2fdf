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
def stoppable(said: str, *, kept: str = "") -> Iterator[None]:
    """Around what Ctrl-C may end; ``kept`` is said where findings are kept in a file."""
    try:
        yield
    except KeyboardInterrupt:
        raise stopped(said + kept_or_not(kept)) from None


def kept_or_not(kept: str) -> str:
    """Behind a semicolon ``kept``, or else why findings are not; nothing where there can be none yet."""
    sessions = sys.modules.get("convwright.tuning.session")
    return f"; {sessions.session().store.unkept or kept}" if sessions is not None and kept else ""
