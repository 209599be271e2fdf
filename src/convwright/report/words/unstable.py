"""The sentence below a table about times that other work on the machine disturbed, with a remedy."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from convwright.wording.unstable_text import unstable_sentence


def print_unstable(
    reasons: Iterable[str | None], console: Console, *, noun: str = "time", mark: str = "", tolerated: bool = False
) -> None:
    """Print the sentence if any time is unstable. It begins with the ``mark`` that such times have in the table."""
    if (said := unstable_sentence(list(reasons), noun=noun, tolerated=tolerated)) is not None:
        console.print(Text(f"{mark} {said}" if mark else said, style="yellow"))
