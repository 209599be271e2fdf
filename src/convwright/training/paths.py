"""Layers that a user names by their paths, or by patterns of them."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from convwright.errors import BadInput

_MOST_NAMES = 8


def fitting(pattern: str, layers: Sequence[str], *, argument: str) -> list[str]:
    """Those of ``layers`` that ``pattern`` names, at least one; ``argument`` is where the user has written it.

    >>> fitting("body.*", ["stem", "body.0", "body.2"], argument="keep")
    ['body.0', 'body.2']
    """
    found = [name for name in layers if fnmatchcase(name, pattern)]
    if not found:
        if list(layers) == [""]:
            raise BadInput(f"`{argument}` names {pattern!r}, and the model is a convolution itself, whose path is ''")
        known = ", ".join(map(repr, layers[:_MOST_NAMES])) + (", …" if len(layers) > _MOST_NAMES else "")
        raise BadInput(f"`{argument}` names {pattern!r}, the model's convolutions are {known or 'none'}")
    return found
