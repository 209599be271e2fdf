"""Disturbances by other work on the machine: one sentence for all causes that differ only in figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from convwright.core.finding import UNSTABLE
from convwright.wording.unstable_text import FIGURE, merged

_MOST_LINES = 6
_MOST_NAMES = 6


def unstable_lines(pairs: Iterable[tuple[str, str | None]]) -> list[str]:
    """One line for each cause, with the names that it concerns; none if nothing is unstable.

    >>> unstable_lines([("a/b", "unstable: 2 rounds: wait"), ("a/c", None), ("a/d", "unstable: 4 rounds: wait")])
    ['unstable: a/b, a/d: 2 to 4 rounds: wait']
    """
    causes: dict[str, list[tuple[str, str]]] = {}
    for name, why in pairs:
        if why is not None:
            said = why.removeprefix(f"{UNSTABLE}: ")
            causes.setdefault(FIGURE.sub("0", said), []).append((name, said))
    lines = [f"{_some([name for name, _ in each])}: {merged([said for _, said in each])}" for each in causes.values()]
    rest = [f"{UNSTABLE}: and {len(lines) - _MOST_LINES} more"] if len(lines) > _MOST_LINES else []
    return [*(f"{UNSTABLE}: {line}" for line in lines[:_MOST_LINES]), *rest]


def _some(names: Sequence[str]) -> str:
    shown, rest = names[:_MOST_NAMES], len(names) - _MOST_NAMES
    return ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")
