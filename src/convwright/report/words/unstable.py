"""Below a table: what other work on the machine has disturbed, with the causes and the cure."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from convwright.advising.disturbed import unstable_lines


def print_unstable(pairs: Iterable[tuple[str, str | None]], console: Console) -> None:
    """One line for each cause and the names that it is true of; nothing for those that are not unstable."""
    for line in unstable_lines(pairs):
        console.print(Text(line, style="yellow"), soft_wrap=True)
