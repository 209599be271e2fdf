"""Below a table: what other work on the machine has disturbed, with the causes and the cure."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from convwright.core.finding import UNSTABLE
from convwright.report.groups import grouped

_MOST_LINES = 6


def print_unstable(pairs: Iterable[tuple[str, str | None]], console: Console) -> None:
    """One line for each name and why it is unstable; nothing for those that are not."""
    for line in unstable_lines(pairs):
        console.print(Text(line, style="yellow"), soft_wrap=True)


def unstable_lines(pairs: Iterable[tuple[str, str | None]]) -> list[str]:
    """The same as text.

    >>> unstable_lines([("a/b", "unstable: 2 rounds: wait"), ("a/c", None), ("a/d", "unstable: 2 rounds: wait")])
    ['unstable: a/b, a/d: 2 rounds: wait']
    """
    lines = grouped((name, why.removeprefix(f"{UNSTABLE}: ")) for name, why in pairs if why is not None)
    rest = [f"{UNSTABLE}: and {len(lines) - _MOST_LINES} more"] if len(lines) > _MOST_LINES else []
    return [*(f"{UNSTABLE}: {line}" for line in lines[:_MOST_LINES]), *rest]
