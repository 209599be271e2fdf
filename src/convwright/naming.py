"""Words that a user writes → members of what they name."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

from convwright.errors import BadInput

# More than any size has. Python itself refuses to read very long numbers, in other words.
MOST_DIGITS = 18

_Member = TypeVar("_Member", bound=StrEnum)


def one_of(kind: type[_Member], name: str, value: str) -> _Member:
    """The member of ``kind`` that ``value`` names; ``name`` is what the user calls the argument."""
    try:
        return kind(value)
    except ValueError:
        raise BadInput(f"{name} must be one of {', '.join(kind)}, got {value!r}") from None


def whole_number(name: str, text: str) -> int:
    """``text`` as an int that is not negative."""
    if not (text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS):
        raise BadInput(f"{name} must be a whole number of at most {MOST_DIGITS} digits, got {text[:40]!r}")
    return int(text)
