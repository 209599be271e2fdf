"""The lines below a table: the conditions of its times."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from convwright.measuring.conditions import Conditions
from convwright.wording.conditions_text import Measured, conditions_lines


def print_conditions(
    measured: Sequence[Measured], console: Console, present: Conditions = (), *, device: bool = False
) -> None:
    """Print the lines of ``conditions_lines``, as wide as the console."""
    for line in conditions_lines(measured, present, device=device, width=console.width):
        console.print(Text(line, style="dim"))
