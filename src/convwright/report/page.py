"""The commands' output as HTML for notebooks, and as text."""

from __future__ import annotations

from html import escape
from io import StringIO
from typing import Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from convwright.report.show import Shown, print_shown
from convwright.report.words.output import plain_console

# No column has to make room for another: a page can be scrolled.
_WIDTH = 10_000
_COLOURS = {"green": "#1a7f37", "yellow": "#9a6700", "red": "#cf222e"}


def html_of(found: Shown) -> str:
    """The rows and sentences that the command of the same name prints."""
    page = _Page()
    print_shown(found, page)
    return page.html


def text_of(found: Shown) -> str:
    """The same without colours, as wide as the terminal."""
    said = StringIO()
    print_shown(found, plain_console(said))
    return "\n".join(map(str.rstrip, said.getvalue().splitlines()))


class _Page(Console):
    """Collects what is printed. Nothing of it is markup: all text is escaped."""

    def __init__(self) -> None:
        super().__init__(file=StringIO(), width=_WIDTH, markup=False, emoji=False, highlight=False)
        self._parts: list[str] = []

    @property
    def html(self) -> str:
        return f"<div>{''.join(self._parts)}</div>"

    def print(self, *objects: Any, **options: Any) -> None:
        self._parts += [_table(each) if isinstance(each, Table) else f"<div>{_text(each)}</div>" for each in objects]


def _table(table: Table) -> str:
    head = "".join(_cell("th", each.header, each) for each in table.columns)
    columns = [[_cell("td", cell, each) for cell in each.cells] for each in table.columns]
    rows = "".join(f"<tr>{''.join(cells)}</tr>" for cells in zip(*columns, strict=True))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _cell(tag: str, content: object, column: Column) -> str:
    side = "right" if column.justify == "right" else "left"
    return f'<{tag} style="text-align: {side}">{_text(content)}</{tag}>'


def _text(given: object) -> str:
    """Text in its style."""
    text = given if isinstance(given, Text) else Text(str(given))
    words = str(text.style).split()
    styles = ["font-weight: bold"] * ("bold" in words) + ["opacity: 0.7"] * ("dim" in words)
    styles += [f"color: {_COLOURS[word]}" for word in words if word in _COLOURS]
    return f'<span style="{"; ".join(styles)}">{escape(text.plain)}</span>' if styles else escape(text.plain)
