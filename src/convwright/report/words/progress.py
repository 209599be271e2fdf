"""A progress bar on the terminal, for work that tells how far it has come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from convwright.report.words.output import console


@contextmanager
def progress_bar(first: str = "") -> Iterator[Callable[[int, int, str], None]]:
    """A bar on stderr, which is wiped out at the end; where stderr is no terminal, nothing.

    ``first`` is what is being done before anything is told. Of 0 steps nobody knows yet how many there will be.
    """
    what_column = TextColumn("{task.description}", markup=False)
    columns = (BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn(), what_column)
    screen = console(stderr=True)
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task(first, total=None)

        def tell(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total or None, description=what)

        yield tell
