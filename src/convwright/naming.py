"""Words that a user writes → members of what they name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from math import inf
from numbers import Integral, Real
from typing import Any, TypeVar

from convwright.errors import BadInput

# More than any size has. Python itself refuses to read very long numbers, in other words.
MOST_DIGITS = 18

_NOUNS = (
    "thread", "distinct problem", "problem", "candidate", "suggestion", "observation", "row", "layer", "step",
    "convolution", "other value", "node", "change", "tensor", "input", "file",
)  # fmt: skip
_ONE = re.compile(rf"(?<![\w.,])1 ({'|'.join(_NOUNS)})s\b")

_Member = TypeVar("_Member", bound=StrEnum)


def one_of(kind: type[_Member], name: str, value: str, *, but: _Member | None = None) -> _Member:
    """The member of ``kind`` that ``value`` names, ``but`` for one; ``name`` is what the user calls the argument."""
    members = [member for member in kind if member is not but]
    if value in members:
        return kind(value)
    raise BadInput(f"{name} must be one of {', '.join(members)}, got {value!r}")


def whole_number(name: str, text: str) -> int:
    """``text`` as an int that is not negative."""
    if not (text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS):
        raise BadInput(f"{name} must be a whole number of at most {MOST_DIGITS} digits, got {text[:40]!r}")
    return int(text)


def between_commas(text: str) -> tuple[str, ...]:
    """Names in a row; a comma within brackets is part of a name.

    >>> between_commas("cudnn/gemm, cudnn/engine-48[k2=2,k13=2],relayout(nhwc, reference/gemm)")
    ('cudnn/gemm', 'cudnn/engine-48[k2=2,k13=2]', 'relayout(nhwc, reference/gemm)')
    """
    names, depth = [""], 0
    for sign in text:
        depth += (sign in "([") - (sign in ")]")
        if sign == "," and not depth:
            names.append("")
        else:
            names[-1] += sign
    return tuple(name.strip() for name in names)


def by(sizes: Iterable[int]) -> str:
    """Sizes as they are written.

    >>> by((7, 7))
    '7x7'
    """
    return "x".join(map(str, sizes))


def singular(text: str) -> str:
    """``text`` with nouns in the singular behind a count of one. A device's key has a plural for any count.

    >>> singular("a CPU, 1 threads · mode quick"), singular("a CPU, 21 threads")
    ('a CPU, 1 thread · mode quick', 'a CPU, 21 threads')
    """
    return _ONE.sub(r"1 \1", text)


def is_whole(value: object) -> bool:
    """True for ints, NumPy's among them. ``True`` is none: it would be taken for a 1 that nobody meant."""
    return not isinstance(value, bool) and isinstance(value, int | Integral)


def is_above_0(given: object) -> bool:
    """True for numbers above 0, and infinity. ``True`` is none, and NaN is above nothing.

    >>> is_above_0(0.5), is_above_0("0.5"), is_above_0(float("nan"))
    (True, False, False)
    """
    number: Any = given  # real numbers can be compared, which their types do not say
    return isinstance(given, Real) and not isinstance(given, bool) and bool(number > 0)


def check_not_below_0(name: str, value: object) -> None:
    """Refuse what is no amount that there may also be none of. ``name`` is the user's word for it.

    >>> check_not_below_0("--older-than", 0)
    """
    number: Any = value
    if isinstance(value, Real) and not isinstance(value, bool) and 0 <= number < inf:
        return
    raise BadInput(f"{name} takes a finite number that is not negative, got {_told(value)}")


def check_above_0(name: str, value: object) -> None:
    """Refuse what is no amount to spend or to aim at: 0 and less, infinity and NaN. ``name`` is the user's word for it.

    >>> check_above_0("--budget", 0.5)
    """
    if not is_above_0(value) or value == inf:
        raise BadInput(f"{name} takes a finite number above 0, got {_told(value)}")


def _told(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else repr(value)


def check_name(name: str, value: object) -> None:
    """Refuse what is no text to show: an empty one, or one with letters that a terminal obeys. ``name`` is the user's
    word for it.

    >>> check_name("`name` of a job", "night run")
    """
    if not (isinstance(value, str) and value):
        raise BadInput(f"{name} must be a text that is not empty, got {value!r}")
    if not value.isprintable():
        raise BadInput(f"{name} must be a text without control characters, got {value!r}")


def printable(text: str, *, lines: bool = False) -> str:
    r"""``text`` with escapes for control characters and all else that a terminal obeys and does not show; ``lines``
    may end in it.

    >>> print(printable("H200\x1b[2J"))
    H200\x1b[2J
    """
    shown = (
        letter if letter.isprintable() or (lines and letter == "\n") else letter.encode("unicode_escape").decode()
        for letter in text
    )
    return "".join(shown)
