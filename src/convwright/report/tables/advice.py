"""Advice as a table for people, in colour."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from convwright.advising.advice import Advice
from convwright.advising.advice_text import (
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
from convwright.report.words.sheet import Sheet

_WINNING = "bold green"
# Styles by the gain of a row. Any other gain has the winner's style.
_STYLES = {UNKNOWN: "", "1.00x": "", UNSTABLE: "yellow"}
_COLUMNS = (
    "layers", "direction", "problem", "calls", "now µs", "limit µs", "best µs", "gain", "saves µs", "candidate",
)  # fmt: skip
# The columns of a narrow table, the most important first: rows are sorted by what they save.
_KEPT = ("layers", "saves µs", "direction", "candidate", "gain", "now µs", "best µs")
_FOLDED = ("layers", "problem", "candidate")


def print_advice(advice: Advice, console: Console) -> None:
    """Print one row for each distinct problem, the summary and the suggestions."""
    console.print(Text(title(advice), style="bold"))
    if advice.layers:
        _sheet(advice).print_to(console)
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


def _sheet(advice: Advice) -> Sheet:
    found = tuple(rows(advice))
    styles = tuple(_STYLES.get(row["gain"], _WINNING) for row in found)
    return Sheet(_COLUMNS, found, _KEPT, _FOLDED, ("direction",), styles)
