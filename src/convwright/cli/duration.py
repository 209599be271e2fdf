"""How long something takes, as a user writes it."""

from __future__ import annotations

import re

from convwright.errors import BadInput

_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_FORM = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")


def seconds_of(option: str, text: str) -> float:
    """``8m`` in seconds; ``option`` is what it was written for.

    >>> seconds_of("--for", "8m"), seconds_of("--for", "90"), seconds_of("--for", "1.5h")
    (480.0, 90.0, 5400.0)
    """
    found = _FORM.fullmatch(text.strip())
    seconds = float(found[1]) * _UNITS_S[found[2]] if found else 0.0
    if seconds <= 0:
        raise BadInput(f"{option} takes a time above 0, such as 90s, 8m or 2h, got {text!r}")
    return seconds
