"""What this process has open."""

from __future__ import annotations

import os
from contextlib import suppress

FILES = "/proc/self/fd"


def opened() -> set[tuple[str, str]]:
    """Each open file's number and what it is. Compare sets: what other tests left open may be closed meanwhile."""
    files = set()
    for number in os.listdir(FILES):
        with suppress(FileNotFoundError):  # the listing itself, by now closed
            files.add((number, os.readlink(f"{FILES}/{number}")))
    return files
