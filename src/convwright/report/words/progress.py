"""A progress bar on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from convwright.report.words.output import console


class TimeLeftColumn(ProgressColumn):
    """The estimated time left; empty before the first step is done."""

    def render(self, task: Task) -> Text:
        return Text(time_left(task.completed, task.total, task.elapsed))


class WhatColumn(ProgressColumn):
    """What is done now, cut to what the other columns leave of one line."""

    def render(self, task: Task) -> Text:
        return Text(task.description, no_wrap=True, overflow="ellipsis")


def time_left(done: float, total: float | None, elapsed_s: float | None) -> str:
    """The estimated time left as text, if each remaining step takes as long as the mean step so far.

    >>> time_left(2, 10, 30.0), time_left(0, 10, 30.0), time_left(9, 10, 45.0)
    ('about 2 min left', '', 'about 5 s left')
    """
    if not done or total is None or elapsed_s is None or done >= total:
        return ""
    left_s = elapsed_s * (total - done) / done
    for unit, length in (("h", 3_600), ("min", 60)):
        if left_s >= 2 * length:
            return f"about {left_s / length:.0f} {unit} left"
    return f"about {max(left_s, 1):.0f} s left"


@contextmanager
def progress_bar(first: str = "") -> Iterator[Callable[[int, int, str], None]]:
    """A bar on stderr, which is erased at the end. Nothing is printed if stderr is not a terminal.

    ``first`` is the text until the first report. A report with a total of 0 means that the total is not known yet.
    """
    whole = Column(no_wrap=True)
    times = (TimeElapsedColumn(table_column=whole), TimeLeftColumn(table_column=whole))
    columns = (BarColumn(bar_width=16), MofNCompleteColumn(table_column=whole), *times, WhatColumn())
    screen = console(stderr=True)
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task(first, total=None)

        def tell(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total or None, description=what)

        yield tell
