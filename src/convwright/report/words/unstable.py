"""Below a table: one sentence about the times that other work on the machine has disturbed, with the cure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text

from convwright.core.finding import UNSTABLE

_FIGURE = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_OTHERS = "other work "


def print_unstable(reasons: Iterable[str | None], console: Console, *, noun: str = "time", mark: str = "") -> None:
    """The sentence, where any of the reasons is one, after the ``mark`` that such times have in the table."""
    if (said := unstable_sentence(list(reasons), noun=noun)) is not None:
        console.print(Text(f"{mark} {said}" if mark else said, style="yellow"), soft_wrap=True)


def unstable_sentence(reasons: Sequence[str | None], *, noun: str = "time") -> str | None:
    """How many of the rows are unstable, why, and what to do. ``reasons`` has None for each row that is stable.

    >>> why = "unstable: 2 rounds were timed, other work had the cores for {}% of the time: stop other work"
    >>> print(unstable_sentence([why.format(37), None, why.format(66)]))
    2 of 3 times are unstable and not kept, since other work had the cores for 37 to 66% of the time: stop other work.
    >>> print(unstable_sentence([why.format(37)]))
    The machine is too busy to measure: other work had the cores for 37% of the time: stop other work.
    """
    known = [_parts(reason) for reason in reasons if reason is not None]
    if not known:
        return None
    ((template, _),) = Counter(_FIGURE.sub("0", cause) for cause, _ in known).most_common(1)
    alike = [cause for cause, _ in known if _FIGURE.sub("0", cause) == template]
    cause, cure = _merged(alike), known[0][1]
    cure = f": {cure}." if cure else "."
    others = cause.startswith(_OTHERS)
    if others and len(known) == len(reasons):
        return f"The machine is too busy to measure: {cause}{cure}"
    are = f"{noun} is" if len(reasons) == 1 else f"{noun}s {'is' if len(known) == 1 else 'are'}"
    why = f", since {cause}" if others else f" ({cause})"
    return f"{len(known)} of {len(reasons)} {are} unstable and not kept{why}{cure}"


def _parts(reason: str) -> tuple[str, str]:
    """The cause, which is other work where that is known, and the cure."""
    said = reason.removeprefix(f"{UNSTABLE}: ")
    what, found, cure = said.rpartition(": ")
    if not found:
        return said, ""
    _, others, rest = what.partition(f", {_OTHERS}")
    return (f"{_OTHERS}{rest}" if others else what), cure


def _merged(said: Sequence[str]) -> str:
    """Sentences that differ in their figures alone as one, with the least and the greatest of each figure."""
    columns = iter(list(zip(*(_FIGURE.findall(each) for each in said), strict=True)))

    def span(_: re.Match[str]) -> str:
        figures = sorted(next(columns), key=float)
        return " to ".join(dict.fromkeys((figures[0], figures[-1])))

    return _FIGURE.sub(span, said[0])
