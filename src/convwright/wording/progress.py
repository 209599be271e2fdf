"""How far a long piece of work has come."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TextIO

from convwright.errors import BadInput

# Called before each step: how many steps are done, how many there are, and what comes now ("" at the end).
Progress = Callable[[int, int, str], None]

_WIDTH = 110
# The steps of a search, as it names them.
_STEPS = {
    "compiling": "compiling kernels",
    "first looks": "timing each candidate once",
    "turning knobs": "trying other configurations",
    "heat": "warming up",
    "check": "checking errors",
    "final": "timing the best side by side",
    "energy": "measuring energy",
}


def doing(step: str) -> str:
    """A step of a search in words.

    >>> doing("check"), doing("something new")
    ('checking errors', 'something new')
    """
    return _STEPS.get(step, step)


def progress_to(wanted: bool | Progress | None) -> Progress:
    """What to tell of progress: nothing, a line on stderr (True), or whatever the caller gives."""
    if wanted is None or wanted is False:
        return lambda done, total, what: None
    if wanted is True:
        return lambda done, total, what: write_line(sys.stderr, done, total, what)
    if not callable(wanted):
        raise BadInput(f"`progress` must be True, False or a function of (done, total, what), got {wanted!r}")
    return wanted


def write_line(stream: TextIO, done: int, total: int, what: str) -> None:
    """One line that is written over by the next, and wiped out at the end."""
    line = f"{done}/{total} {what}"[:_WIDTH] if done < total else ""
    stream.write(f"\r{line:<{_WIDTH}}\r" if not line else f"\r{line:<{_WIDTH}}")
    stream.flush()
