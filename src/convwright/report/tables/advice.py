"""Advice as a table for people, in colour."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from convwright.advising.advice import Advice
from convwright.advising.advice_text import (
    COLUMNS,
    LEFT,
    UNKNOWN,
    measured,
    optimized_lines,
    present,
    rows,
    suggestion_lines,
    summary,
    title,
)
from convwright.core.finding import UNSTABLE
from convwright.report.words.conditions import print_conditions

_WINNING = "bold green"
# Styles by the gain of a row. Any other gain has the winner's style.
_STYLES = {UNKNOWN: "", "1.00x": "", UNSTABLE: "yellow"}
_DECISIVE = ("layers", "now µs", "best µs", "gain", "candidate")
_WIDE = 140
_GAIN = COLUMNS.index("gain")


def print_advice(advice: Advice, console: Console) -> None:
    """Print one row for each distinct problem, the summary and the suggestions."""
    console.print(Text(title(advice), style="bold"))
    if advice.layers:
        console.print(_table(advice, console.width))
        print_conditions(measured(advice), console, present(advice))
    for sentence in (*summary(advice), *advice.notes):
        console.print(Text(sentence))
    for number, suggestion in enumerate(advice.suggestions, 1):
        first, *rest = suggestion_lines(number, suggestion)
        console.print(Text(first, style=_WINNING if suggestion.gain_us > 0 else ""))
        for line in rest:
            console.print(Text(line, style="dim"))
    for line in optimized_lines(advice):
        console.print(Text(line, style="dim" if line.startswith(" ") else ""))


def _table(advice: Advice, width: int) -> Table:
    """All columns if they fit, else the most important ones."""
    shown = [name for name in COLUMNS if width >= _WIDE or name in _DECISIVE]
    table = Table(box=None, pad_edge=False)
    for name in shown:
        if name in LEFT:
            table.add_column(name, overflow="fold", min_width=12)
        else:
            table.add_column(name, justify="right", no_wrap=True)
    for row in rows(advice):
        cells = dict(zip(COLUMNS, row, strict=True))
        style = _STYLES.get(row[_GAIN], _WINNING)
        table.add_row(*(Text(cells[name], style=style) for name in shown))
    return table
