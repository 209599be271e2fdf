"""Options of commands that print a table: in which form, and which rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from convwright.errors import BadInput
from convwright.naming import is_above_0

if TYPE_CHECKING:
    from convwright.report.words.sheet import Sheet

AsCsv = Annotated[bool, typer.Option("--csv", help="Print the rows as comma-separated values.")]
AsMarkdown = Annotated[bool, typer.Option("--markdown", help="Print the rows as a table in Markdown.")]
Top = Annotated[int | None, typer.Option(metavar="N", help="Print the first N rows only.", show_default="all")]
Layer = Annotated[
    str | None,
    typer.Option(metavar="PATTERN", help="Only layers whose names match this: 'd1.*', 'stages.?.conv1'."),
]

TolerateLoad = Annotated[
    bool,
    typer.Option(
        "--tolerate-load",
        help="Decide on a busy machine too, by ratios of times side by side. Unstable times are not kept.",
    ),
]

# Rows of a table are more than any terminal has columns.
_ALL_COLUMNS = 10_000


def check_form(*, as_json: bool, as_csv: bool, as_markdown: bool, top: int | None = None) -> None:
    """Refuse two forms at once, and a number of rows that is none."""
    given = {"--json": as_json, "--csv": as_csv, "--markdown": as_markdown}
    names = [name for name, wanted in given.items() if wanted]
    if len(names) > 1:
        raise BadInput(f"a command prints one form, got {' and '.join(names)}")
    if top is not None and not is_above_0(top):
        raise BadInput(f"--top takes a whole number above 0, got {top}")


def print_rows(
    sheet: Callable[[int], Sheet], data: Callable[[], Sequence[Mapping[str, Any]]], *, as_csv: bool, top: int | None
) -> None:
    """The rows as comma-separated values or else as Markdown; ``sheet`` is the table at a width."""
    from convwright.report.words.csv_text import csv_text

    print(csv_text(data()[:top]) if as_csv else sheet(_ALL_COLUMNS).first(top).markdown())
