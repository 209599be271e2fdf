"""A table of text, for a terminal of any width or as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.table import Table
from rich.text import Text

from convwright.report.words.columns import Row, broken, filled, fitting, folded_widths


@dataclass(frozen=True, slots=True)
class Sheet:
    """Rows of cells, by the names of their ``columns``.

    ``kept`` are the columns of a narrow table, the most important first; the column that the rows are sorted by is
    among the first. Cells of ``folded`` columns may be broken over lines. ``folded`` and ``left`` columns are aligned
    to the left, the others to the right. ``styles`` has the style of each row.
    """

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    kept: tuple[str, ...]
    folded: tuple[str, ...]
    left: tuple[str, ...] = ()
    styles: tuple[str, ...] = ()

    def table(self, width: int) -> Table:
        """The columns that fit, without empty ones."""
        shown = fitting(self.rows, self.columns, kept=self.kept, folded=self.folded, width=width)
        folded = folded_widths(self.rows, shown, self.folded, width)
        table = Table(box=None, pad_edge=False)
        for name in shown:
            if name in folded:
                table.add_column(name, overflow="fold", min_width=folded[name])
            else:
                table.add_column(name, justify="left" if name in self.left else "right", no_wrap=True)
        for row, style in zip(self.rows, self.styles or [""] * len(self.rows), strict=True):
            cells = [broken(row[name], folded[name]) if name in folded else row[name] for name in shown]
            table.add_row(*(Text(cell, style=style) for cell in cells))
        return table

    def print_to(self, console: Console, top: int | None = None) -> None:
        """Print the table, as wide as the console. With ``top``, print the first ``top`` rows and the number of rows
        that are left out."""
        console.print(self.first(top).table(console.width))
        if top is not None and len(self.rows) > top:
            console.print(Text(f"and {len(self.rows) - top} more, which --top hides", style="dim"))

    def markdown(self) -> str:
        """A Markdown table of all columns that are not empty.

        >>> print(Sheet(("a", "b"), ({"a": "x|y", "b": "1"},), ("a",), ("a",)).markdown())
        | a | b |
        |---|---:|
        | x\\|y | 1 |
        """
        shown = filled(self.rows, self.columns, self.kept[:1])
        rules = ["---" if name in (*self.folded, *self.left) else "---:" for name in shown]
        rows = [_line([_cell(row[name]) for name in shown]) for row in self.rows]
        return "\n".join((_line(shown), f"|{'|'.join(rules)}|", *rows))

    def first(self, count: int | None) -> Sheet:
        """The same table with the first ``count`` rows only."""
        return replace(self, rows=self.rows[:count], styles=self.styles[:count])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
