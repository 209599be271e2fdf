"""What is printed where the output's encoding has no such letter, as in the C locale of old systems."""

from __future__ import annotations

import codecs
import sys
from io import TextIOWrapper

_NEAREST = {
    "µ": "u", "…": "...", "·": ".", "±": "+-", "→": "->", "–": "-", "−": "-", "×": "x", "≤": "<=", "∗": "*", "²": "2",
}  # fmt: skip


def print_with_what_there_is() -> None:
    """Let both outputs print the nearest that their encoding has, where it has not all letters."""
    codecs.register_error("nearest", _nearest)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and not codecs.lookup(stream.encoding).name.startswith("utf"):
            stream.reconfigure(errors="nearest")


def _nearest(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    letters = error.object[error.start : error.end]
    return "".join(_NEAREST.get(letter, "?") for letter in letters), error.end
