"""One sentence about times that other work on the machine has disturbed, with what to do."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from convwright.core.finding import UNSTABLE

FIGURE = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_OTHERS = "other work "
_BY_OTHERS = re.compile(rf"{_OTHERS}(?:had|took) the cores[^:;]*")
_RATIOS = "; comparisons rest on ratios of rounds side by side."
_TOLERATE = " tolerate_load=True (--tolerate-load) compares all the same, by ratios of rounds side by side."


def unstable_sentence(reasons: Sequence[str | None], *, noun: str = "time", tolerated: bool = False) -> str | None:
    """How many of the rows are unstable, why, and what to do. ``reasons`` has None for each row that is stable. Where
    the load is ``tolerated``, what decides instead.

    >>> why = "unstable: 2 rounds were timed, other work had the cores for {}% of the time: stop other work"
    >>> print(unstable_sentence([why.format(37), None, why.format(66)]))  # doctest: +ELLIPSIS
    2 of 3 times are unstable and not kept, since other work had the cores for 37 to 66% of the time: stop other work...
    >>> print(unstable_sentence([why.format(37)]))  # doctest: +ELLIPSIS
    The machine is too busy to measure: other work had the cores for 37% of the time: stop other work. tolerate_load...
    >>> print(unstable_sentence([why.format(37)], tolerated=True))  # doctest: +ELLIPSIS
    The machine is too busy to measure times, since other work had the cores for 37% of the time; comparisons rest on...
    """
    known = [_parts(reason) for reason in reasons if reason is not None]
    if not known:
        return None
    ((template, _),) = Counter(FIGURE.sub("0", cause) for cause, _ in known).most_common(1)
    alike = [cause for cause, _ in known if FIGURE.sub("0", cause) == template]
    cause, cure = merged(alike), known[0][1]
    others = cause.startswith(_OTHERS)
    end = _RATIOS if tolerated else f"{f': {cure}' if cure else ''}.{_TOLERATE if others else ''}"
    if others and len(known) == len(reasons):
        return f"The machine is too busy to measure{' times, since' if tolerated else ':'} {cause}{end}"
    are = f"{noun} is" if len(reasons) == 1 else f"{noun}s {'is' if len(known) == 1 else 'are'}"
    why = f", since {cause}" if others else f" ({cause})"
    kept = "" if tolerated else " and not kept"
    return f"{len(known)} of {len(reasons)} {are} unstable{kept}{why}{end}"


def _parts(reason: str) -> tuple[str, str]:
    """The cause, which is other work where that is known, and the cure."""
    said = reason.removeprefix(f"{UNSTABLE}: ")
    what, found, cure = said.rpartition(": ")
    if not found:
        return said, ""
    by_others = _BY_OTHERS.search(said)
    return (by_others[0] if by_others else what), cure


def merged(said: Sequence[str]) -> str:
    """Sentences that differ in their figures alone as one, with the least and the greatest of each figure."""
    columns = iter(list(zip(*(FIGURE.findall(each) for each in said), strict=True)))

    def span(_: re.Match[str]) -> str:
        figures = sorted(next(columns), key=float)
        return " to ".join(dict.fromkeys((figures[0], figures[-1])))

    return FIGURE.sub(span, said[0])
